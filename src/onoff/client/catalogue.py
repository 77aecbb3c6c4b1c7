"""Fetching a catalogue: the one request, and the one way to read its reply."""

from __future__ import annotations

from typing import Final

from onoff import wire
from onoff.client.commands import Fetch, Steps
from onoff.client.exchange import Reply, Request, Transport
from onoff.client.retrying import Retries
from onoff.errors import BadAnswer, CatalogueMismatch, InvalidWire, ServerUnreachable
from onoff.model.sources import default_names
from onoff.names import some_of

LARGEST_CATALOGUE: Final = 64 * 2**20
CATALOGUE_TIMEOUT: Final = 10.0
NOT_A_SERVER: Final = "is this a message server?"
CATALOGUE_REQUEST: Final = Request("GET", wire.CATALOGUE_PATH, wire.CATALOGUE_HEADERS, b"", LARGEST_CATALOGUE)


def read_catalogue(server: str, reply: Reply) -> wire.Catalogue:
    """The catalogue in a reply of `server`. Raises BadAnswer where it is not one, InvalidWire where it is damaged."""
    if reply.status != 200:
        raise BadAnswer(f"{server}: no catalogue, but HTTP {reply.status}", hint=NOT_A_SERVER)
    return wire.decode_catalogue(reply.body)


def fetch_catalogue(
    server: str, transport: Transport | None = None, *, timeout: float = CATALOGUE_TIMEOUT
) -> wire.Catalogue:
    """The catalogue of a server, fetched once.

    Raises
    ------
    ServerUnreachable
        Nobody answered.
    BadAnswer
        What answered is not a message server.
    """
    if transport is None:
        from onoff.client.transport import Http

        transport = Http(server, timeout=timeout)
    reply = transport.exchange(CATALOGUE_REQUEST)
    if not isinstance(reply, Reply):
        raise ServerUnreachable(f"{server}: {reply.reason}", hint="is the server running? `onoff serve` starts one")
    try:
        return read_catalogue(server, reply)
    except InvalidWire as error:
        raise BadAnswer(f"{server}: {error.message}", hint=error.hint) from None


def fetch_by(retries: Retries) -> Steps[wire.Catalogue]:
    """The catalogue, as part of a request that is repeated where it fails."""
    return (yield from retries.exchange(Fetch(), lambda reply: read_catalogue(retries.server, reply)))


def require_sources(names: tuple[str, ...], catalogue: wire.Catalogue) -> None:
    """Raise CatalogueMismatch, which names them, unless the server has every source of the chain."""
    missing = [name for name in names if name not in catalogue.index]
    if missing and names == default_names(len(names)):
        raise CatalogueMismatch(
            f"the chain does not name its {len(names)} sources; those of the server are {some_of(catalogue.names)}",
            hint='give their names, in the order of its rows: "names" in a JSON file, or MarkovChain(..., names=[...])',
        )
    if missing:
        raise CatalogueMismatch(
            f"{len(missing)} of the chain's {len(names)} sources are not in the server's catalogue: {some_of(missing)}",
            hint=f"use a chain whose names are the catalogue's: {some_of(catalogue.names)}",
        )
