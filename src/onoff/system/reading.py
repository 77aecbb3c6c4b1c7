"""Reading a file that somebody named: no more of it than makes sense, whatever the path leads to."""

from __future__ import annotations

from pathlib import Path

from onoff.errors import InvalidInput

LARGEST_LIST = 1 << 26
"""Bytes of a list of names or feeds, of a specification, or of a token."""
_PIECE = 1 << 20


def read_limited(path: Path, largest: int = LARGEST_LIST) -> bytes:
    """The content of a file, pipe or device. Raises InvalidInput past `largest` bytes, and OSError."""
    pieces, size = [], 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > largest:
                raise InvalidInput(
                    f"{path}: longer than the {largest} bytes that are read", hint="is it the right file?"
                )
    return b"".join(pieces)
