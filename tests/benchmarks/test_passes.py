"""The benchmark of passes: every call is timed against one pass of the same run."""

import numpy as np
from benchmarks.passes import added_up, run


def test_a_small_run_counts_every_call():
    found = run(sources=30, times=1)
    assert set(found["passes"]) == {"rows", "bounds", "sort"}
    assert all(passes > 0 for passes in found["passes"].values())


def test_a_pass_reads_every_entry():
    matrix = np.arange(12.0).reshape(3, 4)
    assert added_up(matrix) == 66
