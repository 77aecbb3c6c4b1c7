"""Kernels: compiled when it pays, plain otherwise, the same answers."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from tests.support.waiting import until

from onoff.system import kernels
from onoff.system.kernels import kernel, preparing_seconds


@kernel
def total(values):
    """Adds."""
    result = 0
    for value in values:
        result += value
    return result


@kernel
def mean(values):
    """Calls another kernel."""
    return total(values) / len(values)


def test_a_kernel_that_calls_a_kernel_is_compiled_as_one():
    values = np.arange(10)
    assert mean.python(values) == mean.compiled(values) == mean(values, effort=1) == 4.5
    compiled: Any = mean.compiled
    assert compiled.signatures  # numba's own: it was not left in Python


def test_plain_and_compiled_agree():
    values = np.arange(10)
    assert total.python(values) == total.compiled(values) == total(values, effort=1) == 45
    assert total.__doc__ == "Adds."


def test_making_ready_is_counted_once_and_work_is_not():
    began = preparing_seconds()
    with ThreadPoolExecutor(1) as other:  # a thread counts its own
        assert other.submit(mean.compiled, np.arange(10, dtype=np.int16)).result() == 4.5
        assert preparing_seconds() == began
        prepared = other.submit(preparing_seconds).result()
        assert prepared > 0
        other.submit(mean.compiled, np.arange(20, dtype=np.int16)).result()
        assert other.submit(preparing_seconds).result() == prepared  # ready by now


def test_a_kernel_made_ready_for_another_is_not_counted_twice(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(kernels, "thread_time", lambda: now[0])
    monkeypatch.setattr(kernels._preparing, "seconds", 0.0)  # added to what was spent before, 5 would be rounded
    with kernels._counted():
        now[0] += 2.0
        with kernels._counted():
            now[0] += 3.0
    assert preparing_seconds() == 5.0


@pytest.mark.slow(reason="programs are started and waited for")
def test_much_small_work_is_compiled_as_well():
    program = """
import sys
import numpy as np
from tests.support.waiting import until
from onoff.system.kernels import WORTH_COMPILING
from onoff.schemes.search.flow import flows
one = np.ones(1, dtype=np.int64)
given = one.reshape(1, 1), np.array([0, 1]), 0 * one, one, False
flows(*given, effort=WORTH_COMPILING // 2)
assert "numba" not in sys.modules
flows(*given, effort=WORTH_COMPILING - WORTH_COMPILING // 2)
assert "numba" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_small_work_does_not_load_numba_and_absence_of_numba_is_survived():
    program = """
import sys
from onoff.system.kernels import kernel
double = kernel(lambda x: 2 * x)
assert double(2, effort=1) == 4
assert "numba" not in sys.modules
sys.modules["numba"] = None
assert double(2, effort=10**9) == 4
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_place_where_nothing_can_be_kept_is_survived():
    """Numba keeps what it compiled beside the source or in the user's cache; here there is neither."""
    homeless = FunctionType(total.python.__code__.replace(co_filename="/nowhere/total.py"), {})
    assert kernel(homeless).compiled(np.arange(10)) == 45


def test_a_kernel_that_is_not_waited_for_is_compiled_in_the_background():
    @kernel
    def twice(x):
        return 2 * x

    twice.if_ready(1)
    until(lambda: twice.if_ready(1) is not None)
    assert twice.if_ready(1)(21) == 42  # type: ignore[misc]
    assert twice.if_ready(1) is twice.compiled


def test_a_kernel_that_cannot_be_compiled_is_never_ready():
    """In a process of its own: here other threads may be compiling."""
    program = """
import sys
from onoff.system.kernels import kernel
sys.modules["numba"] = None
twice = kernel(lambda x: 2 * x)
assert twice.if_ready(1) is None
twice._preparing.join()
assert twice.if_ready(1) is None
"""
    subprocess.run([sys.executable, "-c", program], check=True)
