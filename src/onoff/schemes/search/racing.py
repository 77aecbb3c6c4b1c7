"""Rows too many for a program and for Algorithm 1: a table from races, and from races of what they leave.

The sets of some thousand races, with masses that nearly fit, place most of every row; what is left goes to
"everything". But what is left is again a matrix of rows with the same number of units in each, so races of these rows
take the place of "everything", and again: each pass makes the table cheaper, and it is exact after any of them.

A thousand sources, Dirichlet(1): 73 after the first pass, 14.2 in 20 s; the race costs 14.5, the bound is 7.4.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np

from onoff.model.rows import UNIT, Rows
from onoff.schemes.search.hall import each_once
from onoff.schemes.search.proposals import races
from onoff.schemes.search.rebuild import rebuild_sets
from onoff.schemes.search.repair import WORTH_REPAIRING, everything_left, laid_together
from onoff.schemes.search.transport import leaning
from onoff.tables.table import QueryTable

FIRST_RACES, LATER_RACES = 2500, 600
"""Races of the first pass and of each of the others."""
LEAN, FITTINGS = 0.3, 5
"""How much masses lean to small sets (not much: rows must be able to follow), and scalings."""


def raced_in_passes(rows: Rows, is_over: Callable[[], bool], first: int) -> QueryTable:
    """The table after as many passes as there is time for: one at least, and until nothing is left to race for.

    is_over: asked after each pass. first: races of the first pass.
    """
    parts: list[QueryTable] = []
    left, units = rows, UNIT
    for number in count():
        p = left.weights / units
        raced = races(p, LATER_RACES if number else first, np.random.default_rng(number))
        found = leaning(p, each_once(raced), LEAN, FITTINGS)
        parts.append(rebuild_sets(left, found.sets, found.masses / found.masses.sum() * (units / UNIT)))
        rest = everything_left(parts[-1])
        if rest is None or parts[-1].mass[-1] < WORTH_REPAIRING * UNIT or is_over():
            break
        left, units = rest, int(parts[-1].mass[-1])
    return laid_together(rows, *parts)
