"""An index of packages: which versions of a package are there? A program asks by httpx, unchanged but for one line.

Run it: `python examples/packages.py`. The site is on this machine, in the shape of `/simple/NAME/`.
"""

import json
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np
from local_site import local_site

import onoff
import onoff.adapters
import onoff.httpx

PACKAGES = ["web", "forms", "mail", "login", "maps", "charts", "tables", "audio", "video", "images", "crypto", "vault"]


def page(path, now):
    """The versions of a package."""
    name = path.strip("/").rpartition("/")[2]
    versions = [f"{major}.{minor}" for major in range(1 + zlib.crc32(name.encode()) % 9) for minor in range(20)]
    files = [{"filename": f"{name}-{version}.tar.gz", "hashes": {"sha256": "0" * 64}} for version in versions]
    return "application/json", json.dumps({"name": name, "versions": versions, "files": files}).encode()


def listed(url, packages):
    """Every package that may be wanted."""
    return "\n".join(f"{name} {url}/simple/{name}/" for name in packages)


def habits(packages):
    """Who looks at one package looks next at one that it needs, the two after it in the list, or at a popular one."""
    same, popular = np.eye(len(packages)), 1 / np.arange(1, len(packages) + 1)
    needs = (np.roll(same, 1, axis=1) + np.roll(same, 2, axis=1)) / 2
    return onoff.MarkovChain(0.3 * needs + 0.7 * popular / popular.sum(), names=packages)


def main():
    with local_site(page) as (url, log), TemporaryDirectory() as folder:
        path = Path(folder) / "packages.txt"
        path.write_text(listed(url, PACKAGES))
        with (
            onoff.Client(onoff.Web.load(path), habits(PACKAGES), journal=Path(folder) / "journal") as client,
            httpx.Client(mounts={url: onoff.httpx.Transport(client)}) as web,
        ):
            latest = web.get(f"{url}/simple/vault/").json()["versions"][-1]
            print(f"ON   vault {latest}: the index was asked for {len(log)} packages")
            log.clear()
            with onoff.adapters.openly():
                response = web.get(f"{url}/simple/charts/")
            asked = ", ".join(access.path for access in log)
            print(f"OFF  charts {response.json()['versions'][-1]}: the index was asked for {asked}")


if __name__ == "__main__":
    main()
