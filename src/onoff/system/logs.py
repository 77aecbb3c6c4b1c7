"""Logs on stderr: a time in every line, and a line for each change of state, not for each time it is looked at."""

from __future__ import annotations

import logging
import sys
from typing import Final

_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME: Final = "%Y-%m-%dT%H:%M:%S%z"


def log_to_stderr(part: str) -> None:
    """Log all that a part of onoff, such as onoff.server, has to say, and of everything else what went wrong."""
    logging.basicConfig(level=logging.WARNING, format=_LINE, datefmt=_TIME, stream=sys.stderr)
    logging.getLogger(part).setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns of every malformed request of a stranger


class Condition:
    """Whether something works: told when it fails after it worked, and when it works again."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._failing = False

    def fails(self, text: str, *values: object, traceback: bool = False) -> None:
        """It failed; `text` says so where that is new."""
        if not self._failing:
            self._log.warning(text, *values, exc_info=traceback)
        self._failing = True

    def works(self, text: str, *values: object) -> None:
        """It worked; `text` says so where it did not before."""
        if self._failing:
            self._log.info(text, *values)
        self._failing = False
