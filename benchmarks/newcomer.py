"""A newcomer's way: an empty virtual environment, the wheel, and the first private reading of a site, each timed.

    python benchmarks/newcomer.py [--json]

The wheel is built first, which is not the newcomer's. Then come `python -m venv`, `pip install` of the wheel with all
that it needs, from the index that pip uses here, and two readings of a site on this machine by the command line: the
first one privately. The site of four stops and the list are those of docs/howto/web.md. How long an index takes to send
its packages depends on the line; so seconds of processors are shown as well.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))  # programs, and no package
STOPS = ("Central", "Harbour", "Museum", "Park")


def page(path: str, now: float) -> tuple[str, bytes]:
    """What leaves from a stop."""
    return "text/plain", f"tram 4 from {path.strip('/')} in {int(now) // 60 % 7} min\n".encode()


def timed(command: list[str], **options: Any) -> tuple[dict[str, float], str]:
    """What a program took, and what it printed."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": time.perf_counter() - started, "processor": used}, done.stdout


def run() -> dict[str, Any]:
    """What each step took, and whether the reading was private and right."""
    local_site = import_module("local_site").local_site
    steps: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="onoff-newcomer-") as folder, local_site(page) as (url, log):
        at = Path(folder)
        build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        (wheel,) = at.glob("*.whl")
        own = {name: value for name, value in os.environ.items() if not name.startswith(("ONOFF_", "PYTHON"))}
        own["XDG_STATE_HOME"] = folder
        tables = "".join(f'{name}.id = "{name}"\n' for name in STOPS)
        (at / "city.toml").write_text(f'[upstream]\nurl = "{url}/{{id}}"\n[sources]\n{tables}')
        program = at / "venv" / "bin"
        steps["venv"], _ = timed([sys.executable, "-m", "venv", str(at / "venv")], env=own)
        install = [str(program / "pip"), "install", "--quiet", "--disable-pip-version-check", str(wheel)]
        steps["install"], _ = timed(install, env=own)
        get = [str(program / "onoff"), "get", "Museum", "--upstream", "city.toml"]
        steps["first private reading"], first = timed([*get, "--private"], cwd=folder, env=own)
        asked = [access.path for access in log]
        steps["another"], second = timed([*get, "--private"], cwd=folder, env=own)
    good = first.startswith("tram 4 from Museum") and second.startswith("tram 4 from Museum")
    total = sum(step["seconds"] for name, step in steps.items() if name != "another")
    ok = good and asked == [f"/{name}" for name in STOPS]
    return {"benchmark": "newcomer", "steps": steps, "seconds": total, "asked": asked, "ok": ok}


def show(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [
        f"  {name:24} {step['seconds']:7.1f} s   processor {step['processor']:6.1f} s"
        for name, step in report["steps"].items()
    ]
    lines.append(f"  to the first private reading {report['seconds']:.1f} s; the site was asked for {report['asked']}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report = run()
    print(json.dumps(report) if options.json else show(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
