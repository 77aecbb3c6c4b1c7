"""The connection: uvicorn's own HTTP protocol, with limits it lacks and a short way for plain queries.

**Limits.** A head may have 32 KiB (else 431) and a whole request 20 s (else 408); a server takes only so many
connections (else 503); a reader takes a piece of an answer every 30 s, or is cut off. Without them one peer could
hold memory and sockets for ever.

**Short way.** Every client sends the same head, so nearly all requests are a known head and a body of the stated
length, in one segment or two. Such a request is answered on the spot, without parser, task or framework; a long
answer is handed over as the frames on the shelf, not as a copy. Whatever is not exactly so, or cannot be answered
without waiting, takes the ordinary way and meets the same judge (`Answerer`), which gives the same verdict when the
same bytes come twice.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from onoff.server.answer import answer_headers
from onoff.server.app import MessageServer, overloaded
from onoff.server.exchange import BODY_SECONDS, PIECE_BYTES, problem_headers
from onoff.server.metrics import Count
from onoff.wire import MAX_QUERY, QUERY_TYPE, Problem, encode_problem

MAX_HEAD_BYTES = 32 * 1024
REQUEST_SECONDS = 2 * BODY_SECONDS
PIECE_SECONDS = 30.0  # within which a reader must take a piece of a long answer
COPIED_BYTES = 64 * 1024  # up to here one copy is quicker than many small buffers

_QUERY_LINE = b"POST /v1/query HTTP/1.1\r\n"
_MAX_PLAIN_HEAD = 1024
_HEADER = re.compile(rb"([A-Za-z-]+): ([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)")
_PLAIN_HEADERS = {b"host", b"accept", b"accept-encoding", b"content-type", b"user-agent", b"content-length"}


class QueryProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        server = self.config.loaded_app
        assert isinstance(server, MessageServer)
        self._server = server
        self._between_requests = True
        self._in_head = True
        self._head_bytes = 0
        self._held = b""
        self._plain_head = b""
        self._plain_bytes = -1
        self._last_answer = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._server.max_connections:
            self._server.metrics.add(Count.SHED)
            self._refuse(overloaded())
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)
        if self._unread is not None:
            self._unread.cancel()

    def data_received(self, data: bytes) -> None:
        if self._between_requests and (self.cycle is None or self.cycle.response_complete):
            if self._held:
                data, self._held = self._held + data, b""
            if len(data) == self._plain_bytes and data.startswith(self._plain_head):  # as the last one: nearly always
                start, missing = len(self._plain_head), 0
            else:
                start, missing = plain_body(data) or (0, 0)
                if start and not missing:
                    self._plain_head, self._plain_bytes = data[:start], len(data)
            if missing:
                self._held = data
                self._arm()
                return
            if start and self._answer_now(data[start:]):
                return
        if self._in_head:
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(_head_too_long())
                return
            self._head_bytes += len(data)
        super().data_received(data)

    def _answer_now(self, body: bytes) -> bool:
        """Answer if it can be done without waiting and the line is free; else leave it to the ordinary way."""
        if self.flow.write_paused or self.transport.is_closing():
            return False
        frames = self._server.answerer.answer_now(body)
        if frames is None:
            return False
        self._server.metrics.add_answer(len(frames))
        length = sum(map(len, frames))
        if length <= COPIED_BYTES:
            self.transport.write(b"".join((_answer_head(length), *frames)))
        else:
            self.transport.writelines((_answer_head(length), *frames))
        if self._deadline is not None:
            self._disarm()
        self._last_answer = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_handler()
        return True

    def timeout_keep_alive_handler(self) -> None:
        """Close if nothing came for long; else look again. One timer serves many answers."""
        left = self._last_answer + self.timeout_keep_alive - self.loop.time()
        if self._unread is not None:
            left = self.timeout_keep_alive  # the last answer is still being read
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        elif self.transport.get_write_buffer_size():
            self._cut_off()  # nobody reads the last answer; a close would wait for it
        else:
            super().timeout_keep_alive_handler()

    # Limits.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._between_requests = False
        self._in_head = True
        self._arm()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if sum(map(len, self.headers[-1])) > MAX_HEAD_BYTES or len(self.headers) > MAX_HEAD_BYTES // 64:
            self._head_bytes = MAX_HEAD_BYTES + 1
            raise ValueError("too many headers")  # ends the parse; answered by send_400_response

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._between_requests = self._in_head = True
        self._head_bytes = 0
        self._disarm()

    def _arm(self) -> None:
        self._unset_keepalive_if_required()
        if self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self._in_head:
            self._refuse(Problem(408, f"no request within {REQUEST_SECONDS:g} s", "send it in one go"))
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch_reader(self, unread: int) -> None:
        """In each span of time a piece of what is unread must go. Nothing is added while it is watched."""
        self._unread = self.loop.call_later(PIECE_SECONDS, self._look_at_reader, unread - PIECE_BYTES)

    def _look_at_reader(self, allowed: int) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread > allowed:
            self._cut_off()
        else:
            self._watch_reader(unread)

    def _cut_off(self) -> None:
        self._server.metrics.add(Count.CUT_OFF)
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(_head_too_long())
        else:
            self._refuse(Problem(400, "not an HTTP/1.1 request", "see /docs for what is served"))

    def _refuse(self, problem: Problem) -> None:
        if not self.transport.is_closing():
            body = encode_problem(problem)
            lines = [b"%b: %b\r\n" % header for header in problem_headers(problem, len(body), close=True)]
            self.transport.write(b"".join([STATUS_LINE[problem.status], *lines, b"\r\n", body]))
            self.transport.close()


def _head_too_long() -> Problem:
    return Problem(431, "the head of the request is too long", f"at most {MAX_HEAD_BYTES} bytes")


@lru_cache(maxsize=1024)
def _answer_head(length: int) -> bytes:
    lines = [b"%b: %b\r\n" % header for header in answer_headers(length)]
    return b"".join([STATUS_LINE[200], *lines, b"\r\n"])


def plain_body(data: bytes) -> tuple[int, int] | None:
    """Where the body of a query under a plain head starts, and how much of it is missing; None if it is not that."""
    if not data.startswith(_QUERY_LINE):
        return None
    end = data.find(b"\r\n\r\n", 0, _MAX_PLAIN_HEAD)
    length = None if end < 0 else plain_length(data[len(_QUERY_LINE) : end])
    if length is None:
        return None
    missing = end + 4 + length - len(data)
    return None if missing < 0 else (end + 4, missing)


@lru_cache(maxsize=256)
def plain_length(headers: bytes) -> int | None:
    """The stated length, if the headers are each once, known, and as a client of ours writes them."""
    found: dict[bytes, bytes] = {}
    for line in headers.split(b"\r\n"):
        match = _HEADER.fullmatch(line)
        if match is None or match[1].lower() in found:
            return None
        found[match[1].lower()] = match[2]
    if found.pop(b"connection", b"keep-alive").lower() != b"keep-alive" or found.keys() != _PLAIN_HEADERS:
        return None
    length = found[b"content-length"]
    if found[b"content-type"] != QUERY_TYPE.encode() or not length.isdigit() or int(length[:6]) > MAX_QUERY:
        return None
    return int(length)
