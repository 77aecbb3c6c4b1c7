"""Fetching a feed: bounded in time and size, and never redirected from the internet into the operator's network.

No compression is asked for or taken, so that a small answer stays small. The address that the operator wrote is
fetched wherever it is. A **redirect** is untrusted: from a server on the open internet it may only lead
to an address there, else any site in the list could read what only this machine can reach. The connection goes to the
address that was checked, even if its name resolves to another one a moment later.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

MAX_FEED_BYTES = 4 * 1024 * 1024
FETCH_SECONDS = 20.0
MAX_REDIRECTS = 5


class BadFeed(Exception):
    """A feed that cannot be fetched or read now."""


async def fetch(client: Any, url: str, conditions: Mapping[str, str]) -> tuple[bytes, dict[str, str]] | None:
    """The feed at `url` and its headers; None if it has not changed.

    Raises
    ------
    BadFeed
        If there is no answer in time, or it is too long.
    """
    import httpx2

    headers = {"accept-encoding": "identity", "user-agent": "onoff", **conditions}
    pinned: dict[str, Any] = {"headers": headers}
    target = url
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            for _ in range(MAX_REDIRECTS + 1):
                async with client.stream("GET", target, **pinned) as response:
                    if not response.has_redirect_location:
                        return await _read(response)
                    url = urljoin(url, response.headers["location"])
                    from_outside = _is_outside(response)
                if urlsplit(url).scheme not in {"http", "https"}:
                    raise BadFeed("it leads to an address that is not http")
                target, pinned = await _pin(url, headers) if from_outside else (url, {"headers": headers})
    except TimeoutError:
        raise BadFeed(f"it took longer than {FETCH_SECONDS:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        raise BadFeed(f"it does not answer ({type(error).__name__})") from None
    raise BadFeed("it leads on and on")


def is_open(address: str) -> bool:
    """Whether an address is on the open internet: not this machine, a private network or a link."""
    ip = ipaddress.ip_address(address)
    return ip.is_global and not ip.is_multicast


def _is_outside(response: Any) -> bool:
    """Whether the peer is on the open internet; True where it disconnected before that could be told."""
    try:
        peer = response.extensions["network_stream"].get_extra_info("server_addr")
    except OSError:
        return True
    return peer is None or is_open(peer[0])


async def _pin(url: str, headers: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """How to ask for `url` at an address of its host that was judged to be open."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(info[4][0]) for info in found]
    if not all(map(is_open, addresses)):
        raise BadFeed("it leads from the open internet to an address that is not")
    address = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    # A connection made for one name must not be reused for another at the same address.
    named = {**headers, "host": parts.netloc.rpartition("@")[2], "connection": "close"}
    pinned = parts._replace(netloc=f"{address}:{port}").geturl()
    return pinned, {"headers": named, "extensions": {"sni_hostname": host}}


async def _read(response: Any) -> tuple[bytes, dict[str, str]] | None:
    if response.status_code == 304:
        return None
    if response.status_code != 200:
        raise BadFeed(f"it answers with status {response.status_code}")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise BadFeed("it is compressed though asked not to be")
    data = bytearray()
    async for piece in response.aiter_raw():
        data += piece
        if len(data) > MAX_FEED_BYTES:
            raise BadFeed(f"it has more than {MAX_FEED_BYTES} bytes")
    return bytes(data), {k.lower(): v for k, v in response.headers.items()}
