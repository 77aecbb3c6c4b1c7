"""Run every benchmark: text on stderr, one JSON document on stdout, exit 1 where a promised ratio is missed.

    python benchmarks/run.py [NAME ...] [--out FILE]

A benchmark is a module here with `run() -> dict` (with "benchmark" and "ok") and `show(result) -> str`. Baselines are
measured in the same run on the same machine, so the ratios mean something and the seconds only a little.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ("client", "greedy", "mirror", "page", "server", "several", "simulate", "upstreams")


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    return {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}


def main() -> int:
    """Run the named benchmarks, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(BENCHMARKS)}")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark {unknown.pop()!r}; known: {', '.join(BENCHMARKS)}")

    sys.path.insert(0, str(ROOT))
    results = []
    for name in options.names or BENCHMARKS:
        module = import_module(f"benchmarks.{name}")
        result = module.run()
        results.append(result)
        print(f"\n{name}\n{module.show(result)}\n", file=sys.stderr, flush=True)
    document = json.dumps({"machine": machine(), "results": results}, indent=2)
    print(document)
    if options.out is not None:
        options.out.write_text(document + "\n", encoding="utf-8")
    return 0 if all(result["ok"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
