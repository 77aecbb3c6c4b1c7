"""A process ends in good order, whatever its threads are building."""

import subprocess
import sys

import pytest
from tests.support.waiting import PATIENCE

from onoff.system import interrupts
from onoff.system.interrupts import ShuttingDown, check_not_shutting_down, uninterrupted

BUILDING = """
import sys, threading, time
import numpy as np
from onoff.lab.families import FAMILIES
from onoff.schemes import design
from onoff.system import interrupts as shutdown
shutdown.SHUTDOWN_SECONDS = 120  # a slow machine is not what is tested
at_work = threading.Event()
rows = FAMILIES["dirichlet 0.1"](100, np.random.default_rng(1))
def build():
    at_work.set()
    design(rows, "optimal")
threading.Thread(target=build, daemon=True).start()
at_work.wait()
time.sleep({seconds})
sys.exit(7)
"""


@pytest.mark.slow(reason="programs are started and waited for")
@pytest.mark.parametrize(
    "seconds", [0.0, 0.5, 2.0, *[pytest.param(seconds, marks=pytest.mark.deep) for seconds in (1.0, 1.5, 2.5)]]
)
def test_a_process_may_end_while_a_table_is_built(seconds):
    """Where the end waits for nothing, most of these crash: by an abort or a wrong address."""
    program = BUILDING.format(seconds=seconds)
    assert subprocess.run([sys.executable, "-c", program], timeout=5 * PATIENCE, check=False).returncode == 7


@pytest.mark.slow(reason="programs are started and waited for")
def test_exact_pricing_is_broken_off():
    """A branch and bound that would take far longer than the end is patient."""
    program = """
import sys, threading, time
import numpy as np
from onoff.system import interrupts as shutdown
from onoff.system.interrupts import is_shutting_down, uninterrupted
from onoff.schemes.search.proofs import Duals, branch
shutdown.SHUTDOWN_SECONDS = 120  # a slow machine is not what is tested
rng = np.random.default_rng(1)
duals = Duals(6.0, rng.exponential(0.1, size=300), rng.random((300, 80)) < 0.7)
def price():
    with uninterrupted():
        at_work.set()
        try:
            branch(duals, is_shutting_down)
        finally:
            print("over", flush=True)
at_work = threading.Event()
threading.Thread(target=price, daemon=True).start()
at_work.wait()
time.sleep(1)  # so that it is well inside; where it is not, it is broken off earlier
sys.exit(7)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=5 * PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (7, "over\n")


@pytest.fixture
def state(monkeypatch):
    state = interrupts._State()
    monkeypatch.setattr(interrupts, "_state", state)
    return state


def test_the_end_waits_for_running_work_and_lets_nothing_begin(state, monkeypatch):
    check_not_shutting_down()
    waited = []
    with uninterrupted():
        with monkeypatch.context() as patch:
            patch.setattr(state.changed, "wait_for", lambda over, seconds: waited.append((over(), seconds)))
            interrupts._end()
        assert waited == [(False, interrupts.SHUTDOWN_SECONDS)]
        with pytest.raises(ShuttingDown):
            check_not_shutting_down()
    with pytest.raises(ShuttingDown), uninterrupted():
        pass
    interrupts._end()  # nothing is running


def test_what_fails_is_no_longer_running(state):
    with pytest.raises(ZeroDivisionError), uninterrupted():
        raise ZeroDivisionError
    assert state.running == 0
