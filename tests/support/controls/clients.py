"""Leaky twins of the client's core, each put in its place by `as_client`: see `sessions` for the others."""

from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from tests.support.controls.relayed import relayed
from tests.support.typed import as_a, present

from onoff import wire
from onoff.client.core import HARMLESS, Core, StoreRecord, Tick
from onoff.session.memories import LastQuery
from onoff.upstream import Conflict
from onoff.upstream.message_server import MessageServer, indices_of
from onoff.upstream.transport import Failure, Request


@contextmanager
def as_client(core):
    """The shipped client with another core."""
    with patch("onoff.client.client.Core", core):
        yield


def is_query(command):
    return isinstance(command, Request) and command.path == wire.QUERY_PATH


class RedrawsOnRetry(Core):
    """m6: an answer is lost, and the query is drawn anew instead of sent again."""

    def request(self, wanted, *, private):
        before = as_a(LastQuery, self.session.memory)

        def redraw(command, event):
            if is_query(command) and isinstance(event, Failure) and before.last is not None:
                self.session.memory = before
                query, memory = self.session.propose(wanted, private=private)
                self.session.memory = memory
                session, step = present(self.record).session, present(self.record).step
                again = self._compose(session, step, query.sources, wanted, private, query.note, memory)
                yield StoreRecord(again)
                self.record = again
                yield replace(command, body=again.query)
            return event

        return relayed(super().request(wanted, private=private), event=redraw)


class SendsFirst(Core):
    """m7: the query leaves before it is stored."""

    def _carry_out(self, record, memory):
        yield Tick()
        try:
            message = yield from self._deliver(record)
        except Conflict as conflict:
            record, memory = self._start_over(record.wanted, record.private, conflict.doubt)
            message = yield from self._deliver(record)
        yield StoreRecord(record)
        self.record, self.session.memory, self.doubt, self.checked = record, memory, None, True
        return message


class Trusting(Core):
    """m10: believes its journal, however old it is: the server is not asked what it saw last."""

    def _compare_steps(self, record):
        return None
        yield


class SendsFirstAndTrusts(SendsFirst, Trusting):
    """m7 without the net below it: after a crash the journal is believed."""


class ClosesEarly(Core):
    """m12: reads no more of the answer than it takes to have the wanted frame."""

    def _deliver(self, record):
        known = as_a(MessageServer, self.upstream).known
        asked = indices_of(known, self._outgoing(record).asked)
        position = asked.index(known.index[self.chain.names[record.wanted]])

        def shorten(command):
            limit = (position + 1) * present(known.frame_size)
            return replace(command, limit=limit) if is_query(command) else command

        return relayed(super()._deliver(record), command=shorten)


class ForgetsAfterDoubts(Core):
    """After a doubt only the present request is hidden, as if nothing had been before it."""

    def _after_everything(self, wanted, *, private, doubt=None, again=False):
        if doubt is None:
            return super()._after_everything(wanted, private=private, again=again)
        return self.session.memory.afresh(wanted)


class GoesOnAfterLosses(Core):
    """Asks for everything once after a loss, as with a chain."""

    def _after_everything(self, wanted, *, private, doubt=None, again=False):
        if doubt is None or doubt in HARMLESS:
            return super()._after_everything(wanted, private=private, doubt=doubt, again=again)
        return self.session.memory.afresh(wanted)
