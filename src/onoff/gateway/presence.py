"""Presence: whether a server is there that has our sources.

A thread asks for the catalogue from time to time, always the same way and whatever is wanted, and more often while
nobody answers.
"""

from __future__ import annotations

import threading
from typing import Final

from onoff import wire
from onoff.client.catalogue import fetch_catalogue, require_sources
from onoff.client.transport import Http
from onoff.errors import OnOffError
from onoff.gateway.board import Board

HEARTBEAT: Final = 20.0
HEARTBEAT_WHILE_GONE: Final = 2.0
PROBE_TIMEOUT: Final = 5.0


class Presence:
    """Looks for the server at `url` every `heartbeat` seconds; `names` are the sources that it must have."""

    def __init__(self, url: str, names: tuple[str, ...] | None, heartbeat: float, board: Board) -> None:
        self.url, self.names = url, names
        self.connected: bool | None = None
        self.problem: str | None = None
        self.catalogue: wire.Catalogue | None = None
        self._transport = Http(url, timeout=PROBE_TIMEOUT)
        self._heartbeat = heartbeat
        self._board = board
        self.looked = threading.Event()  # the first look is over
        self._wake = threading.Event()
        self._closed = False
        threading.Thread(target=self._beat, name="onoff-heartbeat", daemon=True).start()

    def report(self, connected: bool, problem: str | None) -> None:
        """What a request has just found out."""
        self.connected, self.problem = connected, problem
        if not connected:
            self._wake.set()
        self._board.changed()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def _beat(self) -> None:
        while not self._closed:
            self._look()
            self.looked.set()
            gone = self.connected is not True
            self._wake.wait(min(self._heartbeat, HEARTBEAT_WHILE_GONE) if gone else self._heartbeat)
            self._wake.clear()

    def _look(self) -> None:
        problem, catalogue = None, self.catalogue
        try:
            catalogue = fetch_catalogue(self.url, self._transport)
            if self.names is not None:
                require_sources(self.names, catalogue)
        except OnOffError as error:
            problem = error.message
        if (problem is None, problem, catalogue) != (self.connected, self.problem, self.catalogue):
            self.connected, self.problem, self.catalogue = problem is None, problem, catalogue
            self._board.changed()
