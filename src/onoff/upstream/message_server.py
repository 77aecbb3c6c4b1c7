"""MessageServer: `onoff serve` as the place where messages come from. A set is asked for by one POST with a bitmap.

The query says which messages of the set are known, and what has not changed is not sent again. What is known are copies
of what the server has sent before, of whole sets: the tags of a set are a function of what it has seen and sent.
The server counts the steps of a session, and is asked for its catalogue and for the last step that it saw before
anything else. What changed since an edition (the mirror) and publishing are here as well.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from onoff import wire
from onoff.errors import BadAnswer, CatalogueMismatch, InvalidInput, InvalidWire, OnOffError, ServerUnreachable
from onoff.model.chain import NAME_THEM, default_names
from onoff.names import some_of
from onoff.upstream import AnsweredSet, Conflict, Doubt, KnownMessages, Outgoing
from onoff.upstream.transport import (
    ATTEMPTS,
    BACKOFF,
    NOT_A_SERVER,
    SMALL_ANSWER,
    TIMEOUT,
    Http,
    Reply,
    Request,
    Retries,
    Steps,
    Transport,
    check_url,
)
from onoff.wire import UNPACKED_PIECE, Catalogue, ChangesDecoder, Edition, EditionReport, Unpacker

LARGEST_CATALOGUE: Final = 64 * 2**20
CATALOGUE_TIMEOUT: Final = 10.0
CATALOGUE_REQUEST: Final = Request("GET", wire.CATALOGUE_PATH, wire.CATALOGUE_HEADERS, b"", LARGEST_CATALOGUE)
NEWEST_REQUEST: Final = Request("GET", wire.EDITION_PATH, wire.CATALOGUE_HEADERS, b"", SMALL_ANSWER)


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
    line = Http(server, timeout=timeout) if transport is None else transport
    reply = line.exchange(CATALOGUE_REQUEST)
    if not isinstance(reply, Reply):
        raise ServerUnreachable(f"{server}: {reply.reason}", hint="is the server running? `onoff serve` starts one")
    try:
        return read_catalogue(server, reply)
    except InvalidWire as error:
        raise BadAnswer(f"{server}: {error.message}", hint=error.hint) from None


def fetch_by(retries: Retries) -> Steps[wire.Catalogue]:
    """The catalogue, as part of a request that is repeated where it fails."""
    return (yield from retries.exchange(CATALOGUE_REQUEST, lambda reply: read_catalogue(retries.server, reply)))


def require_sources(names: tuple[str, ...], catalogue: wire.Catalogue) -> None:
    """Raise CatalogueMismatch, which names them, unless the server has every source of the chain."""
    missing = [name for name in names if name not in catalogue.index]
    if missing and names == default_names(len(names)):
        raise CatalogueMismatch(
            f"the chain does not name its {len(names)} sources; those of the server are {some_of(catalogue.names)}",
            hint=NAME_THEM,
        )
    if missing:
        raise CatalogueMismatch(
            f"{len(missing)} of the chain's {len(names)} sources are not in the server's catalogue: {some_of(missing)}",
            hint=f"use a chain whose names are the catalogue's: {some_of(catalogue.names)}",
        )


# --------------------------------------------------------------------------------------------------------------------
# The upstream.


class MessageServer:
    """The message server at `url`.

    Parameters
    ----------
    url
        Its address.
    attempts, backoff, timeout
        How often the same bytes are sent before the server is given up; seconds before the second attempt, doubled
        before every further one; seconds that one attempt may take.
    proxy
        A SOCKS proxy, as `socks5://127.0.0.1:9050`; it looks names up.
    transport
        How it is reached; HTTP unless given.
    """

    def __init__(
        self,
        url: str,
        *,
        attempts: int = ATTEMPTS,
        backoff: float = BACKOFF,
        timeout: float = TIMEOUT,
        proxy: str | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.address = check_url(url).rstrip("/")
        self.retries = (Retries(self.address, attempts, backoff),)
        self.lines: Sequence[Transport] = (Http(url, timeout=timeout, proxy=proxy) if transport is None else transport,)
        self.catalogue: Catalogue | None = None
        self.copies: KnownMessages | None = None

    def __repr__(self) -> str:
        return f"<MessageServer: {self.address}>"

    def with_copies(self, copies: KnownMessages) -> MessageServer:
        """The same server, for a client with these copies."""
        twin = copy.copy(self)
        twin.copies = copies
        return twin

    def forget(self) -> None:
        self.catalogue = None

    def offers(self) -> Steps[tuple[str, ...]]:
        return (yield from fetch_by(self.retries[0])).names

    def get_ready(self, names: tuple[str, ...]) -> Steps[bool]:
        if self.catalogue is None:
            catalogue = yield from fetch_by(self.retries[0])
            require_sources(names, catalogue)
            self.catalogue = catalogue
        return False

    def compare_steps(self, last: Outgoing) -> Steps[Doubt | None]:
        seen = yield from self.retries[0].exchange(seen_request(last.session), read_seen)
        return step_doubt(seen, last.step, hashlib.sha256(last.query).hexdigest())

    def encode(self, session: bytes, step: int, asked: tuple[str, ...]) -> bytes:
        known, sources = self.known, indices_of(self.known, asked)
        tags = self._tags(self._copies_of(sources))
        carried = b"".join(tags.get(source, wire.NO_TAG) for source in sources) if tags else b""
        return wire.encode_query(wire.WireQuery(known.epoch, session, step, sources, n=known.n, known=carried))

    def first(self) -> tuple[str, ...]:
        return self.known.names[:1]

    def check(self, last: Outgoing) -> Doubt | None:
        if last.read and not last.query:
            return Doubt.FORGOTTEN  # the server has not seen the session, so it cannot tell whether it was used
        if 0 < int.from_bytes(last.query[:2]) < wire.WIRE_VERSION:
            return Doubt.OLDER_WIRE
        try:
            head = wire.decode_query_head(last.query)
            if head.epoch != self.known.epoch:
                return Doubt.OTHER_CATALOGUE
            if last.read:  # these bytes are of the last query, not of what was read since
                return None if (head.session, head.step) == (last.session, last.step) else Doubt.UNFIT
            query = wire.decode_query(last.query, self.known.n)
        except InvalidWire:
            return Doubt.UNFIT
        expected = last.session, last.step, indices_of(self.known, last.asked)
        return None if (query.session, query.step, query.sources) == expected else Doubt.UNFIT

    def fetch_set(self, outgoing: Outgoing) -> Steps[AnsweredSet]:
        """Send until there is an answer, and check all of it."""
        known, asked = self.known, indices_of(self.known, outgoing.asked)
        limit = max(wire.max_answer_length(len(asked), known), SMALL_ANSWER)
        request = Request("POST", wire.QUERY_PATH, wire.QUERY_HEADERS, outgoing.query, limit)
        carried = wire.decode_query(outgoing.query, known.n).known
        held = self._still_held(asked, carried)

        def check(reply: Reply) -> AnsweredSet:
            if reply.status == 409:
                raise self._conflict(reply)
            if reply.status != 200:
                raise BadAnswer(f"the server refused the query: HTTP {reply.status}", hint=_hint_of(reply))
            if not reply.has_type(wire.ANSWER_TYPE, encoded=known.frame_size is None):
                raise InvalidWire("an answer of another kind", hint=NOT_A_SERVER)
            body = _whole(reply, limit)
            messages: Mapping[int, wire.WireMessage]
            if carried:
                messages = wire.decode_changed(body, asked, carried, epoch=known.epoch, limit=known.limit)
            else:
                all_of_them = wire.decode_answer(
                    body, asked, epoch=known.epoch, frame_size=known.frame_size, limit=known.limit
                )
                messages = dict(zip(asked, all_of_them, strict=True))
            if any(source not in messages and source not in held for source in asked):
                raise Conflict(Doubt.COPIES_GONE)
            if self.copies is not None and messages and known.frame_size is None:
                self.copies.keep(known, messages)
            named = {known.names[source]: (messages if source in messages else held)[source] for source in asked}
            return AnsweredSet(named, len(reply.body), known=len(asked) - len(messages))

        return (yield from self.retries[0].exchange(request, check))

    def _copies_of(self, sources: Sequence[int]) -> Mapping[int, wire.WireMessage]:
        """What is known of these; nothing where frames are padded: all come, so that lengths tell nothing."""
        if self.copies is None or self.known.frame_size is not None:
            return {}
        return self.copies.known(self.known, sources)

    def _tags(self, held: Mapping[int, wire.WireMessage]) -> dict[int, bytes]:
        return {source: wire.message_tag(source, message, epoch=self.known.epoch) for source, message in held.items()}

    def _still_held(self, asked: tuple[int, ...], carried: bytes) -> Mapping[int, wire.WireMessage]:
        """The copies that a query counts on; it may be an old one, and a refresh may have come since."""
        if not carried:
            return {}
        held = self._copies_of(asked)
        tags = self._tags(held)
        named = {source: carried[k * wire.TAG_BYTES : (k + 1) * wire.TAG_BYTES] for k, source in enumerate(asked)}
        return {source: message for source, message in held.items() if tags[source] == named[source]}

    @property
    def known(self) -> Catalogue:
        """What the server offers, once it was asked."""
        if self.catalogue is None:
            raise RuntimeError("the catalogue is fetched before anything is asked")
        return self.catalogue

    def _conflict(self, reply: Reply) -> Conflict:
        doubt = conflict_of(reply)
        if doubt is Doubt.OTHER_CATALOGUE:
            self.catalogue = None
        return Conflict(doubt)


def _whole(reply: Reply, limit: int) -> bytes:
    """The body of an answer, decompressed; at most `limit` bytes."""
    body = bytearray()
    for piece in _decompressed(reply):
        body += piece
        if len(body) > limit:
            raise InvalidWire("an answer that is too long", hint="the server is faulty")
    return bytes(body)


def _hint_of(reply: Reply) -> str:
    """What the server says to do about a refusal, such as that it speaks another version."""
    try:
        problem = wire.decode_problem(reply.body)
    except InvalidWire:
        return NOT_A_SERVER
    return f"it says: {problem.title}; {problem.hint}"


def indices_of(catalogue: Catalogue, names: tuple[str, ...]) -> tuple[int, ...]:
    """The server's numbers for sources, ascending."""
    return tuple(sorted(catalogue.index[name] for name in names))


def seen_request(session: bytes) -> Request:
    """Ask for the last step that the server saw in a session."""
    return Request("POST", wire.SEEN_PATH, wire.SEEN_HEADERS, session, SMALL_ANSWER)


def read_seen(reply: Reply) -> wire.Seen | None:
    """The last step that a server saw; None where it does not say."""
    return wire.decode_seen(reply.body) if reply.status == 200 else None


def step_doubt(seen: wire.Seen | None, step: int, digest: str) -> Doubt | None:
    """Why a server's last step is not ours.

    An earlier one is no doubt: a query that was stored and never sent told the server nothing.
    """
    if seen is None:
        return Doubt.FORGOTTEN
    if seen.step > step:
        return Doubt.ROLLED_BACK
    return Doubt.CONFLICT if seen.step == step and seen.sha256 != digest else None


def conflict_of(reply: Reply) -> Doubt:
    """What a 409 means."""
    try:
        problem = wire.decode_problem(reply.body)
    except InvalidWire:
        return Doubt.CONFLICT
    return Doubt.OTHER_CATALOGUE if problem.type == wire.EPOCH_CHANGED else Doubt.CONFLICT


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

            catalogue, size = yield from retries.exchange(CATALOGUE_REQUEST, read)
            received += size
        since = have if have is not None and have.epoch == catalogue.epoch else None
        request = Request("GET", wire.changes_target(since), wire.CHANGES_HEADERS, b"", LARGEST_CHANGES)
        fetched = yield from retries.exchange(request, partial(_read_changes, retries.server, catalogue, since))
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

    return (yield from retries.exchange(NEWEST_REQUEST, check))


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
    if not reply.has_type(wire.CHANGES_TYPE, encoded=True):
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
        raise InvalidWire("a reply in an encoding that was not asked for", hint=NOT_A_SERVER)
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
