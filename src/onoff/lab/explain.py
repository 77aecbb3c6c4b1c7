"""What the server could guess of each private request: before, after ours, after naive switching.

For every private time i, over all that the server sees up to the last step T:

    prior     max_x P(X_i = x)                              knowing the chain alone
    earlier   E max_x P(X_i = x | Q_[i-1])                  and the queries before X_i, ours
    ours      E max_x P(X_i = x | Q_[T])                    and all queries, ours
    naive     E max_x P(X_i = x | open requests up to T)    everything while ON, the plain request while OFF

`ours` equals `earlier`: from X_i on our queries add nothing, which is the promise. `earlier` may exceed `prior`:
open requests made before X_i tell something about what comes next, and no causal scheme can prevent that. That is the
joint criterion, which the report shows.

The server's belief is computed, not assumed: for each private i the joint law of X_i and the present request, given the
queries seen, by the forward filter of `information` with the chances of the table in use. All histories of
queries are followed where there are at most MOST_HISTORIES, else SESSIONS of them are sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from onoff.errors import InvalidInput
from onoff.information import EVERYTHING, Belief, plain_chances, query_chances
from onoff.model.chain import MarkovChain
from onoff.model.rows import Floats
from onoff.session import Session
from onoff.session.memories import LastQuery
from onoff.session.seeded import SeededEntropy
from onoff.session.session import TableCache
from onoff.tables.table import QueryTable

MOST_HISTORIES = 5_000
SESSIONS = 1_000
MOST_SOURCES_EXPLAINED = 300
"""Sources at most: beliefs are N by N matrices."""


@dataclass(frozen=True)
class Guess:
    """How often the best guess of the private request at time t is right."""

    t: int
    prior: float
    earlier: float
    ours: float
    naive: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def in_words(self) -> str:
        told = (
            f"Open requests before it had already raised that to {self.earlier:.1%}; no method that decides before the "
            "future is known can prevent it. "
            if self.earlier > self.prior + 5e-4
            else ""
        )
        return (
            f"Request {self.t} was private. From your habits alone the server guesses it right {self.prior:.1%} of the "
            f"time. {told}After all queries of onoff it is still {self.ours:.1%}; after naive switching "
            f"it would be {self.naive:.1%}."
        )


@dataclass(frozen=True)
class Explanation:
    """The guesses of every private request. exact: all histories were followed; else the mean of `sessions`."""

    guesses: tuple[Guess, ...]
    exact: bool
    sessions: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "requests": [guess.as_dict() for guess in self.guesses],
            "exact": self.exact,
            "histories": self.sessions,
        }


@dataclass(frozen=True)
class ServerBelief:
    """What the server believes after some queries.

    last: the query before. present: about the present request. private: {i: about X_i}. earlier: {i: best guess of X_i
    just before query i}.
    """

    last: tuple[int, ...] | None
    present: Belief
    private: dict[int, Belief]
    earlier: dict[int, float]


def explain(
    chain: MarkovChain, pattern: tuple[bool, ...], scheme: str = "auto", seed: int = 0, **options: Any
) -> Explanation:
    """What the server could guess of each private request of `pattern` under the memory `last-query`.

    seed: Of the sessions that are sampled where there are too many to enumerate.
    """
    if chain.n > MOST_SOURCES_EXPLAINED:
        raise InvalidInput(f"{chain.n} sources are too many to explain", hint=f"at most {MOST_SOURCES_EXPLAINED}")
    if True not in pattern:
        raise InvalidInput("the pattern has no private request", hint="e.g. ON OFF OFF")
    server = _Server(chain, TableCache(chain, scheme, **options))
    ends = server.all_histories(pattern)
    exact = ends is not None
    if ends is None:
        rng = np.random.default_rng(seed)
        ends = [(1 / SESSIONS, server.one_history(pattern, rng)) for _ in range(SESSIONS)]
    P = chain.dense()
    guesses = []
    for i in (t for t, private in enumerate(pattern) if private):
        law = chain.initial @ np.linalg.matrix_power(P, i)
        earlier = sum(weight * belief.earlier[i] for weight, belief in ends)
        ours = sum(weight * float(belief.private[i].value.max()) for weight, belief in ends)
        guesses.append(Guess(i, float(law.max()), float(earlier), float(ours), naive_guess(chain, pattern, i)))
    return Explanation(tuple(guesses), exact, len(ends))


def naive_guess(chain: MarkovChain, pattern: tuple[bool, ...], i: int) -> float:
    """E max_x P(X_i = x | all open requests): by the Markov property the nearest ones on both sides decide."""
    P = chain.dense()
    opened = [t for t, private in enumerate(pattern) if not private]
    before = max((t for t in opened if t < i), default=None)
    after = min((t for t in opened if t > i), default=None)
    onward = np.ones((chain.n, 1)) if after is None else np.linalg.matrix_power(P, after - i)
    if before is None:
        return float(((chain.initial @ np.linalg.matrix_power(P, i))[:, None] * onward).max(axis=0).sum())
    start = chain.initial @ np.linalg.matrix_power(P, before)
    reach = np.linalg.matrix_power(P, i - before)
    return float(sum(p * (reach[x][:, None] * onward).max(axis=0).sum() for x, p in enumerate(start) if p))


class _Server:
    """Follows queries as a server would that knows the chain, the scheme and the pattern."""

    def __init__(self, chain: MarkovChain, tables: TableCache) -> None:
        self.chain, self.tables = chain, tables
        self.P = chain.dense()
        self._memories: dict[tuple[int, ...] | None, LastQuery] = {}

    def all_histories(self, pattern: tuple[bool, ...]) -> list[tuple[float, ServerBelief]] | None:
        ends: list[tuple[float, ServerBelief]] = [(1.0, self.start())]
        for t, private in enumerate(pattern):
            following: list[tuple[float, ServerBelief]] = []
            for weight, belief in ends:
                following += [(weight * p, after) for p, after in self.next(belief, t, private)]
                if len(following) > MOST_HISTORIES:
                    return None
            ends = following
        return ends

    def one_history(self, pattern: tuple[bool, ...], rng: np.random.Generator) -> ServerBelief:
        """The belief after one session of a user whose requests follow the chain."""
        belief, user = self.start(), Session(self.chain, tables=self.tables, entropy=SeededEntropy(rng))
        for t, (x, private) in enumerate(zip(self.chain.sample(len(pattern), rng).tolist(), pattern, strict=True)):
            query = user.request(x, private=private).sources
            _, belief = self.after(belief, t, private, query)
        return belief

    def start(self) -> ServerBelief:
        return ServerBelief(None, Belief(self.chain.initial[None]), {}, {})

    def next(self, belief: ServerBelief, t: int, private: bool) -> Iterator[tuple[float, ServerBelief]]:
        """Every query that can come next, with its probability given the history, and the belief after it."""
        for query in self._queries(belief.last, private):
            chance, after = self.after(belief, t, private, query)
            if chance > 0:
                yield chance, after

    def after(self, belief: ServerBelief, t: int, private: bool, query: tuple[int, ...]) -> tuple[float, ServerBelief]:
        """The probability of `query` given the history, and the belief once it is seen."""
        move = None if belief.last is None else self.P
        chances = self._chances(belief.last, private, query)
        seen, present = belief.present.after(move, chances)
        if seen <= 0:
            return 0.0, belief
        known = {i: about.after(move, chances)[1] for i, about in belief.private.items()}
        earlier = belief.earlier
        if private:
            known[t] = Belief.of_present(present.present)
            coming = belief.present.after(move, EVERYTHING)[1].present
            earlier = {**earlier, t: float(coming.max())}
        return float(seen), ServerBelief(query, present, known, earlier)

    def _queries(self, last: tuple[int, ...] | None, private: bool) -> Sequence[tuple[int, ...]]:
        memory = self._memory(last)
        possible = tuple(memory.rows.columns.tolist())
        if private:
            return [possible]
        return [(x,) for x in possible] if memory.rows.distinct == 1 else self._table(memory).queries

    def _chances(self, last: tuple[int, ...] | None, private: bool, query: tuple[int, ...]) -> Floats:
        """p(q_t | x_{t-1}, x_t)."""
        memory = self._memory(last)
        if private:
            return EVERYTHING
        if last is None or memory.rows.distinct == 1:
            return plain_chances(query[0], self.chain.n)
        return query_chances(self._table(memory), query, last)

    def _memory(self, last: tuple[int, ...] | None) -> LastQuery:
        if last not in self._memories:
            self._memories[last] = LastQuery(self.chain, last, None if last is None else last[0])
        return self._memories[last]

    def _table(self, memory: LastQuery) -> QueryTable:
        table = self.tables.of(memory)
        if not isinstance(table, QueryTable):
            raise InvalidInput("this scheme keeps no table to explain", hint="use greedy or optimal")
        return table
