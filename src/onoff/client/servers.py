"""SumCore: one user's requests to several servers, none of which learns which source is wanted.

The set of sources is chosen as for one server: everything while ON, drawn from the table while OFF. Which of the set is
wanted is then hidden from every server by itself: each gets a vector that is uniform whatever is wanted, and answers
with a sum of messages (see `wire.sums`). A request is

    Fetch, Ask      once: the catalogue of every server, and the last step that each saw
    Digests         of every frame of the newest edition of each server; the oldest of these is one that all hold
    StoreRecord     the bytes for every server, durable before the first leaves
    Tick, SendSum   to every server, in a fixed order, whatever is wanted, also where the vector is zero

The invariants of `core` hold for each server. An edition that one of them no longer holds is replaced by another one,
with the same vectors, in a new record; that tells nothing new.

What depends on which source is wanted is only how the answers are put together, and not whether that succeeds. A server
may lie; so before anything is asked all servers must report the same root of digests, which is computed here as well,
and of the answers nothing is taken but the frame of the edition. One server that adds anything to its answer is refused
whatever is wanted, and learns nothing from what is done next.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Final, TypeVar

from onoff import wire
from onoff.client.commands import Ask, Digests, Fetch, Record, Retries, SendSum, Steps, StoreRecord, Wait
from onoff.client.core import SMALL_ANSWER, Conflict, Core, Doubt, conflict_of
from onoff.client.message import Message, Sent
from onoff.client.message_server import NOT_A_SERVER, read_catalogue, require_sources
from onoff.errors import BadAnswer, CatalogueMismatch, InvalidWire, ServerMissing, ServerUnreachable
from onoff.session import Session
from onoff.upstream.transport import Http, Reply
from onoff.wire import FrameDigests

EDITIONS: Final = 5
"""How often an edition may be gone before the servers are given up."""
CATALOGUES: Final = 3
"""How often the catalogue may change before the servers are given up."""
_Checked = TypeVar("_Checked")
FOLLOW: Final = "one of them must follow the other: `onoff serve --follow URL`"

NO_EDITION: Final = "the servers let go of every edition at once"
LAGS: Final = "one of them lags behind; try again later"


class SumCore(Core):
    """Requests to the servers of `retries`, in this order. `randbelow(k)` is uniform on 0..k-1."""

    def __init__(
        self,
        session: Session,
        retries: Sequence[Retries],
        *,
        origin: str,
        new_session: Callable[[], bytes],
        randbelow: Callable[[int], int],
    ) -> None:
        name = " ".join(each.server for each in retries)
        super().__init__(session, retries[0], origin=origin, new_session=new_session, name=name)
        self.retries = tuple(retries)
        self.digests: FrameDigests | None = None
        """Of the edition that was agreed on last."""
        self.longest: int | None = None
        """Bytes of the longest frame, as the servers told last."""
        self._randbelow = randbelow

    def sent(self, record: Record) -> Sent:
        sent = super().sent(record)
        if record.mirror or self.catalogue is None:
            return sent
        return replace(sent, vectors=self._vectors(record))

    # -- before the request --------------------------------------------------------------------------------

    def _get_ready(self) -> Steps[None]:
        for _ in range(CATALOGUES):
            if self.catalogue is None:
                catalogues = yield from self._each(Fetch, read_catalogue)
                if len({catalogue.epoch for catalogue in catalogues}) > 1:
                    raise CatalogueMismatch("the servers have different catalogues", hint=FOLLOW)
                require_sources(self.chain.names, catalogues[0])
                self.catalogue = catalogues[0]
            yield from super()._get_ready()
            try:
                yield from self._agree()
            except _OtherCatalogue:
                self.catalogue = None
                if self.record is not None:
                    self.doubt = self.doubt or Doubt.OTHER_CATALOGUE
                continue
            return
        raise BadAnswer("the servers change their catalogue all the time", hint="try again later")

    def _agree(self) -> Steps[None]:
        """Hold the digests of the newest edition that all servers hold, about which all must agree."""
        have = self.digests if self.digests is not None and self.digests.edition.epoch == self._offered.epoch else None
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
            if wire.digests_epoch(reply.body) != self._offered.epoch:
                raise _OtherCatalogue
            found = wire.decode_digests(reply.body, self._offered, have)
            if edition not in {None, found.edition.number}:
                raise InvalidWire("digests of another edition", hint="the server is faulty")
            return found

        return (yield from self._each(lambda server: Digests(have, edition, server), read))

    def _compare_steps(self, record: Record) -> Steps[Doubt | None]:
        def read(server: str, reply: Reply) -> wire.Seen | None:
            return wire.decode_seen(reply.body) if reply.status == 200 else None

        seen = yield from self._each(lambda server: Ask(record.session, server), read)
        for found, query in zip(seen, self._queries(record), strict=True):
            if found is None:
                return Doubt.FORGOTTEN
            if found.step > record.step:
                return Doubt.ROLLED_BACK
            if found.step == record.step and found.sha256 != wire.sum_step_digest(query).hex():
                return Doubt.CONFLICT
        return None

    def _each(
        self, command: Callable[[int], Fetch | Ask | Digests | SendSum], read: Callable[[str, Reply], _Checked]
    ) -> Steps[tuple[_Checked, ...]]:
        """The reply of every server to a command; all are asked, even where one fails."""
        found: list[_Checked] = []
        missing: list[ServerUnreachable] = []
        bad: list[BadAnswer] = []
        answered: list[int] = []
        for server, retries in enumerate(self.retries):
            try:
                found.append((yield from retries.exchange(command(server), partial(read, retries.server))))
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

    def _encode(self, session: bytes, step: int, indices: tuple[int, ...], wanted: int) -> tuple[bytes, bytes]:
        offered, edition, count = self._offered, self._agreed.edition, len(self.retries)
        index = offered.index[self.chain.names[wanted]]
        vectors = wire.draw_vectors(indices, index, n=offered.n, servers=count, randbelow=self._randbelow)
        first, *others = (
            wire.encode_sum_query(
                wire.SumQuery(offered.epoch, session, step, edition.number, edition.digest, count, place, vector)
            )
            for place, vector in enumerate(vectors)
        )
        return first, b"".join(others)

    def _deliver(self, record: Record) -> Steps[Message]:
        """Ask every server; where an edition is gone, all of them for another one, with the same vectors.

        A server that has just started holds its newest edition alone, so one that follows is given time to catch up.
        """
        for attempt in range(EDITIONS):
            edition = self._agreed.edition
            if wire.decode_sum_head(record.query)[3:5] != (edition.number, edition.digest):
                queries = [wire.with_edition(q, edition.number, edition.digest) for q in self._queries(record)]
                record = replace(record, query=queries[0], others=b"".join(queries[1:]))
                yield StoreRecord(record)
                self.record = record
            try:
                answers = yield from self._ask_all(record)
            except _EditionGone:
                if attempt:
                    yield Wait(self.retries[0].backoff * 2 ** (attempt - 1))
                yield from self._agree()
                continue
            return self._put_together(record, answers)
        raise BadAnswer(NO_EDITION, hint=LAGS)

    def _ask_all(self, record: Record) -> Steps[tuple[bytes, ...]]:
        count = len(self.retries)
        limit = max(wire.chunk_length(wire.FRAME_OVERHEAD + self._offered.limit, count), SMALL_ANSWER)
        queries = list(self._queries(record))
        return (
            yield from self._each(
                lambda server: SendSum(queries[server], limit, server), lambda server, reply: _read_sum(reply)
            )
        )

    def _put_together(self, record: Record, answers: Sequence[bytes]) -> Message:
        offered = self._offered
        name = self.chain.names[record.wanted]
        index = offered.index[name]
        try:
            found = wire.decode_sums(answers, self._vectors(record), index, self._agreed, limit=offered.limit)
        except InvalidWire:  # whichever source is wanted
            raise BadAnswer(
                "the answers of the servers do not fit together",
                hint="one of them is faulty, or lies; `retry` sends the same bytes again",
            ) from None
        self.answered()
        sent = self.sent(record)
        head = wire.decode_sum_head(record.query)
        message = Message.of(name, found, edition=head.edition)
        return message.after(sent, messages=sent.cost, received=sum(map(len, answers)))

    # -- state ---------------------------------------------------------------------------------------------

    def _disagrees(self, record: Record) -> Doubt | None:
        if record.mirror and not record.query:
            return Doubt.FORGOTTEN
        try:
            heads = [wire.decode_sum_head(query) for query in self._queries(record)]
            if any(head.epoch != self._offered.epoch for head in heads):
                return Doubt.OTHER_CATALOGUE
            named = [(head.session, head.step, head.servers, head.place) for head in heads]
            count = len(self.retries)
            if named != [(record.session, record.step, count, place) for place in range(count)]:
                return Doubt.UNFIT
            if record.mirror:
                return None
            vectors, asked = self._vectors(record), set(self._asked_indices(record))
        except InvalidWire:
            return Doubt.UNFIT
        index = self._offered.index[self.chain.names[record.wanted]]
        rest = {vector[:index] + vector[index + 1 :] for vector in vectors}
        within = all(entry == 0 or source in asked for source, entry in enumerate(vectors[0]))
        return None if len(rest) == 1 and within else Doubt.UNFIT

    def _queries(self, record: Record) -> list[bytes]:
        size = max(len(record.query), 1)
        return [record.query, *(record.others[at : at + size] for at in range(0, len(record.others), size))]

    def _vectors(self, record: Record) -> tuple[bytes, ...]:
        return tuple(wire.decode_sum_query(query, self._offered.n).vector for query in self._queries(record))

    @property
    def _agreed(self) -> FrameDigests:
        if self.digests is None:
            raise RuntimeError("an edition is agreed on before anything is asked")
        return self.digests


class _EditionGone(Exception):
    """A server does not hold the edition any more."""


class _OtherCatalogue(Exception):
    """A server has another catalogue than the one that is known."""


def _read_sum(reply: Reply) -> bytes:
    if reply.status == 409:
        if _type_of(reply) == wire.EDITION_GONE:
            raise _EditionGone
        raise Conflict(conflict_of(reply))
    if reply.status != 200:
        raise BadAnswer(f"a server refused the query: HTTP {reply.status}", hint="see the server's log")
    if not reply.has_type(wire.SUM_TYPE):
        raise InvalidWire("an answer of another kind", hint=NOT_A_SERVER)
    return reply.body


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
