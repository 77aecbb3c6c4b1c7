"""Logs on stderr: a time in every line, and a line for each change of state, not for each time it is looked at."""

from __future__ import annotations

import json
import logging
import sys
from typing import Final, Literal

_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME: Final = "%Y-%m-%dT%H:%M:%S%z"


LogFormat = Literal["text", "json"]
_PLAIN: Final = logging.lastResort or logging.NullHandler()


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = {"time": self.formatTime(record, _TIME), "level": record.levelname, "logger": record.name}
        told["message"] = record.getMessage()
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def warn_on_stderr() -> None:
    """What goes wrong is said on stderr as it is, as by any program: a library that is imported says nothing."""
    logging.getLogger("onoff").addHandler(_PLAIN)


def log_to_stderr(part: str, form: LogFormat = "text") -> None:
    """Log all that a part of onoff, such as onoff.server, has to say, and of everything else what went wrong."""
    logging.getLogger("onoff").removeHandler(_PLAIN)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else logging.Formatter(_LINE, _TIME))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
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
