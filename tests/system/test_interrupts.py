"""Ctrl-C ends a process that would not end by itself, and leaves alone one that handles it."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.support.typed import present
from tests.support.waiting import PATIENCE

from onoff.system.interrupts import held_back

DEAF = """
import signal, sys
from onoff.system.interrupts import end_promptly
end_promptly(130, lambda: print("told", flush=True), grace=0.05)
said = False
while True:
    try:
        if not said:
            said = True
            print("ready", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        pass  # as compiled code does, which never sees it
"""
ORDERLY = """
import sys, time
from onoff.system.interrupts import end_promptly

end_promptly(130, lambda: print("told", flush=True), grace=3600)
try:
    print("ready", flush=True)
    time.sleep(3600)
except KeyboardInterrupt:
    sys.exit(5)
"""
HANDLED = """
import signal, sys, threading
from onoff.system.interrupts import end_promptly
end_promptly(130, lambda: print("told", flush=True), grace=0)
stopping = threading.Event()
signal.signal(signal.SIGINT, lambda *_: stopping.set())
print("ready", flush=True)
stopping.wait()
sys.stdin.readline()  # as long as it needs
"""

MARKED = """
import signal, sys, threading
from onoff.system.interrupts import end_promptly, prompt_when_repeated
end_promptly(130, lambda: print("told", flush=True), grace=0.05)
came = threading.Event()
signal.signal(signal.SIGINT, prompt_when_repeated(lambda *_: came.set()))
print("ready", flush=True)
came.wait()
sys.stdin.readline()  # as long as it needs
print("once", flush=True)
signal.raise_signal(signal.SIGINT)
threading.Event().wait()
"""


def interrupted(program, then=""):
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert present(process.stdout).readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(then, timeout=PATIENCE)
        return process.returncode, rest


def test_a_process_that_does_not_look_is_ended():
    assert interrupted(DEAF) == (130, "told\n")


def test_a_process_that_looks_ends_by_itself():
    assert interrupted(ORDERLY) == (5, "")


def test_a_handler_that_is_marked_takes_its_time_once():
    assert interrupted(MARKED, "go on\n") == (130, "once\ntold\n")


def test_a_process_that_handles_the_signal_takes_its_time():
    assert interrupted(HANDLED, "go on\n") == (0, "")


HELD_BACK = """
import os, signal
from onoff.system.interrupts import held_back

try:
    with held_back():
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass  # Python raises between two steps
        print("made", flush=True)
    print("never", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
with held_back():
    pass
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_what_is_held_back_counts_at_the_end_of_the_block():
    done = subprocess.run(
        [sys.executable, "-c", HELD_BACK], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.stdout, done.stderr) == ("made\ninterrupted\nTrue\n", "")


def test_outside_of_the_main_thread_nothing_is_held_back():
    before = signal.getsignal(signal.SIGINT)

    def handler():
        with held_back():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(handler).result(PATIENCE) is before


HALF_MADE = """
import os, signal, threading
from onoff.system.interrupts import end_promptly

class HalfMade:
    def __init__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass  # Python raises between two steps
        self.handle = 1

    def __del__(self):
        self.handle

end_promptly(130, lambda: print("told", flush=True), grace=0.05)
try:
    HalfMade()
except KeyboardInterrupt:
    pass
threading.Event().wait()
"""


def test_a_destructor_of_what_an_interrupt_left_half_made_is_not_heard():
    """As while numba compiles: `AttributeError: 'PassBuilder' object has no attribute '_as_parameter_'`."""
    done = subprocess.run(
        [sys.executable, "-c", HALF_MADE], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "told\n", "")


NEVER_RUN = """
import signal
from onoff.system.interrupts import end_promptly

async def work():
    pass

def begin():
    made = work()
    signal.raise_signal(signal.SIGINT)
    return made

end_promptly(130, lambda: None)
try:
    begin()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_coroutine_that_never_ran_for_an_interrupt_is_no_reason_for_a_warning():
    done = subprocess.run(
        [sys.executable, "-c", NEVER_RUN], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


LOST = """
import os, signal, threading
from onoff.system.interrupts import end_promptly

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass  # Python raises between two steps

end_promptly(130, lambda: print("told", flush=True), grace=0.05)
Dropped()
threading.Event().wait()
"""


def test_an_interrupt_that_python_cannot_pass_on_is_lost_without_a_word():
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "told\n", "")
