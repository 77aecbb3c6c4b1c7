"""Patterns of ON and OFF, written as people say them: `ON OFF*10 ON OFF*3`."""

from __future__ import annotations

import re

from onoff.errors import InvalidPattern

LONGEST_PATTERN = 100_000
_WORD = re.compile(r"(?P<status>on|off)(?:\*(?P<times>\d{1,9}))?", re.IGNORECASE)


def parse(text: str) -> tuple[bool, ...]:
    """The privacy status F_t for t = 0, 1, ...; True is ON.

    >>> parse("ON OFF*2 ON")
    (True, False, False, True)
    """
    statuses: list[bool] = []
    for place, word in enumerate(text.split(), start=1):
        found = _WORD.fullmatch(word)
        if found is None:
            raise InvalidPattern(
                f"word {place} of the pattern, {word[:40]!r}, is not ON or OFF", hint="e.g. ON OFF*10 ON"
            )
        times = int(found["times"] or 1)
        if times == 0 or len(statuses) + times > LONGEST_PATTERN:
            raise InvalidPattern(
                f"word {place} of the pattern, {word[:40]!r}, repeats too often or never",
                hint=f"a pattern has 1 to {LONGEST_PATTERN} steps in all",
            )
        statuses.extend([found["status"].upper() == "ON"] * times)
    if not statuses:
        raise InvalidPattern("the pattern is empty", hint="e.g. ON OFF*10 ON")
    return tuple(statuses)


def pattern_text(statuses: tuple[bool, ...]) -> str:
    """The shortest way to write a pattern."""
    words: list[list[int | str]] = []
    for status in statuses:
        word = "ON" if status else "OFF"
        if words and words[-1][0] == word:
            words[-1][1] = int(words[-1][1]) + 1
        else:
            words.append([word, 1])
    return " ".join(f"{word}*{times}" if times != 1 else str(word) for word, times in words)
