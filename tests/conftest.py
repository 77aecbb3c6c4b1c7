"""What holds for all tests: which programs they need, and examples and draws that are the same in every run."""

import itertools
import os
import random
import secrets
import shutil
import signal
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from onoff.session.seeded import SeededEntropy
from onoff.session.session import SystemEntropy

os.environ["ONOFF_CONFIG"] = ""  # no test reads the onoff.toml of whoever runs it

PROGRAMS = {"browser": "chromium", "redis": "redis-server", "nginx": "nginx"}
"""The program that a test with this marker drives. One fixture needs openssl besides, and looks for it itself."""

# A test is red because of a change, never by chance: the same examples each time, and no limit of time for one.
# HYPOTHESIS_PROFILE=fresh draws new ones, as `make test-deep` does; and new queries too (`same_draws`).
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "same")
settings.load_profile(PROFILE)


@pytest.fixture(autouse=True)
def same_draws(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a session draws, and the requests that an audit makes up, are the same in every run of a test.

    Every test has a seed of its own, its name. This reaches what runs in the process of the test. A test of randomness
    itself does without: its module has a fixture of this name that does nothing, and it states how likely it fails.
    """
    if PROFILE != "same":
        yield
        return
    seed, count, real = zlib.crc32(request.node.nodeid.encode()), itertools.count(1), np.random.default_rng
    below, uniforms = random.Random(seed).randrange, SeededEntropy(real(seed)).uniforms

    def generator(given: Any = None) -> np.random.Generator:
        return real([seed, next(count)] if given is None else given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "randbelow", lambda bound: below(bound))
        patch.setattr(SystemEntropy, "uniforms", lambda self, n: uniforms(n))
        patch.setattr(np.random, "default_rng", generator)
        yield


if threading.current_thread() is threading.main_thread():
    # A shell starts what runs in the background deaf to Ctrl-C, and children inherit that: some tests send it to them.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what needs a program that is not installed; what is slow has its reason."""
    for item in items:
        if (slow := item.get_closest_marker("slow")) and not slow.kwargs.get("reason"):
            raise pytest.UsageError(f"{item.nodeid}: say why it is slow: @pytest.mark.slow(reason=...)")
    for marker, program in PROGRAMS.items():
        if shutil.which(program) is None:
            for item in items:
                if item.get_closest_marker(marker):
                    item.add_marker(pytest.mark.skip(reason=f"no {program}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line that says what was left out for want of a program, and how to get it."""
    reasons = (report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    left_out = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    told = list(_left_out(left_out))
    if told:
        terminalreporter.write_line(f"Left out: {', '.join(told)}. `make system` as root installs them.", yellow=True)


def _left_out(reasons: Counter[str]) -> Iterator[str]:
    for program in (*PROGRAMS.values(), "openssl"):
        if count := reasons[f"no {program}"]:
            yield f"{count} tests ({program} is not installed)"
