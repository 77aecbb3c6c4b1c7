"""Parsing feeds in separate processes, with limits on time, memory and depth.

A feed is untrusted input, and its parser may take minutes or gigabytes for some. So a reader process takes one feed at
a time and returns its message, or the reason why there is none. Past its `Limits` it is ended, and the next feed starts
a new one. Server and readers of
messages never wait for it.

The message is JSON (`wire.ENTRY_TYPE`): `{"entries": [...]}`, newest first, each with title, link, time (milliseconds,
or null), and html or text. HTML is cleaned (`wire.html`). The newest entry is always there, cut as text where it is
longer than a message may be; older ones follow whole while all are within `OLDER_BYTES`, since every reader fetches
them again whenever one is new.

Between the two, over pipes:

    asked     length of headers 4 | length of feed 4 | room for the message 4 (0: its title) | headers, JSON | feed
    replied   length 4 | time in milliseconds 8 (2**64 - 1: none) | message
              2**32 - 1 in 4 | length 8 | reason
"""

from __future__ import annotations

import asyncio
import calendar
import itertools
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from xml.parsers import expat

from onoff.system.interrupts import OUT_OF_TIME, forbid_core_dumps, limit_memory, limited_time
from onoff.wire import TIME_LIMIT
from onoff.wire.html import clean_html, html_text

END_SECONDS = 1.0
PROCESSES = 2


class Limits(NamedTuple):
    """What reading one feed may take; the largest known feeds take a tenth of it."""

    cpu_seconds: float = 5.0
    wall_seconds: float = 60.0
    memory_bytes: int = 512 * 1024 * 1024  # of the process, parser included


_ASKED = struct.Struct(">III")
_REPLIED = struct.Struct(">IQ")
_REFUSED = 2**32 - 1
_NO_TIME = 2**64 - 1
_TITLE = 0  # as room: no message has none


class BadFeed(Exception):
    """A feed that cannot be fetched or read now."""


class FeedReader:
    """A few reader processes, started when they are needed."""

    def __init__(self, processes: int = PROCESSES, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._idle: asyncio.Queue[ReaderProcess] = asyncio.Queue()
        self._all = [ReaderProcess(self.limits) for _ in range(processes)]
        for process in self._all:
            self._idle.put_nowait(process)

    async def __aenter__(self) -> FeedReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._all:
            process.stop()

    def pids(self) -> list[int]:
        """The processes that there are now."""
        return [process.child.pid for process in self._all if process.child is not None]

    async def read(self, data: bytes, headers: dict[str, str], room: int) -> tuple[bytes, int | None]:
        """The message of a feed, and when its newest entry was written, in milliseconds.

        Raises BadFeed if it is not a feed, or exceeds the limits.
        """
        return await self._exchange(data, headers, room)

    async def title(self, data: bytes, headers: dict[str, str]) -> str:
        """The title that a feed gives itself, empty if it has none. Raises as `read` does."""
        return (await self._exchange(data, headers, _TITLE))[0].decode(errors="replace")

    async def _exchange(self, data: bytes, headers: dict[str, str], room: int) -> tuple[bytes, int | None]:
        process = await self._idle.get()
        try:
            async with asyncio.timeout(self.limits.wall_seconds):
                return await asyncio.to_thread(process.exchange, data, headers, room)
        except TimeoutError:
            process = self._replaced(process)
            raise BadFeed(f"reading it took longer than {self.limits.wall_seconds:g} s") from None
        except asyncio.CancelledError:
            process = self._replaced(process)
            raise
        finally:
            self._idle.put_nowait(process)

    def _replaced(self, process: ReaderProcess) -> ReaderProcess:
        """Stop `process`, whose thread may still be anywhere in its exchange; a new one takes its place."""
        process.stop()
        fresh = ReaderProcess(self.limits)
        self._all[self._all.index(process)] = fresh
        return fresh


class ReaderProcess:
    """One reader process, or none while there is nothing to read, and none any more once it was stopped."""

    def __init__(self, limits: Limits) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self._limits = limits
        self._lock = threading.Lock()
        self._stopped = False

    def exchange(self, data: bytes, headers: dict[str, str], room: int) -> tuple[bytes, int | None]:
        """Let the process read one feed, and wait for its reply."""
        child = self._running()
        told = json.dumps(headers).encode()
        try:
            _write(child, _ASKED.pack(len(told), len(data), room) + told + data)
            length, written = _REPLIED.unpack(_read(child, _REPLIED.size))
            if length == _REFUSED:
                raise BadFeed(_read(child, written).decode(errors="replace"))
            return _read(child, length), None if written == _NO_TIME else written
        except (OSError, EOFError, ValueError):
            ended = self._end(child)
        if ended == OUT_OF_TIME:
            raise BadFeed(f"reading it takes more than {self._limits.cpu_seconds:g} s of the processor")
        raise BadFeed("reading it takes too much memory, or ends the reader")

    def stop(self) -> None:
        """End the process, if there is one, for good; a thread that waits for it or would start it gets an error."""
        with self._lock:
            self._stopped, child = True, self.child
        if child is not None:
            child.kill()
            self._end(child)

    def _running(self) -> subprocess.Popen[bytes]:
        """The process, started if there is none."""
        limits = f"{self._limits.cpu_seconds}, {self._limits.memory_bytes}"
        program = f"from onoff.server import feed_reader; feed_reader.read_feeds_from_pipe({limits})"
        command = [sys.executable, "-c", program]
        pipe = subprocess.PIPE
        with self._lock:  # else a late thread could start one that is never ended
            if self._stopped:
                raise BadFeed("its reader was stopped")
            if self.child is None:
                self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
            return self.child

    def _end(self, child: subprocess.Popen[bytes]) -> int:
        """How the process ended, or is ended now."""
        with self._lock:
            if self.child is child:
                self.child = None
        try:
            status = child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            status = child.wait()
        for pipe in (child.stdin, child.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        return status


def _write(child: subprocess.Popen[bytes], data: bytes) -> None:
    assert child.stdin is not None
    child.stdin.write(data)
    child.stdin.flush()


def _read(child: subprocess.Popen[bytes], size: int) -> bytes:
    assert child.stdout is not None
    data = child.stdout.read(size)
    if len(data) != size:
        raise EOFError
    return data


# In the process.


def read_feeds_from_pipe(cpu_seconds: float, memory_bytes: int) -> None:
    """Read feeds until the pipe is closed; `cpu_seconds` for each feed, `memory_bytes` for the process."""
    limit_memory(memory_bytes)
    forbid_core_dumps()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the server, which ends this process
    import feedparser  # noqa: F401  here: loading the parser is not the first feed's time

    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that nothing else is printed between replies
    while len(head := sys.stdin.buffer.read(_ASKED.size)) == _ASKED.size:
        headers_length, length, room = _ASKED.unpack(head)
        headers = json.loads(sys.stdin.buffer.read(headers_length))
        data = sys.stdin.buffer.read(length)
        with limited_time(cpu_seconds):
            out.write(_reply(data, headers, room))
        out.flush()


def _reply(data: bytes, headers: dict[str, str], room: int) -> bytes:
    try:
        check_depth(data)
        if room == _TITLE:
            title = read_title(data, headers).encode(errors="replace")
            return _REPLIED.pack(len(title), _NO_TIME) + title
        entries = read_entries(data, headers)
        newest = next(entries)
        body = encode_entries(itertools.chain([newest], entries), room)
    except BadFeed as error:
        reason = str(error)
    except MemoryError:
        reason = "reading it takes too much memory"
    except Exception as error:
        reason = f"it cannot be read ({type(error).__name__})"
    else:
        written = _NO_TIME if newest["time"] is None else newest["time"]
        return _REPLIED.pack(len(body), written) + body
    told = reason.encode(errors="replace")[:500]
    return _REPLIED.pack(_REFUSED, len(told)) + told


# From the bytes of a feed to the bytes of a message.

MAX_ENTRIES = 100
OLDER_BYTES = 64 * 1024
_WRAPPED = b'{"entries":[%b]}'
MAX_DEPTH = 128  # of elements in elements; feeds have less than ten, and XHTML in them a few dozen


def check_depth(data: bytes) -> None:
    """Raise BadFeed where elements are nested too deeply; what is not XML is left to the feed parser."""
    depth = 0

    def start(name: str, attributes: object) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise BadFeed(f"its elements are nested more than {MAX_DEPTH} deep")

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(data, True)
    except expat.ExpatError:
        return


def read_entries(data: bytes, headers: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
    """The entries of the feed in `data`, newest first, each made when it is asked for.

    Raises BadFeed if it is not a feed, or has no entry.
    """
    parsed = _parse(data, headers)
    if not parsed.entries:
        raise BadFeed("it has no entry" if not parsed.bozo else f"it is not a feed ({parsed.bozo_exception})")
    return map(_fields, sorted(parsed.entries, key=lambda entry: -(_time(entry) or 0)))


def read_title(data: bytes, headers: dict[str, str] | None = None) -> str:
    """The title that the feed in `data` gives itself, as text; empty if it has none.

    Raises BadFeed if it is not a feed.
    """
    parsed = _parse(data, headers)
    if not parsed.version and not parsed.entries:
        raise BadFeed("it is not a feed")
    return html_text(parsed.feed.get("title") or "")


def _parse(data: bytes, headers: dict[str, str] | None) -> Any:
    import feedparser

    return feedparser.parse(data, response_headers=headers or {}, sanitize_html=False, resolve_relative_uris=False)


def _fields(entry: Any) -> dict[str, Any]:
    """Title, link, time, and html or text of an entry."""
    fields: dict[str, Any] = {
        "title": html_text(entry.get("title") or ""),
        "link": _web_link(entry.get("link") or ""),
        "time": _time(entry),
    }
    contents = entry.get("content") or []
    best = next((c for c in contents if "html" in (c.get("type") or "")), contents[0] if contents else None)
    value = (best.get("value") if best else entry.get("summary")) or ""
    kind = (best or entry.get("summary_detail") or {}).get("type") or "text/html"
    if "html" in kind:
        fields["html"] = clean_html(value)
    else:
        fields["text"] = value
    return fields


def _web_link(link: str) -> str:
    """The link, if it leads to a page."""
    try:
        return link if urlsplit(link).scheme in {"http", "https"} else ""
    except ValueError:  # such as http://[
        return ""


def _time(entry: Any) -> int | None:
    # Not by feedparser's own look-up, which maps one to the other with a warning.
    parsed = dict.get(entry, "published_parsed") or dict.get(entry, "updated_parsed")
    if parsed is None:
        return None
    try:
        milliseconds = calendar.timegm(parsed) * 1000
    except (ValueError, OverflowError):
        return None
    return milliseconds if 0 <= milliseconds < TIME_LIMIT else None


def encode_entries(entries: Iterable[dict[str, Any]], room: int) -> bytes:
    """The message of a feed: its newest entry, and as many older ones as fit.

    Raises BadFeed if not even the title of the newest entry fits.
    """
    remaining = iter(entries)
    kept = [_cut_entry(next(remaining), room - len(_WRAPPED % b""))]
    size = len(_WRAPPED % kept[0])
    for fields in remaining:
        entry = _dump(fields)
        size += len(entry) + 1
        if size > min(room, OLDER_BYTES) or len(kept) == MAX_ENTRIES:
            break
        kept.append(entry)
    return _WRAPPED % b",".join(kept)


def _cut_entry(fields: dict[str, Any], room: int) -> bytes:
    """The JSON of an entry in at most `room` bytes; what does not fit is cut off the end of its text."""
    whole = _dump(fields)
    if len(whole) <= room:
        return whole
    title, text = fields["title"], fields.get("text") or html_text(re.sub(r"<br>|</p>", "\n", fields.get("html", "")))
    for title_length, link in ((len(title), fields["link"]), (80, fields["link"]), (10, "")):
        kept = {"title": title[:title_length], "link": link, "time": fields["time"]}
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            fits = len(_dump({**kept, "text": text[:middle] + "…"})) <= room
            low, high = (middle, high) if fits else (low, middle - 1)
        cut = _dump({**kept, "text": text[:low] + "…"})
        if len(cut) <= room:
            return cut
    raise BadFeed(f"its newest entry does not fit into {room} bytes")


def _dump(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
