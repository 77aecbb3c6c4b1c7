"""Leaky twins of the client of several servers, each put in its place by `as_sum_core`."""

from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from tests.support.controls.relayed import relayed

from onoff import wire
from onoff.client.commands import SendSum
from onoff.client.exchange import Failure, Reply
from onoff.client.servers import SumCore


@contextmanager
def as_sum_core(core):
    """The shipped client with another core for several servers."""
    with patch("onoff.client.client.SumCore", core):
        yield


@contextmanager
def careless_wire():
    """A wire that takes vectors of any residue class, to show what they would give away."""
    with patch("onoff.wire.sums._check_residue"):
        yield


class DrawsOnce(SumCore):
    """The same subset is drawn twice, for different wants."""

    drawn = None

    def _encode(self, session, step, indices, wanted):
        if self.drawn is None:
            self.drawn = [self._randbelow(len(self.retries)) for _ in range(self._offered.n)]
        own, index = self._randbelow, self._offered.index[self.chain.names[wanted]]
        entries = iter([self.drawn[source] for source in indices if source != index])
        self._randbelow = lambda k: next(entries)
        try:
            return super()._encode(session, step, indices, wanted)
        finally:
            self._randbelow = own


class AddsAtOne(SumCore):
    """The wanted source is always added at server 1, to a random subset of the others at server 0."""

    def _encode(self, session, step, indices, wanted):
        with patch("onoff.wire.draw_vectors", self._adding):
            return super()._encode(session, step, indices, wanted)

    @staticmethod
    def _adding(sources, wanted, *, n, servers, randbelow):
        first = bytearray(n)
        for source in sources:
            if source != wanted:
                first[source] = randbelow(servers)
        second = bytearray(first)
        second[wanted] = 1
        return bytes(first), bytes(second)


class NoParity(SumCore):
    """A random subset with or without the wanted source, and the other one: parity is not enforced."""

    def _encode(self, session, step, indices, wanted):
        with patch("onoff.wire.draw_vectors", self._any):
            return super()._encode(session, step, indices, wanted)

    @staticmethod
    def _any(sources, wanted, *, n, servers, randbelow):
        first = bytearray(n)
        for source in sources:
            first[source] = randbelow(servers)
        second = bytearray(first)
        second[wanted] ^= 1
        return bytes(first), bytes(second)


class SkipsZeros(SumCore):
    """An all-zero vector is not sent: its answer is empty anyway."""

    def _ask_all(self, record):
        vectors = self._vectors(record)

        def skip(command):
            empty = isinstance(command, SendSum) and not any(vectors[command.server])
            return Reply(200, wire.SUM_HEADERS, b"") if empty else command

        return relayed(super()._ask_all(record), command=skip)


class RedrawsAtOne(SumCore):
    """A retry draws again, for the server that did not answer, and for no other."""

    def _ask_all(self, record):
        def redraw(command, event):
            if isinstance(command, SendSum) and isinstance(event, Failure):
                again = self._encode(record.session, record.step, self._asked_indices(record), record.wanted)
                renewed = self._queries(replace(record, query=again[0], others=again[1]))
                event = yield replace(command, query=renewed[command.server])
            return event

        return relayed(super()._ask_all(record), event=redraw)
