"""The names of sources: one rule, for chains and servers alike.

A name is 1 to 256 bytes of UTF-8 in Unicode normal form C. It shows all of itself (no control, format or separator
characters but inner spaces), does not begin or end with a space, and does not look like a path, because it is
part of addresses.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final, NamedTuple

MAX_NAME_BYTES: Final = 256

_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


class NameProblem(NamedTuple):
    """What is wrong with a name ("is empty"), and a hint."""

    message: str
    hint: str


def name_problem(name: object) -> NameProblem | None:
    """Why this cannot name a source; None if it can.

    >>> name_problem("Zürich"), name_problem(" x").message
    (None, 'begins or ends with a space')
    """
    if not isinstance(name, str) or not name.strip():
        return NameProblem("is empty or not text", "give each source a name")
    if any(unicodedata.category(letter) in _INVISIBLE for letter in name):
        return NameProblem("holds a control character", "use visible characters")
    if name != name.strip():
        return NameProblem("begins or ends with a space", "leave it out")
    if len(name.encode()) > MAX_NAME_BYTES:
        return NameProblem(f"is longer than {MAX_NAME_BYTES} bytes", "shorten it")
    if unicodedata.normalize("NFC", name) != name:
        return NameProblem("is not in Unicode normal form C", "normalise it to NFC")
    if "/" in name or "\\" in name or name in {".", ".."}:
        return NameProblem("looks like a path", "leave out slashes and backslashes: it stands in addresses")
    return None


def some_of(names: Sequence[str], most: int = 5) -> str:
    """The first of these names, for a message, and how many more there are.

    >>> some_of(["a", "b"]), some_of("abcdefg")
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e' and 2 more")
    """
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
