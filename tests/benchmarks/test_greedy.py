"""The benchmark of greedy measures what it says, at sizes that take no time."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.run import BENCHMARKS

from benchmarks import greedy

ROOT = Path(__file__).resolve().parents[2]


def test_it_times_both_and_shows_ratio_and_growth():
    result = greedy.run(sizes=(4, 8))
    assert [case["n"] for case in result["cases"]] == [4, 8]
    assert all(case["ratio"] == case["literal_seconds"] / case["seconds"] for case in result["cases"])
    assert json.loads(json.dumps(result)) == result
    assert "time grows as N^" in greedy.show(result)


def test_growth_is_the_slope_of_the_logarithms():
    assert abs(greedy.exponent([2, 4, 8], [3.0, 24.0, 192.0]) - 3) < 1e-12


def test_an_unknown_benchmark_is_refused():
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "gredy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert all(name in done.stderr for name in BENCHMARKS)
