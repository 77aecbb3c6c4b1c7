"""Fetching a catalogue: the one request, and the one way to read its reply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from onoff import wire
from onoff.client.commands import Changes, Fetch, Newest, Retries, Steps
from onoff.errors import BadAnswer, CatalogueMismatch, InvalidInput, InvalidWire, OnOffError, ServerUnreachable
from onoff.model.chain import default_names
from onoff.names import some_of
from onoff.upstream.transport import Http, Reply, Request, Transport
from onoff.wire import UNPACKED_PIECE, Catalogue, ChangesDecoder, Edition, EditionReport, Unpacker

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
        from onoff.upstream.transport import Http

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


# --------------------------------------------------------------------------------------------------------------------
# A refresh of the mirror, without I/O: which requests it takes, and what their replies mean.
#
# Asks for all that changed since the client's edition; the server learns when, and nothing else. A server whose
# catalogue is another one is asked for it, and then for everything.


LARGEST_CHANGES: Final = wire.MAX_ANSWER + 64 * 1024
"""Bytes of a reply that are read at most; the decoder allows `MAX_ANSWER` bytes of frames."""
CATALOGUE_CHANGES: Final = 2
"""How often the catalogue may change while it is asked for changes."""


@dataclass(frozen=True)
class Fetched:
    """What a refresh brought.

    whole     everything came: a source that is not among `messages` has published nothing
    messages  index in the catalogue, and the message
    received  bytes of replies, as they came over the line
    """

    catalogue: Catalogue
    edition: Edition
    whole: bool
    messages: tuple[tuple[int, wire.WireMessage], ...] = field(repr=False)
    received: int


class NoChanges(OnOffError):
    """The server has no `/v1/changes`: it is of an older version."""


def fetch_changes(retries: Retries, catalogue: Catalogue | None, have: Edition | None) -> Steps[Fetched]:
    """All that changed.

    Raises
    ------
    NoChanges
        The server cannot tell.
    ServerUnreachable, BadAnswer
        As any exchange.
    """
    received = 0
    for _ in range(CATALOGUE_CHANGES + 1):
        if catalogue is None:

            def read(reply: Reply) -> tuple[Catalogue, int]:
                return read_catalogue(retries.server, reply), len(reply.body)

            catalogue, size = yield from retries.exchange(Fetch(), read)
            received += size
        since = have if have is not None and have.epoch == catalogue.epoch else None
        fetched = yield from retries.exchange(Changes(since), partial(_read_changes, retries.server, catalogue, since))
        if fetched is not None:
            edition, whole, messages, size = fetched
            return Fetched(catalogue, edition, whole, messages, received + size)
        catalogue = None
    raise BadAnswer(f"{retries.server}: its catalogue changes all the time", hint="try again later")


def fetch_edition(retries: Retries) -> Steps[EditionReport]:
    """The newest edition. Raises what `fetch_changes` raises."""

    def check(reply: Reply) -> EditionReport:
        _check_status(retries.server, reply)
        return wire.decode_edition(reply.body)

    return (yield from retries.exchange(Newest(), check))


def _check_status(server: str, reply: Reply) -> None:
    if reply.status in {404, 405}:
        raise NoChanges(f"{server}: does not tell what changed", hint="it may be of an older version")
    if reply.status != 200:
        raise BadAnswer(f"{server}: no changes, but HTTP {reply.status}", hint=NOT_A_SERVER)


def _read_changes(
    server: str, catalogue: Catalogue, have: Edition | None, reply: Reply
) -> tuple[Edition, bool, tuple[tuple[int, wire.WireMessage], ...], int] | None:
    """Edition, whether everything came, messages and bytes; None where the server has another catalogue."""
    _check_status(server, reply)
    if reply.header("content-type") != wire.CHANGES_TYPE:
        raise InvalidWire("changes of another kind", hint=NOT_A_SERVER)
    decoder = ChangesDecoder(catalogue, have)
    messages: list[tuple[int, wire.WireMessage]] = []
    try:
        for piece in _decompressed(reply):
            messages += decoder.feed(piece)
        edition = decoder.finish()
    except InvalidWire:
        if decoder.epoch is not None and decoder.epoch != catalogue.epoch:
            return None
        raise
    return edition, decoder.whole, tuple(messages), len(reply.body)


def _decompressed(reply: Reply) -> Iterator[bytes]:
    """The body in pieces of bounded size; one gzip member, or as it is."""
    encodings = [value for name, value in reply.headers if name == "content-encoding"]
    if not encodings:
        yield from (reply.body[at : at + UNPACKED_PIECE] for at in range(0, len(reply.body), UNPACKED_PIECE))
        return
    if encodings != ["gzip"]:
        raise InvalidWire("changes in an encoding that was not asked for", hint=NOT_A_SERVER)
    unpacker = Unpacker()
    yield from unpacker.feed(reply.body)
    unpacker.finish()


# --------------------------------------------------------------------------------------------------------------------
# Publishing: put a message, over HTTP, with a token.


LARGEST_RECEIPT: Final = 64 * 1024
PUBLISH_TIMEOUT: Final = 30.0


def publish(server: str, token: str, name: str, body: bytes, media_type: str) -> dict[str, Any]:
    """Make `body` the latest message of a source.

    Returns
    -------
    dict
        The server's receipt: source, version, published.

    Raises
    ------
    InvalidInput
        The server refuses: an unknown source or token, or a message that is too long.
    ServerUnreachable
        Nobody answers, or not as a message server would.
    """
    wire.check_name(name)
    path = f"/v1/sources/{quote(name, safe='')}/message"
    headers = (
        ("authorization", f"Bearer {token}"),
        ("content-type", wire.check_media_type(media_type)),
        ("user-agent", "onoff"),
    )
    reply = Http(server, timeout=PUBLISH_TIMEOUT).exchange(Request("PUT", path, headers, body, LARGEST_RECEIPT))
    if not isinstance(reply, Reply):
        raise ServerUnreachable(f"{server} does not answer: {reply.reason}", hint="is `onoff serve` running?")
    if reply.status != 200:
        raise _refusal(server, reply)
    try:
        receipt = json.loads(reply.body)
    except ValueError:
        receipt = None
    if not isinstance(receipt, dict):
        raise ServerUnreachable(f"{server} sends no receipt", hint=NOT_A_SERVER)
    return receipt


def _refusal(server: str, reply: Reply) -> OnOffError:
    try:
        problem = wire.decode_problem(reply.body)
    except InvalidWire:
        return ServerUnreachable(f"{server} answers with status {reply.status}", hint=NOT_A_SERVER)
    kind = ServerUnreachable if reply.status >= 500 else InvalidInput
    return kind(f"{server} refuses: {problem.title}", hint=problem.hint)
