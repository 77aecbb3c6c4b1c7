"""Randomness that an audit controls: a script of choices, and an enumeration of every branch with its probability."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import TypeVar

from onoff.errors import InvalidInput
from onoff.model.rows import Floats
from onoff.session.entropy import Entropy

Outcome = TypeVar("Outcome")


class ScriptedEntropy:
    """Replays given choices: the i-th call of `choose` returns the i-th of them."""

    def __init__(self, choices: Iterable[int]) -> None:
        self._choices = iter(choices)

    def choose(self, weights: Sequence[int]) -> int:
        index = next(self._choices)
        if not 0 <= index < len(weights) or weights[index] <= 0:
            raise ValueError(f"scripted choice {index} has no weight among {list(weights)}")
        return index

    def uniforms(self, count: int) -> Floats:
        raise TypeError("a script chooses among weights only")


class EnumeratingEntropy:
    """One branch of an enumeration: replays a prefix of choices, then takes the first possible one.

    `enumerate_branches` drives it through every branch.
    """

    def __init__(self, prefix: Sequence[int] = ()) -> None:
        self._prefix = tuple(prefix)
        self.taken: list[int] = []
        self.weights: list[Sequence[int]] = []

    def choose(self, weights: Sequence[int]) -> int:
        depth = len(self.taken)
        if depth < len(self._prefix):
            index = self._prefix[depth]
        else:
            index = _next_possible(weights, 0)
        self.taken.append(index)
        self.weights.append([int(weight) for weight in weights])
        return index

    def uniforms(self, count: int) -> Floats:
        raise InvalidInput("floats cannot be enumerated", hint="audit a scheme that has a table")

    @property
    def probability(self) -> Fraction:
        """The exact probability of the branch taken."""
        product = Fraction(1)
        for index, weights in zip(self.taken, self.weights, strict=True):
            product *= Fraction(weights[index], sum(weights))
        return product


def enumerate_branches(run: Callable[[Entropy], Outcome]) -> Iterator[tuple[Fraction, Outcome]]:
    """Every outcome of `run(entropy)` with its exact probability; `run` is called once per branch.

    >>> sorted((str(p), i) for p, i in enumerate_branches(lambda entropy: entropy.choose([1, 0, 2])))
    [('1/3', 0), ('2/3', 2)]
    """
    prefix: list[int] | None = []
    while prefix is not None:
        branch = EnumeratingEntropy(prefix)
        outcome = run(branch)
        yield branch.probability, outcome
        prefix = _following(branch)


def _following(branch: EnumeratingEntropy) -> list[int] | None:
    """The next branch in order: the last choice that has a later possible alternative takes it."""
    for depth in reversed(range(len(branch.taken))):
        after = _next_possible(branch.weights[depth], branch.taken[depth] + 1)
        if after < len(branch.weights[depth]):
            return [*branch.taken[:depth], after]
    return None


def _next_possible(weights: Sequence[int], start: int) -> int:
    index = start
    while index < len(weights) and weights[index] <= 0:
        index += 1
    return index
