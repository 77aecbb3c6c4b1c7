"""How far a long run has come; `pytest -s` shows it."""

import sys
import time
from typing import Any

_shown: dict[Any, Any] = {}


def progress(done, wanted, what, every=30):
    """A line on stderr, not more often than every so many seconds, and at the end."""
    now = time.monotonic()
    if done >= wanted or now - _shown.setdefault(what, now) >= every:
        _shown[what] = now
        print(f"{done} of {wanted} {what}", file=sys.stderr, flush=True)
