"""Leaky twins of the client of several servers, each put in its place by `as_sum_servers`."""

from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from tests.support.controls.relayed import relayed

from onoff import wire
from onoff.errors import InvalidWire
from onoff.upstream.message_server import indices_of
from onoff.upstream.sum_servers import SumServers
from onoff.upstream.transport import Failure, Reply, Request


@contextmanager
def as_sum_servers(kind):
    """The shipped client with another upstream of several servers."""
    with patch("onoff.client.client.SumServers", kind):
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


def is_sum(command):
    return isinstance(command, Request) and command.path == wire.SUM_PATH


class DrawsOnce(SumServers):
    """The same subset is drawn twice, for different wants."""

    drawn = None

    def encode_for(self, wanted, session, step, asked):
        if self.drawn is None:
            self.drawn = [self.randbelow(len(self.retries)) for _ in range(self.known.n)]
        own, index = self.randbelow, self.known.index[wanted]
        entries = iter([self.drawn[source] for source in indices_of(self.known, asked) if source != index])
        self.randbelow = lambda k: next(entries)
        try:
            return super().encode_for(wanted, session, step, asked)
        finally:
            self.randbelow = own


class AddsAtOne(SumServers):
    """The wanted source is always added at server 1, to a random subset of the others at server 0."""

    def encode_for(self, wanted, session, step, asked):
        with patch("onoff.wire.draw_vectors", self._adding):
            return super().encode_for(wanted, session, step, asked)

    @staticmethod
    def _adding(sources, wanted, *, n, servers, randbelow):
        first = bytearray(n)
        for source in sources:
            if source != wanted:
                first[source] = randbelow(servers)
        second = bytearray(first)
        second[wanted] = 1
        return bytes(first), bytes(second)


class NoParity(SumServers):
    """A random subset with or without the wanted source, and the other one: parity is not enforced."""

    def encode_for(self, wanted, session, step, asked):
        with patch("onoff.wire.draw_vectors", self._any):
            return super().encode_for(wanted, session, step, asked)

    @staticmethod
    def _any(sources, wanted, *, n, servers, randbelow):
        first = bytearray(n)
        for source in sources:
            first[source] = randbelow(servers)
        second = bytearray(first)
        second[wanted] ^= 1
        return bytes(first), bytes(second)


class SkipsZeros(SumServers):
    """An all-zero vector is not sent: its answer is empty anyway."""

    def ask_all(self, outgoing):
        vectors = self.vectors(outgoing)

        def skip(command):
            empty = is_sum(command) and not any(vectors[command.server])
            return Reply(200, wire.SUM_HEADERS, b"") if empty else command

        return relayed(super().ask_all(outgoing), command=skip)


class RedrawsAtOne(SumServers):
    """A retry draws again, for the server that did not answer, and for no other."""

    wanted = ""

    def retrieve(self, wanted, outgoing, store):
        self.wanted = wanted
        return super().retrieve(wanted, outgoing, store)

    def ask_all(self, outgoing):
        def redraw(command, event):
            if is_sum(command) and isinstance(event, Failure):
                again = self.encode_for(self.wanted, outgoing.session, outgoing.step, outgoing.asked)
                renewed = self.queries(replace(outgoing, query=again[0], others=again[1]))
                event = yield replace(command, body=renewed[command.server])
            return event

        return relayed(super().ask_all(outgoing), event=redraw)
