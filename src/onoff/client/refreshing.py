"""A refresh of the mirror, without I/O: which requests it takes, and what their replies mean.

Asks for all that changed since the client's edition; the server learns when, and nothing else. A server whose
catalogue is another one is asked for it, and then for everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from onoff import wire
from onoff.client.catalogue import NOT_A_SERVER, read_catalogue
from onoff.client.commands import Changes, Fetch, Newest, Steps
from onoff.client.exchange import Reply
from onoff.client.retrying import Retries
from onoff.errors import BadAnswer, InvalidWire, OnOffError
from onoff.wire import UNPACKED_PIECE, Catalogue, ChangesDecoder, Edition, EditionReport, Unpacker

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
