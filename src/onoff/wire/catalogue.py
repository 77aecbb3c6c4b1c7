"""The catalogue: the names of the sources, in the order of their indices, how messages are framed, and the epoch.

There are two kinds, each with its own JSON:

    {"epoch", "limit", "sources"}        each message at its own length, up to `limit` bytes
    {"epoch", "frame_size", "sources"}   every frame padded to `frame_size` bytes (`onoff serve --padding fixed`)

The **epoch** names the catalogue: the first 48 bits of SHA-256 over kind, size and names in order. Equal
catalogues have equal epochs on every server, and an index never means another source under the same epoch.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from onoff.errors import InvalidWire, UnknownSource
from onoff.names import MAX_NAME_BYTES, name_problem

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

    Parameters
    ----------
    names
        Unique names, as `check_name` allows.
    frame_size
        The bytes of every frame; None: each message at its own length.
    limit
        The bytes of the longest message. With a frame size it is what a frame holds.

    Raises
    ------
    InvalidWire
        If a name or size is out of range, or an answer with all sources could be longer than `MAX_ANSWER`.
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


def encode_catalogue(catalogue: Catalogue) -> bytes:
    """The JSON of a catalogue, whole."""
    return json.dumps(catalogue.as_dict(), ensure_ascii=False, separators=(",", ":")).encode()


def decode_catalogue(data: bytes) -> Catalogue:
    """The catalogue in `data`; its epoch must be the one that its content has."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidWire("a catalogue that is not JSON", hint="is this a message server?") from None
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
