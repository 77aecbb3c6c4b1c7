"""Presence: whether the servers answer, and have the sources of the model.

A thread asks each server for its catalogue every `heartbeat` seconds, and more often while one does not answer. A lone
server that failed to answer a request is checked at once; several are checked independently of requests.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from onoff import wire
from onoff.client import Message, Refresh
from onoff.client.catalogue import fetch_catalogue, require_sources
from onoff.client.transport import Http
from onoff.errors import OnOffError, ServerUnreachable
from onoff.gateway.board import Board
from onoff.system.logs import Condition

log = logging.getLogger("onoff.gateway")

HEARTBEAT: Final = 20.0
HEARTBEAT_WHILE_GONE: Final = 2.0
PROBE_TIMEOUT: Final = 5.0


@dataclass(frozen=True, slots=True)
class ServerLook:
    """The result of the last check of a server. connected: None before the first one."""

    connected: bool | None = None
    problem: str | None = None
    catalogue: wire.Catalogue | None = None


class Presence:
    """Checks the servers at `urls` every `heartbeat` seconds; `names` are the sources that they must have."""

    def __init__(self, urls: Sequence[str], names: tuple[str, ...] | None, heartbeat: float, board: Board) -> None:
        self.urls, self.names = tuple(urls), names
        self._looks = [ServerLook() for _ in self.urls]
        self._transports = [Http(url, timeout=PROBE_TIMEOUT) for url in self.urls]
        self._answering = [Condition(log) for _ in self.urls]
        self._heartbeat = heartbeat
        self._board = board
        self.looked = threading.Event()  # set after the first check
        self._wake = threading.Event()
        self._closed = False
        threading.Thread(target=self._beat, name="onoff-heartbeat", daemon=True).start()

    @property
    def connected(self) -> bool | None:
        """Whether all servers answer; None: not known yet."""
        found = {look.connected for look in self._looks}
        return False if False in found else None if None in found else True

    @property
    def problem(self) -> str | None:
        """What is wrong, for all servers with a problem; None where there is none."""
        return "; ".join(look.problem for look in self._looks if look.problem is not None) or None

    @property
    def catalogue(self) -> wire.Catalogue | None:
        """The last catalogue of the first server that has answered."""
        return next((look.catalogue for look in self._looks if look.catalogue is not None), None)

    def as_list(self) -> list[dict[str, Any]]:
        """The state of each server, for the page."""
        return [
            {"url": url, "connected": look.connected, "problem": look.problem}
            for url, look in zip(self.urls, self._looks, strict=True)
        ]

    def report(self, outcome: Message | Refresh | OnOffError) -> None:
        """Update the state from the outcome of a request or a refresh; a message from the mirror changes nothing.

        With several servers nothing changes at all: whether the answers fitted together, or all came, must not show in
        what leaves next, or one server could tell another by it.
        """
        if len(self.urls) > 1 or (isinstance(outcome, Message) and outcome.sent.mirror):
            return
        problem = outcome.message if isinstance(outcome, OnOffError) else None
        connected = problem is None or (self.connected is True and not isinstance(outcome, ServerUnreachable))
        self._looks = [ServerLook(connected, problem, look.catalogue) for look in self._looks]
        if not connected:
            self._wake.set()
        self._board.changed()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def _beat(self) -> None:
        while not self._closed:
            for place in range(len(self.urls)):
                self._look(place)
            self.looked.set()
            gone = self.connected is not True
            self._wake.wait(min(self._heartbeat, HEARTBEAT_WHILE_GONE) if gone else self._heartbeat)
            self._wake.clear()

    def _look(self, place: int) -> None:
        problem, catalogue = None, self._looks[place].catalogue
        try:
            catalogue = fetch_catalogue(self.urls[place], self._transports[place])
            if self.names is not None:
                require_sources(self.names, catalogue)
        except OnOffError as error:
            problem = error.message
        except Exception as error:
            problem = self._board.bug(error).message
        if problem is None:
            self._answering[place].works("%s answers again", self.urls[place])
        else:
            self._answering[place].fails("%s; the gateway runs and goes on looking", problem)
        found = ServerLook(problem is None, problem, catalogue)
        if found != self._looks[place]:
            self._looks[place] = found
            self._board.changed()
