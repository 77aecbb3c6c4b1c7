"""SumCore: one user's requests to several servers, none of which learns which source is wanted.

The set of sources is chosen as for one server: everything while ON, drawn from the table while OFF. Which of the set is
wanted is then hidden from every server by itself: each gets a vector that is uniform whatever is wanted, and answers
with a sum of messages (see `wire.sums`). A request is

    Fetch, Ask      once: the catalogue of every server, and the last step that each saw
    Newest          the newest edition of every server; the oldest of these is one that all hold
    StoreRecord     the bytes for every server, durable before the first leaves
    Tick, SendSum   to every server, in a fixed order, whatever is wanted, also where the vector is zero

The invariants of `core` hold for each server. An edition that one of them no longer holds is replaced by another one,
with the same vectors, in a new record; that tells nothing new. What depends on which source is wanted is only how the
answers are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from onoff import wire
from onoff.client.catalogue import NOT_A_SERVER, read_catalogue, require_sources
from onoff.client.commands import Ask, Fetch, Newest, SendSum, Steps, StoreRecord, Wait
from onoff.client.core import SMALL_ANSWER, Conflict, Core, conflict_of
from onoff.client.doubt import Doubt
from onoff.client.exchange import Reply
from onoff.client.message import Message, Sent
from onoff.client.record import Record
from onoff.client.retrying import Retries
from onoff.errors import BadAnswer, CatalogueMismatch, InvalidWire, ServerMissing, ServerUnreachable
from onoff.session import Session
from onoff.wire import Edition

EDITIONS: Final = 5
"""How often an edition may be gone before the servers are given up."""
_Checked = TypeVar("_Checked")
FOLLOW: Final = "one of them must follow the other: `onoff serve --follow URL`"


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
        self.edition: Edition | None = None
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
        if self.catalogue is None:
            catalogues = yield from self._each(Fetch, read_catalogue)
            if len({catalogue.epoch for catalogue in catalogues}) > 1:
                raise CatalogueMismatch("the servers have different catalogues", hint=FOLLOW)
            require_sources(self.chain.names, catalogues[0])
            self.catalogue = catalogues[0]
        yield from super()._get_ready()
        self.edition = yield from self._agree()

    def _agree(self) -> Steps[Edition]:
        """The newest edition that all servers hold."""
        reports = yield from self._each(Newest, _read_edition)
        self.longest = max(report.longest for report in reports)
        editions = [report.edition for report in reports]
        if len({(edition.epoch, edition.life) for edition in editions}) > 1:
            raise BadAnswer("the servers do not hold the same messages", hint=FOLLOW)
        oldest = min(editions, key=lambda edition: edition.number)
        if any(edition.number == oldest.number and edition.digest != oldest.digest for edition in editions):
            raise BadAnswer(
                f"the servers disagree about edition {oldest.number}", hint="one of them is faulty, or lies"
            )
        return oldest

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
        self, command: Callable[[int], Fetch | Ask | Newest | SendSum], read: Callable[[str, Reply], _Checked]
    ) -> Steps[tuple[_Checked, ...]]:
        """The reply of every server to a command; all are asked, even where one fails."""
        found: list[_Checked] = []
        missing: list[ServerUnreachable] = []
        answered: list[int] = []
        for server, retries in enumerate(self.retries):
            try:
                found.append((yield from retries.exchange(command(server), partial(read, retries.server))))
                answered.append(server)
            except BadAnswer:
                raise
            except ServerUnreachable as error:
                missing.append(error)
        _require_all(missing, answered)
        return tuple(found)

    # -- the request ---------------------------------------------------------------------------------------

    def _encode(self, session: bytes, step: int, indices: tuple[int, ...], wanted: int) -> tuple[bytes, bytes]:
        offered, edition, count = self._offered, self._agreed, len(self.retries)
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
            try:
                answers = yield from self._ask_all(record)
            except _EditionGone:
                if attempt:
                    yield Wait(self.retries[0].backoff * 2 ** (attempt - 1))
                edition = self.edition = yield from self._agree()
                queries = [wire.with_edition(q, edition.number, edition.digest) for q in self._queries(record)]
                record = replace(record, query=queries[0], others=b"".join(queries[1:]))
                yield StoreRecord(record)
                self.record = record
                continue
            return self._put_together(record, answers)
        raise BadAnswer("the servers let go of every edition at once", hint="one of them lags behind; try again later")

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
            padded = wire.decode_sums(answers, self._vectors(record), index)
            found = wire.decode_padded_frame(padded, index, epoch=offered.epoch, limit=offered.limit)
        except InvalidWire as error:  # a wrong answer is detected whichever source is wanted
            raise BadAnswer(
                f"the answers of the servers do not fit together: {error.message}",
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
    def _agreed(self) -> Edition:
        if self.edition is None:
            raise RuntimeError("an edition is agreed on before anything is asked")
        return self.edition


class _EditionGone(Exception):
    """A server does not hold the edition any more."""


def _read_edition(server: str, reply: Reply) -> wire.EditionReport:
    if reply.status != 200:
        raise BadAnswer(f"{server}: no edition, but HTTP {reply.status}", hint="it may be of an older version")
    return wire.decode_edition(reply.body)


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
