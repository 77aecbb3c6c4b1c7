"""Two sources: the chain, and the scheme of Table 3 as a session that the audit can drive.

Table 3 gives p(q_t | x_tau, x_t) in three cases, (a) alpha + beta < 1, (b) and (c) alpha + beta > 1. Its caption swaps
when the table is to be used, and its sub-captions say "t even / odd" where t - tau is meant. Both readings are here:
the corrected one, and the printed ones to show what they do. All probabilities are ratios of the chain's own integers.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self

from onoff.model.chain import MarkovChain
from onoff.session import Query
from onoff.session.entropy import Entropy, SystemEntropy

BOTH = (0, 1)


def two_source_chain(alpha: float, beta: float) -> MarkovChain:
    """The chain that leaves source 0 with probability alpha and source 1 with probability beta."""
    return MarkovChain([[1 - alpha, alpha], [beta, 1 - beta]])


def alone(chain: MarkovChain, case: str, x_tau: int, x: int) -> Fraction:
    """Table 3: the probability of asking for x alone, given x_tau and x, when the table applies."""
    p = chain.rows()
    stay = [p.weight(u, u) for u in BOTH]
    leave = [p.weight(u, 1 - u) for u in BOTH]
    if case == "a":
        return Fraction(leave[1 - x], stay[x]) if x == x_tau else Fraction(1)
    if case == "b":
        return Fraction(stay[x], leave[1 - x]) if x == x_tau else Fraction(1)
    return Fraction(stay[x], leave[1 - x]) if x != x_tau else Fraction(1)


@dataclass
class TableThree:
    """A user who follows Table 3.

    printed_caption: use the table after a query for one message, as the caption says, instead of after one for two.
    printed_parity: tell (b) from (c) by t, as the sub-captions say, instead of by t - tau.
    """

    chain: MarkovChain
    printed_caption: bool = False
    printed_parity: bool = False
    time: int = -1
    tau: int = -1
    secret: int = -1
    last: tuple[int, ...] = BOTH
    entropy: Entropy = field(default_factory=SystemEntropy)

    @property
    def state(self) -> Hashable:
        return self.time, self.tau, self.secret, self.last

    def fork(self, entropy: Entropy) -> Self:
        twin = copy.copy(self)
        twin.entropy = entropy
        return twin

    def request(self, source: int | str, *, private: bool) -> Query:
        x = self.chain.index(source)
        self.time += 1
        if private:
            self.tau, self.secret, self.last = self.time, x, BOTH
        else:
            self.last = self._draw(x)
        return Query(self.last, 2)

    def _draw(self, x: int) -> tuple[int, ...]:
        use_table = (len(self.last) == 1) if self.printed_caption else (len(self.last) == 2)
        case = self.case()
        if not use_table or case is None:
            return (x,)
        chance = alone(self.chain, case, self.secret, x)
        weights = (chance.numerator, chance.denominator - chance.numerator)
        return ((x,), BOTH)[self.entropy.choose(weights)]

    def case(self) -> str | None:
        """Which part of the table; None for alpha + beta = 1, which is in no part: the plain request."""
        p = self.chain.rows()
        beta, stay = p.weight(1, 0), p.weight(0, 0)  # alpha + beta < 1 means beta < 1 - alpha
        if beta == stay:
            return None
        if beta < stay:
            return "a"
        return "b" if (self.time if self.printed_parity else self.time - self.tau) % 2 == 0 else "c"
