"""Outer bound 1 and the inner bound of the paper, along the tree of queries of a given scheme.

Theorems 1 and 2 bound the cost at time t by averages over the queries sent before,

    outer   E over q_[t-1] of  sum over x_t of max over x_tau of p(x_t | x_tau, q_[t-1])      a lower bound
    inner   E over q_[t-1] of  sum over i of i theta_i(q_[t-1])                               Algorithm 1 meets it

so both belong to a scheme: whatever it chose earlier shapes the rows p(x_t | x_tau, q_[t-1]). Only values of x_tau that
are possible given q_[t-1] count. Beside them stand what no choice can move,

    outer2  E over q_[tau-1] of  sum over x_t of max over possible x_tau of P**(t-tau)        a lower bound
    lower   the same with the best proven bound instead of the sum of maxima                  a lower bound

and the scheme's own `cost`. A node of the tree is a history of queries with the belief p(x_tau, x_t | q_[t]), in exact
fractions; nodes with the same belief in the same public state (`walk`) are merged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from onoff.errors import InvalidInput
from onoff.information import EVERYTHING, Belief, Law, plain_chances, query_chances
from onoff.lab.walk import Set, States
from onoff.model.bounds import StepBounds, bounds, step_bounds
from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT, Rows

MOST_NODES = 200_000
"""Nodes of one level of the tree at most."""


@dataclass(frozen=True)
class TreeStep:
    """The averages at one time."""

    t: int
    private: bool
    cost: float
    inner: float
    outer: float
    outer2: float
    lower: float

    def as_dict(self) -> dict[str, Any]:
        """The same as plain numbers."""
        return asdict(self)


@dataclass(frozen=True)
class _Node:
    """A history of queries: its probability, what it tells, and the public state of the session.

    belief: p(x_tau, x_t | q_[t]), a row for each source x_tau (a single one before the first ON).
    possible: the values of x_tau given q_[tau-1]; none before the first ON. elapsed: t - tau.
    """

    weight: Fraction
    belief: Belief
    state: int
    possible: Set = ()
    elapsed: int = 0


class _Tree:
    def __init__(self, chain: MarkovChain, scheme: str, memory: str, everything: bool = False) -> None:
        self.chain = chain
        self.states = States(chain, scheme, memory, everything=everything, look_ahead=True)
        self.transition = self._exact([chain.row_units(x) for x in range(chain.n)])
        first = chain.initial_rows()
        self.root = _Node(Fraction(1), Belief(self._exact([(first.columns, first.weights[0])])), 0)
        self._later: dict[tuple[Set, int], StepBounds] = {}

    def _exact(self, rows: Sequence[tuple[Any, Any]]) -> Law:
        matrix = np.full((len(rows), self.chain.n), Fraction(0), dtype=object)
        for u, (sources, units) in enumerate(rows):
            matrix[u, sources] = [Fraction(unit, UNIT) for unit in units.tolist()]
        return matrix

    def move(self, node: _Node) -> Law | None:
        """How the belief moves on to the request of time t; at the root it is the initial law already."""
        return self.transition if node.possible or node.elapsed else None

    def predicted(self, node: _Node) -> Law:
        """p(x_tau, x_t | q_[t-1]) before the request of time t."""
        return node.belief.after(self.move(node), EVERYTHING)[1].law

    def measure(self, node: _Node, private: bool) -> tuple[float, float, float, float, float]:
        """cost, inner, outer, outer2 and lower of the next request."""
        predicted, state = self.predicted(node), self.states[node.state]
        if private:
            support = int((predicted.sum(axis=0) > 0).sum())
            return len(state.possible), support, support, support, support
        if not node.possible:
            return 1, 1, 1, 1, 1
        totals = predicted.sum(axis=1)
        given = bounds(Rows.of(predicted[totals > 0] / totals[totals > 0][:, None]))
        later = self._bounds_later(node.possible, node.elapsed + 1)
        return 1 if state.plain else state.table.cost, given.inner, given.outer, later.outer, later.lower

    def children(self, node: _Node, private: bool) -> Iterator[tuple[Set, _Node]]:
        """Each query that may be sent, and the node after it."""
        state = self.states[node.state]
        if private:
            law = self.predicted(node).sum(axis=0)
            possible = tuple(np.flatnonzero(law > 0).tolist())
            yield state.possible, _Node(node.weight, Belief.of_present(law), state.after_private, possible)
            return
        for (query, table), after in zip(state.queries, state.following[2].tolist(), strict=True):
            chances = plain_chances(query[0], self.chain.n)
            if table is not None:
                chances = query_chances(table, query, state.anchor, exact=True)
            hides_value = not self.states.keeps_query
            chance, belief = node.belief.after(self.move(node), chances, hides_value=hides_value)
            if chance > 0:
                weight = node.weight * chance
                yield query, replace(node, weight=weight, belief=belief, state=after, elapsed=node.elapsed + 1)

    def _bounds_later(self, possible: Set, k: int) -> StepBounds:
        if (possible, k) not in self._later:
            for step in step_bounds(self.chain, k, possible):
                self._later[possible, step.t] = step
        return self._later[possible, k]


def bounds_along(
    chain: MarkovChain,
    pattern: Sequence[bool],
    scheme: str = "greedy",
    memory: str = "bayes-filter",
    *,
    everything: bool = False,
) -> list[TreeStep]:
    """The bounds of Theorems 1 and 2 for every time of `pattern`, for this scheme and memory, by the whole tree."""
    tree = _Tree(chain, scheme, memory, everything)
    level = [tree.root]
    steps = []
    for t, private in enumerate(pattern):
        measured = [(float(node.weight), tree.measure(node, private)) for node in level]
        steps.append(TreeStep(t, private, *(math.fsum(w * five[i] for w, five in measured) for i in range(5))))
        level = _merged(child for node in level for _, child in tree.children(node, private))
    return steps


def query_law(
    chain: MarkovChain, pattern: Sequence[bool], scheme: str = "greedy", memory: str = "bayes-filter"
) -> dict[tuple[Set, ...], Fraction]:
    """The exact law of the queries q_0, q_1, ... that the server sees."""
    tree = _Tree(chain, scheme, memory)
    level: dict[tuple[Set, ...], _Node] = {(): tree.root}
    for private in pattern:
        level = {
            (*history, query): child for history, node in level.items() for query, child in tree.children(node, private)
        }
    return {history: node.weight for history, node in level.items()}


def _merged(nodes: Iterator[_Node]) -> list[_Node]:
    """Nodes that know the same and remember the same go on alike."""
    kept: dict[Any, _Node] = {}
    for node in nodes:
        key = (node.state, node.possible, node.elapsed, tuple(node.belief.law.reshape(-1).tolist()))
        kept[key] = replace(node, weight=node.weight + (kept[key].weight if key in kept else 0))
        if len(kept) > MOST_NODES:
            raise InvalidInput(f"more than {MOST_NODES} histories of queries", hint="take a shorter pattern")
    return list(kept.values())
