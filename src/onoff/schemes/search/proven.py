"""BestProof: the best lower bound that a search has proved so far.

A search begins with the best simple bound (see `onoff.model.bounds`). Better ones come from

    supports    how many sources it takes to meet the support of every row, for rows with zeros (see `hitting`)
    groups      groups of sparse rows that share the cost of each source (see `groups`)
    duals       of the master program, with the most that any set gains by them: of few sources by looking at all sets,
                else by a tree (see `branching`)

Each is a certificate, and counts only if the checker accepts it.
"""

from __future__ import annotations

from collections.abc import Callable

from onoff.model.bounds import simplest
from onoff.model.certificate import Certificate
from onoff.model.checker import FEW_SOURCES, check_certificate
from onoff.model.rows import Rows
from onoff.schemes.search import groups, proofs
from onoff.schemes.search.branching import branch
from onoff.schemes.search.hall import Sets
from onoff.schemes.search.pricing import Duals, by_all_subsets


class BestProof:
    """The certificate for `rows` with the largest bound of those that were offered, and that bound, `lower`."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.certificate: Certificate = simplest(rows)
        self.lower = self.simple = float(check_certificate(rows, self.certificate))

    def offer(self, certificate: Certificate) -> None:
        """Keep the certificate if its bound is a larger one and the checker accepts it."""
        self.certificate = proofs.best(self.rows, [certificate, self.certificate])
        self.lower = float(check_certificate(self.rows, self.certificate))

    def offer_supports(self, most_steps: int) -> None:
        """Offer the bound by the supports, as far as so many steps prove one."""
        found = proofs.from_supports(self.rows, most_steps)
        if found.least > self.lower:
            self.offer(found)

    def offer_groups(self, cost: float, is_over: Callable[[], bool]) -> None:
        """Offer the bound by groups of rows."""
        sharing = groups.Sharing(self.rows)
        sharing.climb(cost, is_over)
        if sharing.bound > self.lower:
            self.offer(sharing.certificate())

    def offer_duals(self, duals: Duals, is_over: Callable[[], bool]) -> Sets:
        """Offer the bound that the duals prove; returns sets that gain by them.

        is_over: Asked before each branch of a tree; where it ends early the bound is a lower one.
        """
        if len(self.rows.columns) <= FEW_SOURCES:
            sets, gains = by_all_subsets(duals)
            most = max(float(gains[0]), 0.0)
            if self._promises(duals, most):
                self.offer(proofs.from_duals(self.rows, duals, most))
            return sets
        tree = branch(duals, is_over)
        if self._promises(duals, max(tree.most, 0.0)):
            self.offer(proofs.from_tree(self.rows, duals, tree))
        return tree.sets

    def _promises(self, duals: Duals, most: float) -> bool:
        """Whether duals by which no set gains more than `most` may prove a larger bound, as far as floats can tell."""
        return duals.value(self.rows.probabilities()) - most > self.lower
