"""Where a model comes from, how well it is known and what to do with it, as its file says under "about"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from onoff.model.chain import LARGEST_FILE
from onoff.system.files import read_limited

OWN: Final = "own"
"""As "whose" in what a file says of its trace: learnt from the open requests of the person who uses it."""


def about_of(path: Path) -> dict[str, Any]:
    """What the file of a model, which was loaded before, says of it; empty where it says nothing."""
    if path.suffix.lower() == ".npz":
        from onoff.model.files import read_file

        return dict(read_file(path, LARGEST_FILE).get("about") or {})
    try:
        found = json.loads(read_limited(path, LARGEST_FILE).decode("utf-8-sig"))
    except (UnicodeDecodeError, ValueError):  # a matrix
        return {}
    about = found.get("about") if isinstance(found, dict) else None
    return dict(about) if isinstance(about, Mapping) else {}


def origin_in_words(about: Mapping[str, Any]) -> str:
    """What a model was learnt from, in a sentence.

    >>> origin_in_words({"guess": "sticky"})
    'A guess (sticky), learnt from nobody.'
    >>> origin_in_words({"trace": {"users": 3, "requests": 1200}})
    'Learnt from 1,200 requests of 3 people.'
    >>> origin_in_words({})
    'Its file does not say what it was learnt from.'
    """
    if "guess" in about:
        return f"A guess ({about['guess']}), learnt from nobody."
    trace = about.get("trace")
    if not isinstance(trace, Mapping) or not isinstance(trace.get("requests"), int):
        return "Its file does not say what it was learnt from."
    requests = f"{trace['requests']:,} request{'' if trace['requests'] == 1 else 's'}"
    if trace.get("whose") == OWN:
        since = trace.get("since")
        day = f" since {datetime.fromtimestamp(since, UTC):%Y-%m-%d}" if isinstance(since, int | float) else ""
        return f"Learnt from {requests} of your own while OFF{day}."
    users = trace.get("users")
    return f"Learnt from {requests} of {users:,} {'person' if users == 1 else 'people'}."


# -- what to do with it ----------------------------------------------------------------------------------------

LITTLE_LEAK: Final = 0.1
"""Bits, and share of what naive switching tells, below which a leak is little."""
DEAR: Final = 0.6
"""The share of what staying ON costs above which OFF saves too little to give anything away."""
Word = Literal["off", "warn", "stay-on"]


@dataclass(frozen=True)
class Advice:
    """Whether to switch OFF with a model: the one word that every part says, and why.

    word
        "off": measured, and little is given away. "warn": more is, or it is nobody's and was not measured. "stay-on":
        a guess, a chain of one's own requests, learnt and not measured, no better than naive switching, or dear and
        leaky.
    says
        Why, with the figures.
    measured
        Whether real readers were sent through sessions of it.
    """

    word: Word
    says: str
    measured: bool

    def as_dict(self) -> dict[str, Any]:
        return {"word": self.word, "says": self.says, "measured": self.measured}


def advice_of(about: Mapping[str, Any], history: Literal["none", "open"] = "none") -> Advice:
    """What a model's file says, as advice.

    history: Whether sessions know what the person openly asked ("open"); each is audited by itself.

    >>> advice_of({}).word, advice_of({"guess": "sticky"}).word
    ('warn', 'stay-on')
    """
    trace = about.get("trace")
    if "guess" in about:
        return Advice("stay-on", f"A guess ({about['guess']}): it can give away more than naive switching.", False)
    if isinstance(trace, Mapping) and trace.get("whose") == OWN:
        return Advice("stay-on", "A chain of your own requests: it can give away more than naive switching.", False)
    found = measured_in(about, history)
    if found is None:
        learnt = isinstance(trace, Mapping)
        return Advice(
            "stay-on" if learnt else "warn",
            "Not measured on real readers: `onoff audit traces MODEL TRACE --save` does it.",
            False,
        )
    bits, error, naive = float(found["bits"]), float(found["stderr"]), float(found["naive_bits"])
    less, spread = float(found["difference"]), float(found["difference_stderr"])
    cost, everything = float(found.get("cost", 0)), float(found.get("everything", 0))
    figures = (
        f"{bits:z.3f} ± {error:.3f} bits of the last private request are given away after {found['after']} OFF "
        f"requests ({naive:z.2f} by naive switching), measured on {found['users']} real readers."
    )
    little = bits + error < LITTLE_LEAK or bits + error < LITTLE_LEAK * naive
    if less >= 0:
        return Advice("stay-on", f"No less than by naive switching: {figures}", True)
    if everything and cost > DEAR * everything:
        return Advice("stay-on", f"{cost / everything:.0%} of what staying ON costs: {figures}", True)
    if little and less + spread < 0:
        return Advice("off", figures, True)
    if not little and everything and cost > everything / 2:
        return Advice("stay-on", f"{cost / everything:.0%} of what staying ON costs, and leaky: {figures}", True)
    return Advice("warn", figures, True)


def measured_in(about: Mapping[str, Any], history: str = "none") -> dict[str, Any] | None:
    """The audit of real readers that a model's file holds, with or without a history; None where there is none."""
    audits = about.get("audits")
    found = audits.get(history) if isinstance(audits, Mapping) else None
    if found is None:
        latest = about.get("measured")
        found = latest if isinstance(latest, Mapping) and latest.get("history", "none") == history else None
    needed = ("bits", "stderr", "naive_bits", "difference", "difference_stderr", "after", "users")
    return dict(found) if isinstance(found, Mapping) and all(key in found for key in needed) else None


# -- what was measured -----------------------------------------------------------------------------------------

IF_YOU_ARE_LIKE_THE_MODEL: Final = "0 bits if you behave like the model"


def measured_of(about: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was measured last with a model, as its file says; None where nothing was."""
    measured = about.get("measured")
    return dict(measured) if isinstance(measured, Mapping) else None


def zero_in_words(measured: Mapping[str, Any] | None) -> str:
    """The sentence that accompanies every statement of zero bits.

    >>> zero_in_words(None)
    'Not measured on real readers (`onoff audit traces`).'
    """
    if measured is None:
        return "Not measured on real readers (`onoff audit traces`)."
    return (
        f"{IF_YOU_ARE_LIKE_THE_MODEL}; measured on {measured['users']} real readers: {measured['bits']:.3f} ± "
        f"{measured['stderr']:.3f} bits after {measured['after']} OFF requests "
        f"(naive switching: {measured['naive_bits']:.2f})."
    )
