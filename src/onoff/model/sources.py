"""Sources: the N names that a model gives probabilities to, checked once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from onoff.errors import InvalidChain, UnknownSource, nearest
from onoff.names import name_problem


class Sources(ABC):
    """What every model has: N sources by name and number."""

    def __init__(self, n: int, names: Sequence[str] | None = None) -> None:
        self.n = n
        self.names: tuple[str, ...] = _checked_names(names, n)
        self._position = {name: x for x, name in enumerate(self.names)}

    @abstractmethod
    def digest(self) -> str:
        """What tells two models apart: they are the same iff their digests are."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    def index(self, source: int | str) -> int:
        """The number of a source given by name or number. Raises UnknownSource."""
        if isinstance(source, str):
            if source not in self._position:
                # The name may be a private request: the error does not repeat it.
                raise UnknownSource("no source of that name", hint=nearest(source, self.names))
            return self._position[source]
        if isinstance(source, bool) or not isinstance(source, int | np.integer) or not 0 <= source < self.n:
            raise UnknownSource("no source of that number", hint=f"sources are 0 to {self.n - 1}")
        return int(source)


def check_model_name(name: Any, what: str) -> None:
    """Raise InvalidChain, about `what`, for a name that a source cannot have."""
    problem = name_problem(name)
    if problem is not None:
        raise InvalidChain(f"{what} {problem.message}", hint=problem.hint)


def default_names(n: int) -> tuple[str, ...]:
    """What n sources are called that nobody named."""
    return tuple(f"source-{x + 1}" for x in range(n))


def _checked_names(names: Sequence[str] | None, n: int) -> tuple[str, ...]:
    if names is None:
        return default_names(n)
    if isinstance(names, str):
        raise InvalidChain("the names are one text, not a list", hint="one name for each row of the matrix")
    if len(names) != n:
        raise InvalidChain(f"{len(names)} names for {n} sources", hint="one name for each row of the matrix")
    seen: dict[str, int] = {}
    for x, name in enumerate(names):
        check_model_name(name, f"name {x}")
        if name in seen:
            raise InvalidChain(f"names {seen[name]} and {x} are both {name!r}", hint="give each source its own")
        seen[name] = x
    return tuple(names)
