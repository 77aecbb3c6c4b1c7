"""Run the tests again and again while every core is kept busy by other work, and tell what was ever red.

    python tests/soak.py --runs 20                     the whole suite
    python tests/soak.py --runs 100 tests/server       any arguments of pytest

Exit code 0 only if no run had a failure. What a run with a failure printed is kept in a file, which is named: what is
red once in many runs is not soon seen again.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUSY = "while True: pass"


@contextlib.contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """So many processes that never rest, at the priority of the tests."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def failures(arguments: list[str]) -> list[str]:
    """Run pytest once; what was red, or why it did not come to an end."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    red = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if not red and done.returncode == 0:
        return []
    with tempfile.NamedTemporaryFile("w", prefix="onoff-soak-", suffix=".log", delete=False) as kept:
        kept.write(done.stdout + done.stderr)
    print(f"  what it printed is in {kept.name}", flush=True)
    return red or [f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-500:]}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1, help="processes of other work")
    options, given = parser.parse_known_args()
    arguments = given or ["-n", str(os.cpu_count() or 1)]
    seen: Counter[str] = Counter()
    with busy_cores(options.busy):
        for run in range(1, options.runs + 1):
            begun = time.monotonic()
            red = failures(arguments)
            seen.update(red)
            print(f"run {run} of {options.runs}: {len(red)} red, {time.monotonic() - begun:.0f} s", flush=True)
            for line in red:
                print(f"  {line}", flush=True)
    print(f"{options.runs} runs beside {options.busy} busy processes, {sum(seen.values())} failures")
    for line, count in seen.most_common():
        print(f"{count} x {line}")
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
