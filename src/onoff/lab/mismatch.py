"""What leaks when requests follow another chain than the one the queries were designed for.

Setting
    Phat, P    the chain that the session uses, and the chain that requests really follow
    e_u        TV(P_u, Phat_u), the error of row u; e = max e_u
    U          what a query must hide: the request before it, one of M <= N sources
    m(q)       the designed law of the query, the same for every u

The user wants x ~ P_u and draws q given (u, x) as designed, so the true law of the query given u is at distance at
most e_u from m. (An x that Phat calls impossible is asked as "everything"; its mass is part of e_u.) Hence, for the
memory `last-query`, at every step and about all past requests, with no growth over time:

    told apart   TV(law of q given u, law of q given v) <= e_u + e_v <= 2e                       proved: triangle
    advantage    the best guess is right at most sum_u p(u) e_u <= e more often than before      proved: sum over q of
                 max_u p(u) p(q|u)  <=  max_u p(u)  +  sum_u p(u) sum_q (p(q|u) - m(q))^+
    bits         I(past ; q | seen before) <= e log2(M - 1) + h(e),  e <= 1 - 1/M                cited: the continuity
                 of equivocation (Alhejji and Smith, arXiv 1909.00787), not proved here; tests hold it against exact
                 values. h is the binary entropy; beyond 1 - 1/M the bound is log2 M.
For the paper's filter the error accumulates: with e' = t e, bits at time t <= 2 (e' log2(N - 1) + h(e')), same status.

Three exact values stand beside the bounds: `first_step`, the first open request after a private one, from the table
itself (any N); `enumerated`, a whole pattern by the exact audit (small N); and both over a set of `DIRECTIONS` in
which a chain can be wrong, which gives a lower estimate of the worst case, as the bounds give an upper one.
The leak grows like e**2 where P and Phat have the same zeros, and like e where P takes a step that Phat calls
impossible, which is why learnt chains are smoothed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from onoff.audit.exact import ExactAudit, audit_exact
from onoff.errors import InvalidInput
from onoff.information import mutual_information
from onoff.model.chain import MarkovChain
from onoff.model.rows import Floats, Integers
from onoff.session import Session
from onoff.session.memories import LastQuery
from onoff.session.session import TableCache
from onoff.tables.table import QueryTable

SMALL = 4
"""Sources up to which whole patterns are enumerated without being asked to."""
RANDOM_DIRECTIONS = 3
RESAMPLES = 200
MAX_SAMPLED_ROWS = 400
"""Sources up to which the sampling error is turned into bits by resampling."""


@dataclass(frozen=True)
class Leak:
    """What one query tells about the private request before it.

    bits: mutual information. advantage: how much more often the best guess is right. told_apart: the largest total
    variation between the laws of the query for two values of the request.
    """

    bits: float
    advantage: float
    told_apart: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def row_errors(designed: MarkovChain, truth: MarkovChain) -> Floats:
    """TV(P_u, Phat_u) for every source u."""
    if designed.names != truth.names:
        raise InvalidInput("the two chains name different sources", hint="give chains with the same names in order")
    return np.asarray(np.abs(designed.dense() - truth.dense()).sum(axis=1) / 2, dtype=np.float64)


def bounds_for(error: float, values: int) -> Leak:
    """Upper bounds on what any step can tell under `last-query`, for the largest row error and M hidden values."""
    return Leak(_equivocation(error, values), min(error, 1.0), min(2 * error, 1.0))


def filter_bits_bound(error: float, sources: int, step: int) -> float:
    """Upper bound in bits for the paper's filter, `step` requests after the start."""
    return min(2 * _equivocation(step * error, sources), float(np.log2(sources)))


def _equivocation(error: float, values: int) -> float:
    if values <= 1 or error <= 0:
        return 0.0
    if error >= 1 - 1 / values:
        return float(np.log2(values))
    h = -error * np.log2(error) - (1 - error) * np.log2(1 - error)
    return float(error * np.log2(values - 1) + h)


# -- exact values --------------------------------------------------------------------------------------------


def first_step(designed: MarkovChain, truth: MarkovChain, scheme: str = "auto") -> Leak:
    """What the first open request after a private one tells, when the private one follows the true initial law."""
    return leak_of(true_query_law(_first_table(designed, scheme), designed, truth), truth.initial[truth.initial > 0])


def _first_table(designed: MarkovChain, scheme: str) -> QueryTable:
    first = tuple(np.flatnonzero(designed.initial).tolist())
    table = TableCache(designed, scheme).of(LastQuery(designed, first, first[0]))  # as a session has it
    if not isinstance(table, QueryTable):
        raise InvalidInput(f"scheme {scheme!r} keeps no table for this chain", hint="use greedy or optimal")
    return table


def true_query_law(table: QueryTable, designed: MarkovChain, truth: MarkovChain) -> Floats:
    """True law of the query for each possible private request: shape (M, queries + 1).

    The last column is "everything", for requests that the designed chain calls impossible.
    """
    possible = np.flatnonzero(designed.initial)
    if set(np.flatnonzero(truth.initial).tolist()) != set(possible.tolist()):
        raise InvalidInput("the two chains start from different sources", hint="give both the same initial support")
    law = np.zeros((len(possible), len(table) + 1))
    P = truth.dense()
    owner = np.repeat(np.arange(len(table)), table.sizes)
    for u, x in enumerate(possible):
        r = int(table.rows.group[u])
        lo, hi = int(table.starts[r]), int(table.starts[r + 1])
        wanted = table.items[table.slots[lo:hi]]
        budget = table.rows.weights[r][np.searchsorted(table.rows.columns, wanted)]
        np.add.at(law[u], owner[table.slots[lo:hi]], table.weights[lo:hi] / budget * P[x, wanted])
        law[u, -1] = max(0.0, 1 - law[u, :-1].sum()) if (P[x] > 0).sum() > len(np.unique(wanted)) else 0.0
    everything = tuple(range(table.rows.n))
    if table.queries[-1] == everything:  # the same set, asked as designed
        law[:, -2] += law[:, -1]
        law[:, -1] = 0
    return law


def leak_of(law: Floats, prior: Floats) -> Leak:
    """What one draw tells about u ~ prior, where row u of `law` is the law of what is seen."""
    joint = law * (prior / prior.sum())[:, None]
    apart = max((float(np.abs(law[u + 1 :] - row).sum(axis=1).max() / 2) for u, row in enumerate(law[:-1])), default=0)
    advantage = float(joint.max(axis=0).sum() - prior.max() / prior.sum())
    return Leak(mutual_information(joint), max(0.0, advantage), apart)


def enumerated(
    designed: MarkovChain,
    truth: MarkovChain,
    pattern: tuple[bool, ...],
    scheme: str = "auto",
    memory: str = "last-query",
) -> ExactAudit:
    """The exact audit of a session of `designed` whose requests follow `truth`."""
    row_errors(designed, truth)
    return audit_exact(truth, scheme, pattern, memory, session=lambda: Session(designed, scheme, memory))  # type: ignore[arg-type]


# -- ways to be wrong ----------------------------------------------------------------------------------------


def _towards_the_mean(P: Floats, _: np.random.Generator) -> Floats:
    return np.tile(P.mean(axis=0), (len(P), 1))


def _stickier(P: Floats, _: np.random.Generator) -> Floats:
    return np.eye(len(P))


def _restless(P: Floats, _: np.random.Generator) -> Floats:
    return (1 - np.eye(len(P))) / max(1, len(P) - 1) if len(P) > 1 else P


def _to_the_unlikeliest(P: Floats, _: np.random.Generator) -> Floats:
    return np.asarray(np.eye(len(P))[P.argmin(axis=1)], dtype=np.float64)


def _at_random(P: Floats, rng: np.random.Generator) -> Floats:
    return rng.dirichlet(np.full(len(P), 0.5), size=len(P))


DIRECTIONS: Mapping[str, Callable[[Floats, np.random.Generator], Floats]] = {
    "rows more alike": _towards_the_mean,
    "stickier": _stickier,
    "more restless": _restless,
    "to the unlikeliest": _to_the_unlikeliest,
    **{f"at random {k + 1}": _at_random for k in range(RANDOM_DIRECTIONS)},
}


def moved(designed: MarkovChain, direction: str, error: float, seed: int = 0) -> MarkovChain:
    """A chain whose rows are `error` away from the designed ones (less where the direction's end is nearer)."""
    P = designed.dense()
    rng = np.random.default_rng([seed, list(DIRECTIONS).index(direction)])
    end = DIRECTIONS[direction](P, rng)
    apart = np.abs(end - P).sum(axis=1) / 2
    share = np.minimum(1.0, np.divide(error, apart, out=np.ones_like(apart), where=apart > 0))
    rows = P + share[:, None] * (end - P)
    return MarkovChain(rows / rows.sum(axis=1, keepdims=True), designed.names, designed.initial)


@dataclass(frozen=True)
class ErrorCurve:
    """For each size of error: the exact first-step leak in every direction, the worst of them, and the bounds."""

    errors: tuple[float, ...]
    by_direction: Mapping[str, tuple[Leak, ...]]
    upper: tuple[Leak, ...]

    @property
    def worst(self) -> tuple[Leak, ...]:
        columns = zip(*self.by_direction.values(), strict=True)
        return tuple(
            Leak(max(v.bits for v in c), max(v.advantage for v in c), max(v.told_apart for v in c)) for c in columns
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "errors": list(self.errors),
            "found": [leak.as_dict() for leak in self.worst],
            "upper": [leak.as_dict() for leak in self.upper],
            "directions": {name: [leak.as_dict() for leak in found] for name, found in self.by_direction.items()},
        }


def error_curve(designed: MarkovChain, errors: Sequence[float], scheme: str = "auto") -> ErrorCurve:
    """First-step leaks over sizes of error, in every direction, beside the bounds."""
    table, possible = _first_table(designed, scheme), designed.initial > 0
    if not all(0 <= error <= 1 for error in errors):
        raise InvalidInput("an error of a row is a total variation, from 0 to 1", hint="e.g. --error 0.05")
    found = {
        name: tuple(
            leak_of(true_query_law(table, designed, moved(designed, name, error)), designed.initial[possible])
            for error in errors
        )
        for name in DIRECTIONS
    }
    return ErrorCurve(tuple(errors), found, tuple(bounds_for(error, designed.n) for error in errors))


# -- sampling error ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SamplingError:
    """How far a chain learnt from counts may be from the truth, and what that would leak at the first open request.

    high: with the stated confidence no row is further away (Weissman et al.; a proved, loose bound; 1.0 says nothing).
    typical, bits, bits_high: the mean largest row error, the mean leak and its quantile at that confidence, over
    chains resampled from the learnt one with the same counts (a parametric bootstrap; an estimate, not a bound).
    """

    transitions: int
    fewest: int
    confidence: float
    high: float
    typical: float
    bits: float
    bits_high: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def sampling_error(
    designed: MarkovChain, counts: Integers, scheme: str = "auto", confidence: float = 0.95, seed: int = 0
) -> SamplingError:
    """What the sampling error of `designed`, learnt from `counts`, means for privacy."""
    if counts.shape != (designed.n, designed.n) or (counts < 0).any():
        raise InvalidInput(f"counts of shape {counts.shape} for {designed.n} sources", hint="one row and column each")
    if designed.n > MAX_SAMPLED_ROWS:
        raise InvalidInput(f"{designed.n} sources are too many to resample", hint=f"at most {MAX_SAMPLED_ROWS}")
    totals = counts.sum(axis=1)
    # P(L1 distance >= a) <= (2^N - 2) exp(-n a^2 / 2), spread over the N rows; TV is half of L1.
    logarithm = designed.n * np.log(2) + np.log(designed.n / (1 - confidence))
    high = float(np.minimum(1.0, np.sqrt(logarithm / (2 * np.maximum(totals, 1)))).max())
    rng, P, table = np.random.default_rng(seed), designed.dense(), _first_table(designed, scheme)
    errors, bits = [], []
    for _ in range(RESAMPLES):
        rows = np.stack([rng.multinomial(n, p) / n if n else p for n, p in zip(totals.tolist(), P, strict=True)])
        truth = MarkovChain(rows, designed.names, designed.initial)
        errors.append(float(row_errors(designed, truth).max()))
        bits.append(leak_of(true_query_law(table, designed, truth), designed.initial[designed.initial > 0]).bits)
    return SamplingError(
        int(totals.sum()),
        int(totals.min()),
        confidence,
        high,
        typical=float(np.mean(errors)),
        bits=float(np.mean(bits)),
        bits_high=float(np.quantile(bits, confidence)),
    )
