"""SumServers: several message servers as the place where messages come from. None learns which source is wanted.

The set of sources is chosen as for one server: everything while ON, drawn from the table while OFF. Which of the set is
wanted is then hidden from every server by itself: each gets a vector that is uniform whatever is wanted, and answers
with a sum of messages (see `wire.sums`). A request is

    once            the catalogue of every server, and the last step that each saw
    digests         of every frame of the newest edition of each server; the oldest of these is one that all hold
    the record      with the bytes for every server, durable before the first leaves
    the vectors     to every server, in a fixed order, whatever is wanted, also where the vector is zero

The invariants of the client's core hold for each server. An edition that one of them no longer holds is replaced by
another one, with the same vectors, in a new record; that tells nothing new.

What depends on which source is wanted is only how the answers are put together, and not whether that succeeds. A server
may lie; so before anything is asked all servers must report the same root of digests, which is computed here as well,
and of the answers nothing is taken but the frame of the edition. One server that adds anything to its answer is refused
whatever is wanted, and learns nothing from what is done next.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Final, Literal, TypeVar

from onoff import wire
from onoff.errors import BadAnswer, CatalogueMismatch, InvalidInput, InvalidWire, ServerMissing, ServerUnreachable
from onoff.upstream import AnsweredSet, Conflict, Doubt, Outgoing
from onoff.upstream.message_server import (
    CATALOGUE_REQUEST,
    conflict_of,
    fetch_by,
    indices_of,
    read_catalogue,
    read_seen,
    require_sources,
    seen_request,
    step_doubt,
)
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
    Wait,
    check_url,
)
from onoff.wire import Catalogue, FrameDigests

EDITIONS: Final = 5
"""How often an edition may be gone before the servers are given up."""
CATALOGUES: Final = 3
"""How often the catalogue may change before the servers are given up."""
_Checked = TypeVar("_Checked")
FOLLOW: Final = "one of them must follow the other: `onoff serve --follow URL`"

NO_EDITION: Final = "the servers let go of every edition at once"
LAGS: Final = "one of them lags behind; try again later"


class SumServers:
    """Several message servers that hold the same messages and do not tell each other what they were asked.

    Parameters
    ----------
    urls
        Their addresses.
    on_missing
        Where one of them does not answer: "error", or "everything" to fetch all messages from one that does.
    attempts, backoff, timeout, proxy
        As for `MessageServer`.
    transports
        How each is reached; HTTP unless given.
    randbelow
        Uniform draws below a bound. To be replaced in tests and audits.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        on_missing: Literal["error", "everything"] = "error",
        attempts: int = ATTEMPTS,
        backoff: float = BACKOFF,
        timeout: float = TIMEOUT,
        proxy: str | None = None,
        transports: Sequence[Transport] | None = None,
        randbelow: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self.urls = tuple(check_url(url).rstrip("/") for url in urls)
        if not self.urls or len(set(self.urls)) != len(self.urls):
            raise InvalidInput("no server, or the same one twice", hint="give addresses of different servers")
        if len(self.urls) > wire.MAX_SERVERS:
            raise InvalidInput(f"{len(self.urls)} servers", hint=f"at most {wire.MAX_SERVERS}")
        if on_missing not in {"error", "everything"}:
            raise InvalidInput(f"on_missing={on_missing!r}", hint='"error" or "everything"')
        self.address = " ".join(self.urls)
        self.on_missing = on_missing
        self.lines: Sequence[Transport] = (
            tuple(Http(url, timeout=timeout, proxy=proxy) for url in urls) if transports is None else tuple(transports)
        )
        self.retries = tuple(Retries(url, attempts, backoff, place) for place, url in enumerate(self.urls))
        self.randbelow = randbelow
        self.catalogue: Catalogue | None = None
        self.digests: FrameDigests | None = None
        """Of the edition that was agreed on last."""
        self.longest: int | None = None
        """Bytes of the longest frame, as the servers told last."""

    def __repr__(self) -> str:
        return f"<SumServers: {self.address}>"

    def forget(self) -> None:
        self.catalogue = self.digests = self.longest = None

    # -- before the request --------------------------------------------------------------------------------

    def offers(self) -> Steps[tuple[str, ...]]:
        return (yield from fetch_by(self.retries[0])).names

    def get_ready(self, names: tuple[str, ...]) -> Steps[bool]:
        changed = False
        for _ in range(CATALOGUES):
            if self.catalogue is None:
                catalogues = yield from self._each(lambda server: CATALOGUE_REQUEST, read_catalogue)
                if len({catalogue.epoch for catalogue in catalogues}) > 1:
                    raise CatalogueMismatch("the servers have different catalogues", hint=FOLLOW)
                require_sources(names, catalogues[0])
                self.catalogue = catalogues[0]
            try:
                yield from self._agree()
            except _OtherCatalogue:
                self.catalogue, changed = None, True
                continue
            return changed
        raise BadAnswer("the servers change their catalogue all the time", hint="try again later")

    def _agree(self) -> Steps[None]:
        """Hold the digests of the newest edition that all servers hold, about which all must agree."""
        have = self.digests if self.digests is not None and self.digests.edition.epoch == self.known.epoch else None
        for attempt in range(EDITIONS):
            if attempt:
                yield Wait(self.retries[0].backoff * 2 ** (attempt - 1))
            try:
                found = yield from self._ask_digests(have, None)
                if len({each.edition.life for each in found}) > 1:
                    raise BadAnswer("the servers do not hold the same messages", hint=FOLLOW)
                oldest = min(each.edition.number for each in found)
                if any(each.edition.number != oldest for each in found):  # as all were when the last one had it
                    found = yield from self._ask_digests(have, oldest)
            except _EditionGone:
                continue
            if len({each.root for each in found}) > 1:
                raise BadAnswer(f"the servers disagree about edition {oldest}", hint="one of them is faulty, or lies")
            self.digests, self.longest = found[0], found[0].width
            return
        raise BadAnswer(NO_EDITION, hint=LAGS)

    def _ask_digests(self, have: FrameDigests | None, edition: int | None) -> Steps[tuple[FrameDigests, ...]]:
        """The digests of an edition from every server; None: of the newest edition of each."""

        def read(server: str, reply: Reply) -> FrameDigests:
            if reply.status == 409 and _type_of(reply) == wire.EDITION_GONE:
                raise _EditionGone
            if reply.status != 200:
                raise BadAnswer(f"{server}: no digests, but HTTP {reply.status}", hint="it may be of an older version")
            if not reply.has_type(wire.DIGESTS_TYPE):
                raise InvalidWire("digests of another kind", hint=NOT_A_SERVER)
            if wire.digests_epoch(reply.body) != self.known.epoch:
                raise _OtherCatalogue
            found = wire.decode_digests(reply.body, self.known, have)
            if edition not in {None, found.edition.number}:
                raise InvalidWire("digests of another edition", hint="the server is faulty")
            return found

        target = wire.digests_target(have, edition)
        request = Request("GET", target, wire.DIGESTS_HEADERS, b"", wire.MAX_DIGESTS)
        return (yield from self._each(lambda server: request, read))

    def compare_steps(self, last: Outgoing) -> Steps[Doubt | None]:
        seen = yield from self._each(lambda server: seen_request(last.session), lambda server, reply: read_seen(reply))
        doubts = (
            step_doubt(found, last.step, wire.sum_step_digest(query).hex())
            for found, query in zip(seen, self.queries(last), strict=True)
        )
        return next((doubt for doubt in doubts if doubt is not None), None)

    def _each(
        self, request: Callable[[int], Request], read: Callable[[str, Reply], _Checked]
    ) -> Steps[tuple[_Checked, ...]]:
        """The reply of every server to its request; all are asked, even where one fails."""
        found: list[_Checked] = []
        missing: list[ServerUnreachable] = []
        bad: list[BadAnswer] = []
        answered: list[int] = []
        for server, retries in enumerate(self.retries):
            try:
                found.append((yield from retries.exchange(request(server), partial(read, retries.server))))
                answered.append(server)
            except BadAnswer as error:
                bad.append(error)
            except ServerUnreachable as error:
                missing.append(error)
        if bad:
            raise bad[0]
        _require_all(missing, answered)
        return tuple(found)

    # -- the request ---------------------------------------------------------------------------------------

    def encode_for(self, wanted: str, session: bytes, step: int, asked: tuple[str, ...]) -> tuple[bytes, bytes]:
        known, edition, count = self.known, self._agreed.edition, len(self.retries)
        indices, index = indices_of(known, asked), known.index[wanted]
        vectors = wire.draw_vectors(indices, index, n=known.n, servers=count, randbelow=self.randbelow)
        first, *others = (
            wire.encode_sum_query(
                wire.SumQuery(known.epoch, session, step, edition.number, edition.digest, count, place, vector)
            )
            for place, vector in enumerate(vectors)
        )
        return first, b"".join(others)

    def retrieve(
        self, wanted: str, outgoing: Outgoing, store: Callable[[bytes, bytes], Steps[None]]
    ) -> Steps[AnsweredSet]:
        """Ask every server; where an edition is gone, all of them for another one, with the same vectors.

        A server that has just started holds its newest edition alone, so one that follows is given time to catch up.
        """
        for attempt in range(EDITIONS):
            edition = self._agreed.edition
            if wire.decode_sum_head(outgoing.query)[3:5] != (edition.number, edition.digest):
                queries = [wire.with_edition(q, edition.number, edition.digest) for q in self.queries(outgoing)]
                outgoing = replace(outgoing, query=queries[0], others=b"".join(queries[1:]))
                yield from store(outgoing.query, outgoing.others)
            try:
                answers = yield from self.ask_all(outgoing)
            except _EditionGone:
                if attempt:
                    yield Wait(self.retries[0].backoff * 2 ** (attempt - 1))
                yield from self._agree_or_conflict()
                continue
            return self._put_together(wanted, outgoing, answers)
        raise BadAnswer(NO_EDITION, hint=LAGS)

    def _agree_or_conflict(self) -> Steps[None]:
        try:
            yield from self._agree()
        except _OtherCatalogue:
            self.catalogue = None
            raise Conflict(Doubt.OTHER_CATALOGUE) from None

    def ask_all(self, outgoing: Outgoing) -> Steps[tuple[bytes, ...]]:
        """The sums of all servers."""
        count = len(self.retries)
        limit = max(wire.chunk_length(wire.FRAME_OVERHEAD + self.known.limit, count), SMALL_ANSWER)
        queries = list(self.queries(outgoing))
        return (
            yield from self._each(
                lambda server: Request("POST", wire.SUM_PATH, wire.SUM_QUERY_HEADERS, queries[server], limit),
                lambda server, reply: self._read_sum(reply),
            )
        )

    def _read_sum(self, reply: Reply) -> bytes:
        if reply.status == 409:
            if _type_of(reply) == wire.EDITION_GONE:
                raise _EditionGone
            doubt = conflict_of(reply)
            if doubt is Doubt.OTHER_CATALOGUE:
                self.catalogue = None
            raise Conflict(doubt)
        if reply.status != 200:
            raise BadAnswer(f"a server refused the query: HTTP {reply.status}", hint="see the server's log")
        if not reply.has_type(wire.SUM_TYPE):
            raise InvalidWire("an answer of another kind", hint=NOT_A_SERVER)
        return reply.body

    def _put_together(self, wanted: str, outgoing: Outgoing, answers: Sequence[bytes]) -> AnsweredSet:
        known = self.known
        try:
            found = wire.decode_sums(
                answers, self.vectors(outgoing), known.index[wanted], self._agreed, limit=known.limit
            )
        except InvalidWire:  # whichever source is wanted
            raise BadAnswer(
                "the answers of the servers do not fit together",
                hint="one of them is faulty, or lies; `retry` sends the same bytes again",
            ) from None
        edition = wire.decode_sum_head(outgoing.query).edition
        return AnsweredSet({wanted: found}, sum(map(len, answers)), requests=len(answers), edition=edition)

    # -- what was stored -----------------------------------------------------------------------------------

    def check_for(self, wanted: str, last: Outgoing) -> Doubt | None:
        if last.read and not last.query:
            return Doubt.FORGOTTEN
        try:
            heads = [wire.decode_sum_head(query) for query in self.queries(last)]
            if any(head.epoch != self.known.epoch for head in heads):
                return Doubt.OTHER_CATALOGUE
            named = [(head.session, head.step, head.servers, head.place) for head in heads]
            count = len(self.retries)
            if named != [(last.session, last.step, count, place) for place in range(count)]:
                return Doubt.UNFIT
            if last.read:
                return None
            vectors, asked = self.vectors(last), set(indices_of(self.known, last.asked))
        except InvalidWire:
            return Doubt.UNFIT
        index = self.known.index[wanted]
        rest = {vector[:index] + vector[index + 1 :] for vector in vectors}
        within = all(entry == 0 or source in asked for source, entry in enumerate(vectors[0]))
        return None if len(rest) == 1 and within else Doubt.UNFIT

    def queries(self, outgoing: Outgoing) -> list[bytes]:
        """The bytes for each server."""
        size, others = max(len(outgoing.query), 1), outgoing.others
        return [outgoing.query, *(others[at : at + size] for at in range(0, len(others), size))]

    def vectors(self, outgoing: Outgoing) -> tuple[bytes, ...]:
        if self.catalogue is None:
            return ()
        return tuple(wire.decode_sum_query(query, self.catalogue.n).vector for query in self.queries(outgoing))

    @property
    def known(self) -> Catalogue:
        """What the servers offer, once they were asked."""
        if self.catalogue is None:
            raise RuntimeError("the catalogue is fetched before anything is asked")
        return self.catalogue

    @property
    def _agreed(self) -> FrameDigests:
        if self.digests is None:
            raise RuntimeError("an edition is agreed on before anything is asked")
        return self.digests


class _EditionGone(Exception):
    """A server does not hold the edition any more."""


class _OtherCatalogue(Exception):
    """A server has another catalogue than the one that is known."""


def _type_of(reply: Reply) -> str | None:
    try:
        return wire.decode_problem(reply.body).type
    except InvalidWire:
        return None


def _require_all(missing: list[ServerUnreachable], answered: list[int]) -> None:
    if missing:
        raise ServerMissing(
            missing[0].message,
            hint="all servers are needed: `retry` when it is back, or allow everything from one (on_missing)",
            answered=tuple(answered),
        )


# --------------------------------------------------------------------------------------------------------------------
# Whether several servers look like one operator: the same address, or the same certificate.
#
# Retrieval from several servers hides nothing from servers that exchange what they were asked. Whether they do
# cannot be
# observed; but servers that share an address or a key have the same operator.


LOOKUP_SECONDS: Final = 5.0


def shared_infrastructure(urls: Sequence[str], *, seconds: float = LOOKUP_SECONDS) -> list[str]:
    """What pairs of servers have in common, in words; empty where nothing was found.

    seconds: How long to wait for a certificate. One that does not arrive is not compared.
    """
    lines = [Http(url, timeout=seconds) for url in urls]
    addresses = [_addresses(line.origin.host, line.origin.port) for line in lines]
    certificates = [
        _certificate(line.origin.host, line.origin.port, seconds) if line.origin.scheme == "https" else None
        for line in lines
    ]
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
