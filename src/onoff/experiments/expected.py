"""Expected costs, bounds and leaks along a pattern, without simulating a single request.

The public states of a session are a Markov chain (see `states`), so the expected number of messages at every step
follows by pushing the law of the state forward: exactly while the states are few, by random descents with a
standard error where they are many. A descent averages the *expected* cost in each state it meets, which varies
less than the size of one query, and descents are shared out systematically, which varies less again.

The lower bound for a step is that of the rows P**(t - tau) over the sources that can be X_tau given the earlier
queries. That support is known where no query before tau was random, or where the chain has no zeros; elsewhere
the bound is None rather than the paper's, which fails there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onoff.experiments.states import States
from onoff.experiments.switching import Switching
from onoff.information import entropy_bits
from onoff.model.bounds import step_bounds
from onoff.model.chain import MarkovChain
from onoff.model.rows import Floats

MOST_STATES = 1_000
"""Public states at one time for which the law is pushed forward exactly."""
LARGEST_FOR_BOUNDS = 2_000
"""Sources up to which powers of the chain are formed for bounds and leaks."""


@dataclass(frozen=True)
class ExpectedCost:
    """The expected cost of one step; `stderr` is 0 where it is exact up to rounding of floats."""

    cost: float
    stderr: float


def expected_costs(
    states: States, switching: Switching, *, most_states: int = MOST_STATES
) -> list[ExpectedCost] | None:
    """The expected cost of every step, or None where there are too many states or the scheme has no tables."""
    law: dict[tuple[int, bool | None], float] = {(0, None): 1.0}
    found = []
    for t in range(switching.steps):
        cost = 0.0
        after: dict[tuple[int, bool | None], float] = defaultdict(float)
        for (number, before), weight in law.items():
            state = states[number]
            on = switching.chance(t, before)
            if on > 0:
                cost += weight * on * len(state.possible)
                after[state.after_private, True] += weight * on
            if on < 1:
                if not state.has_table:
                    return None
                cost += weight * (1 - on) * state.cost
                if t + 1 < switching.steps:
                    chances, _, following = state.following
                    for chance, number_after in zip(chances.tolist(), following.tolist(), strict=True):
                        after[number_after, False] += weight * (1 - on) * chance
            if len(after) > most_states:
                return None
        found.append(ExpectedCost(cost, 0.0))
        law = after
    return found


def sampled_costs(states: States, switching: Switching, descents: int, rng: np.random.Generator) -> list[ExpectedCost]:
    """The same by random descents through the public states, with standard errors."""
    runs = sampled_runs(states, switching, descents, rng)
    errors = standard_error(runs)
    return [ExpectedCost(cost, error) for cost, error in zip(runs.mean(axis=0).tolist(), errors.tolist(), strict=True)]


def standard_error(estimates: Floats) -> Floats:
    """Of the mean of independent estimates, one to a row."""
    return np.asarray(estimates.std(axis=0, ddof=1) / math.sqrt(len(estimates)))


def sampled_runs(
    states: States,
    switching: Switching,
    descents: int,
    rng: np.random.Generator,
    progress: Callable[[str], None] | None = None,
) -> Floats:
    """Independent, unbiased estimates of the costs, shape (runs, steps): their spread tells their error.

    Each run shares its descents out systematically: what can follow is lined up by size, each with the expected
    number of descents, and every count is that number rounded up or down. This leaves far less to chance than
    drawing each descent by itself.
    """
    count = max(2, min(RUNS, descents // 2))
    runs = np.zeros((count, switching.steps))
    for run in range(count):
        law: dict[tuple[int, bool | None], int] = {(0, None): -(-descents // count)}
        for t in range(switching.steps):
            runs[run, t], following = _one_step(states, switching, t, law, rng)
            law = _shared_out(following, rng)
        if progress is not None:
            progress(f"run {run + 1} of {count}, {len(states)} states")
    return runs


RUNS = 10
"""Independent runs behind a standard error."""


def _one_step(
    states: States, switching: Switching, t: int, law: dict[tuple[int, bool | None], int], rng: np.random.Generator
) -> tuple[float, list[tuple[int, int, bool, float]]]:
    """The mean cost of step t, and what follows: (size of the query, state, status, expected descents)."""
    cost = 0.0
    following: list[tuple[int, int, bool, float]] = []
    for (number, before), count in law.items():
        state = states[number]
        on = switching.chance(t, before)
        if on > 0:
            cost += count * on * len(state.possible)
            following.append((len(state.possible), state.after_private, True, count * on))
        if on < 1 and state.has_table:
            cost += count * (1 - on) * state.cost
            if t + 1 < switching.steps:
                for chance, size, after in zip(*(part.tolist() for part in state.following), strict=True):
                    following.append((size, after, False, count * (1 - on) * chance))
        elif on < 1:  # without a table only the queries themselves tell what they cost
            for after, drawn in state.draws(count, rng).items():
                size = len(states[after].anchor)
                cost += (1 - on) * drawn * size
                following.append((size, after, False, (1 - on) * drawn))
    return cost / sum(law.values()), following


def _shared_out(
    following: list[tuple[int, int, bool, float]], rng: np.random.Generator
) -> dict[tuple[int, bool | None], int]:
    """Whole numbers of descents, each the expected one rounded up or down, by one uniform shift for all."""
    following.sort()
    edges = np.cumsum([expected for *_, expected in following])
    counts = np.diff(np.floor(edges + rng.random()), prepend=0.0).astype(np.int64)
    law: dict[tuple[int, bool | None], int] = defaultdict(int)
    for (_, number, status, _), count in zip(following, counts.tolist(), strict=True):
        if count:
            law[number, status] += count
    return law


def lower_bounds(chain: MarkovChain, switching: Switching) -> list[float | None]:
    """The best proven lower bound on the expected cost of every step, None where none is known."""
    if chain.n > LARGEST_FOR_BOUNDS:
        return [None] * switching.steps
    later = _LaterBounds(chain)
    # (status before, last private time and whether no query before it was random, the same of now) -> probability
    law: dict[tuple[bool | None, int | None, bool, bool], float] = {(None, None, True, True): 1.0}
    found: list[float | None] = []
    for t in range(switching.steps):
        after: dict[tuple[bool | None, int | None, bool, bool], float] = defaultdict(float)
        parts: list[tuple[float, float | None]] = []
        for (before, tau, certain_then, certain), weight in law.items():
            on = switching.chance(t, before)
            if on > 0:
                support = later.support(t, certain)
                parts.append((weight * on, None if support is None else float(len(support))))
                after[True, t, certain, certain] += weight * on
            if on < 1:
                bound = 1.0 if tau is None else later.at(t, tau, later.support(tau, certain_then))
                parts.append((weight * (1 - on), bound))
                after[False, tau, certain_then, False] += weight * (1 - on)
        known = [(weight, bound) for weight, bound in parts if bound is not None]
        found.append(math.fsum(w * b for w, b in known) if len(known) == len(parts) else None)
        law = after
    return found


class _LaterBounds:
    """Lower bounds for rows P**k over the possible private requests, each worked out once."""

    def __init__(self, chain: MarkovChain) -> None:
        self.chain = chain
        transition = chain.transition
        self.smooth = bool((transition > 0).all()) if isinstance(transition, np.ndarray) else False
        self._known: dict[tuple[int, ...], list[float]] = {}

    def support(self, tau: int, certain: bool) -> tuple[int, ...] | None:
        """The sources that can be X_tau given the queries before it."""
        if certain:
            reached: Any = np.flatnonzero(self.chain.initial)
            for _ in range(tau):
                reached = self.chain.successors(reached.tolist())
            return tuple(reached.tolist())
        return tuple(range(self.chain.n)) if self.smooth else None

    def at(self, t: int, tau: int, support: tuple[int, ...] | None) -> float | None:
        if support is None:
            return None
        known = self._known.setdefault(support, [])
        if len(known) < t - tau:
            known[:] = [step.lower for step in step_bounds(self.chain, max(t - tau, 2 * len(known)), support)]
        return known[t - tau - 1]


def naive_leaks(chain: MarkovChain, switching: Switching) -> list[float] | None:
    """What naive switching (everything while ON, the plain request while OFF) tells at every step, in bits.

    I(X_B ; Q_t | Q_[t-1]), B the private times: nothing while ON. While OFF, with s the last OFF time before t,

        H(X_t | X_s) - H(X_t | X_{t-1}),

    because given the plain X_s, X_t depends on the private requests in between through X_{t-1} alone; zero if
    s = t - 1. Before the first OFF, H(X_t) takes the place of H(X_t | X_s). None for chains too large to power.
    """
    if chain.n > LARGEST_FOR_BOUNDS:
        return None
    transition = chain.dense()
    laws = [chain.initial]
    powers: list[Floats] = [np.eye(chain.n), transition]
    law: dict[tuple[bool | None, int | None], float] = {(None, None): 1.0}  # status before, last OFF time
    found = []
    for t in range(switching.steps):
        after: dict[tuple[bool | None, int | None], float] = defaultdict(float)
        bits = 0.0
        for (before, s), weight in law.items():
            on = switching.chance(t, before)
            if on > 0:
                after[True, s] += weight * on
            if on < 1:
                after[False, t] += weight * (1 - on)
                if before:
                    while s is not None and len(powers) <= t - s:
                        powers.append(powers[-1] @ transition)
                    unknown = entropy_bits([laws[t]])[0] if s is None else laws[s] @ entropy_bits(powers[t - s])
                    bits += weight * (1 - on) * float(unknown - laws[t - 1] @ entropy_bits(transition))
        found.append(max(bits, 0.0))
        laws.append(laws[-1] @ transition)
        law = after
    return found
