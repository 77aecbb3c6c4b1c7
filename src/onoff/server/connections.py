"""The connection: uvicorn's HTTP protocol behind a strict parser of heads, with more limits and a fast path.

**One request at a time.** What comes is cut into requests: a head that passed the rules of `read_head`, then as many
bytes as it says. The parser of uvicorn is given whole heads and the bytes of their bodies, nothing else; the next
request is looked at when the last one is answered. What is not a request is refused and ends the connection. Bytes are
copied a fixed number of times however they are cut into segments, and reading pauses while a request is in work.

**Limits.** A head may have 32 KiB (else 431) and a whole request 20 s (else 408); a server takes only so many
connections, and only so many from one address (else 503); a reader takes a piece of an answer every 30 s, or is cut
off. A connection is answered when it has read the last answer, and all connections together have only so many bytes of
answers before them that are no part of the shelf; then whoever has not read for longest is cut off.

**Fast path.** Nearly all requests are queries with the few heads that clients send. Such a query is answered at once,
without parser, task or framework; a long answer is handed over as the frames on the shelf, not as a copy. A sum query
is put among those that wait for the next pass, and answered from there. Anything else, and whatever has to wait, takes
the ordinary path, with the same coroutine: here it is driven by hand, once (`now`).
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from onoff.errors import StoreUnavailable
from onoff.server.answers import Answer, now
from onoff.server.changes import JOINED_BYTES
from onoff.server.http import (
    BODY_SECONDS,
    MAX_CACHED_HEAD,
    MAX_CONNECTIONS,
    MAX_PER_ADDRESS,
    PIECE_BYTES,
    Count,
    Plain,
    malformed,
    not_a_head,
    overloaded,
    problem_headers,
    read_changes_request,
    read_head,
    reply_headers,
)
from onoff.server.sums import SumOutcome
from onoff.wire import ANSWER_TYPE, CHANGES_PATH, CHANGES_TYPE, SUM_TYPE, Problem, encode_problem

if TYPE_CHECKING:
    from onoff.server.app import MessageServer


MAX_UNREAD_BYTES = 256 * 1024 * 1024  # of answers that were made for one peer each
REQUEST_SECONDS = 2 * BODY_SECONDS
PIECE_SECONDS = 30.0  # within which a reader must take a piece of a long answer
_CHANGES = b"GET %b?" % CHANGES_PATH.encode()
COPIED_BYTES = 64 * 1024  # up to here one copy is quicker than many small buffers


def network_of(host: str) -> str:
    """What counts as one peer: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


class Peers:
    """The open connections of one process, counted by address.

    One peer must not lock the others out, so an address may hold a part of the connections only. An IPv6 address counts
    by its /64, which is what one customer of a network has. Behind a reverse proxy all peers have the proxy's address:
    give the server a larger limit there (`onoff serve --per-address`) and let the proxy limit its own peers.
    """

    def __init__(self, max_connections: int = MAX_CONNECTIONS, max_per_address: int = MAX_PER_ADDRESS) -> None:
        self.max_connections = max_connections
        self.max_per_address = max_per_address
        self._total = 0
        self.open: Counter[str] = Counter()  # by network

    def enter(self, network: str) -> bool:
        """Count a connection; False, and nothing counted, if there is no room for it."""
        if self._total >= self.max_connections or self.open[network] >= self.max_per_address:
            if not self.open[network]:
                del self.open[network]
            return False
        self._total += 1
        self.open[network] += 1
        return True

    def leave(self, network: str) -> None:
        """A connection that entered is closed."""
        self._total -= 1
        self.open[network] -= 1
        if not self.open[network]:
            del self.open[network]


class AnsweredPeer(Hashable, Protocol):
    """A connection that has been sent an answer."""

    def cut_off(self) -> None:
        """End it, and let go of what it has not read."""


class Unread:
    """Answers that were made for one peer each and wait to be read: at most `MAX_UNREAD_BYTES` in one process.

    Where there are more, whoever has not read for longest is cut off, so that those who do read are served.
    """

    def __init__(self) -> None:
        self._held: dict[AnsweredPeer, int] = {}  # the one that has waited longest is first
        self.total = 0

    def add(self, reader: AnsweredPeer, size: int) -> None:
        """A reader has so many bytes before it."""
        self.remove(reader)
        self._held[reader] = size
        self.total += size
        while self.total > MAX_UNREAD_BYTES and len(self._held) > 1:
            slowest = next(iter(self._held))
            self.remove(slowest)
            slowest.cut_off()

    def remove(self, reader: AnsweredPeer) -> None:
        """A reader has read on, or is gone."""
        self.total -= self._held.pop(reader, 0)


class QueryProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._server = server = cast("MessageServer", self.config.loaded_app)
        self._never_waits = server.store.never_waits
        self._input = bytearray()  # received, not yet handed on
        self._searched = 0  # bytes of it that hold no end of a head
        self._body_left = 0  # bytes of the present body still to be handed on
        self._query_head = b""  # of a plain query whose body is not whole yet
        self._query_kind = Plain.QUERY
        self._sum_request = b""  # a sum query that waits for a pass, whole
        self._stopping = False  # close when that is answered
        self._message_complete = True  # whether the parser has seen the end of the last request it was given
        self._plain_head = b""  # of the last query that came in one segment
        self._plain_kind = Plain.QUERY
        self._plain_bytes = -1
        self._last_answer = 0.0
        self._network: str | None = None  # under which it is counted, if it is
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._shelved = False  # whether the last answer is made of what is on the shelf, and takes no memory

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        network = network_of(self.client[0] if self.client else "")
        if self._server.peers.enter(network):
            self._network = network
            self._arm()
        else:
            self._server.metrics.add(Count.SHED)
            self._refuse(overloaded())

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)
        if self._network is not None:
            self._server.peers.leave(self._network)
        self._input.clear()
        self._server.unread.remove(self)
        if self._unread is not None:
            self._unread.cancel()

    # From segments to requests.

    def data_received(self, data: bytes) -> None:
        if (
            len(data) == self._plain_bytes
            and data.startswith(self._plain_head)
            and self._is_idle()
            and self._answer_now(self._plain_kind, self._plain_head, data[len(self._plain_head) :])
        ):
            return  # under the same head as the last one: nearly always
        if (
            data.startswith(_CHANGES)
            and len(data) <= MAX_CACHED_HEAD
            and self._is_idle()
            and self._send_changes_now(data)
        ):
            return
        self._input += data
        self._take_input()

    def _is_idle(self) -> bool:
        """Whether the next byte begins a request that can be answered at once; every query asks."""
        cycle = self.cycle
        return (
            not self._input
            and not self._body_left
            and not self._sum_request
            and not self.flow.write_paused
            and (cycle is None or cycle.response_complete)
        )

    def _in_work(self) -> bool:
        """Whether the parser's last request is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def _take_input(self) -> None:
        """Process the input as far as possible."""
        while self._input and not self.transport.is_closing():
            if self._query_head:
                if not self._take_query():
                    return
            elif self._body_left:
                self._take_body()
            elif self._sum_request or self._in_work() or self.flow.write_paused:
                self.flow.pause_reading()  # until it is answered, and the answer read
                return
            elif not self._take_head():
                return

    def _take_head(self) -> bool:
        """Hand a head on, if it is whole; False if more must come first."""
        end = self._input.find(b"\r\n\r\n", max(0, self._searched - 3))
        if end < 0:
            problem = not_a_head(self._input, self._searched)
            if problem is not None:
                self._refuse(problem)
            self._searched = len(self._input)
            self._arm()
            return False
        raw = self._cut(end + 4)
        self._searched = 0
        head = read_head(raw)
        if isinstance(head, Problem):
            self._refuse(head)
            return False
        self._body_left = head.length
        if head.plain is not None:
            self._query_head, self._query_kind = raw, head.plain
            if len(self._input) == head.length:
                self._plain_head, self._plain_kind, self._plain_bytes = raw, head.plain, len(raw) + head.length
            if not self._input:
                self._arm()
        else:
            self._parse(raw)
        return True

    def _take_query(self) -> bool:
        """Answer a query under a plain head, if its body is whole; False if more must come first."""
        if len(self._input) < self._body_left:
            self._arm()
            return False
        head, self._query_head = self._query_head, b""
        body = self._cut(self._body_left)
        self._body_left = 0
        if not self._answer_now(self._query_kind, head, body):
            self._parse(head + body)
        return True

    def _take_body(self) -> None:
        piece = self._cut(self._body_left)
        self._body_left -= len(piece)
        self._parse(piece)

    def _cut(self, length: int) -> bytes:
        """The first bytes of the input, taken off it."""
        piece = bytes(self._input[:length])
        del self._input[:length]
        return piece

    def _parse(self, data: bytes) -> None:
        """Give the parser a head, with its body or a part of it or without."""
        super().data_received(data)
        if not self._body_left and not self._message_complete and not self.transport.is_closing():
            self._refuse(malformed())  # it read another length than we did

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._shelved = False
        self._message_complete = False
        self._arm()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._message_complete = True
        self._disarm()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._take_input()

    def _answer_now(self, kind: Plain, head: bytes, body: bytes) -> bool:
        """Answer if it can be done without waiting and the line is free; else leave it to the ordinary way."""
        if not self._never_waits or self.flow.write_paused or self.transport.is_closing():
            return False
        if kind is Plain.SUM:
            return self._ask_for_sum(head, body)
        answer = now(self._server.answerer.answer(body, gzip=kind is Plain.GZIP_QUERY))
        if not isinstance(answer, Answer):
            return False  # the ordinary way gives the same verdict
        self._server.metrics.add_answer(answer.frames)
        length = sum(map(len, answer.parts))
        self._write_now(_head(length, ANSWER_TYPE, answer.encoding), answer.parts, length)
        return True

    def _ask_for_sum(self, head: bytes, body: bytes) -> bool:
        """Have a sum answered in the next pass if it can be judged without waiting; else leave it."""
        if not self._server.sum_now(body, self._send_sum):
            return False
        self._sum_request = head + body
        self._disarm()
        return True

    def _send_sum(self, outcome: SumOutcome) -> None:
        """Send the answer that was waited for, and go on with what came meanwhile."""
        request, self._sum_request = self._sum_request, b""
        if self.transport.is_closing():
            return
        if isinstance(outcome, bytes):
            self._write_now(_head(len(outcome), SUM_TYPE), (outcome,), len(outcome), shelved=False)
        else:
            self._parse(request)  # the ordinary way gives the verdict
        if self._stopping:
            self.shutdown()
        else:
            self.flow.resume_reading()
            self._take_input()

    def shutdown(self) -> None:
        """Close, once the request in work is answered."""
        self._stopping = True
        if not self._sum_request:
            super().shutdown()

    def _send_changes_now(self, data: bytes) -> bool:
        """Send changes if it can be done without waiting and the line is free; else leave it to the ordinary way."""
        if not self._never_waits or self.flow.write_paused or self.transport.is_closing():
            return False
        request = read_changes_request(data)
        if request is None:
            return False
        try:
            reply = now(self._server.changes.reply(request.since, gzip=request.gzip))
        except StoreUnavailable:
            return False  # the ordinary way says so
        if reply is None or reply.length > JOINED_BYTES:
            return False
        self._server.metrics.add(Count.CHANGES)
        self._write_now(_head(reply.length, CHANGES_TYPE, reply.encoding), reply.parts, reply.length)
        return True

    def _write_now(self, head: bytes, parts: Sequence[bytes], length: int, *, shelved: bool = True) -> None:
        """Hand over a whole reply, and wait for the next request."""
        self._shelved = shelved
        if length <= COPIED_BYTES:
            self.transport.write(b"".join((head, *parts)))
        else:
            self.transport.writelines((head, *parts))
        if self._deadline is not None:
            self._disarm()
        self._last_answer = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_handler()

    def timeout_keep_alive_handler(self) -> None:
        """Close if nothing came for long; else look again. One timer serves many answers."""
        left = self._last_answer + self.timeout_keep_alive - self.loop.time()
        if self._unread is not None or self._sum_request:
            left = self.timeout_keep_alive  # the last answer is still being read, or the next one made
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        elif self.transport.get_write_buffer_size():
            self.cut_off()  # the last answer is not being read; a close would wait for it
        else:
            super().timeout_keep_alive_handler()

    # Limits.

    def _arm(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        if self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self._query_head or not self._body_left:
            self._refuse(Problem(408, f"no request within {REQUEST_SECONDS:g} s", "send it in one go"))
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        unread = self.transport.get_write_buffer_size()
        self._watch_reader(unread)
        if not self._shelved:
            self._server.unread.add(self, unread)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
            self._last_answer = self.loop.time()  # until now it was being read
        self._server.unread.remove(self)
        if not self._sum_request and not self._in_work():
            self.flow.resume_reading()
            self._take_input()

    def _watch_reader(self, unread: int) -> None:
        """Check that the peer has read something since the last check. Nothing is written meanwhile."""
        self._unread = self.loop.call_later(PIECE_SECONDS, self._look_at_reader, unread - PIECE_BYTES)

    def _look_at_reader(self, allowed: int) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread > allowed:
            self.cut_off()
        else:
            self._watch_reader(unread)

    def cut_off(self) -> None:
        """End the connection: what it was sent is not being read."""
        self._server.metrics.add(Count.CUT_OFF)
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        self._refuse(malformed())

    def _refuse(self, problem: Problem) -> None:
        """Send a refusal and close. A request that is in work is not answered any more."""
        begun = self._in_work() and self.cycle.response_started
        if self._in_work():
            self.cycle.disconnected = True
        if begun:
            self.transport.close()
        elif not self.transport.is_closing():
            body = encode_problem(problem)
            lines = [b"%b: %b\r\n" % header for header in problem_headers(problem, len(body), close=True)]
            self.transport.write(b"".join([STATUS_LINE[problem.status], *lines, b"\r\n", body]))
            self.transport.close()


@lru_cache(maxsize=1024)
def _head(length: int, media_type: str, encoding: str = "") -> bytes:
    lines = [b"%b: %b\r\n" % header for header in reply_headers(length, media_type, encoding)]
    return b"".join([STATUS_LINE[200], *lines, b"\r\n"])
