"""Whether several servers look like one operator: the same address, or the same certificate.

Retrieval from several servers hides nothing from servers that exchange what they were asked. Whether they do cannot be
observed; but servers that share an address or a key have the same operator.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations
from typing import Final

from onoff.client.transport import Http

LOOKUP_SECONDS: Final = 5.0


def shared_infrastructure(urls: Sequence[str], *, seconds: float = LOOKUP_SECONDS) -> list[str]:
    """What pairs of servers have in common, in words; empty where nothing was found.

    seconds: How long to wait for a certificate. One that does not arrive is not compared.
    """
    lines = [Http(url, timeout=seconds) for url in urls]
    addresses = [_addresses(line.host, line.port) for line in lines]
    certificates = [_certificate(line.host, line.port, seconds) if line.scheme == "https" else None for line in lines]
    found = []
    for first, second in combinations(range(len(urls)), 2):
        pair = f"{urls[first]} and {urls[second]}"
        shared = addresses[first] & addresses[second]
        if shared:
            found.append(f"{pair} have the same address {min(shared)}")
        if certificates[first] is not None and certificates[first] == certificates[second]:
            found.append(f"{pair} have the same certificate")
    return found


def _addresses(host: str, port: int) -> set[str]:
    with suppress(OSError):
        return {str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    return set()


def _certificate(host: str, port: int, seconds: float) -> str | None:
    """The digest of the certificate of a server, which is compared and not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        suppress(OSError),
        socket.create_connection((host, port), seconds) as plain,
        context.wrap_socket(plain, server_hostname=host) as line,
    ):
        shown = line.getpeercert(binary_form=True)
        return None if shown is None else hashlib.sha256(shown).hexdigest()
    return None
