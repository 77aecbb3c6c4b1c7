"""What was opened while OFF, recorded with consent, from which a model of requests can be learnt.

Two files beside the journal, for their owner only:

    NAME.open.json     the consent: since when, and how it was given; without it nothing is remembered
    NAME.open.jsonl    the requests, as a trace that `onoff learn` reads

Of what was read while ON nothing is recorded, neither what nor when nor how often: one line without a name marks that
something was read between two open requests, so that these do not count as consecutive. A request that
failed leaves the same line. The oldest requests go when there are more than `MOST_REQUESTS`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from onoff.errors import JournalWriteFailed
from onoff.system.files import atomic_write, open_private

LEAST_REQUESTS: Final = 100
"""Requests from which a model may be learnt."""
MOST_REQUESTS: Final = 100_000
USER: Final = "me"

GivenBy = Literal["page", "command line"]


class OpenRecord:
    """What was opened while OFF, beside a journal. Threads may share it. `clock`: seconds since 1970."""

    def __init__(self, journal: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = journal.with_name(f"{journal.name}.open.jsonl")
        self.consent_path = journal.with_name(f"{journal.name}.open.json")
        self._clock = clock
        self._lock = threading.Lock()
        self.consent: dict[str, Any] | None = _read_consent(self.consent_path)
        lines = _read_lines(self.path) if self.consent is not None else []
        self.requests = sum(not _is_break(line) for line in lines)
        self._after_break = bool(lines) and _is_break(lines[-1])
        self._kept = len(lines)

    def as_dict(self) -> dict[str, Any]:
        """Whether and since when requests are remembered, how many, and how many a model needs."""
        consent = self.consent  # once: another thread may forget
        since = None if consent is None else consent["since"]
        return {"since": since, "requests": self.requests, "needed": LEAST_REQUESTS}

    def remember(self, by: GivenBy) -> None:
        """Remember from now on. Raises JournalWriteFailed."""
        with self._lock:
            if self.consent is not None:
                return
            consent = {"since": self._clock(), "by": by}
            try:
                self.consent_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.path.unlink(missing_ok=True)
                with atomic_write(self.consent_path, mode=0o600, durable=True) as file:
                    file.write(json.dumps(consent).encode())
            except OSError as error:
                raise JournalWriteFailed(
                    f"{self.consent_path}: {error.strerror}; nothing is remembered", hint="make room on the disk"
                ) from None
            self.consent, self.requests, self._after_break, self._kept = consent, 0, False, 0

    def forget(self) -> None:
        """Remember nothing any more, and remove what was remembered. Raises JournalWriteFailed."""
        with self._lock:
            self.consent, self.requests, self._after_break, self._kept = None, 0, False, 0
            try:
                self.path.unlink(missing_ok=True)
                self.consent_path.unlink(missing_ok=True)
            except OSError as error:
                raise JournalWriteFailed(
                    f"{self.path}: {error.strerror}; it is still there", hint="remove it by hand"
                ) from None

    def opened(self, source: str) -> None:
        """A message was opened while OFF."""
        self._append({"user": USER, "source": source, "time": self._clock(), "private": False})

    def interrupted(self) -> None:
        """Something was read while ON, or a request failed: the next open request does not follow the last one."""
        if not self._after_break and self.requests:
            self._append({"user": USER, "private": True})

    def _append(self, line: dict[str, Any]) -> None:
        with self._lock:
            if self.consent is None:
                return
            with suppress(OSError):  # a full disk must not stop requests
                if self._kept >= MOST_REQUESTS:
                    self._drop_oldest()
                handle = open_private(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
                with os.fdopen(handle, "ab") as file:
                    file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
                self._kept += 1
                self._after_break = _is_break(line)
                self.requests += not self._after_break

    def _drop_oldest(self) -> None:
        kept = _read_lines(self.path)[MOST_REQUESTS // 2 :]
        with atomic_write(self.path, mode=0o600) as file:
            file.write(b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in kept))
        self._kept, self.requests = len(kept), sum(not _is_break(line) for line in kept)


def _is_break(line: dict[str, Any]) -> bool:
    return "source" not in line


def _read_consent(path: Path) -> dict[str, Any] | None:
    """The consent; None where there is none, or none that can be read."""
    try:
        found = json.loads(path.read_bytes())
        return {"since": float(found["since"]), "by": str(found["by"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a record, as far as they can be read."""
    lines = []
    with suppress(OSError, UnicodeDecodeError):
        for text in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                line = json.loads(text)
                if isinstance(line, dict):
                    lines.append(line)
    return lines
