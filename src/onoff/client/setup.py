"""What a client is made from: where its journal is, how servers are reached, where randomness comes from."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from onoff import wire
from onoff.client.exchange import Transport
from onoff.client.transport import Http
from onoff.errors import InvalidInput
from onoff.session.entropy import Entropy, SystemEntropy


def default_journal(url: str) -> Path:
    """Where the journal for a server is kept unless told otherwise: one file per address, in the state directory."""
    from platformdirs import user_state_path

    return user_state_path("onoff") / f"journal-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:12]}.sqlite"


def check_servers(urls: tuple[str, ...], on_missing: str) -> None:
    """Raise InvalidInput unless the addresses are different and `on_missing` is known."""
    if not urls or len(set(urls)) != len(urls):
        raise InvalidInput("no server, or the same one twice", hint="give addresses of different servers")
    if len(urls) > wire.MAX_SERVERS:
        raise InvalidInput(f"{len(urls)} servers", hint=f"at most {wire.MAX_SERVERS}")
    if on_missing not in {"error", "everything"}:
        raise InvalidInput(f"on_missing={on_missing!r}", hint='"error" or "everything"')


def transports(
    urls: tuple[str, ...], transport: Transport | Sequence[Transport] | None, timeout: float
) -> tuple[Transport, ...]:
    """How each server is reached.

    transport: One for each server, or one for a lone server; HTTP unless given.
    """
    if transport is None:
        return tuple(Http(url, timeout=timeout) for url in urls)
    return tuple(transport) if isinstance(transport, Sequence) else (transport,) * len(urls)


def randbelow(entropy: Entropy) -> Callable[[int], int]:
    """Uniform draws below a bound: the operating system's, unless a test or an audit gives others."""
    return secrets.randbelow if isinstance(entropy, SystemEntropy) else lambda k: entropy.choose([1] * k)


def forbid_core_dumps() -> None:
    """Disable core dumps: the process knows which source was wanted, and its image must not be written to disk."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
