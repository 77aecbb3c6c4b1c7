"""Kernels: compiled at their first call, kept on disk where there is a place, with a line the first time."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

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
    assert mean(values) == 4.5
    assert mean.compiled.signatures  # numba's own: it was not left in Python
    assert total.__doc__ == "Adds."


def test_making_ready_is_counted_once_and_work_is_not():
    began = preparing_seconds()
    with ThreadPoolExecutor(1) as other:  # a thread counts its own
        assert other.submit(mean, np.arange(10, dtype=np.int16)).result() == 4.5
        assert preparing_seconds() == began
        prepared = other.submit(preparing_seconds).result()
        assert prepared > 0
        other.submit(mean, np.arange(20, dtype=np.int16)).result()
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


def test_a_kernel_loads_numba_when_it_is_called_and_not_before():
    program = """
import sys
from onoff.system.kernels import kernel
double = kernel(lambda x: 2 * x)
assert "numba" not in sys.modules
assert double(2) == 4
assert "numba" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


PRESSED = """
import signal
from numba.core import event
from onoff.system.kernels import kernel

class Press(event.Listener):
    def on_start(self, event):
        signal.raise_signal(signal.SIGINT)

    def on_end(self, event):
        pass

event.register("numba:compile", Press())
twice = kernel(lambda x: 2 * x)
try:
    twice(2)
except KeyboardInterrupt:
    print(len(twice.compiled.signatures))
"""


def test_ctrl_c_waits_until_a_kernel_is_compiled():
    """Where it breaks into the compiler, the process may end with a double free."""
    done = subprocess.run([sys.executable, "-c", PRESSED], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


INSTALLED = """
from onoff.system.kernels import kernel

@kernel
def _twice(x):
    return 2 * x

@kernel
def four_times(x):
    return _twice(_twice(x))

if __name__ == "onoff.installed":
    print(four_times(21))
"""


@pytest.mark.parametrize("kept", ["beside the source", "in the user's cache", "nowhere"])
def test_what_was_compiled_is_kept_where_there_is_a_place(tmp_path, kept):
    """The line comes when something is compiled. A plain file stands where a folder cannot be written."""
    source, cache = tmp_path / "installed.py", tmp_path / "cache"
    source.write_text(INSTALLED)
    if kept != "beside the source":
        (tmp_path / "__pycache__").write_text("")
    if kept == "nowhere":
        cache.write_text("")
    program = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("onoff.installed", {str(source)!r})
module = sys.modules["onoff.installed"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(cache), "HOME": str(cache)}
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout == "84\n"
        said.append(done.stderr)
    first = "onoff: compiling for this processor, once: up to a minute ...\n"
    assert said == [first, first if kept == "nowhere" else ""]
    assert any(tmp_path.rglob("*.nbi")) == (kept != "nowhere")
