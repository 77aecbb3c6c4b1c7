"""A session without a model: every request is private, so there is nothing to remember and nothing to draw."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from onoff.errors import InvalidInput, UnknownSource
from onoff.model.rows import UNIT, Rows
from onoff.session import Query
from onoff.session.session import Memory


@dataclass(frozen=True)
class NoModel:
    """The names of the sources, without probabilities."""

    names: tuple[str, ...]

    @property
    def n(self) -> int:
        return len(self.names)

    def index(self, source: str | int) -> int:
        if isinstance(source, int) and 0 <= source < self.n:
            return source
        if source in self.names:
            return self.names.index(str(source))
        raise UnknownSource("no such source", hint="`onoff catalogue` lists the names that the server has")

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()


@dataclass(frozen=True)
class NoMemory:
    """Remembers nothing."""

    rows = Rows.from_integers(np.array([[UNIT]]), 1)
    secret_row = 0
    key = None
    lasting = False
    rounding = 0
    blind = False

    def after(self, query: tuple[int, ...], wanted: int, *, private: bool, table: object) -> NoMemory:
        return self

    def afresh(self, wanted: int) -> NoMemory:
        return self

    def again(self, wanted: int) -> NoMemory:
        return self

    def forgotten(self, wanted: int, *, private: bool) -> NoMemory:
        return self

    def stored(self) -> bytes:
        return b""

    def restored(self, asked: tuple[int, ...], wanted: int, stored: bytes) -> NoMemory:
        return self


class AlwaysPrivate:
    """The part of `Session` that a core needs, where every request is private."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.model = NoModel(names)
        self.memory: Memory = NoMemory()
        self.tables = None

    def propose(self, source: int, *, private: bool) -> tuple[Query, Memory]:
        """Everything. Raises InvalidInput for an open request: what it would give away is not known."""
        if not private:
            raise InvalidInput("without a model every request is private", hint="give a chain or a model to switch OFF")
        return Query(tuple(range(self.model.n)), self.model.n), self.memory

    @property
    def state(self) -> tuple[()]:
        return ()

    def fork(self, entropy: object) -> AlwaysPrivate:
        return self

    def expected_cost(self, *, private: bool) -> float:
        return float(self.model.n)
