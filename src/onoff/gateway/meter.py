"""Meter: bytes sent to and received from one server, and how many queries were sent."""

from __future__ import annotations

import threading
from typing import Any, Final

from onoff import wire
from onoff.client.exchange import Failure, Reply, Request, Transport

QUERY_PATHS: Final = (wire.QUERY_PATH, wire.SUM_PATH)


class Meter:
    """A transport that counts the bytes of bodies that another one sends and receives."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.sent = 0
        self.received = 0
        self.queries_that_left = 0

    def exchange(self, request: Request) -> Reply | Failure:
        reply = self._inner.exchange(request)
        left = isinstance(reply, Reply) or reply.left
        with self._lock:
            self.sent += len(request.body) if left else 0
            self.received += len(reply.body) if isinstance(reply, Reply) else 0
            self.queries_that_left += left and request.path in QUERY_PATHS
        return reply

    def as_dict(self) -> dict[str, Any]:
        return {"sent": self.sent, "received": self.received, "queries": self.queries_that_left}
