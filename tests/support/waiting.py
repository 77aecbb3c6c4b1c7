"""Waiting for what must come, on a machine that may be busy with other work."""

import time
from collections.abc import Callable

PATIENCE = 120.0
"""Seconds until a test gives up on something that comes at once on a machine with nothing else to do."""


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait for something that makes no event of its own; fail if it never comes."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come within {seconds:g} s"
        time.sleep(0.01)
