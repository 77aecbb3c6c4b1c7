"""The state machine of the client: events in, commands out. It uses no socket, file, clock or random source itself.

    state    doubt      why the next query must be everything, or None
             session    memory (what must stay hidden, and the belief about it) and tables; meaningful without doubt
             record     the last request as it was stored; `record.pending` until it is answered
             catalogue  what the server offers, fetched once; None until then
             checked    whether the server confirmed, since the journal was opened, that our last step is its last

A request is a generator that yields commands (see `commands`), is sent the event each leads to, and returns the
message. Invariants, whatever happens between two events:

1. Nothing is sent that is not stored. What is stored counts as sent, so it is never drawn again.
2. One (session, step) has one byte string. A retry sends the record; a new request is a new step; a doubt is a
   new session.
3. In doubt everything is asked. Doubts are: no journal, a damaged, copied or older one, another chain, server or
   catalogue, a conflict. The set does not depend on the past. Where the memory still holds (HARMLESS doubts) it goes on
   from there; elsewhere the present request separates the future from the past under a chain, and under a richer model,
   where it does not, everything is asked until privacy is ON (`Memory.blind`).
4. What is done next depends on events and on what the server sees, never on which source is wanted.

A journal that was restored to an earlier state looks valid. So the first request after opening asks the server for the
last step it saw: a later one, the same one with other bytes, or none at all is a doubt. An earlier one is not: a query
that was stored and never sent told the server nothing. A session that begins with a refresh and a read of the mirror is
opened with the server right after that (`open_session`).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Final

from onoff import wire
from onoff.client.commands import Ask, Build, Fetch, Record, Retries, SendQuery, Steps, StoreRecord, Tick
from onoff.client.message import Message, Sent
from onoff.client.message_server import NOT_A_SERVER, read_catalogue, require_sources
from onoff.errors import BadAnswer, InvalidWire, OnOffError, ServerUnreachable
from onoff.model.contexts import Model
from onoff.session import Session
from onoff.session.session import Memory
from onoff.upstream.transport import Reply
from onoff.wire import Catalogue

# --------------------------------------------------------------------------------------------------------------------
# Doubt: why the record of the last request may be out of date, so that the next query has to be everything.
#
# Code compares members. The value of each is the sentence that people read; `status`, `onoff state` and the note of
# a
# request show it.


class Doubt(StrEnum):
    """Found by the journal (the first four), by comparing it with this client, or by asking the server."""

    NEW = "there was no journal"
    COPIED = "the journal was copied or moved from elsewhere"
    DAMAGED = "the journal was damaged and put aside"
    PUT_BACK = "the journal is not the one that was used last"
    NOTHING_STORED = "there is no last request"
    OTHER_CHAIN = "the chain is not the one of the last request"
    OTHER_SERVER = "the server is not the one of the last request"
    OTHER_CATALOGUE = "the server's catalogue has changed"
    UNFIT = "the journal does not fit the chain"
    ROLLED_BACK = "the journal is older than what the server saw"
    FORGOTTEN = "the server does not know this session"
    CONFLICT = "the server saw another request at this step"


HARMLESS: Final = frozenset({Doubt.OTHER_SERVER, Doubt.OTHER_CATALOGUE, Doubt.FORGOTTEN})
"""The server does not have the last step of the journal, but what the journal holds of the past is still right. After
any other doubt there may have been requests that the journal does not know of."""


log = logging.getLogger("onoff.client")

NEVER_SENT: Final = -1
"""The step of a session in which nothing was sent yet."""
RECOVERIES: Final = 2
"""How often one request may start a new session before the server is given up."""
SMALL_ANSWER: Final = 64 * 1024
"""Refusals are at most this long."""


class Core:
    """One user's requests to one server.

    session      draws queries; its memory is set from what `opened` finds
    retries      which server, and how often it is sent the same bytes before it is given up
    origin       where the chain came from, for the record
    new_session  16 fresh random bytes
    name         what the record calls the server; its address unless given
    """

    def __init__(
        self, session: Session, retries: Retries, *, origin: str, new_session: Callable[[], bytes], name: str = ""
    ) -> None:
        self.session = session
        self.chain: Model = session.model
        self.server = name or retries.server
        self.origin = origin
        self.record: Record | None = None
        self.doubt: Doubt | None = None
        self.catalogue: Catalogue | None = None
        self.checked = False
        self._exchange = retries.exchange
        self._new_session = new_session
        self._digest = self.chain.digest()

    def opened(self, found: Record | None, doubt: Doubt | None) -> None:
        """The journal was opened: what it holds, and whether that can be relied on."""
        self.record, self.doubt, self.checked = found, doubt, False
        if found is None:
            return
        if doubt is None:
            self.doubt = self._differs(found)
        if self.doubt is None or (doubt is None and self.doubt in HARMLESS):
            asked = wire.decode_bitmap(found.asked, self.chain.n)
            memory = self.session.memory.restored(asked, found.wanted, found.memory)
            if memory is None:
                self.doubt = Doubt.UNFIT
            else:
                self.session.memory = memory

    def request(self, wanted: int, *, private: bool) -> Steps[Message]:
        """Everything that one request takes; a step of its own, whatever became of the one before."""
        try:
            yield from self._get_ready()
        except ServerUnreachable:  # it was wanted although it was not sent, and the next request depends on it
            yield from self.remember(wanted, private=private, pending=True)
            raise
        if self.doubt is not None or self.record is None:
            record, memory = self._start_over(wanted, private, self.doubt or Doubt.NOTHING_STORED)
        else:
            if not private:
                yield Build()
            query, memory = self.session.propose(wanted, private=private)
            record = self._compose(
                self.record.session, self.record.step + 1, query.sources, wanted, private, query.note, memory
            )
        return (yield from self._carry_out(record, memory))

    def retry(self) -> Steps[Message]:
        """Send the last request's bytes again, if it was not answered, and deliver what it wanted."""
        yield from self._get_ready()
        record = self.waiting()
        if record.mirror:
            return (yield from self.ask_everything(record.wanted))
        return (yield from self._carry_out(record, self.session.memory))

    def waiting(self) -> Record:
        """The last request, if it waits for an answer and can be repeated; else raises OnOffError."""
        record = self.record
        if record is None or not record.pending:
            raise OnOffError("nothing is waiting for an answer", hint="make a request")
        if self.doubt is not None:
            raise OnOffError(f"the last request cannot be repeated: {self.doubt}", hint="make a new request")
        return record

    def sent(self, record: Record) -> Sent:
        """What the server sees of a record."""
        asked = wire.decode_bitmap(record.asked, self.chain.n)
        return Sent(record.session.hex(), record.step, asked, self.chain.n, record.private, record.note, record.mirror)

    # -- reading from the mirror ---------------------------------------------------------------------------

    def remember(self, wanted: int, *, private: bool = True, pending: bool, again: bool = False) -> Steps[None]:
        """Store that `wanted` is read from the mirror before it is, or that it was wanted and nothing could be asked.

        From now on it is hidden among all sources, which is right whatever happened before, doubt or not: nothing is
        asked, so no set has to be drawn. The session, its step and the bytes last sent stay, so that the server can
        still tell whether this journal is an old one. In doubt a new session begins, in which nothing was sent yet.

        private: Whether privacy is ON, as it is for what is read from the mirror.
        again: Whether the memory counts it already, because it was made before and not answered.
        """
        everything = tuple(range(self.chain.n))
        asked = wire.encode_bitmap(everything, self.chain.n)
        last = self.record if self.doubt is None else None
        if last is None:
            session = self._new_session()
            record = Record(self.server, self._digest, self.origin, session, NEVER_SENT, b"", asked, wanted, private)
        else:
            record = replace(last, asked=asked, wanted=wanted, private=private, note=None)
        doubt = self.doubt or (Doubt.NOTHING_STORED if last is None else None)
        memory = self._after_everything(wanted, private=private, doubt=doubt, again=again)
        record = replace(record, pending=pending, mirror=True, memory=memory.stored())
        yield StoreRecord(record)
        self.record, self.session.memory = record, memory
        self.doubt, self.checked = None, self.checked or last is None

    def remember_unmodelled(self) -> Steps[None]:
        """Store that a source which the model does not have is read from the mirror, before it is.

        What must stay hidden stays what it was, and is hidden among all sources from now on, as after any other read.
        In doubt there is nothing to store: everything will be asked.
        """
        if self.record is not None and self.doubt is None:
            yield from self.remember(self.record.wanted, pending=False, again=True)

    def open_session(self) -> Steps[int]:
        """Open a session that began with reading, by a query for the first source of the catalogue, whatever is wanted.

        Else the server could not tell it, after a restart, from one that it forgot, and the next open request would be
        in doubt. If the query is lost, that is how it stays. Returns the bytes of the answer; 0 where none came.
        """
        record = self.record
        if record is None or record.step != NEVER_SENT or not self.checked:
            return 0
        try:
            yield from self._get_ready()
            query, others = self._encode(record.session, 0, (0,), record.wanted)
            self.record = replace(record, step=0, query=query, others=others)
            yield StoreRecord(self.record)
            yield Tick()
            limit = max(wire.max_answer_length(1, self._offered), SMALL_ANSWER)
            return (yield from self._exchange(SendQuery(query, limit), lambda reply: self._check_answer(reply, (0,))))[
                1
            ]
        except (ServerUnreachable, Conflict):
            return 0

    def answered(self) -> None:
        """The last request has its message."""
        if self.record is not None:
            self.record = replace(self.record, pending=False)

    def ask_everything(self, wanted: int) -> Steps[Message]:
        """Ask for every source, where there is no mirror to read `wanted` from, which was remembered before."""
        yield from self._get_ready()
        last = self.record
        if self.doubt is not None or last is None:
            private, doubt = last is None or last.private, self.doubt or Doubt.NOTHING_STORED
            record, memory = self._start_over(wanted, private, doubt, again=last is not None)
        else:
            everything = tuple(range(self.chain.n))
            memory = self._after_everything(wanted, private=last.private, again=True)
            record = self._compose(last.session, last.step + 1, everything, wanted, last.private, None, memory)
        return (yield from self._carry_out(record, memory))

    # -- before the request: the catalogue, and whether the server has seen our last step ------------------

    def _get_ready(self) -> Steps[None]:
        if self.catalogue is None:
            catalogue = yield from self._exchange(Fetch(), lambda reply: read_catalogue(self.server, reply))
            require_sources(self.chain.names, catalogue)
            self.catalogue = catalogue
        if self.record is not None and self.doubt is None and not self.checked:
            self.doubt = self._disagrees(self.record)
            if self.doubt is None:
                self.doubt = yield from self._compare_steps(self.record)
        self.checked = True

    def _compare_steps(self, record: Record) -> Steps[Doubt | None]:
        def check(reply: Reply) -> wire.Seen | None:
            return wire.decode_seen(reply.body) if reply.status == 200 else None

        seen = yield from self._exchange(Ask(record.session), check)
        if seen is None:
            return Doubt.FORGOTTEN
        if seen.step > record.step:
            return Doubt.ROLLED_BACK
        if seen.step == record.step and seen.sha256 != hashlib.sha256(record.query).hexdigest():
            return Doubt.CONFLICT
        return None

    # -- the request ---------------------------------------------------------------------------------------

    def _start_over(self, wanted: int, private: bool, reason: Doubt, *, again: bool = False) -> tuple[Record, Memory]:
        """A new session that begins with the full set, which is private whatever happened before.

        again: the memory counts the request already, because it was made before and refused.
        """
        everything = tuple(range(self.chain.n))
        note = f"{reason}: everything was asked"
        memory = self._after_everything(wanted, private=private, doubt=reason, again=again)
        return self._compose(self._new_session(), 0, everything, wanted, private, note, memory), memory

    def _after_everything(
        self, wanted: int, *, private: bool, doubt: Doubt | None = None, again: bool = False
    ) -> Memory:
        """The memory once everything was asked for `wanted`, whatever was wanted."""
        memory = self.session.memory
        if doubt is not None and doubt not in HARMLESS:
            return memory.forgotten(wanted, private=private)
        if again:
            return memory.again(wanted)
        return memory.after(tuple(range(self.chain.n)), wanted, private=private, table=None)

    def _compose(
        self,
        session: bytes,
        step: int,
        sources: tuple[int, ...],
        wanted: int,
        private: bool,
        note: str | None,
        memory: Memory,
    ) -> Record:
        asked = wire.encode_bitmap(sources, self.chain.n)
        query, others = self._encode(session, step, self._server_indices(sources), wanted)
        record = Record(self.server, self._digest, self.origin, session, step, query, asked, wanted, private, note)
        return replace(record, memory=memory.stored(), others=others)

    def _carry_out(self, record: Record, memory: Memory) -> Steps[Message]:
        """Store unless it is stored, send, deliver; where the server doubts our state, again with everything."""
        for _ in range(RECOVERIES + 1):
            if record is not self.record:
                yield StoreRecord(record)
                self.record, self.session.memory, self.doubt, self.checked = record, memory, None, True
            yield Tick()
            try:
                return (yield from self._deliver(record))
            except Conflict as conflict:
                self.doubt = conflict.doubt
                if conflict.doubt is Doubt.OTHER_CATALOGUE:
                    self.catalogue = None
                yield from self._get_ready()
                record, memory = self._start_over(record.wanted, record.private, conflict.doubt, again=True)
        raise BadAnswer("the server refuses every session", hint="it may be faulty; try again later")

    def _deliver(self, record: Record) -> Steps[Message]:
        """Send until there is an answer; check all of it; only then look for the frame that was wanted."""
        asked = self._asked_indices(record)
        expected = wire.max_answer_length(len(asked), self._offered)
        sent = self.sent(record)
        log.info("step %d: %d of %d sources asked", sent.step, len(asked), sent.n)
        messages, received = yield from self._exchange(
            SendQuery(record.query, max(expected, SMALL_ANSWER)), lambda reply: self._check_answer(reply, asked)
        )
        self.answered()
        name = self.chain.names[record.wanted]
        message = Message.of(name, messages[asked.index(self._offered.index[name])])
        return message.after(sent, messages=len(asked), received=received)

    def _check_answer(self, reply: Reply, asked: tuple[int, ...]) -> tuple[tuple[wire.WireMessage, ...], int]:
        if reply.status == 409:
            raise Conflict(conflict_of(reply))
        if reply.status != 200:
            raise BadAnswer(f"the server refused the query: HTTP {reply.status}", hint="see the server's log")
        if not reply.has_type(wire.ANSWER_TYPE):
            raise InvalidWire("an answer of another kind", hint=NOT_A_SERVER)
        known = self._offered
        messages = wire.decode_answer(
            reply.body, asked, epoch=known.epoch, frame_size=known.frame_size, limit=known.limit
        )
        return messages, len(reply.body)

    # -- state ---------------------------------------------------------------------------------------------

    def _differs(self, found: Record) -> Doubt | None:
        """Why a sound record does not belong to this client, or None."""
        if found.chain != self._digest:
            return Doubt.OTHER_CHAIN
        try:
            asked = wire.decode_bitmap(found.asked, self.chain.n)
        except InvalidWire:
            return Doubt.UNFIT
        if found.wanted not in asked:
            return Doubt.UNFIT
        return None if found.server == self.server else Doubt.OTHER_SERVER

    def _disagrees(self, record: Record) -> Doubt | None:
        """Why the bytes of a record are not what it would be sent as to this server, or None."""
        if record.mirror and not record.query:
            return Doubt.FORGOTTEN  # the server has not seen the session, so it cannot tell whether it was used
        try:
            head = wire.decode_query_head(record.query)
            if head.epoch != self._offered.epoch:
                return Doubt.OTHER_CATALOGUE
            if record.mirror:  # these bytes are of the last query, not of what was read since
                return None if (head.session, head.step) == (record.session, record.step) else Doubt.UNFIT
            again = self._encode(record.session, record.step, self._asked_indices(record), record.wanted)
        except InvalidWire:
            return Doubt.UNFIT
        return None if (record.query, record.others) == again else Doubt.UNFIT

    @property
    def _offered(self) -> Catalogue:
        if self.catalogue is None:
            raise RuntimeError("the catalogue is fetched before anything is asked")
        return self.catalogue

    def _server_indices(self, sources: tuple[int, ...]) -> tuple[int, ...]:
        """The server's numbers for sources of the chain, ascending."""
        return tuple(sorted(self._offered.index[self.chain.names[x]] for x in sources))

    def _asked_indices(self, record: Record) -> tuple[int, ...]:
        return self._server_indices(wire.decode_bitmap(record.asked, self.chain.n))

    def _encode(self, session: bytes, step: int, indices: tuple[int, ...], wanted: int) -> tuple[bytes, bytes]:
        """The bytes for the server, and those for further ones."""
        return wire.encode_query(wire.WireQuery(self._offered.epoch, session, step, indices, n=self._offered.n)), b""


class Conflict(Exception):
    """The last step of the server is not ours."""

    def __init__(self, doubt: Doubt) -> None:
        super().__init__(doubt)
        self.doubt = doubt


def conflict_of(reply: Reply) -> Doubt:
    """What a 409 means."""
    try:
        problem = wire.decode_problem(reply.body)
    except InvalidWire:
        return Doubt.CONFLICT
    return Doubt.OTHER_CATALOGUE if problem.type == wire.EPOCH_CHANGED else Doubt.CONFLICT
