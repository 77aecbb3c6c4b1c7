"""Outer bound 1 and the inner bound of the paper, along the tree of queries of a given scheme.

Theorems 1 and 2 bound the cost at time t by averages over the queries sent before,

    outer   E over q_[t-1] of  sum over x_t of max over x_tau of p(x_t | x_tau, q_[t-1])      a lower bound
    inner   E over q_[t-1] of  sum over i of i theta_i(q_[t-1])                               Algorithm 1 meets it

so both belong to a scheme: whatever it chose earlier shapes the rows p(x_t | x_tau, q_[t-1]). Only values of x_tau that
are possible given q_[t-1] count. Beside them stand what no choice can move,

    outer2  E over q_[tau-1] of  sum over x_t of max over possible x_tau of P**(t-tau)        a lower bound
    lower   the same with the best proven bound instead of the sum of maxima                  a lower bound

and the scheme's own `cost`. A node of the tree is a history of queries with the belief p(x_tau, x_t | q_[t]). The whole
tree is walked in exact fractions, nodes with the same belief merged; or random descents, each query drawn with its
probability, estimate the same averages in floats, with their standard error; descents that meet go on together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidInput
from onoff.information import EVERYTHING, Belief, Law, plain_chances, query_chances
from onoff.lab.walk import Set
from onoff.model.bounds import StepBounds, bounds, step_bounds
from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT, Rows
from onoff.session.memories import LastQuery
from onoff.session.session import Memory, TableCache, start
from onoff.tables.table import QueryTable

MOST_NODES = 200_000
"""Nodes of one level of the tree at most."""


@dataclass(frozen=True)
class TreeStep:
    """The averages at one time; `stderr` is 0 for the whole tree, the largest standard error for samples."""

    t: int
    private: bool
    cost: float
    inner: float
    outer: float
    outer2: float
    lower: float
    stderr: float

    def as_dict(self) -> dict[str, Any]:
        """The same as plain numbers."""
        return asdict(self)


@dataclass(frozen=True)
class _Node:
    """A history of queries: what it tells, and the public part of the session's memory.

    weight: its probability; with samples, how many descents came here.
    belief: p(x_tau, x_t | q_[t]), a row for each source x_tau (a single one before the first ON).
    asked: the query of time tau; its order numbers the hidden values of the paper's filter.
    possible: the values of x_tau given q_[tau-1]; elapsed: t - tau.
    """

    weight: Any
    belief: Belief
    memory: Memory
    asked: Set = ()
    possible: Set = ()
    elapsed: int = 0


class _Tree:
    def __init__(self, chain: MarkovChain, scheme: str, memory: str, exact: bool, everything: bool) -> None:
        self.chain = chain
        self.tables = TableCache(chain, scheme)
        self.everything = everything
        self.number = Fraction if exact else float
        self.transition = self._matrix([chain.row_units(x) for x in range(chain.n)])
        first = chain.initial_rows()
        initial = self._matrix([(first.columns, first.weights[0])])
        self.root = _Node(self.number(1), Belief(initial), start(memory, chain))
        self._later: dict[tuple[Set, int], StepBounds] = {}

    def _matrix(self, rows: Sequence[tuple[Any, Any]]) -> npt.NDArray[Any]:
        matrix = np.full((len(rows), self.chain.n), self.number(0), dtype=object if self.number is Fraction else float)
        for u, (sources, units) in enumerate(rows):
            for x, unit in zip(sources.tolist(), units.tolist(), strict=True):
                matrix[u, x] = self.number(Fraction(unit, UNIT))
        return matrix

    def move(self, node: _Node) -> npt.NDArray[Any] | None:
        """How the belief moves on to the request of time t; at the root it is the initial law already."""
        return None if node.memory is self.root.memory else self.transition

    def predicted(self, node: _Node) -> npt.NDArray[Any]:
        """p(x_tau, x_t | q_[t-1]) before the request of time t."""
        return node.belief.after(self.move(node), EVERYTHING)[1].law

    def measure(self, node: _Node, private: bool) -> tuple[float, float, float, float, float]:
        """cost, inner, outer, outer2 and lower of the next request."""
        predicted = self.predicted(node)
        if private:
            support = int((predicted.sum(axis=0) > 0).sum())
            asked = self.chain.n if self.everything else len(node.memory.rows.columns)
            return asked, support, support, support, support
        if not node.asked:
            return 1, 1, 1, 1, 1
        totals = predicted.sum(axis=1)
        given = bounds(Rows.of(predicted[totals > 0] / totals[totals > 0][:, None]))
        later = self._bounds_later(node.possible, node.elapsed + 1)
        cost = self._table(node).cost if node.memory.rows.distinct > 1 else 1
        return cost, given.inner, given.outer, later.outer, later.lower

    def children(self, node: _Node, private: bool) -> Iterator[tuple[Set, _Node]]:
        """Each query that may be sent, and the node after it, its weight the probability of that query."""
        if private:
            law = self.predicted(node).sum(axis=0)
            possible = tuple(np.flatnonzero(law > 0).tolist())
            asked = tuple(range(self.chain.n)) if self.everything else tuple(node.memory.rows.columns.tolist())
            memory = node.memory.after(asked, possible[0], private=True, table=None)
            yield asked, _Node(self.number(1), Belief.of_present(law), memory, asked, possible)
            return
        by_value = not isinstance(node.memory, LastQuery)
        for query, chances, table in self._queries(node):
            chance, belief = node.belief.after(self.move(node), chances, hides_value=by_value)
            if chance > 0:
                memory = node.memory.after(query, query[0], private=False, table=table)
                yield query, replace(node, weight=chance, belief=belief, memory=memory, elapsed=node.elapsed + 1)

    def _queries(self, node: _Node) -> Iterator[tuple[Set, Law, QueryTable | None]]:
        """Every query that may be sent while OFF, with p(q | u, x), and its table if it has one."""
        rows, exact = node.memory.rows, self.number is Fraction
        if rows.distinct == 1:
            for x in rows.columns.tolist():
                yield (x,), plain_chances(x, self.chain.n), None
            return
        table = self._table(node)
        hidden = node.memory.last if isinstance(node.memory, LastQuery) and node.memory.last else node.asked
        for query in table.queries:
            yield query, query_chances(table, query, hidden, exact=exact), table

    def _table(self, node: _Node) -> QueryTable:
        table = self.tables.of(node.memory)
        if not isinstance(table, QueryTable):
            raise InvalidInput(f"scheme {self.tables.scheme!r} makes no table to walk", hint="use e.g. greedy")
        return table

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
    samples: int | None = None,
    rng: np.random.Generator | None = None,
    everything: bool = False,
) -> list[TreeStep]:
    """The bounds of Theorems 1 and 2 for every time of `pattern`, for this scheme and memory.

    By the whole tree, or with `samples` random descents drawn from `rng`.

    samples: Random descents where the tree is too large; None follows all of it.
    """
    if samples is not None and (samples < 2 or rng is None):
        raise InvalidInput("too few samples, or no generator", hint="give samples from 2 up, and rng")
    tree = _Tree(chain, scheme, memory, exact=samples is None, everything=everything)
    level = [tree.root if samples is None else replace(tree.root, weight=samples)]
    steps = []
    for t, private in enumerate(pattern):
        means, stderr = _average(level, [tree.measure(node, private) for node in level], samples)
        cost, inner, outer, outer2, lower = means
        steps.append(TreeStep(t, private, cost, inner, outer, outer2, lower, stderr))
        level = _merged(
            after
            for node in level
            for after in _spread(node, [child for _, child in tree.children(node, private)], rng)
        )
    return steps


def query_law(
    chain: MarkovChain, pattern: Sequence[bool], scheme: str = "greedy", memory: str = "bayes-filter"
) -> dict[tuple[Set, ...], Fraction]:
    """The exact law of the queries q_0, q_1, ... that the server sees."""
    tree = _Tree(chain, scheme, memory, exact=True, everything=False)
    level: dict[tuple[Set, ...], _Node] = {(): tree.root}
    for private in pattern:
        level = {
            (*history, query): replace(child, weight=node.weight * child.weight)
            for history, node in level.items()
            for query, child in tree.children(node, private)
        }
    return {history: node.weight for history, node in level.items()}


def _average(level: list[_Node], measured: list[tuple[float, ...]], samples: int | None) -> tuple[list[float], float]:
    """The weighted means, and their largest standard error."""
    weights = [float(node.weight) / (samples or 1) for node in level]
    columns = list(zip(*measured, strict=True))
    means = [math.fsum(w * value for w, value in zip(weights, column, strict=True)) for column in columns]
    if samples is None:
        return means, 0.0
    variances = [
        math.fsum(w * (value - mean) ** 2 for w, value in zip(weights, column, strict=True))
        for mean, column in zip(means, columns, strict=True)
    ]
    return means, math.sqrt(max(variances) / (samples - 1))


def _spread(node: _Node, children: list[_Node], rng: np.random.Generator | None) -> Iterator[_Node]:
    """The children with the node's weight shared out among them: by probability, or by as many draws."""
    if rng is None:
        yield from (replace(child, weight=node.weight * child.weight) for child in children)
        return
    chances = np.array([child.weight for child in children])
    for child, count in zip(children, rng.multinomial(node.weight, chances / chances.sum()), strict=True):
        if count:
            yield replace(child, weight=int(count))


def _merged(nodes: Iterator[_Node]) -> list[_Node]:
    """Nodes that know the same and remember the same go on alike."""
    kept: dict[Any, _Node] = {}
    for node in nodes:
        key = (node.memory.key, node.asked, node.possible, node.elapsed, tuple(node.belief.law.reshape(-1).tolist()))
        known = kept[key].weight if key in kept else 0
        kept[key] = replace(node, weight=node.weight + known)
        if len(kept) > MOST_NODES:
            raise InvalidInput(f"more than {MOST_NODES} histories of queries", hint="give `samples`")
    return list(kept.values())
