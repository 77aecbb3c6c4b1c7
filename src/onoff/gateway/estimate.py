"""Estimate: how many messages the next request will download, ON and OFF, and of several servers how many bytes.

Computed in its own thread: a client that is busy with a request answers only afterwards.
"""

from __future__ import annotations

import threading

from onoff.client import Client
from onoff.errors import OnOffError
from onoff.gateway.board import Board


class Estimate:
    """Keeps both numbers up to date; None while unknown. `always_private`: OFF costs the same as ON."""

    def __init__(self, client: Client, board: Board, *, always_private: bool = False) -> None:
        self._client, self._board, self._always_private = client, board, always_private
        self._messages: dict[str, float | None] = {"on": None, "off": None}
        self.bytes: dict[str, float | None] | None = None
        """The same in bytes; None with one server, where the length depends on the message."""
        self._wake = threading.Event()
        self._wake.set()
        self._closed = False
        threading.Thread(target=self._follow, name="onoff-estimate", daemon=True).start()

    def wake(self) -> None:
        """Compute the numbers again: something changed on which they may depend."""
        self._wake.set()

    def as_dict(self) -> dict[str, float | None]:
        return dict(self._messages)

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def _follow(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._closed:
                return
            on = self._expected(private=True)
            found = {"on": on, "off": on if self._always_private else self._expected(private=False)}
            in_bytes = None if len(self._client.urls) == 1 else self._bytes()
            if (found, in_bytes) != (self._messages, self.bytes):
                self._messages, self.bytes = found, in_bytes
                self._board.changed()

    def _bytes(self) -> dict[str, float | None]:
        try:
            return {mode: self._client.expected_bytes(private=mode == "on", wait=False) for mode in ("on", "off")}
        except OnOffError:
            return {"on": None, "off": None}
        except Exception as error:
            self._board.bug(error)
            return {"on": None, "off": None}

    def _expected(self, *, private: bool) -> float | None:
        try:
            return self._client.expected_cost(private=private, wait=False)
        except OnOffError:
            return None
        except Exception as error:
            self._board.bug(error)
            return None
