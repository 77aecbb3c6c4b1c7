"""Leaky twins of the client of several servers, each put in its place by `as_sum_core`."""

from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from tests.support.controls.relayed import relayed

from onoff import wire
from onoff.client.commands import SendSum
from onoff.client.servers import SumCore
from onoff.errors import InvalidWire
from onoff.upstream.transport import Failure, Reply


@contextmanager
def as_sum_core(core):
    """The shipped client with another core for several servers."""
    with patch("onoff.client.client.SumCore", core):
        yield


@contextmanager
def as_decode_sums(decode):
    """The shipped client with another way to put answers together."""
    with patch("onoff.wire.decode_sums", decode):
        yield


@contextmanager
def careless_wire():
    """A wire that takes vectors of any residue class, to show what they would give away."""
    with patch("onoff.wire.sums._check_residue"):
        yield


def by_checksum(answers, vectors, wanted, digests, *, limit):
    """`decode_sums` that takes any frame with a valid checksum."""
    padded = _padded(answers, vectors, wanted)
    length = wire.frame_length(padded) if len(padded) >= wire.FRAME_OVERHEAD else len(padded) + 1
    if length > len(padded) or any(padded[length:]):
        raise InvalidWire("not a frame")
    return wire.decode_frame(padded[:length], wanted, epoch=digests.edition.epoch, frame_size=None, limit=limit)


def without_zeros(answers, vectors, wanted, digests, *, limit):
    """`decode_sums` that does not look at what comes after the frame."""
    padded = _padded(answers, vectors, wanted)
    if {len(a) for a in answers} - {0, wire.chunk_length(digests.width, len(vectors))}:
        raise InvalidWire("another length")
    return _bound(padded[: wire.frame_length(padded)], wanted, digests, limit)


def of_any_length(answers, vectors, wanted, digests, *, limit):
    """`decode_sums` that takes answers of any one length."""
    padded = _padded(answers, vectors, wanted)
    frame = padded[: wire.frame_length(padded)]
    if any(padded[len(frame) :]):
        raise InvalidWire("not zeros")
    return _bound(frame, wanted, digests, limit)


def _bound(frame, wanted, digests, limit):
    if wire.frame_digest(frame) != digests.of(wanted):
        raise InvalidWire("another frame")
    return wire.decode_frame(frame, wanted, epoch=digests.edition.epoch, frame_size=None, limit=limit)


def _padded(answers, vectors, wanted):
    lengths = {len(answer) for answer, vector in zip(answers, vectors, strict=True) if any(vector)}
    empty = {len(answer) for answer, vector in zip(answers, vectors, strict=True) if not any(vector)}
    if len(lengths) != 1 or not empty <= {0}:
        raise InvalidWire("lengths that do not fit together")
    (length,) = lengths
    by_entry = {vector[wanted]: int.from_bytes(answer) for answer, vector in zip(answers, vectors, strict=True)}
    return b"".join((by_entry[entry] ^ by_entry[0]).to_bytes(length) for entry in range(1, len(vectors)))


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
