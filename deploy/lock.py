"""Write deploy/requirements.txt: what the image installs, with the hash of every file that pip may take.

    python deploy/lock.py

Versions are those of constraints.txt, files those of Linux on x86-64 and ARM.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
WANTED = [f"{ROOT}[valkey]", "hatchling"]
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
BASES = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014")


def resolved(*words: str) -> dict[str, str]:
    """The hashes of the files that pip would install, by name and version."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run([*PIP, "--ignore-installed", "--report", str(report), *words], check=True)
        installed = json.loads(report.read_text())["install"]
    named = {f"{one['metadata']['name'].lower()}=={one['metadata']['version']}": one for one in installed}
    return {
        name: one["download_info"]["archive_info"]["hashes"]["sha256"]
        for name, one in named.items()
        if not name.startswith("onoff-privacy==")
    }


def main() -> None:
    names = sorted(resolved("--constraint", str(ROOT / "constraints.txt"), *WANTED))
    found: dict[str, set[str]] = {name: set() for name in names}
    for machine in ("x86_64", "aarch64"):
        platforms = [f"--platform={base}_{machine}" for base in BASES]
        target = [
            "--python-version=3.11",
            "--implementation=cp",
            "--only-binary=:all:",
            "--target=nowhere",
            "--no-deps",
        ]
        for name, digest in resolved(*platforms, *target, *names).items():
            found[name].add(digest)
    lines = ["# Made by deploy/lock.py: what the image installs, with the hashes of its files."]
    lines += [" \\\n    ".join([name, *(f"--hash=sha256:{d}" for d in sorted(found[name]))]) for name in names]
    (ROOT / "deploy" / "requirements.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
