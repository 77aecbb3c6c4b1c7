"""The catalogue: the names of the sources, in the order of their indices, the size of a frame, and the epoch.

The **epoch** names the catalogue: the first 48 bits of SHA-256 over frame size and names in order. Equal
catalogues have equal epochs on every server, and an index never means another source under the same epoch.
"""

from __future__ import annotations

import hashlib
import json
import struct
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from onoff.errors import InvalidWire, UnknownSource

EPOCH_LIMIT: Final = 1 << 48
MAX_SOURCES: Final = 1 << 16
MAX_NAME_BYTES: Final = 256
DEFAULT_FRAME_SIZE: Final = 64 * 1024
MIN_FRAME_SIZE: Final = 256
MAX_FRAME_SIZE: Final = 16 * 1024 * 1024
MAX_ANSWER: Final = 256 * 1024 * 1024  # a client holds the whole answer in memory before it looks


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
