"""Access to `/metrics`: from loopback, or with a token; from anywhere only if the operator allows it.

The counts name no source, session or client, but anyone who polls them sees when a query came and how large it was.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from onoff.server.peers import is_loopback
from onoff.server.store import token_digest
from onoff.wire import Problem

# Headers of a reverse proxy on this machine, whose loopback address is not that of the client.
_FORWARDED = (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip")


@dataclass(frozen=True, slots=True)
class MetricsAccess:
    """Whom `/metrics` answers. `digest`: SHA-256 of the token that is then needed, from loopback too."""

    anyone: bool = False
    digest: bytes | None = None

    def refusal(self, client: tuple[str, int] | None, headers: Mapping[bytes, bytes]) -> Problem | None:
        """Why a request is refused; None if it is not."""
        if self.anyone:
            return None
        if self.digest is not None:
            if hmac.compare_digest(bearer_digest(headers.get(b"authorization", b"")), self.digest):
                return None
            return Problem(401, "the counts need a token", "send the one in the server's --metrics-token-file")
        if client is not None and is_loopback(client[0]) and not any(name in headers for name in _FORWARDED):
            return None
        return Problem(403, "the counts are told to this machine alone", "start with --metrics-token-file FILE")


def bearer_digest(authorization: bytes) -> bytes:
    """The digest of a bearer token; for any other header a digest that matches no token."""
    scheme, _, token = authorization.decode("latin-1").partition(" ")
    return token_digest(token) if scheme.lower() == "bearer" else bytes(32)
