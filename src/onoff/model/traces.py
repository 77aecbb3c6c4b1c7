"""Traces: who requested what, in order, read as a stream from common formats.

    text    one user a line, sources separated by blanks
    csv     one request a line under a head that names the columns: user, source and, if there, time and private
    jsonl   one JSON document a line: a request {"user", "source", "time", "private"}, or one user's {"sources": [...]}
    msnbc   the UCI set msnbc990928: categories named in the head, one user a line, numbers from 1; .seq, or its .zip

What comes out is a stream of *runs*: successive requests of one user, with nothing left out in between. A run ends
where time leaps by more than the session gap, and at a private request, which is left out: the chain is public, and
private requests must not be what it is learnt from. It need not say which source or when. A line that cannot be read
is counted, and the first is shown.

Files are read line by line, packed ones through their decompressor, so memory does not grow with the file. Formats
of one request a line interleave users; for these, a few sources and a time are kept for each user.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from onoff.errors import InvalidChain, InvalidInput, nearest
from onoff.model.chain import check_model_name
from onoff.system.files import open_ordinary

FORMATS = ("text", "csv", "jsonl", "msnbc")
SUFFIXES = {
    ".txt": "text",
    ".text": "text",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".seq": "msnbc",
    ".zip": "msnbc",
}
WHOLE_VISITS = ("text", "msnbc")
"""Formats with one visit a line."""
LONGEST_LINE = 2**24
"""Bytes of a line at most; a longer one is broken."""
CONTEXT = 4
"""Requests before the present one that are remembered: enough for a model of order four."""


@dataclass(frozen=True)
class Options:
    """How to read a trace.

    gap: seconds without a request after which a user's next request starts afresh. sources: the only names that
    count; any other makes the line broken. columns: what the file calls user, source, time and private.
    """

    format: str | None = None
    gap: float | None = None
    include_private: bool = False
    sources: Sequence[str] | None = None
    columns: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise InvalidInput(f"no trace format {self.format!r}", hint=nearest(self.format, FORMATS))
        if self.gap is not None and not self.gap > 0:
            raise InvalidInput(f"a session gap of {self.gap} seconds", hint="give a number above 0")


@dataclass(frozen=True)
class Run:
    """Successive requests of one user by source number.

    The first `known` of them were part of earlier runs already and only say what came before. fresh: the first one
    started a session.
    """

    user: int
    sources: list[int]
    known: int = 0
    fresh: bool = True


class BrokenLine(ValueError):
    """A line that cannot be read; the message says why."""


class Trace:
    """A trace file; iterate over `runs()` once, then see what was met."""

    def __init__(self, path: str | Path, options: Options | None = None) -> None:
        self.path = Path(path)
        self.options = Options() if options is None else options
        self.names: list[str] = list(dict.fromkeys(_composed(name) for name in self.options.sources or ()))
        for name in self.names:
            check_model_name(name, f"the source {_shown(name)}")
        self._numbers = {name: x for x, name in enumerate(self.names)}
        self.users = self.requests = self.private = self.broken = self.lines = 0
        self.marked = False
        """Whether the trace says which requests were private."""
        self.first_broken: str | None = None
        if not self.path.exists():
            raise InvalidInput(f"{self.path}: No such file", hint="give the path of a trace of requests")
        self.format = self.options.format or _format_of(self.path)

    def runs(self, progress: Callable[[int], None] | None = None) -> Iterator[Run]:
        """Every run of the file. Raises InvalidInput where there is nothing to read."""
        with _opened(self.path) as stream:
            lines = _Lines(stream, progress)
            readers = {"text": self._text, "csv": self._csv, "jsonl": self._jsonl, "msnbc": self._msnbc}
            yield from readers[self.format](lines)
            self.lines = lines.number
        if self.requests == 0:
            hint = f"line {self.first_broken}" if self.first_broken else "is it the right file and format?"
            raise InvalidInput(f"{self.path}: no requests that could be used, read as {self.format}", hint=hint)

    def visits(self, least: int, progress: Callable[[int], None] | None = None) -> Iterator[tuple[int, list[int]]]:
        """Every visit with at least so many requests, whole: the user, and successive requests by source number.

        Formats of one request a line interleave users; for these, the visits under way are kept.
        """
        under_way: dict[int, list[int]] = {}
        for run in self.runs(progress):
            if self.format in WHOLE_VISITS:
                visits = [run.sources]
            elif run.known:
                under_way[run.user] += run.sources[run.known :]
                continue
            else:
                visits = [under_way.pop(run.user, [])]
                under_way[run.user] = list(run.sources)
            yield from ((run.user, visit) for visit in visits if len(visit) >= least)
        yield from ((user, visit) for user, visit in under_way.items() if len(visit) >= least)

    # -- formats -------------------------------------------------------------------------------------------

    def _text(self, lines: _Lines) -> Iterator[Run]:
        for number, line in lines:
            try:
                words = _decoded(line).split()
                if words:
                    yield self._whole([self.number(word) for word in words])
            except BrokenLine as fault:
                self._break(number, fault)

    def _msnbc(self, lines: _Lines) -> Iterator[Run]:
        names = _msnbc_names(lines)
        if names is None:
            raise InvalidInput(f"{self.path}: no list of categories in the head", hint="not the MSNBC format")
        try:
            numbers = {str(at).encode(): self.number(name) for at, name in enumerate(names, start=1)}
        except BrokenLine as fault:
            raise InvalidInput(
                f"{self.path}: in the list of categories, {fault}", hint="fetch the file again"
            ) from None
        for number, line in lines:
            words = line.split()
            if not words or line.startswith(b"%"):
                continue
            try:
                yield self._whole([numbers[word] for word in words])
            except KeyError as error:
                self._break(number, BrokenLine(f"{_shown(error.args[0])} is not a category"))

    def _jsonl(self, lines: _Lines) -> Iterator[Run]:
        users = _Users(self)
        for number, line in lines:
            if not line.strip():
                continue
            try:
                document = json.loads(_decoded(line))
            except (json.JSONDecodeError, BrokenLine, RecursionError) as fault:
                self._break(number, BrokenLine(str(fault) or "nested too deeply"))
                continue
            try:
                if isinstance(document, dict) and self._column("sources") in document:
                    document = document[self._column("sources")]
                if isinstance(document, list):
                    if document:
                        yield self._whole([self.number(_named(source)) for source in document])
                elif isinstance(document, dict):
                    yield from users.request({key: document.get(self._column(key)) for key in COLUMNS})
                else:
                    raise BrokenLine("neither a request nor a list of sources")
            except BrokenLine as fault:
                self._break(number, fault)

    def _csv(self, lines: _Lines) -> Iterator[Run]:
        users = _Users(self)
        place: dict[str, int] | None = None
        for number, line in lines:
            try:
                cells = next(csv.reader([_decoded(line)], strict=True), [])
                if not cells:
                    continue
                if place is None:
                    place = self._head(cells)
                    continue
                if len(cells) <= max(place.values()):
                    raise BrokenLine(f"{len(cells)} columns")
                yield from users.request({key: cells[at] for key, at in place.items()})
            except (BrokenLine, csv.Error) as fault:
                self._break(number, fault)

    def _head(self, cells: list[str]) -> dict[str, int]:
        heads = [cell.strip().lstrip("\ufeff") for cell in cells]
        for needed in ("user", "source"):
            if self._column(needed) not in heads:
                raise InvalidInput(
                    f"{self.path}: no column {self._column(needed)!r} in the head",
                    hint=f"{nearest(self._column(needed), heads)}; name it with --{needed}-column",
                )
        return {key: heads.index(self._column(key)) for key in COLUMNS if self._column(key) in heads}

    # -- what the formats share ----------------------------------------------------------------------------

    def number(self, name: str) -> int:
        """The number of a source, a new one where it has not been met."""
        if name not in self._numbers:
            composed = _composed(name)
            self._numbers[name] = self._numbers[composed] if composed in self._numbers else self._new(composed)
        return self._numbers[name]

    def _new(self, name: str) -> int:
        if self.options.sources is not None:
            raise BrokenLine("a source that is not among those given")
        try:
            check_model_name(
                name, "a source's name"
            )  # here, where the line is known, rather than by the chain at the end
        except InvalidChain as fault:
            raise BrokenLine(fault.message) from None
        self._numbers[name] = len(self.names)
        self.names.append(name)
        return self._numbers[name]

    def _column(self, key: str) -> str:
        return self.options.columns.get(key, key)

    def _whole(self, sources: list[int]) -> Run:
        self.users += 1
        self.requests += len(sources)
        return Run(self.users, sources)

    def _break(self, number: int, fault: Exception) -> None:
        self.broken += 1
        if self.first_broken is None:
            self.first_broken = f"{number}: {fault}"


COLUMNS = ("user", "source", "time", "private")


@dataclass
class _Past:
    """What is remembered of a user: number, time of the last request, and the last sources of the present run."""

    number: int
    time: float | None = None
    sources: list[int] = field(default_factory=list)
    cut: bool = False


class _Users:
    """Puts interleaved requests together, user by user."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._past: dict[str, _Past] = {}

    def request(self, cells: dict[str, Any]) -> Iterator[Run]:
        trace, gap = self._trace, self._trace.options.gap
        user, time, private = _named(cells.get("user")), _time(cells.get("time")), _flag(cells.get("private"))
        if private and not trace.options.include_private and cells.get("source") in (None, ""):
            trace.private, trace.marked = trace.private + 1, True
            if user in self._past:
                self._past[user].sources, self._past[user].cut = [], True
            return
        if gap is not None and time is None:
            raise BrokenLine("no time, which a session gap needs")
        source = trace.number(_named(cells.get("source")))
        if user not in self._past:
            trace.users += 1
            self._past[user] = _Past(trace.users)
        past = self._past[user]
        if time is not None and past.time is not None:
            if time < past.time:
                raise BrokenLine("a time before that of the user's last request")
            if gap is not None and time - past.time > gap:
                past.sources, past.cut = [], False
        past.time = time
        trace.marked |= private is not None
        if private and not trace.options.include_private:
            trace.private += 1
            past.sources, past.cut = [], True
            return
        before = past.sources
        past.sources = [*before, source][-CONTEXT:]
        trace.requests += 1
        yield Run(past.number, [*before, source], known=len(before), fresh=not before and not past.cut)


class _Lines:
    """Numbered lines of a stream, each of bounded length; counts the bytes for a progress bar."""

    def __init__(self, stream: IO[bytes], progress: Callable[[int], None] | None) -> None:
        self._stream = stream
        self._progress = progress
        self.number = 0
        self.bytes = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        while line := self._stream.readline(LONGEST_LINE):
            self.number += 1
            if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                while (rest := self._stream.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                    pass
                line = b"\xff"  # not UTF-8: broken, whatever the format
            self.bytes += len(line)
            if self._progress is not None and self.number % 10_000 == 0:
                self._progress(self.bytes)
            yield self.number, line


def size_of(path: Path) -> int | None:
    """Bytes that will be read, where that is known beforehand."""
    if path.suffix.lower() == ".gz":
        return None
    with _opened_file(path) as file:
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(file) as packed:
                return _member(packed, path).file_size
        return os.fstat(file.fileno()).st_size


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """What a trace holds, unpacked."""
    with _opened_file(path) as file:
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(file) as packed, packed.open(_member(packed, path)) as member:
                yield io.BufferedReader(member)  # type: ignore[type-var]
        elif path.suffix.lower() == ".gz":
            with gzip.open(file) as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            yield file


@contextmanager
def _opened_file(path: Path) -> Iterator[IO[bytes]]:
    """The file of a trace, and InvalidInput for whatever is wrong with it."""
    try:
        with open_ordinary(path) as file:
            yield file
    except (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InvalidInput(f"{path}: damaged: {error}", hint="fetch the file again") from None
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror or error}", hint="give the path of a trace") from None


def _member(packed: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    """The one file in a packed trace; what macOS adds does not count."""
    files = [info for info in packed.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
    if len(files) != 1:
        raise InvalidInput(f"{path}: {len(files)} files in it", hint="a packed trace holds one file")
    return files[0]


def _format_of(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    if suffixes and suffixes[-1] in SUFFIXES:
        return SUFFIXES[suffixes[-1]]
    raise InvalidInput(
        f"{path}: cannot tell the format from the name", hint=f"give --format, one of {', '.join(FORMATS)}"
    )


def _msnbc_names(lines: _Lines) -> list[str] | None:
    """The categories: the first line that is neither empty nor a remark; the sequences follow the next remark."""
    names: list[str] | None = None
    for number, line in lines:
        text = line.decode("utf-8", "replace").strip()
        if text.startswith("%"):
            if names is not None:
                return names
        elif text:
            if names is not None or number > 20 or text[0].isdigit():
                return None
            names = text.split()
    return names


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        raise BrokenLine("not UTF-8, or too long") from None


def _named(value: Any) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BrokenLine("a user or source without a name")


def _composed(name: str) -> str:
    """A name in Unicode normal form C: some systems write é as e and a combining accent."""
    return unicodedata.normalize("NFC", name)


def _time(value: Any) -> float | None:
    """Seconds, from a number or from an ISO 8601 date, which is in UTC unless it names a zone.

    Not in the zone of the machine: a trace must give the same chain everywhere.
    """
    if value is None or value == "":
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if math.isfinite(seconds):
        return seconds
    try:
        date = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise BrokenLine(f"{_shown(value)} is not a time") from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _flag(value: Any) -> bool | None:
    if value is None or value == "":
        return None
    known = {"on": True, "true": True, "1": True, "yes": True, "off": False, "false": False, "0": False, "no": False}
    flag = known.get(str(value).strip().lower())
    if flag is None:
        raise BrokenLine(f"{_shown(value)} is not ON or OFF")
    return flag


def _shown(value: Any) -> str:
    return repr(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)[:40]
