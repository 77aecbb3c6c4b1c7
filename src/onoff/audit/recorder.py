"""A message server in place of the socket that records every byte it is sent.

It answers as a server does (catalogue, last step seen, frames, 409 for a step that went back or changed), and checks
these rules, independently of the client:

    one byte string per step   a step never comes again with other bytes, and never after a later one
    stored before sent         the bytes of a query are in the journal's files when they arrive
    one length                 queries have one length, and are canonical
    editions                   changes are asked for since an edition that the server has told

What it saw of a request is a tuple of `SeenExchange`s: address, headers, body, and how much of the answer was read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from onoff import wire
from onoff.client.exchange import Failure, Reply, Request
from onoff.errors import InvalidWire, PrivacyBreach

RECORDER_FRAME_SIZE = 256
URL = "http://audit.invalid"
LIFE = b"one life of many"
_Decoded = TypeVar("_Decoded")


class SeenExchange(NamedTuple):
    """One exchange, as the server sees it."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    limit: int

    def __repr__(self) -> str:
        return f"{self.method} {self.path} {self.body.hex()}".rstrip()


class Recorder:
    """The server of an audit.

    journal: where queries must be stored before they come. judging: whether a broken rule raises PrivacyBreach.
    fault(request, seen): may raise, or lose the answer by returning True; it is called twice for each query, before
    the server sees it (`seen` False) and after. lie: a source; the server then adds the difference of two valid frames
    of that source to the answers to sums.
    """

    def __init__(self, names: tuple[str, ...], journal: Path | None = None, *, judging: bool = True) -> None:
        self.catalogue = wire.Catalogue(names, RECORDER_FRAME_SIZE)
        self.journal = journal
        self.judging = judging
        self.lie: int | None = None
        self.events: list[SeenExchange] = []
        self.asked = 0
        """Messages asked for since the last `take`."""
        self.sums = 0
        """Sums asked for, ever."""
        self.last: dict[bytes, tuple[int, str]] = {}
        self.versions = [0] * len(names)
        self.changed = [0] * len(names)
        self.editions = [wire.Edition(self.catalogue.epoch, LIFE, 0, wire.first_digest(self.catalogue.epoch, LIFE))]
        for source in range(len(names)):
            self.publish(source)
        self.fault: Callable[[Request, bool], bool] = lambda request, seen: False

    @staticmethod
    def message(source: int) -> bytes:
        """What the server holds for a source."""
        return b"message of source %d" % source

    def publish(self, source: int) -> None:
        """Another version of a source's message; what it says stays the same."""
        self.versions[source] += 1
        last = self.editions[-1]
        self.changed[source] = last.number + 1
        digest = wire.next_digest(last.digest, source, self._latest(source))
        self.editions.append(wire.Edition(last.epoch, last.life, last.number + 1, digest))

    def take(self) -> tuple[tuple[SeenExchange, ...], int]:
        """What was seen since the last time, and how many messages that asked for."""
        taken, asked = tuple(self.events), self.asked
        self.events, self.asked = [], 0
        return taken, asked

    def exchange(self, request: Request) -> Reply | Failure:
        query = request.path in {wire.QUERY_PATH, wire.SUM_PATH} or request.path.startswith(wire.CHANGES_PATH)
        if query and self.fault(request, False):
            return Failure("lost on the way")
        self.events.append(SeenExchange(request.method, request.path, request.headers, request.body, request.limit))
        if request.path == wire.CATALOGUE_PATH:
            return _json(200, wire.encode_catalogue(self.catalogue))
        if request.path == wire.SEEN_PATH:
            seen = self.last.get(request.body)
            return _json(200, wire.encode_seen(None if seen is None else wire.Seen(*seen)))
        if request.path == wire.EDITION_PATH:
            return _json(200, wire.encode_edition(wire.EditionReport(self.editions[-1], 0)))
        if request.path.startswith(wire.DIGESTS_PATH):
            return self._digests(request.path.partition("?")[2])
        if request.path == wire.SUM_PATH:
            reply = self._sum(request.body)
        elif request.path.startswith(wire.CHANGES_PATH):
            reply = self._changes(request.path.partition("?")[2])
        else:
            reply = self._answer(request.body)
        return Failure("lost on the way back") if query and self.fault(request, True) else reply

    def _canonical(self, decode: Callable[[bytes, int], _Decoded], body: bytes) -> _Decoded:
        """A query, which must be the one form of what it says."""
        try:
            return decode(body, self.catalogue.n)
        except InvalidWire as error:
            raise PrivacyBreach(f"a query that is not canonical: {error.message}") from None

    def _answer(self, body: bytes) -> Reply:
        query = self._canonical(wire.decode_query, body)
        self.asked += len(query.sources)
        refused = self._judge(body, query.session, query.step, hashlib.sha256(body).hexdigest())
        frames = (self._frame(source) for source in query.sources)
        return refused or Reply(200, wire.ANSWER_HEADERS, wire.encode_answer(frames))

    def _sum(self, body: bytes) -> Reply:
        query = self._canonical(wire.decode_sum_query, body)
        self.asked += any(query.vector)
        self.sums += 1
        refused = self._judge(body, query.session, query.step, wire.sum_step_digest(body).hex())
        answer = wire.sum_answer(self._frames(), query.vector, query.servers)
        return refused or Reply(200, wire.SUM_HEADERS, answer if self.lie is None else self._with_lie(answer))

    def _with_lie(self, answer: bytes) -> bytes:
        """An answer with the difference between the frame of a source and another valid frame of that source."""
        assert self.lie is not None
        other = replace(self._latest(self.lie), published=2)
        frames = self._frame(self.lie, None), self._encode(self.lie, other, None)
        first, second = (int.from_bytes(frame[: len(answer)].ljust(len(answer), b"\0")) for frame in frames)
        return (int.from_bytes(answer) ^ first ^ second).to_bytes(len(answer))

    def _digests(self, query: str) -> Reply:
        since = wire.decode_wanted_digests(query).since.number
        self._require_told(wire.decode_wanted_digests(query).since)
        frames = self._frames()
        digests = b"".join(map(wire.frame_digest, frames))
        held = wire.FrameDigests(self.editions[-1], max(map(len, frames)), digests)
        body = wire.encode_digests(held, since, [source for source, at in enumerate(self.changed) if at > since])
        return Reply(200, (("content-type", wire.DIGESTS_TYPE),), body)

    def _judge(self, body: bytes, session: bytes, at: int, mine: str) -> Reply | None:
        """Whether this step may come with these bytes: None, or the refusal; a broken rule is a breach."""
        if self.judging and self.journal is not None and not stored(self.journal, body):
            raise PrivacyBreach(f"step {at} of a session was sent before it was stored")
        step, digest = self.last.get(session, (-1, ""))
        if at < step or (at == step and mine != digest):
            if self.judging:
                raise PrivacyBreach(f"step {at} of a session was sent again with another set")
            problem = wire.Problem(409, "conflict", type=wire.STEP_CONFLICT, step=step, sha256=digest)
            return Reply(409, (("content-type", wire.PROBLEM_TYPE),), wire.encode_problem(problem))
        self.last[session] = (at, mine)
        return None

    def _changes(self, query: str) -> Reply:
        since = wire.decode_since(query)
        edition = self.editions[-1]
        self._require_told(since)
        changed = [source for source, at in enumerate(self.changed) if at > since.number]
        self.asked += len(changed)
        frames = [self._frame(source, None) for source in changed]
        head = wire.encode_changes_head(edition, since.number)
        body = b"".join([head, *frames, wire.encode_changes_trailer(edition, since.number, frames)])
        return Reply(200, (("content-type", wire.CHANGES_TYPE),), body)

    def _require_told(self, since: wire.Since) -> None:
        known = since.number < len(self.editions) and self.editions[since.number]
        if since.number and (not known or (since.life, since.digest) != (known.life, known.digest)):
            raise PrivacyBreach(f"changes since an edition {since.number} that was never told")

    def _frames(self) -> list[bytes]:
        """All frames at their own length."""
        return [self._frame(source, None) for source in range(self.catalogue.n)]

    def _frame(self, source: int, frame_size: int | None = RECORDER_FRAME_SIZE) -> bytes:
        return self._encode(source, self._latest(source), frame_size)

    def _encode(self, source: int, message: wire.WireMessage, frame_size: int | None) -> bytes:
        return wire.encode_frame(source, message, epoch=self.catalogue.epoch, frame_size=frame_size)

    def _latest(self, source: int) -> wire.WireMessage:
        return wire.WireMessage(self.versions[source], 1, "text/plain", self.message(source))


def stored(journal: Path, body: bytes) -> bool:
    """Whether these bytes are in the journal's files."""
    files = (journal, journal.with_name(journal.name + "-wal"))
    return any(body in path.read_bytes() for path in files if path.exists())


def _json(status: int, body: bytes) -> Reply:
    return Reply(status, (("content-type", "application/json"),), body)
