"""Switching: when privacy is ON, as a fixed pattern or as a random process.

A process is given by Pr(F_t = ON | F_{t-1}), which is all that the simulator needs.
F never depends on the requests: a switch that is flipped *because of* a request tells about that request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidPattern
from onoff.model import patterns

Booleans = npt.NDArray[np.bool_]


class Switching(Protocol):
    """The law of the privacy status over time."""

    @property
    def steps(self) -> int:
        """How many requests there are."""
        ...

    def chance(self, t: int, before: bool | None) -> float:
        """Pr(F_t = ON), given the status of the request before (None at t = 0)."""
        ...


@dataclass(frozen=True)
class Pattern:
    """A fixed pattern; True is ON."""

    statuses: tuple[bool, ...]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """The pattern written `ON OFF*10 ON`."""
        return cls(patterns.parse(text))

    @property
    def steps(self) -> int:
        return len(self.statuses)

    def chance(self, t: int, before: bool | None) -> float:
        return float(self.statuses[t])

    def __str__(self) -> str:
        return patterns.pattern_text(self.statuses)


@dataclass(frozen=True)
class RandomSwitching:
    """Starts ON, then flips: ON to OFF with probability `turn_off` before each request, back with `turn_on`."""

    steps: int
    turn_off: float
    turn_on: float

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= patterns.LONGEST_PATTERN:
            raise InvalidPattern(f"{self.steps} steps", hint=f"give 1 to {patterns.LONGEST_PATTERN}")
        for name, value in (("turn_off", self.turn_off), ("turn_on", self.turn_on)):
            if not 0 <= value <= 1:
                raise InvalidPattern(f"{name} = {value} is not a probability", hint="give a number from 0 to 1")

    def chance(self, t: int, before: bool | None) -> float:
        return 1.0 if before is None else (1 - self.turn_off if before else self.turn_on)

    def __str__(self) -> str:
        return f"ON, then OFF with probability {self.turn_off:g} and back with {self.turn_on:g}, {self.steps} steps"


def draw_statuses(
    switching: Switching, t: int, before: Booleans | None, users: int, rng: np.random.Generator
) -> Booleans:
    """The status of every user at time t, given the one before."""
    if before is None:
        chances: npt.NDArray[np.float64] | float = switching.chance(t, None)
    else:
        chances = np.where(before, switching.chance(t, True), switching.chance(t, False))
    return np.asarray(rng.random(users) < chances)
