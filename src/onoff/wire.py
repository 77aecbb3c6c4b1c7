"""What travels between client and server: bitmap queries and answers of equal frames.

Shared by both ends and free of I/O. Everything has exactly one form: what `encode_*` writes is the only thing
that `decode_*` accepts, so no choice of encoding can carry a hint of which source is wanted.

    query    version 2 | epoch 6 | session 16 | step 8 | bitmap ceil(N/8)            integers are big-endian
    bitmap   source i is bit i % 8 (least significant first) of byte i // 8; spare bits zero; at least one set
    answer   one frame per asked source, ascending; nothing before, between or after
    frame    source 4 | version 8 | published 8 | length 4 | media type 64 | body | zeros | checksum 16

A frame is always exactly as long as the catalogue says, so the length of an answer is a function of the
number of asked sources. Its checksum is the first 16 bytes of SHA-256 over the epoch and all that precedes: a
frame of another catalogue fails it. It guards against damage, not against a lying server. Version 0 is
"nothing published yet"; `published` is in milliseconds since 1970.

The **epoch** names the catalogue: the first 48 bits of SHA-256 over frame size and names in order. Equal
catalogues have equal epochs on every server, and an index never means another source under the same epoch.

HTTP: `POST /v1/query` with `QUERY_HEADERS`, 200 with `ANSWER_HEADERS`. Every refusal is problem+json. A 409
is one of two: `EPOCH_CHANGED` (with `epoch`, the new one), or `STEP_CONFLICT` (with `step` and `sha256`, the
last step that the server saw in this session and the digest of its bytes): the same step with other bytes, or
a step before the last. The same step with the same bytes is answered again.

`POST /v1/seen` with a session id answers what `STEP_CONFLICT` would say, so that a client whose state was put
back to an earlier one learns it before it asks anything: JSON with `step` and `sha256`, both null if unknown.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from onoff.errors import InvalidWire, UnknownSource

VERSION: Final = 1
SESSION_BYTES: Final = 16
EPOCH_LIMIT: Final = 1 << 48
STEP_LIMIT: Final = 1 << 53  # steps are exact in every JSON reader
VERSION_LIMIT: Final = 1 << 53
TIME_LIMIT: Final = 1 << 53

MAX_SOURCES: Final = 1 << 16
MAX_NAME_BYTES: Final = 256
MEDIA_TYPE_BYTES: Final = 64
DEFAULT_FRAME_SIZE: Final = 64 * 1024
MAX_FRAME_SIZE: Final = 16 * 1024 * 1024
MAX_ANSWER: Final = 256 * 1024 * 1024  # a client holds the whole answer in memory before it looks

_QUERY_HEAD = struct.Struct(">H6s16sQ")
_FRAME_HEAD = struct.Struct(">IQQI64s")
_CHECKSUM_BYTES = 16
QUERY_HEAD_BYTES: Final = _QUERY_HEAD.size
MAX_QUERY: Final = _QUERY_HEAD.size + MAX_SOURCES // 8
FRAME_OVERHEAD: Final = _FRAME_HEAD.size + _CHECKSUM_BYTES
MIN_FRAME_SIZE: Final = 256

QUERY_PATH: Final = "/v1/query"
CATALOGUE_PATH: Final = "/v1/catalogue"
SEEN_PATH: Final = "/v1/seen"
QUERY_TYPE: Final = "application/vnd.onoff.query"
ANSWER_TYPE: Final = "application/vnd.onoff.answer"
PROBLEM_TYPE: Final = "application/problem+json"
ANY_TYPE: Final = "application/octet-stream"
ENTRY_TYPE: Final = "application/vnd.onoff.entry+json"  # an entry of a feed: title, link, time, html or text

# The client sends these and no others (Host and Content-Length are the transport's); the server answers with
# these and Content-Length and no others. No cookie, validator, range or encoding on either side.
QUERY_HEADERS: Final = (
    ("accept", ANSWER_TYPE),
    ("accept-encoding", "identity"),
    ("content-type", QUERY_TYPE),
    ("user-agent", "onoff"),
)
CATALOGUE_HEADERS: Final = (
    ("accept", "application/json"),
    ("accept-encoding", "identity"),
    ("user-agent", "onoff"),
)
SEEN_HEADERS: Final = (*CATALOGUE_HEADERS, ("content-type", ANY_TYPE))
ANSWER_HEADERS: Final = (("content-type", ANSWER_TYPE), ("cache-control", "no-store"))

EPOCH_CHANGED: Final = "urn:onoff:epoch-changed"
STEP_CONFLICT: Final = "urn:onoff:step-conflict"

_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?: ?; ?[\w-]+=[\w.+-]+)*", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_BITS = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))


# Sources.


def check_name(name: str) -> str:
    """`name` itself, if it can name a source: NFC, 1 to 256 bytes, all visible, and not like a path."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidWire("a source name holds a lone surrogate", hint="use well-formed Unicode") from None
    if not 0 < size <= MAX_NAME_BYTES:
        raise InvalidWire(f"a source name has {size} bytes", hint=f"use 1 to {MAX_NAME_BYTES} bytes of UTF-8")
    if unicodedata.normalize("NFC", name) != name:
        raise InvalidWire("a source name is not in Unicode form NFC", hint="normalise it to NFC")
    if any(unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"} for c in name) or name != name.strip():
        raise InvalidWire(
            "a source name holds control or invisible characters",
            hint="use visible characters and single spaces",
        )
    if "/" in name or "\\" in name or name in {".", ".."}:
        raise InvalidWire("a source name looks like a path", hint="leave out slashes and backslashes")
    return name


@dataclass(frozen=True)
class Catalogue:
    """The names of the sources, in the order of their indices, and the size of a frame."""

    names: tuple[str, ...]
    frame_size: int = DEFAULT_FRAME_SIZE

    def __post_init__(self) -> None:
        if not MIN_FRAME_SIZE <= self.frame_size <= MAX_FRAME_SIZE:
            raise InvalidWire(
                f"a frame of {self.frame_size} bytes", hint=f"use {MIN_FRAME_SIZE} to {MAX_FRAME_SIZE} bytes"
            )
        if len(self.names) > MAX_SOURCES:
            raise InvalidWire(f"{len(self.names)} sources", hint=f"at most {MAX_SOURCES}")
        if len(self.names) * self.frame_size > MAX_ANSWER:
            raise InvalidWire(
                f"all {len(self.names)} sources make an answer of {len(self.names) * self.frame_size} bytes",
                hint=f"at most {MAX_ANSWER}: use smaller frames or fewer sources",
            )
        for name in self.names:
            check_name(name)
        if len(set(self.names)) != len(self.names):
            raise InvalidWire("two sources have the same name", hint="names are unique")

    @property
    def n(self) -> int:
        return len(self.names)

    @cached_property
    def epoch(self) -> int:
        digest = hashlib.sha256(struct.pack(">II", self.frame_size, len(self.names)))
        for name in self.names:
            encoded = name.encode()
            digest.update(struct.pack(">I", len(encoded)) + encoded)
        return int.from_bytes(digest.digest()[:6])

    @cached_property
    def index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def source(self, name: str) -> int:
        """The index of the source of that name."""
        try:
            return self.index[name]
        except KeyError:
            raise UnknownSource("no source of that name", hint="`onoff catalogue` lists them") from None

    def as_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "frame_size": self.frame_size, "sources": list(self.names)}


def encode_catalogue(catalogue: Catalogue) -> bytes:
    """The JSON of a catalogue, whole."""
    return json.dumps(catalogue.as_dict(), ensure_ascii=False, separators=(",", ":")).encode()


def decode_catalogue(data: bytes) -> Catalogue:
    """The catalogue in `data`; its epoch must be the one that its content has."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidWire("a catalogue that is not JSON", hint="is this a message server?") from None
    match fields:
        case {"epoch": int(), "frame_size": int(frame_size), "sources": list(names)} if len(fields) == 3 and all(
            isinstance(name, str) for name in names
        ):
            catalogue = Catalogue(tuple(names), frame_size)
        case _:
            raise InvalidWire("a catalogue without epoch, frame_size and sources", hint="is this a message server?")
    if encode_catalogue(catalogue) != data:
        raise InvalidWire("a catalogue whose epoch or form is not its own", hint="the server or the line is faulty")
    return catalogue


# Queries.


@dataclass(frozen=True, slots=True)
class Query:
    """A set of sources, ascending, asked at one step of one session."""

    epoch: int
    session: bytes
    step: int
    sources: tuple[int, ...]
    n: int = field(kw_only=True)


class QueryHead(NamedTuple):
    """What stands before the bitmap; readable before the catalogue is known."""

    epoch: int
    session: bytes
    step: int


def bitmap_length(n: int) -> int:
    return (n + 7) // 8


def query_length(n: int) -> int:
    """The length of every query to n sources."""
    return QUERY_HEAD_BYTES + bitmap_length(n)


def answer_length(asked: int, frame_size: int) -> int:
    """The length of every answer to a query of `asked` sources."""
    return asked * frame_size


def encode_bitmap(sources: Sequence[int], n: int) -> bytes:
    """The set `sources`, strictly ascending below n, as its one bitmap."""
    if not sources:
        raise InvalidWire("a query for no source", hint="ask for at least one")
    bitmap = bytearray(bitmap_length(n))
    last = -1
    for source in sources:
        if not last < source < n:
            raise InvalidWire(f"sources that do not ascend below {n}", hint="sort them and leave out doubles")
        bitmap[source >> 3] |= 1 << (source & 7)
        last = source
    return bytes(bitmap)


def decode_bitmap(bitmap: bytes, n: int) -> tuple[int, ...]:
    """The sources of a bitmap, ascending."""
    if len(bitmap) != bitmap_length(n):
        raise InvalidWire(f"a bitmap of {len(bitmap)} bytes", hint=f"{n} sources take exactly {bitmap_length(n)} bytes")
    if n % 8 and bitmap[-1] >> (n % 8):
        raise InvalidWire("a bitmap whose spare bits are not zero", hint=f"there are only {n} sources")
    sources = tuple([at * 8 + bit for at, byte in enumerate(bitmap) if byte for bit in _BITS[byte]])
    if not sources:
        raise InvalidWire("a query for no source", hint="ask for at least one")
    return sources


def encode_query(query: Query) -> bytes:
    """The bytes of a query: the same length for every set."""
    if not 0 <= query.epoch < EPOCH_LIMIT or not 0 <= query.step < STEP_LIMIT:
        raise InvalidWire("an epoch or step out of range", hint="start a new session")
    if len(query.session) != SESSION_BYTES:
        raise InvalidWire(f"a session id of {len(query.session)} bytes", hint=f"use {SESSION_BYTES} random bytes")
    head = _QUERY_HEAD.pack(VERSION, query.epoch.to_bytes(6), query.session, query.step)
    return head + encode_bitmap(query.sources, query.n)


def decode_query_head(data: bytes) -> QueryHead:
    """Epoch, session and step of a query; the bitmap that follows needs the catalogue's n."""
    if len(data) < QUERY_HEAD_BYTES:
        raise InvalidWire(f"a query of {len(data)} bytes", hint=f"its head alone has {QUERY_HEAD_BYTES}")
    version, epoch, session, step = _QUERY_HEAD.unpack_from(data)
    if version != VERSION:
        raise InvalidWire(f"a query of version {version}", hint=f"this server speaks version {VERSION}")
    if step >= STEP_LIMIT:
        raise InvalidWire("a step out of range", hint="start a new session")
    return QueryHead(int.from_bytes(epoch), session, step)


def decode_query(data: bytes, n: int) -> Query:
    """The query in `data`, whose catalogue has n sources."""
    head = decode_query_head(data)
    return Query(head.epoch, head.session, head.step, decode_bitmap(data[QUERY_HEAD_BYTES:], n), n=n)


# What the server saw last.


@dataclass(frozen=True, slots=True)
class Seen:
    """The last step that the server saw in a session, and the SHA-256 of its bytes in hex."""

    step: int
    sha256: str


def encode_seen(seen: Seen | None) -> bytes:
    """The JSON of what was seen last, of the same form where nothing was."""
    step, sha256 = (None, None) if seen is None else (seen.step, seen.sha256)
    return json.dumps({"step": step, "sha256": sha256}, separators=(",", ":")).encode()


def decode_seen(data: bytes) -> Seen | None:
    """What was seen last, in its one form."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidWire("a last step that is not JSON", hint="is this a message server?") from None
    match fields:
        case {"step": None, "sha256": None}:
            seen = None
        case {"step": int(step), "sha256": str(sha256)} if 0 <= step < STEP_LIMIT and _SHA256.fullmatch(sha256):
            seen = Seen(int(step), sha256)  # true is not 1 in the form below
        case _:
            raise InvalidWire("a last step without step and sha256", hint="is this a message server?")
    if encode_seen(seen) != data:
        raise InvalidWire("a last step that is not in its one form", hint="the server or the line is faulty")
    return seen


# Answers.


def check_media_type(media_type: str) -> str:
    """`media_type` itself, if it fits a frame and is safe to repeat in a header."""
    if len(media_type) > MEDIA_TYPE_BYTES or not _MEDIA_TYPE.fullmatch(media_type):
        raise InvalidWire(
            "not a media type",
            hint=f"such as text/plain; charset=utf-8, at most {MEDIA_TYPE_BYTES} characters",
        )
    return media_type


@dataclass(frozen=True, slots=True)
class Message:
    """One version of what a source says. Version 0: it has said nothing yet."""

    version: int = 0
    published: int = 0
    media_type: str = ""
    body: bytes = field(default=b"", repr=False)


NOTHING: Final = Message()


def capacity(frame_size: int) -> int:
    """The longest body that a frame holds."""
    return frame_size - FRAME_OVERHEAD


def _checksum(epoch: int, content: bytes) -> bytes:
    digest = hashlib.sha256(epoch.to_bytes(6))
    digest.update(content)
    return digest.digest()[:_CHECKSUM_BYTES]


def _check_message(message: Message, frame_size: int) -> None:
    if message.version == 0 and message != NOTHING:
        raise InvalidWire("a message of version 0 that is not empty", hint="versions start at 1")
    if not 0 <= message.version < VERSION_LIMIT or not 0 <= message.published < TIME_LIMIT:
        raise InvalidWire("a message version or time out of range")
    if message.version:
        check_media_type(message.media_type)
    if len(message.body) > capacity(frame_size):
        raise InvalidWire(
            f"a message of {len(message.body)} bytes", hint=f"a frame holds at most {capacity(frame_size)}"
        )


def encode_frame(source: int, message: Message, *, epoch: int, frame_size: int) -> bytes:
    """The frame of `message`, exactly `frame_size` bytes long."""
    _check_message(message, frame_size)
    if not 0 <= source < MAX_SOURCES or not 0 <= epoch < EPOCH_LIMIT:
        raise InvalidWire("a source index or epoch out of range")
    media_type = message.media_type.encode("ascii")
    head = _FRAME_HEAD.pack(source, message.version, message.published, len(message.body), media_type)
    content = (head + message.body).ljust(frame_size - _CHECKSUM_BYTES, b"\0")
    return content + _checksum(epoch, content)


def decode_frame(data: bytes, source: int, *, epoch: int, frame_size: int) -> Message:
    """The message in the frame of `source`."""
    if len(data) != frame_size:
        raise InvalidWire(f"a frame of {len(data)} bytes", hint=f"the catalogue says {frame_size}")
    content, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if _checksum(epoch, content) != checksum:
        raise InvalidWire("a frame that is damaged or of another catalogue", hint="send the same query again")
    index, version, published, length, padded_type = _FRAME_HEAD.unpack_from(content)
    if index != source:
        raise InvalidWire("a frame of another source", hint="send the same query again")
    media_type = padded_type.rstrip(b"\0")
    end = _FRAME_HEAD.size + length
    if length > capacity(frame_size) or content[end:] != bytes(len(content) - end) or not media_type.isascii():
        raise InvalidWire("a frame that is not in its one form", hint="the server is faulty")
    message = Message(version, published, media_type.decode("ascii"), content[_FRAME_HEAD.size : end])
    _check_message(message, frame_size)
    return message


def encode_answer(frames: Iterable[bytes]) -> bytes:
    """The answer made of ready frames, ascending by source."""
    return b"".join(frames)


def decode_answer(body: bytes, sources: Sequence[int], *, epoch: int, frame_size: int) -> tuple[Message, ...]:
    """The messages of all asked `sources`, in their order; the whole body is checked first."""
    if len(body) != answer_length(len(sources), frame_size):
        raise InvalidWire(
            f"an answer of {len(body)} bytes", hint=f"{len(sources)} frames make {len(sources) * frame_size}"
        )
    whole = memoryview(body)
    return tuple(
        decode_frame(bytes(whole[at * frame_size : (at + 1) * frame_size]), s, epoch=epoch, frame_size=frame_size)
        for at, s in enumerate(sources)
    )


# Refusals.


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal as RFC 9457 has it, with a hint that says how to mend it.

    `epoch` comes with `EPOCH_CHANGED`; `step` and `sha256` with `STEP_CONFLICT`.
    """

    status: int
    title: str
    hint: str = ""
    type: str = "about:blank"
    epoch: int | None = None
    step: int | None = None
    sha256: str | None = None


_PROBLEM_FIELDS: dict[str, type] = {
    "type": str,
    "title": str,
    "status": int,
    "hint": str,
    "epoch": int,
    "step": int,
    "sha256": str,
}


def encode_problem(problem: Problem) -> bytes:
    """The problem+json of a refusal."""
    fields = {name: getattr(problem, name) for name in _PROBLEM_FIELDS}
    return json.dumps({k: v for k, v in fields.items() if v is not None}, separators=(",", ":")).encode()


def decode_problem(data: bytes) -> Problem:
    """The refusal in `data`. Unknown members are passed over, as RFC 9457 asks."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidWire("a refusal that is not JSON", hint="is this a message server?") from None
    if not isinstance(fields, dict):
        raise InvalidWire("a refusal that is not an object", hint="is this a message server?")
    known = {k: v for k, v in fields.items() if k in _PROBLEM_FIELDS}
    if any(type(v) is not _PROBLEM_FIELDS[k] for k, v in known.items()) or not {"status", "title"} <= known.keys():
        raise InvalidWire("a refusal whose members have other types", hint="is this a message server?")
    problem = Problem(**known)
    if problem.type == EPOCH_CHANGED and problem.epoch is None:
        raise InvalidWire("a changed epoch that is not named", hint="is this a message server?")
    if problem.type == STEP_CONFLICT and (problem.step is None or problem.sha256 is None):
        raise InvalidWire("a step conflict that does not say with what", hint="is this a message server?")
    return problem
