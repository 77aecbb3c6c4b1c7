"""Queries, answers, the catalogue, refusals, and the HTTP around them.

    query    version 2 | epoch 6 | session 16 | step 8 | bitmap ceil(N/8) | known 8 each     integers are big-endian
    bitmap   source i is bit i % 8 (least significant first) of byte i // 8; spare bits zero; at least one set
    known    for each asked source, ascending, the tag of the copy that the client has; zeros where it has none

A query asks for a set of sources at one step of one session, and is answered with what is not known. `known` is left
out where nothing is known at all, and always where frames are padded: all queries to such a server are equally long,
whatever their sets, and so are the answers to sets of one size. A **tag** is the first half of the checksum of the
unpadded frame: it stands for one message of one source under one catalogue. Tags are of what the server has sent
before, so it learns nothing from them that it does not know (`docs/wire.md`).
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import Any, Final, NamedTuple, TypeVar

from onoff.errors import InvalidWire, UnknownSource
from onoff.names import MAX_NAME_BYTES, name_problem

# The catalogue, of two kinds, each with its own JSON. Its **epoch** is the first 48 bits of SHA-256 over kind, size and
# names in order: an index never means another source under the same epoch.
#
#     {"epoch", "limit", "sources"}        each message at its own length, up to `limit` bytes
#     {"epoch", "frame_size", "sources"}   every frame padded to `frame_size` bytes (`onoff serve --padding fixed`)

EPOCH_LIMIT: Final = 1 << 48
MAX_SOURCES: Final = 1 << 16
MAX_CATALOGUE: Final = MAX_SOURCES * (6 * MAX_NAME_BYTES + 3) + 100  # bytes of the longest one in JSON
DEFAULT_FRAME_SIZE: Final = 64 * 1024
MIN_FRAME_SIZE: Final = 256
MAX_FRAME_SIZE: Final = 16 * 1024 * 1024
DEFAULT_LIMIT: Final = 1024 * 1024
MIN_LIMIT: Final = 128
MAX_LIMIT: Final = 16 * 1024 * 1024
MAX_ANSWER: Final = 256 * 1024 * 1024  # a client holds the whole answer in memory before it looks
FRAME_OVERHEAD: Final = 104  # the bytes of a frame beside its body

_UNPADDED = b"onoff unpadded\0"  # larger than any frame size, so that no padded catalogue hashes the same bytes


def capacity(frame_size: int) -> int:
    """The longest body that a frame of that size holds."""
    return frame_size - FRAME_OVERHEAD


def check_name(name: str) -> str:
    """`name` itself, if it can name a source. Raises InvalidWire."""
    problem = name_problem(name)
    if problem is not None:
        raise InvalidWire(f"a source name {problem.message}", hint=problem.hint)
    return name


@dataclass(frozen=True)
class Catalogue:
    """The names of the sources, in the order of their indices, and how messages are framed.

    Raises InvalidWire if a name or size is out of range, or an answer with all sources could be longer than
    `MAX_ANSWER`.

    names: Unique names, as `check_name` allows.
    frame_size: The bytes of every frame; None: each message at its own length.
    limit: The bytes of the longest message. With a frame size it is what a frame holds.
    """

    names: tuple[str, ...]
    frame_size: int | None = DEFAULT_FRAME_SIZE
    limit: int = 0

    def __post_init__(self) -> None:
        if self.frame_size is None:
            self._set_limit(self.limit or DEFAULT_LIMIT)
            if not MIN_LIMIT <= self.limit <= MAX_LIMIT:
                raise InvalidWire(f"messages of up to {self.limit} bytes", hint=f"use {MIN_LIMIT} to {MAX_LIMIT} bytes")
        else:
            if not MIN_FRAME_SIZE <= self.frame_size <= MAX_FRAME_SIZE:
                raise InvalidWire(
                    f"a frame of {self.frame_size} bytes", hint=f"use {MIN_FRAME_SIZE} to {MAX_FRAME_SIZE} bytes"
                )
            if self.limit not in {0, capacity(self.frame_size)}:
                raise InvalidWire("a frame size and another limit", hint="give one of the two")
            self._set_limit(capacity(self.frame_size))
        if len(self.names) > MAX_SOURCES:
            raise InvalidWire(f"{len(self.names)} sources", hint=f"at most {MAX_SOURCES}")
        if len(self.names) * (self.frame_size or FRAME_OVERHEAD) > MAX_ANSWER:
            raise InvalidWire(
                f"all {len(self.names)} sources make an answer of {len(self.names) * (self.frame_size or 0)} bytes",
                hint=f"at most {MAX_ANSWER}: use smaller frames or fewer sources",
            )
        for name in self.names:
            check_name(name)
        if len(set(self.names)) != len(self.names):
            raise InvalidWire("two sources have the same name", hint="names are unique")

    def _set_limit(self, limit: int) -> None:
        object.__setattr__(self, "limit", limit)

    def with_names(self, names: tuple[str, ...]) -> Catalogue:
        """A catalogue of other names that frames messages as this one does."""
        return Catalogue(names, self.frame_size, self.limit)

    @cached_property
    def n(self) -> int:
        """How many sources there are."""
        return len(self.names)

    @cached_property
    def epoch(self) -> int:
        kind, size = (_UNPADDED, self.limit) if self.frame_size is None else (b"", self.frame_size)
        digest = hashlib.sha256(kind + struct.pack(">II", size, len(self.names)))
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
        framing = {"limit": self.limit} if self.frame_size is None else {"frame_size": self.frame_size}
        return {"epoch": self.epoch, **framing, "sources": list(self.names)}


def encode_json(fields: dict[str, Any]) -> bytes:
    """The one form of a document: without spaces, letters as they are."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def decode_json(data: bytes, what: str) -> Any:
    """The document in `data`, in any form. Raises InvalidWire, about `what`."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidWire(f"{what} that is not JSON", hint="is this a message server?") from None


def encode_catalogue(catalogue: Catalogue) -> bytes:
    """The JSON of a catalogue, whole."""
    return encode_json(catalogue.as_dict())


def decode_catalogue(data: bytes) -> Catalogue:
    """The catalogue in `data`; its epoch must be the one that its content has."""
    fields = decode_json(data, "a catalogue")
    sizes: tuple[int | None, int]
    match fields:
        case {"frame_size": int(frame_size)}:
            sizes = frame_size, 0
        case {"limit": int(limit)} if limit > 0:
            sizes = None, limit
        case _:
            raise InvalidWire("a catalogue without limit or frame_size", hint="is this a message server?")
    match fields:
        case {"epoch": int(), "sources": list(names)} if len(fields) == 3 and all(
            isinstance(name, str) for name in names
        ):
            catalogue = Catalogue(tuple(names), *sizes)
        case _:
            raise InvalidWire("a catalogue without epoch and sources", hint="is this a message server?")
    if encode_catalogue(catalogue) != data:
        raise InvalidWire("a catalogue whose epoch or form is not its own", hint="the server or the line is faulty")
    return catalogue


WIRE_VERSION: Final = 3  # sum queries are of version 2; a query of version 1 carried no tags
SESSION_BYTES: Final = 16
STEP_LIMIT: Final = 1 << 53  # steps are exact in every JSON reader

_QUERY_HEAD = struct.Struct(">H6s16sQ")
QUERY_HEAD_BYTES: Final = _QUERY_HEAD.size
TAG_BYTES: Final = 8
NO_TAG: Final = bytes(TAG_BYTES)
MAX_QUERY: Final = QUERY_HEAD_BYTES + MAX_SOURCES // 8 + MAX_SOURCES * TAG_BYTES

_FLAGS = bytes(byte == ord("1") for byte in range(256))

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class WireQuery:
    """A set of sources, ascending, asked at one step of one session; `known`: their tags, or nothing."""

    epoch: int
    session: bytes
    step: int
    sources: tuple[int, ...]
    n: int = field(kw_only=True)
    known: bytes = b""


class QueryHead(NamedTuple):
    """The fields before the bitmap; readable before the catalogue is at hand."""

    epoch: int
    session: bytes
    step: int


def bitmap_length(n: int) -> int:
    return (n + 7) // 8


def query_length(n: int, tags: int = 0) -> int:
    """The length of a query to n sources that carries so many tags: none, or one for each asked source."""
    return QUERY_HEAD_BYTES + bitmap_length(n) + tags * TAG_BYTES


def encode_bitmap(sources: Sequence[int], n: int) -> bytes:
    """The set `sources`, strictly ascending below n, as its one bitmap."""
    if not sources:
        raise InvalidWire("a query for no source", hint="ask for at least one")
    bitmap = bytearray(bitmap_length(n))
    last = -1
    for source in sources:
        if not last < source < n:
            raise InvalidWire(f"sources that do not ascend below {n}", hint="sort them and remove duplicates")
        bitmap[source >> 3] |= 1 << (source & 7)
        last = source
    return bytes(bitmap)


def select(bitmap: bytes, items: Sequence[_T]) -> list[_T]:
    """The items whose bits are set, in order; each item has a bit."""
    n = len(items)
    if len(bitmap) != bitmap_length(n):
        raise InvalidWire(f"a bitmap of {len(bitmap)} bytes", hint=f"{n} sources take exactly {bitmap_length(n)} bytes")
    bits = int.from_bytes(bitmap, "little")
    if bits >> n:
        raise InvalidWire("a bitmap whose spare bits are not zero", hint=f"there are only {n} sources")
    if not bits:
        raise InvalidWire("a query for no source", hint="ask for at least one")
    return list(compress(items, f"{bits:b}".encode().translate(_FLAGS)[::-1]))


def decode_bitmap(bitmap: bytes, n: int) -> tuple[int, ...]:
    """The sources of a bitmap, ascending."""
    return tuple(select(bitmap, range(n)))


def encode_query(query: WireQuery) -> bytes:
    """The bytes of a query."""
    if not 0 <= query.epoch < EPOCH_LIMIT or not 0 <= query.step < STEP_LIMIT:
        raise InvalidWire("an epoch or step out of range", hint="start a new session")
    if len(query.session) != SESSION_BYTES:
        raise InvalidWire(f"a session id of {len(query.session)} bytes", hint=f"use {SESSION_BYTES} random bytes")
    head = _QUERY_HEAD.pack(WIRE_VERSION, query.epoch.to_bytes(6), query.session, query.step)
    return head + encode_bitmap(query.sources, query.n) + check_known(query.known, len(query.sources))


def check_known(known: bytes, asked: int) -> bytes:
    """`known` itself, if it is what a query for so many sources carries."""
    if known and (len(known) != asked * TAG_BYTES or not any(known)):
        raise InvalidWire(
            f"{len(known)} bytes of tags for {asked} sources",
            hint=f"{TAG_BYTES} for each of them, or none where nothing is known",
        )
    return known


def decode_query_head(data: bytes) -> QueryHead:
    """Epoch, session and step of a query; the bitmap that follows needs the catalogue's n."""
    if len(data) < QUERY_HEAD_BYTES:
        raise InvalidWire(f"a query of {len(data)} bytes", hint=f"its head alone has {QUERY_HEAD_BYTES}")
    version, epoch, session, step = _QUERY_HEAD.unpack_from(data)
    if version != WIRE_VERSION:
        raise InvalidWire(
            f"a query of version {version}",
            hint=f"this server speaks version {WIRE_VERSION}: use onoff of the same version on both sides",
        )
    if step >= STEP_LIMIT:
        raise InvalidWire("a step out of range", hint="start a new session")
    return QueryHead(int.from_bytes(epoch), session, step)


def decode_query(data: bytes, n: int) -> WireQuery:
    """The query in `data`, whose catalogue has n sources."""
    head = decode_query_head(data)
    end = query_length(n)
    sources = decode_bitmap(data[QUERY_HEAD_BYTES:end], n)
    return WireQuery(head.epoch, head.session, head.step, sources, n=n, known=check_known(data[end:], len(sources)))


# Answers: one frame per asked source, ascending; nothing before, between or after. Where the query carries tags: one
# frame per asked source whose tag is another one, and then 16 bytes, the first of SHA-256 over the epoch and the
# present tags of all asked sources, so that what came and what was known add up to what the server has.
#
#     frame    source 4 | version 8 | published 8 | length 4 | media type 64 | body | zeros | checksum 16
#
# Only padded frames have zeros: all are exactly as long as the catalogue says, so the length of an answer is a function
# of the number of asked sources. The checksum is the first 16 bytes of SHA-256 over the epoch and all that precedes: a
# frame of another catalogue fails it. It detects damage, not a malicious server. Version 0 is "nothing published yet";
# `published` is in milliseconds since 1970.

VERSION_LIMIT: Final = 1 << 53
TIME_LIMIT: Final = 1 << 53
MEDIA_TYPE_BYTES: Final = 64

_FRAME_HEAD = struct.Struct(">IQQI64s")
CHECKSUM_BYTES: Final = 16
_LENGTH_AT = 20  # of the length in a frame

_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?: ?; ?[\w-]+=[\w.+-]+)*", re.ASCII)


def check_media_type(media_type: str) -> str:
    """`media_type` itself, if it fits a frame and is safe to repeat in a header."""
    if len(media_type) > MEDIA_TYPE_BYTES or not _MEDIA_TYPE.fullmatch(media_type):
        raise InvalidWire(
            "not a media type",
            hint=f"such as text/plain; charset=utf-8, at most {MEDIA_TYPE_BYTES} characters",
        )
    return media_type


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One version of the message of a source; version 0 where nothing was published yet."""

    version: int = 0
    published: int = 0
    media_type: str = ""
    body: bytes = field(default=b"", repr=False)


NOTHING: Final = WireMessage()


def frame_checksum(epoch: int, content: bytes) -> bytes:
    digest = hashlib.sha256(epoch.to_bytes(6))
    digest.update(content)
    return digest.digest()[:CHECKSUM_BYTES]


def _check_message(message: WireMessage, room: int) -> None:
    if message.version == 0 and message != NOTHING:
        raise InvalidWire("a message of version 0 that is not empty", hint="versions start at 1")
    if not 0 <= message.version < VERSION_LIMIT or not 0 <= message.published < TIME_LIMIT:
        raise InvalidWire("a message version or time out of range", hint="versions and times count from 0")
    if message.version:
        check_media_type(message.media_type)
    if len(message.body) > room:
        raise InvalidWire(f"a message of {len(message.body)} bytes", hint=f"at most {room} bytes")


def encode_frame(
    source: int, message: WireMessage, *, epoch: int, frame_size: int | None, limit: int = MAX_LIMIT
) -> bytes:
    """The frame of `message`. Raises InvalidWire if the message is too long or a number is out of range."""
    _check_message(message, limit if frame_size is None else capacity(frame_size))
    if not 0 <= source < MAX_SOURCES or not 0 <= epoch < EPOCH_LIMIT:
        raise InvalidWire("a source index or epoch out of range", hint="take both from the catalogue")
    media_type = message.media_type.encode("ascii")
    content = _FRAME_HEAD.pack(source, message.version, message.published, len(message.body), media_type) + message.body
    if frame_size is not None:
        content = content.ljust(frame_size - CHECKSUM_BYTES, b"\0")
    return content + frame_checksum(epoch, content)


def decode_frame(
    data: bytes, source: int, *, epoch: int, frame_size: int | None, limit: int = MAX_LIMIT
) -> WireMessage:
    """The message in a frame.

    Raises InvalidWire if the frame is damaged, of another source or catalogue, or not in its one form.
    """
    if len(data) < FRAME_OVERHEAD or len(data) != (frame_size or len(data)):
        wanted = frame_size or f"at least {FRAME_OVERHEAD}"
        raise InvalidWire(f"a frame of {len(data)} bytes", hint=f"the catalogue says {wanted}")
    content, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
    if frame_checksum(epoch, content) != checksum:
        raise InvalidWire("a frame that is damaged or of another catalogue", hint="send the same query again")
    index, version, published, length, padded_type = _FRAME_HEAD.unpack_from(content)
    if index != source:
        raise InvalidWire("a frame of another source", hint="send the same query again")
    media_type = padded_type.rstrip(b"\0")
    end = _FRAME_HEAD.size + length
    padding = content[end:]
    if end > len(content) or any(padding) or (padding and frame_size is None) or not media_type.isascii():
        raise InvalidWire("a frame that is not in its one form", hint="the server is faulty")
    message = WireMessage(version, published, media_type.decode("ascii"), content[_FRAME_HEAD.size : end])
    _check_message(message, limit if frame_size is None else capacity(frame_size))
    return message


def frame_length(head: bytes | bytearray | memoryview) -> int:
    """The length of an unpadded frame that starts with these `FRAME_OVERHEAD` bytes or more."""
    return FRAME_OVERHEAD + int.from_bytes(head[_LENGTH_AT : _LENGTH_AT + 4])


def strip_padding(frame: bytes, *, epoch: int) -> bytes:
    """The unpadded frame of the same message."""
    content = frame[: frame_length(frame) - CHECKSUM_BYTES]
    return content + frame_checksum(epoch, content)


def frame_tag(frame: bytes) -> bytes:
    """What stands for the message of an unpadded frame."""
    return frame[-CHECKSUM_BYTES:-TAG_BYTES]


def message_tag(source: int, message: WireMessage, *, epoch: int) -> bytes:
    """What stands for a message of a source."""
    return frame_tag(encode_frame(source, message, epoch=epoch, frame_size=None))


def answer_length(asked: int, frame_size: int) -> int:
    """The length of every padded answer to a query of `asked` sources."""
    return asked * frame_size


def max_answer_length(asked: int, catalogue: Catalogue) -> int:
    """The length of the longest answer to a query of `asked` sources; of every answer, where frames are padded."""
    if catalogue.frame_size is not None:
        return answer_length(asked, catalogue.frame_size)
    return min(asked * (FRAME_OVERHEAD + catalogue.limit), MAX_ANSWER) + CHECKSUM_BYTES


def encode_answer(frames: Iterable[bytes]) -> bytes:
    """The answer made of ready frames, ascending by source."""
    return b"".join(frames)


def decode_answer(
    body: bytes, sources: Sequence[int], *, epoch: int, frame_size: int | None, limit: int = MAX_LIMIT
) -> tuple[WireMessage, ...]:
    """The messages of all asked `sources`, in their order; the whole body is checked first.

    Raises InvalidWire if the answer is not exactly one good frame for each asked source.
    """
    whole = memoryview(body)
    messages, at = [], 0
    if frame_size is not None and len(body) != answer_length(len(sources), frame_size):
        raise InvalidWire(
            f"an answer of {len(body)} bytes", hint=f"{len(sources)} frames make {len(sources) * frame_size}"
        )
    for source in sources:
        left = len(body) - at
        size = frame_size or (frame_length(whole[at : at + FRAME_OVERHEAD]) if left >= FRAME_OVERHEAD else left + 1)
        if size > left:
            raise InvalidWire(f"an answer of {len(body)} bytes that ends within a frame", hint="send the query again")
        frame = bytes(whole[at : at + size])
        messages.append(decode_frame(frame, source, epoch=epoch, frame_size=frame_size, limit=limit))
        at += size
    if at != len(body):
        raise InvalidWire(f"an answer with {len(body) - at} bytes after its last frame", hint="the server is faulty")
    return tuple(messages)


def encode_trailer(tags: bytes, *, epoch: int) -> bytes:
    """The end of the answer to a query with tags: a checksum over the present tags of all that was asked."""
    return frame_checksum(epoch, tags)


def encode_changed(frames: Sequence[bytes], known: bytes, *, epoch: int) -> bytes:
    """The answer to a query with tags, made of the unpadded frames of all that it asks for."""
    tags = [frame_tag(frame) for frame in frames]
    told = (known[at : at + TAG_BYTES] for at in range(0, len(known), TAG_BYTES))
    changed = (frame for frame, tag, old in zip(frames, tags, told, strict=True) if tag != old)
    return b"".join(changed) + encode_trailer(b"".join(tags), epoch=epoch)


def decode_changed(
    body: bytes, sources: Sequence[int], known: bytes, *, epoch: int, limit: int = MAX_LIMIT
) -> dict[int, WireMessage]:
    """The messages of those asked `sources` that are not as `known`, by source; the whole body is checked first.

    Raises InvalidWire if the answer is not exactly one good frame for each of them, and the checksum over all.
    """
    tags = {source: known[k * TAG_BYTES : (k + 1) * TAG_BYTES] for k, source in enumerate(sources)}
    messages: dict[int, WireMessage] = {}
    whole, at, last = memoryview(body), 0, -1
    while (left := len(body) - at) > CHECKSUM_BYTES:
        size = frame_length(whole[at : at + FRAME_OVERHEAD]) if left >= FRAME_OVERHEAD else left + 1
        if size > left - CHECKSUM_BYTES:
            raise InvalidWire(f"an answer of {len(body)} bytes that ends within a frame", hint="send the query again")
        frame = bytes(whole[at : at + size])
        source = int.from_bytes(frame[:4])
        if source not in tags or source <= last or frame_tag(frame) == tags[source]:
            raise InvalidWire("a frame that was not asked for, or is known", hint="the server is faulty")
        messages[source] = decode_frame(frame, source, epoch=epoch, frame_size=None, limit=limit)
        tags[source] = frame_tag(frame)
        at, last = at + size, source
    if body[at:] != encode_trailer(b"".join(tags.values()), epoch=epoch):
        raise InvalidWire("an answer that does not add up with what was known", hint="send the query again")
    return messages


# A refusal is problem+json. A 409 is one of three: the catalogue is another one; the session has sent this step with
# other bytes, or a later step (the same bytes are answered again); a sum was asked of an edition that is not held.

EPOCH_CHANGED: Final = "urn:onoff:epoch-changed"
STEP_CONFLICT: Final = "urn:onoff:step-conflict"
EDITION_GONE: Final = "urn:onoff:edition-gone"

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal as RFC 9457 has it, with a hint that says what to do.

    `epoch` comes with `EPOCH_CHANGED`; `step` and `sha256` with `STEP_CONFLICT`; `edition` with `EDITION_GONE`.
    """

    status: int
    title: str
    hint: str = ""
    type: str = "about:blank"
    epoch: int | None = None
    step: int | None = None
    sha256: str | None = None
    edition: int | None = None


_PROBLEM_FIELDS: dict[str, type] = {"type": str, "title": str, "status": int, "hint": str}
_PROBLEM_FIELDS |= {"epoch": int, "step": int, "sha256": str, "edition": int}
_NAMED_BY = {EPOCH_CHANGED: ("epoch",), STEP_CONFLICT: ("step", "sha256"), EDITION_GONE: ("edition",)}


def encode_problem(problem: Problem) -> bytes:
    """The problem+json of a refusal."""
    fields = {name: getattr(problem, name) for name in _PROBLEM_FIELDS}
    return json.dumps({k: v for k, v in fields.items() if v is not None}, separators=(",", ":")).encode()


def decode_problem(data: bytes) -> Problem:
    """The refusal in `data`. Unknown members are passed over, as RFC 9457 asks."""
    fields = decode_json(data, "a refusal")
    if not isinstance(fields, dict):
        raise InvalidWire("a refusal that is not an object", hint="is this a message server?")
    known = {k: v for k, v in fields.items() if k in _PROBLEM_FIELDS}
    if any(type(v) is not _PROBLEM_FIELDS[k] for k, v in known.items()) or not {"status", "title"} <= known.keys():
        raise InvalidWire("a refusal whose members have other types", hint="is this a message server?")
    problem = Problem(**known)
    missing = [name for name in _NAMED_BY.get(problem.type, ()) if getattr(problem, name) is None]
    if missing:
        raise InvalidWire(
            f"a refusal of {problem.type} without {' and '.join(missing)}", hint="is this a message server?"
        )
    return problem


@dataclass(frozen=True, slots=True)
class Seen:
    """The last step that the server saw in a session, and the SHA-256 of its bytes in hex.

    It says what `STEP_CONFLICT` would, so that a client whose state was restored from an earlier one learns it before
    it asks anything.
    """

    step: int
    sha256: str


def encode_seen(seen: Seen | None) -> bytes:
    """The JSON of what was seen last, of the same form where nothing was."""
    step, sha256 = (None, None) if seen is None else (seen.step, seen.sha256)
    return encode_json({"step": step, "sha256": sha256})


def decode_seen(data: bytes) -> Seen | None:
    """What was seen last, in its one form."""
    fields = decode_json(data, "a last step")
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


# The HTTP around it: paths, media types, and the headers of either side, which are these and no others.

QUERY_PATH: Final = "/v1/query"
CATALOGUE_PATH: Final = "/v1/catalogue"
SEEN_PATH: Final = "/v1/seen"
CHANGES_PATH: Final = "/v1/changes"
EDITION_PATH: Final = "/v1/edition"
SUM_PATH: Final = "/v1/sum"
DIGESTS_PATH: Final = "/v1/digests"
QUERY_TYPE: Final = "application/vnd.onoff.query"
ANSWER_TYPE: Final = "application/vnd.onoff.answer"
CHANGES_TYPE: Final = "application/vnd.onoff.changes"
SUM_QUERY_TYPE: Final = "application/vnd.onoff.sum-query"
SUM_TYPE: Final = "application/vnd.onoff.sum"
DIGESTS_TYPE: Final = "application/vnd.onoff.digests"
PROBLEM_TYPE: Final = "application/problem+json"
ANY_TYPE: Final = "application/octet-stream"
ENTRY_TYPE: Final = "application/vnd.onoff.entry+json"  # entries of a feed: title, link, time, html or text

# The client sends these and no others (Host and Content-Length are the transport's); the server answers with
# these and Content-Length and no others, but for the encoding where it is gzip: of changes, and of answers that are not
# padded. No cookie, validator or range on either side.
QUERY_HEADERS: Final = (
    ("accept", ANSWER_TYPE),
    ("accept-encoding", "gzip"),
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
CHANGES_HEADERS: Final = (
    ("accept", CHANGES_TYPE),
    ("accept-encoding", "gzip"),
    ("user-agent", "onoff"),
)
SUM_QUERY_HEADERS: Final = (
    ("accept", SUM_TYPE),
    ("accept-encoding", "identity"),
    ("content-type", SUM_QUERY_TYPE),
    ("user-agent", "onoff"),
)
DIGESTS_HEADERS: Final = (
    ("accept", DIGESTS_TYPE),
    ("accept-encoding", "identity"),
    ("user-agent", "onoff"),
)
SUM_HEADERS: Final = (("content-type", SUM_TYPE), ("cache-control", "no-store"))
