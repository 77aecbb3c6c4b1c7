"""A message server that writes down everything it sees. The judge of the client, written against the wire alone.

`World` holds sources, messages and sessions and answers requests; it can be spoken to directly (`Direct`, a transport
without sockets) or over TCP (`Listening`). It records every query, and what was wanted never reaches it.
"""

import gzip
import hashlib
import threading
from contextlib import contextmanager, suppress
from typing import Any

from tests.support.accepting import Accepting
from tests.support.waiting import PATIENCE

from onoff import wire
from onoff.upstream.message_server import CATALOGUE_REQUEST
from onoff.upstream.transport import Failure, Http, Reply

NAMES = ("alpha", "beta", "gamma", "delta")
P4 = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.05, 0.05, 0.8, 0.1], [0.3, 0.3, 0.1, 0.3]]
FRAME = 256


class World:
    """What the server knows and saw."""

    def __init__(self, names=NAMES, *, frame_size=FRAME, journal=None):
        self.catalogue = wire.Catalogue(tuple(names), frame_size)
        self.messages = dict.fromkeys(names, wire.NOTHING)
        self.seen = {}  # session -> (step, sha256)
        self.requests = []  # every (method, path, headers, body)
        self.queries = []  # the bodies of POST /v1/query, in order
        self.journal = journal
        self.not_durable = []
        self.lock = threading.RLock()
        self.tells_changes = True
        self.held = 64
        """How many editions are kept for sums."""
        self.lives = 0
        self.begin_life()
        for name in names:
            self.publish(name, f"first of {name}".encode())

    def publish(self, name, body):
        with self.lock:
            version = self.messages[name].version + 1
            self.messages[name] = wire.WireMessage(version, 1000 + version, "text/plain", body)
            self.note_change(name)

    def forget(self, name):
        """As if nothing had ever been published there."""
        with self.lock:
            self.messages[name] = wire.NOTHING
            self.begin_life()

    def begin_life(self):
        """Editions count from 0 again, with what is there now."""
        self.lives += 1
        life, epoch = self.lives.to_bytes(16), self.catalogue.epoch
        self.editions = [wire.Edition(epoch, life, 0, wire.first_digest(epoch, life))]
        self.changed = {}
        self.snapshots: list[Any] = [{}]
        for name in self.catalogue.names:
            if self.messages[name].version:
                self.note_change(name)

    def note_change(self, name):
        last = self.editions[-1]
        digest = wire.next_digest(last.digest, self.catalogue.index[name], self.messages[name])
        self.editions.append(wire.Edition(last.epoch, last.life, last.number + 1, digest))
        self.changed[name] = last.number + 1
        self.snapshots.append({**self.snapshots[-1], name: self.messages[name]})

    def rename(self, names, *, frame_size=None):
        """A new epoch."""
        self.catalogue = wire.Catalogue(tuple(names), frame_size or self.catalogue.frame_size)
        for name in names:
            self.messages.setdefault(name, wire.NOTHING)
        self.begin_life()

    def forget_records(self):
        """Let go of what was recorded, not of what the server knows."""
        self.requests.clear()
        self.queries.clear()

    # -- what the judge asks -------------------------------------------------------------------------------

    def byte_strings(self):
        """(session, step) -> the distinct byte strings that were sent for it."""
        found: dict[Any, Any] = {}
        for query in self.queries:
            several = int.from_bytes(query[:2]) == 2
            head = wire.decode_sum_head(query) if several else wire.decode_query_head(query)
            string = wire.sum_step_digest(query) if several else query  # another edition of the same is the same
            found.setdefault((head.session, head.step), set()).add(string)
        return found

    def sets(self):
        """The distinct queries in order of arrival, each as a tuple of source names."""
        known = dict.fromkeys(self.queries)
        return [self.asked(query) for query in known]

    def asked(self, query):
        return tuple(self.catalogue.names[s] for s in wire.decode_query(query, self.catalogue.n).sources)

    def check(self):
        """One byte string per (session, step), always; and everything was on disk before it came."""
        assert all(len(strings) == 1 for strings in self.byte_strings().values())
        assert self.not_durable == []

    # -- answering -----------------------------------------------------------------------------------------

    def answer(self, method, path, headers, body):
        with self.lock:
            self.requests.append((method, path, tuple(headers), body))
            if path == wire.CATALOGUE_PATH:
                return Reply(200, (("content-type", "application/json"),), wire.encode_catalogue(self.catalogue))
            if path == wire.SEEN_PATH:
                last = self.seen.get(body)
                seen = None if last is None else wire.Seen(*last)
                return Reply(200, (("content-type", "application/json"),), wire.encode_seen(seen))
            if path == wire.QUERY_PATH:
                return self._query(body)
            if path == wire.SUM_PATH:
                return self._sum(body)
            if path.startswith(wire.CHANGES_PATH) and self.tells_changes:
                return self._changes(path.partition("?")[2])
            if path == wire.EDITION_PATH and self.tells_changes:
                longest = max(len(message.body) for message in self.messages.values()) + wire.FRAME_OVERHEAD
                report = wire.encode_edition(wire.EditionReport(self.editions[-1], 3600, longest))
                return Reply(200, (("content-type", "application/json"),), report)
            if path.startswith(wire.DIGESTS_PATH):
                return self._digests(path.partition("?")[2])
            return self._problem(wire.Problem(404, "no such path"))

    def _query(self, body):
        if self.journal is not None and body not in self.queries and not _on_disk(self.journal, body):
            self.not_durable.append(body)
        self.queries.append(body)
        head = wire.decode_query_head(body)
        epoch = self.catalogue.epoch
        if head.epoch != epoch:
            return self._problem(wire.Problem(409, "changed", type=wire.EPOCH_CHANGED, epoch=epoch))
        query = wire.decode_query(body, self.catalogue.n)
        digest = hashlib.sha256(body).hexdigest()
        step, known = self.seen.get(head.session, (-1, None))
        if head.step < step or (head.step == step and digest != known):
            return self._problem(wire.Problem(409, "conflict", type=wire.STEP_CONFLICT, step=step, sha256=known))
        self.seen[head.session] = (head.step, digest)
        frames = [
            wire.encode_frame(
                s, self.messages[self.catalogue.names[s]], epoch=epoch, frame_size=self.catalogue.frame_size
            )
            for s in query.sources
        ]
        if query.known:
            return Reply(200, wire.ANSWER_HEADERS, wire.encode_changed(frames, query.known, epoch=epoch))
        return Reply(200, wire.ANSWER_HEADERS, wire.encode_answer(frames))

    def _sum(self, body):
        if self.journal is not None and body not in self.queries and not _on_disk(self.journal, body):
            self.not_durable.append(body)
        self.queries.append(body)
        query = wire.decode_sum_query(body, self.catalogue.n)
        if query.epoch != self.catalogue.epoch:
            return self._problem(wire.Problem(409, "changed", type=wire.EPOCH_CHANGED, epoch=self.catalogue.epoch))
        newest = self.editions[-1].number
        held = newest - self.held < query.edition <= newest
        if not held or query.digest != self.editions[query.edition].digest:
            return self._problem(wire.Problem(409, "gone", type=wire.EDITION_GONE, edition=newest))
        digest = wire.sum_step_digest(body).hex()
        step, known = self.seen.get(query.session, (-1, None))
        if query.step < step or (query.step == step and digest != known):
            return self._problem(wire.Problem(409, "conflict", type=wire.STEP_CONFLICT, step=step, sha256=known))
        self.seen[query.session] = (query.step, digest)
        return Reply(200, wire.SUM_HEADERS, wire.sum_answer(self.frames(query.edition), query.vector, query.servers))

    def frames(self, number):
        """The frames of an edition, at their own length."""
        return [
            wire.encode_frame(
                source,
                self.snapshots[number].get(name, wire.NOTHING),
                epoch=self.catalogue.epoch,
                frame_size=None,
                limit=self.catalogue.limit,
            )
            for source, name in enumerate(self.catalogue.names)
        ]

    def _digests(self, query):
        asked, wanted = wire.decode_wanted_digests(query)
        newest = self.editions[-1].number
        number, since = newest if wanted is None else wanted, asked.number
        if not 0 <= newest - number <= self.held:
            return self._problem(wire.Problem(409, "gone", type=wire.EDITION_GONE, edition=newest))
        if since > number or (asked.life, asked.digest) != (self.editions[0].life, self.editions[since].digest):
            since = 0
        frames = self.frames(number)
        digests = b"".join(map(wire.frame_digest, frames))
        held = wire.FrameDigests(self.editions[number], max(map(len, frames)), digests)
        changed = [self.catalogue.index[name] for name, at in self.changed.items() if at > since]
        body = wire.encode_digests(held, since, changed)
        return Reply(200, (("content-type", wire.DIGESTS_TYPE),), body)

    def vectors(self):
        """The vectors that were sent to this server, in order of arrival."""
        return [tuple(wire.decode_sum_query(query, self.catalogue.n).vector) for query in self.queries]

    def _changes(self, query):
        asked = wire.decode_since(query)
        edition, since = self.editions[-1], asked.number
        if since >= len(self.editions) or (asked.life, asked.digest) != (edition.life, self.editions[since].digest):
            since = 0
        frames = [
            wire.encode_frame(
                source, self.messages[name], epoch=edition.epoch, frame_size=None, limit=self.catalogue.limit
            )
            for source, name in enumerate(self.catalogue.names)
            if self.changed.get(name, 0) > since
        ]
        head, trailer = wire.encode_changes_head(edition, since), wire.encode_changes_trailer(edition, since, frames)
        body = gzip.compress(b"".join([head, *frames, trailer]), mtime=0)
        return Reply(200, (("content-type", wire.CHANGES_TYPE), ("content-encoding", "gzip")), body)

    def _problem(self, problem):
        return Reply(problem.status, (("content-type", wire.PROBLEM_TYPE),), wire.encode_problem(problem))


def _on_disk(journal, query):
    """Whether these bytes stand in the journal's files."""
    log = journal.with_name(journal.name + "-wal")
    return any(query in path.read_bytes() for path in (journal, log) if path.exists())


class Failing(World):
    """A world that answers 503 to everything while `down`; requests are counted all the same."""

    down = False

    def answer(self, method, path, headers, body):
        reply = super().answer(method, path, headers, body)
        return self._problem(wire.Problem(503, "down")) if self.down else reply


class Direct:
    """A transport to a world without sockets. `fault(request)` may return a Failure, before or after the world saw it.

    "before": the request is lost. "after": the answer is lost. A Reply: this comes instead of the answer.
    """

    def __init__(self, world, fault=lambda request: None):
        self.world = world
        self.fault = fault

    def exchange(self, request):
        fault = self.fault(request)
        if fault == "before":
            return Failure("lost")
        reply = self.world.answer(request.method, request.path, request.headers, request.body)
        if fault == "after":
            return Failure("lost")
        return fault if isinstance(fault, Reply) else reply


# -- over TCP ----------------------------------------------------------------------------------------------


def encode_reply(reply):
    lines = [f"HTTP/1.1 {reply.status} x", *(f"{k}: {v}" for k, v in reply.headers)]
    lines.append(f"content-length: {len(reply.body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + reply.body


def read_request(connection):
    """(raw bytes, method, path, headers, body) of one request, or None where it broke off."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = [tuple(line.split(": ", 1)) for line in lines]
    length = int(dict(headers).get("content-length", 0))  # type: ignore[call-overload]
    while len(body) < length:
        piece = connection.recv(65536)
        if not piece:
            return None
        body += piece
    method, path, _ = first.split(" ")
    return head + b"\r\n\r\n" + body, method, path, headers, body


class Listening(Accepting):
    """A world on a free port. `deliver(connection, path, raw)` may send the answer in its own way."""

    def __init__(self, world, deliver=None):
        self.world = world
        self.deliver = deliver or (lambda connection, path, raw: connection.sendall(raw))
        self.raw = []  # every request as it came, byte by byte
        super().__init__()

    def accepted(self, connection):
        with connection, suppress(OSError):  # the client is gone
            self._serve(connection)

    def _serve(self, connection):
        connection.settimeout(PATIENCE)
        request = read_request(connection)
        if request is None:
            return
        raw, method, path, headers, body = request
        self.raw.append(raw)
        reply = self.world.answer(method, path, headers, body)
        self.deliver(connection, path, encode_reply(reply))


def has_heard(server):
    """Return when a `Listening` has taken in all that was sent to it before, by processes that may be dead by now.

    It takes one connection after the other, so this one comes after all of theirs.
    """
    assert isinstance(Http(server, timeout=PATIENCE).exchange(CATALOGUE_REQUEST), Reply)


@contextmanager
def listening(world, deliver=None):
    server = Listening(world, deliver)
    try:
        yield server
    finally:
        server.close()
