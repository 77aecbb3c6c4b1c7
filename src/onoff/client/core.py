"""The state machine of the client: events in, commands out. It uses no socket, file, clock or random source itself.

    state    doubt      why the next query must be everything, or None
             session    memory (what must stay hidden, and the belief about it) and tables; meaningful without doubt
             record     the last request as it was stored; `record.pending` until it is answered
             upstream   where messages come from; what it is asked is its own affair
             checked    whether the upstream confirmed, since the journal was opened, that our last step is its last

A request is a generator that yields commands, is sent the event each leads to, and returns the message. Commands are
`Request` and `Wait` of the upstream, and `Build`, `StoreRecord` and `Tick` of its own. Invariants, whatever happens
between two events:

1. Nothing is sent that is not stored. What is stored counts as sent, so it is never drawn again.
2. One (session, step) has one byte string. A retry sends the record; a new request is a new step; a doubt is a
   new session.
3. In doubt everything is asked. Doubts are: no journal, a damaged, copied or older one, another chain, server or
   catalogue, a conflict. The set does not depend on the past. Where the memory still holds (HARMLESS doubts) it goes on
   from there; elsewhere the present request separates the future from the past under a chain, and under a richer model,
   where it does not, everything is asked until privacy is ON (`Memory.blind`).
4. What is done next depends on events and on what the server sees, never on which source is wanted. An upstream that
   is asked for a set is not told which of it is wanted.

A journal that was restored to an earlier state looks valid. So the first request after opening asks the server for the
last step it saw: a later one, the same one with other bytes, or none at all is a doubt. An earlier one is not: a query
that was stored and never sent told the server nothing. A session that begins with a refresh and a read of the mirror is
opened with the server right after that (`open_session`). An ordinary web site counts no steps and cannot be asked.

Open history. Where it is kept (`keep_history`, by consent, before the first request), what is asked openly before the
first private request is sent plain, whatever the model says, and its values are kept. At the first private request the
model of this person is made of them (`onoff.model.people`), and from then on it and its filter are carried on, over
restarts and doubts: no value enters any more, and sets do through the filter. What is stored counts as sent here too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from onoff import wire
from onoff.client.message import Message, ServerView
from onoff.errors import BadAnswer, InvalidInput, InvalidWire, OnOffError, ServerUnreachable
from onoff.model.chain import Sources
from onoff.model.people import OpenHistory
from onoff.session import Session
from onoff.session.budget import renewed
from onoff.session.session import Memory
from onoff.upstream import AnsweredSet, Conflict, Doubt, Outgoing, Retrieval, Upstream
from onoff.upstream.transport import Steps

log = logging.getLogger("onoff.client")

HARMLESS: Final = frozenset(
    {Doubt.OTHER_SERVER, Doubt.OTHER_CATALOGUE, Doubt.FORGOTTEN, Doubt.OLDER_WIRE, Doubt.COPIES_GONE}
)
"""The last step of the journal cannot be sent again, but what the journal holds of the past is still right. After
any other doubt there may have been requests that the journal does not know of."""
NEVER_SENT: Final = -1
"""The step of a session in which nothing was sent yet."""
RECOVERIES: Final = 2
"""How often one request may start a new session before the server is given up."""


# --------------------------------------------------------------------------------------------------------------------
# What a client must remember, and nothing else: the last request it stored.
#
# The last query *is* the pending one: as soon as it is stored it counts as sent, so there is nothing older to keep.
# `wanted` is secret, and `memory` where a model has one; everything else is known to the server, or is about the
# machine.


@dataclass(frozen=True, slots=True)
class Record:
    """One request as it was stored before it was sent.

    server, chain, origin  the address, the digest of the chain or model, and where it came from
    session, step          the server's name for this request
    query                  the bytes to send, as often as it takes; none where a set has no bytes of its own
    asked                  the same set as a bitmap over the sources of the chain: the last query
    wanted                 secret: which of them was wanted
    private, note          how it was asked, and why everything was, if it was
    pending                not answered yet
    others                 what goes to the second and further servers, one after the other, each as long as `query`
    mirror                 read from the mirror: nothing was sent for it, `query` and `step` are those last sent
    memory                 what the session's memory needs beyond `asked` and `wanted`, in bytes of its own; secret
    history                what was openly asked before the first private request, by name, and what particles of the
                           person's law are drawn by; empty where it is not kept
    """

    server: str
    chain: str
    origin: str
    session: bytes
    step: int
    query: bytes
    asked: bytes
    wanted: int = field(repr=False)
    private: bool
    note: str | None = None
    pending: bool = True
    memory: bytes = field(default=b"", repr=False)
    mirror: bool = False
    others: bytes = field(default=b"", repr=False)
    history: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Build:
    """Build the table for the session's memory, whatever is wanted."""


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """Write the record; go on only when it is durable. request: whether it is of one, which an observer is told of."""

    record: Record
    request: bool = True


@dataclass(frozen=True, slots=True)
class Tick:
    """Wait for the next tick, which hides how long the draw took."""


class Core:
    """One user's requests to one upstream.

    session      draws queries; its memory is set from what `opened` finds
    upstream     where messages come from
    origin       where the chain came from, for the record
    new_session  16 fresh random bytes
    own          the session of a person of whom this history is known, by a seed; None where no history is kept
    """

    def __init__(
        self,
        session: Session,
        upstream: Upstream | Retrieval,
        *,
        origin: str,
        new_session: Callable[[], bytes],
        own: Callable[[OpenHistory, bytes], Session] | None = None,
    ) -> None:
        self.session = self._of_everybody = session
        self.upstream = upstream
        self.chain: Sources = session.model
        self.server = upstream.address
        self.origin = origin
        self.record: Record | None = None
        self.doubt: Doubt | None = None
        self.checked = False
        self._new_session = new_session
        self._own = own
        self._digest = self.chain.digest()
        self._last_set: tuple[bytes, tuple[int, ...]] = (b"", ())

    def opened(self, found: Record | None, doubt: Doubt | None) -> None:
        """The journal was opened: what it holds, and whether that can be relied on."""
        self.record, self.doubt, self.checked = found, doubt, False
        if found is None:
            return
        history = self.history
        if history is not None and history.hidden:
            self._take_own_law(history)
        if doubt is None:
            self.doubt = self._differs(found)
        if history is not None and not history.hidden:
            return  # nothing to restore: nothing is hidden
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
        if self.record is not None and self._all_open and not private:
            go_on = self.record.session, self.record.step + 1
            session, step = go_on if self.doubt is None else (self._new_session(), 0)
            memory = self.session.memory
            record = self._compose(session, step, (wanted,), wanted, False, None, memory)
        elif self.doubt is not None or self.record is None:
            record, memory = self._start_over(wanted, private, self.doubt or Doubt.NOTHING_STORED)
        else:
            if not private:
                yield Build()
            elif self._all_open:  # the first private request: from now on the person's own model
                self._take_own_law(self.history)
            query, memory = self.session.propose(wanted, private=private)
            record = self._compose(
                self.record.session, self.record.step + 1, query.sources, wanted, private, query.note, memory
            )
        return (yield from self._carry_out(record, memory))

    def announce(self, wanted: int, after: int) -> Steps[None]:
        """Hide from now on that `wanted` will be asked for after so many more requests; stored before it counts."""
        if self.record is None or self.doubt is not None:
            raise InvalidInput("the first request announces nothing", hint="make a request first, and then announce")
        memory = self.session.announcing(wanted, after)
        record = replace(self.record, memory=memory.stored())
        yield StoreRecord(record, request=False)
        self.record, self.session.memory = record, memory

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

    def sent(self, record: Record) -> ServerView:
        """What the server sees of a record."""
        asked = self._set_of(record)
        sent = ServerView(
            record.session.hex(), record.step, asked, self.chain.n, record.private, record.note, record.mirror
        )
        if record.mirror or not isinstance(self.upstream, Retrieval):
            return sent
        return replace(sent, vectors=self.upstream.vectors(self._outgoing(record)))

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
        history = self._history_after(everything, wanted, private=private, again=again)
        record = replace(
            record, chain=self._digest, pending=pending, mirror=True, memory=memory.stored(), history=history
        )
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
        if record is None or record.step != NEVER_SENT or not self.checked or not isinstance(self.upstream, Upstream):
            return 0
        try:
            yield from self._get_ready()
            first = self.upstream.first()
            query = self.upstream.encode(record.session, 0, first)
            if not query:  # nobody counts
                return 0
            self.record = replace(record, step=0, query=query)
            yield StoreRecord(self.record)
            yield Tick()
            return (yield from self.upstream.fetch_set(Outgoing(record.session, 0, first, query))).received
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
            record = self._compose(
                last.session, last.step + 1, everything, wanted, last.private, None, memory, again=True
            )
        return (yield from self._carry_out(record, memory))

    # -- before the request: what the upstream offers, and whether it has seen our last step ---------------

    def _get_ready(self) -> Steps[None]:
        changed = yield from self.upstream.get_ready(self.chain.names)
        if changed and self.record is not None:
            self.doubt = self.doubt or Doubt.OTHER_CATALOGUE
        if self.record is not None and self.doubt is None and not self.checked:
            self.doubt = self._disagrees(self.record)
            if self.doubt is None:
                self.doubt = yield from self._compare_steps(self.record)
        self.checked = True

    def _compare_steps(self, record: Record) -> Steps[Doubt | None]:
        return (yield from self.upstream.compare_steps(self._outgoing(record)))

    # -- the request ---------------------------------------------------------------------------------------

    def _start_over(self, wanted: int, private: bool, reason: Doubt, *, again: bool = False) -> tuple[Record, Memory]:
        """A new session that begins with the full set, which is private whatever happened before.

        again: the memory counts the request already, because it was made before and refused.
        """
        everything = tuple(range(self.chain.n))
        note = f"{reason}: everything was asked"
        memory = self._after_everything(wanted, private=private, doubt=reason, again=again)
        record = self._compose(self._new_session(), 0, everything, wanted, private, note, memory, again=again)
        return record, memory

    def _after_everything(
        self, wanted: int, *, private: bool, doubt: Doubt | None = None, again: bool = False
    ) -> Memory:
        """The memory once everything was asked for `wanted`, whatever was wanted."""
        if self._all_open and (again or not private):
            return self.session.memory
        if self._all_open:
            self._take_own_law(self.history)
            doubt = None
        memory = self.session.memory
        if doubt is not None and doubt not in HARMLESS:
            forgotten = memory.forgotten(wanted, private=private)
            return renewed(forgotten) if private and not again else forgotten
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
        *,
        again: bool = False,
    ) -> Record:
        asked = wire.encode_bitmap(sources, self.chain.n)
        self._last_set = asked, sources
        query, others = self._encode(session, step, self._names(sources), wanted)
        history = self._history_after(sources, wanted, private=private, again=again)
        record = Record(self.server, self._digest, self.origin, session, step, query, asked, wanted, private, note)
        return replace(record, memory=memory.stored(), others=others, history=history)

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
                yield from self._get_ready()
                record, memory = self._start_over(record.wanted, record.private, conflict.doubt, again=True)
        raise BadAnswer("the server refuses every session", hint="it may be faulty; try again later")

    def _deliver(self, record: Record) -> Steps[Message]:
        """Ask until there is an answer; only once all of it was checked, look for the message that was wanted."""
        sent = self.sent(record)
        log.info("step %d: %d of %d sources asked", sent.step, len(sent.sources), sent.n)
        answer = yield from self._ask(record)
        self.answered()
        return Message.answering(self.chain.names[record.wanted], answer, sent, self._names(sent.sources))

    def _ask(self, record: Record) -> Steps[AnsweredSet]:
        outgoing = self._outgoing(record)
        if isinstance(self.upstream, Retrieval):
            return (yield from self.upstream.retrieve(self.chain.names[record.wanted], outgoing, self._store_again))
        return (yield from self.upstream.fetch_set(outgoing))

    def _store_again(self, query: bytes, others: bytes) -> Steps[None]:
        """Other bytes for the last step, which tell nothing new."""
        assert self.record is not None
        record = replace(self.record, query=query, others=others)
        yield StoreRecord(record)
        self.record = record

    # -- the open history ----------------------------------------------------------------------------------

    @property
    def history(self) -> OpenHistory | None:
        """What was openly asked of this server, as far as it is kept and can be relied on."""
        record = self.record
        if self._own is None or record is None or not record.history or record.server != self.server:
            return None
        try:
            kept = json.loads(record.history)
            known = {name: x for x, name in enumerate(self.chain.names)}
            return OpenHistory(
                self.server, self.chain.n, tuple(known.get(name) for name in kept["asked"]), bool(kept["hidden"])
            )
        except (ValueError, TypeError, KeyError, InvalidInput):
            return None

    def keep_history(self) -> Steps[None]:
        """Keep what is openly asked from now on, where nothing was asked before.

        Raises InvalidInput where it was: what is hidden already could show in what is kept.
        """
        if self.history is not None:
            return
        if self._own is None:
            raise InvalidInput("a model that cannot take in what one person asks", hint="learn one: `onoff learn`")
        if self.record is not None or self.doubt not in (None, Doubt.NEW):
            raise InvalidInput(
                "requests were made before, and private ones may be among them",
                hint="a history is kept from the first request on, in a new journal",
            )
        everything = wire.encode_bitmap(tuple(range(self.chain.n)), self.chain.n)
        session = self._new_session()
        kept = json.dumps({"asked": [], "hidden": False, "seed": session.hex()})
        record = Record(self.server, self._digest, self.origin, session, NEVER_SENT, b"", everything, 0, False)
        record = replace(record, pending=False, mirror=True, history=kept)
        yield StoreRecord(record, request=False)
        self.record, self.doubt, self.checked = record, None, True

    def forget_history(self) -> Steps[None]:
        """Keep nothing of it any more. What is hidden cannot be carried on without the model that was made of it."""
        if self.record is None or not self.record.history:
            return
        record = replace(self.record, history="", memory=b"")
        yield StoreRecord(record, request=False)
        self.record, self.doubt, self.session = record, self.doubt or Doubt.UNFIT, self._of_everybody
        self._digest = self.session.model.digest()

    @property
    def _all_open(self) -> bool:
        """Whether a history is kept and nothing was private yet, as far as anybody can tell."""
        history = self.history
        sound = self.doubt is None or self.doubt in HARMLESS or self.doubt is Doubt.OTHER_CHAIN
        return history is not None and not history.hidden and sound

    def _take_own_law(self, history: OpenHistory | None) -> None:
        """Go on with the model of this person, which a history makes together with its seed."""
        if self._own is None or history is None or self.record is None:
            raise RuntimeError("there is no history to make a model of")
        seed = bytes.fromhex(json.loads(self.record.history)["seed"])
        self.session = self._own(replace(history, hidden=False), seed)
        self._digest = self.session.model.digest()

    def _history_after(self, asked: tuple[int, ...], wanted: int, *, private: bool, again: bool) -> str:
        """What is kept of the history after a request: its value where everything was open, and it was asked plain."""
        history, record = self.history, self.record
        if history is None or record is None:
            return ""
        if history.hidden:
            return record.history
        if not self._all_open:
            return ""
        if private and not again:
            history = replace(history, hidden=True)  # and never changed again: the model was made of it
        elif not again:
            history = history.after(wanted if asked == (wanted,) else None)
        kept = {"asked": [None if x is None else self.chain.names[x] for x in history.asked], "hidden": history.hidden}
        return json.dumps({**kept, "seed": json.loads(record.history)["seed"]})

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
        """Why the bytes of a record are not what it would be sent as, or None."""
        if isinstance(self.upstream, Retrieval):
            return self.upstream.check_for(self.chain.names[record.wanted], self._outgoing(record))
        return self.upstream.check(self._outgoing(record))

    def _encode(self, session: bytes, step: int, asked: tuple[str, ...], wanted: int) -> tuple[bytes, bytes]:
        """The bytes to send, and those for further servers."""
        if isinstance(self.upstream, Retrieval):
            return self.upstream.encode_for(self.chain.names[wanted], session, step, asked)
        return self.upstream.encode(session, step, asked), b""

    def _outgoing(self, record: Record) -> Outgoing:
        """A record without what is wanted."""
        asked = self._names(self._set_of(record))
        return Outgoing(record.session, record.step, asked, record.query, record.others, read=record.mirror)

    def _set_of(self, record: Record) -> tuple[int, ...]:
        """The set of a record, decoded once, or not at all where it was drawn here."""
        if self._last_set[0] != record.asked:
            self._last_set = record.asked, wire.decode_bitmap(record.asked, self.chain.n)
        return self._last_set[1]

    def _names(self, sources: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(self.chain.names[source] for source in sources)
