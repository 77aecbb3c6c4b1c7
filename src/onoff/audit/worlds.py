"""Worlds: every request path and every random branch of a session, with exact probabilities.

A world is what can be told apart so far: the private requests, the state of the person (the last request, or type and
context of a richer model), what the server saw, and the session's own state. Worlds that agree on these go on alike and
are one. A step takes every world to its successors: the model says which request comes next, `enumerate_branches` which
choices the session makes for it.

Probabilities are integers over one denominator for all worlds of a step, so adding and comparing them is exact; the
denominator of the next step is this one times that of the moves (the chain's units, mostly, because a draw from a table
given what is wanted turns the probability of wanting it into the table's own integers).

What is driven need not be a session: anything with a state, `request` and `fork` will do, and what the server sees of
a request may be any value (sets of sources, or all bytes on a socket). Time and space grow with the number of worlds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, Protocol, Self

from onoff.audit.branches import enumerate_branches
from onoff.errors import InvalidInput
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model
from onoff.model.rows import UNIT, to_units
from onoff.session import Session
from onoff.session.entropy import Entropy
from onoff.session.last_query import LastQueries, LastQuery

MOST_WORLDS = 2_000_000
"""Worlds that are enumerated at most."""


class Observation(Protocol):
    """What one request showed the server, how many messages it took, and whether it holds the wanted source."""

    @property
    def sources(self) -> Hashable: ...
    def __len__(self) -> int: ...
    def __contains__(self, source: object) -> bool: ...


class Auditable(Protocol):
    """What the audit drives: a session, the shipped client, or a deliberately broken twin of one.

    state: with what was seen so far it decides all that follows; where an attribute `self_contained` is true, it does
    so alone, and worlds that differ only in what was seen are driven once.
    """

    @property
    def state(self) -> Hashable: ...
    def request(self, source: int | str, *, private: bool) -> Observation: ...
    def fork(self, entropy: Entropy) -> Self: ...


class SeenHistory:
    """What the server saw, step by step: one object for each history, however many worlds share it."""

    __slots__ = ("_after", "before", "seen")

    def __init__(self, before: SeenHistory | None = None, seen: Any = None) -> None:
        self.before, self.seen = before, seen
        self._after: dict[int, SeenHistory] = {}

    def then(self, number: int, seen: Any) -> SeenHistory:
        """This history with one more observation; `number` identifies it, and is quicker to look up."""
        if number not in self._after:
            self._after[number] = SeenHistory(self, seen)
        return self._after[number]

    @property
    def all_seen(self) -> list[Any]:
        """What was seen, in order."""
        return [] if self.before is None else [*self.before.all_seen, self.seen]


class World(NamedTuple):
    """person: see `_next_requests`; None before the first request. state: the number of the session's, see `Worlds`."""

    private_sources: tuple[int, ...]
    person: Hashable
    history: SeenHistory
    state: int


_Branch = tuple[Fraction, tuple[Observation, Auditable]]
"""One way in which a session makes a request: how likely, what is seen, and the session after it."""


@dataclass
class _Move:
    """A request that can come next and one way in which the session makes it; units: its probability on a scale."""

    probability: Fraction
    source: int
    person: Hashable
    observed: Observation
    session: Auditable
    seen: int
    state: int
    units: int = 0


@dataclass(frozen=True)
class Worlds:
    """The worlds that can be at one step, each with its probability over `denominator` and a session in that state.

    What all steps share: `numbers` of what was seen and of states of sessions, as they are met, so that equal values
    have equal numbers; and what a session was found to do at a place with a request, so that it is driven there once.
    """

    model: Model
    held: dict[World, tuple[int, Auditable]]
    denominator: int = 1
    numbers: dict[Hashable, int] = field(default_factory=dict)
    driven: dict[tuple[Hashable, int, bool], list[_Branch]] = field(default_factory=dict)

    @classmethod
    def before_the_first_request(cls, model: Model, start: Auditable) -> Worlds:
        return cls(model, {World((), None, SeenHistory(), -1): (1, start)})

    def __len__(self) -> int:
        return len(self.held)

    def after(self, *, private: bool) -> tuple[Worlds, Fraction, bool]:
        """The worlds after one more request, its mean cost, and whether some request was not in its own query."""
        moves, scale = self._moves(private)
        held: dict[World, tuple[int, Auditable]] = {}
        cost, undecodable = 0, False
        for world, (weight, session) in self.held.items():
            for move in moves[_place(world, session), world.person]:
                private_sources = (*world.private_sources, move.source) if private else world.private_sources
                history = world.history.then(2 * move.seen + private, move.observed.sources)  # the switch is seen too
                key = World(private_sources, move.person, history, move.state)
                share = weight * move.units
                held[key] = (held[key][0] if key in held else 0) + share, move.session
                cost += share * len(move.observed)
                undecodable = undecodable or move.source not in move.observed
            if len(held) > MOST_WORLDS:
                raise InvalidInput(f"more than {MOST_WORLDS} worlds", hint="audit fewer sources or a shorter pattern")
        after = Worlds(self.model, held, self.denominator * scale, self.numbers, self.driven)
        return after, Fraction(cost, after.denominator), undecodable

    def _moves(self, private: bool) -> tuple[dict[tuple[Hashable, Hashable], list[_Move]], int]:
        """What can come next, by place and state of the person, and the common denominator of its probabilities."""
        moves: dict[tuple[Hashable, Hashable], list[_Move]] = {}
        for world, (_, session) in self.held.items():
            place = _place(world, session)
            if (place, world.person) in moves:
                continue
            found = moves[place, world.person] = []
            for x, wanted, person in _next_requests(self.model, world.person):
                if (place, x, private) not in self.driven:
                    self.driven[place, x, private] = list(enumerate_branches(_one_request(session, x, private)))
                for chance, (observed, twin) in self.driven[place, x, private]:
                    probability = chance * wanted
                    seen, state = self._number(observed.sources), self._number(twin.state)
                    found.append(_Move(probability, x, person, observed, twin, seen, state))
        scale = math.lcm(*(move.probability.denominator for found in moves.values() for move in found))
        for found in moves.values():
            for move in found:
                move.units = move.probability.numerator * (scale // move.probability.denominator)
        return moves, scale

    def _number(self, value: Hashable) -> int:
        return self.numbers.setdefault(value, len(self.numbers))


def _place(world: World, session: Auditable) -> Hashable:
    """A value such that two sessions with the same one answer the same request alike."""
    alone = type(session) is Session and isinstance(session.memory, LastQuery | LastQueries)
    if alone or getattr(session, "self_contained", False):
        return world.state  # holds all there is; a twin, or a filter, may depend on what was seen
    return world.state, world.history


def _next_requests(model: Model, person: Any) -> Iterator[tuple[int, Fraction, Hashable]]:
    """What a person can want next, with its probability, and the state of the person after it.

    The state is the last request for a chain, (type, context) for a richer model, None before the first request. Laws
    are rounded to units, as sessions do.
    """
    if isinstance(model, MarkovChain):
        if person is None:
            rows = model.initial_rows()
            sources, units = rows.columns, rows.weights[0]
        else:
            sources, units = model.row_units(person)
        for x, unit in zip(sources.tolist(), units.tolist(), strict=True):
            yield x, Fraction(unit, UNIT), x
        return
    states = [person] if person is not None else [(z, 0) for z in range(model.types)]
    weights = [UNIT] if person is not None else to_units(model.weights.tolist()).tolist()
    for (z, context), weight in zip(states, weights, strict=True):
        for x, unit in enumerate(to_units(model.law(z, context).tolist()).tolist()):
            if unit and weight:
                yield x, Fraction(weight, UNIT) * Fraction(unit, UNIT), (z, model.next(context, x))


def _one_request(session: Auditable, x: int, private: bool) -> Callable[[Entropy], tuple[Observation, Auditable]]:
    def run(entropy: Entropy) -> tuple[Observation, Auditable]:
        twin = session.fork(entropy)
        return twin.request(x, private=private), twin

    return run
