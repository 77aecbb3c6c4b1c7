"""Kinds of rows: which strategies are worth their time, and come to an end in it.

few rows        full rows, fewer than two dozen: give few cuts a round, and take thousands
small queries   full rows so much alike that queries are small, or few of them: corners of the master program are far
                from what rows can follow, its middle is not
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from onoff.schemes.search.portfolio import Problem

Where: TypeAlias = "Callable[[Problem], bool]"
"""Whether rows are of a kind."""

MANY, SMALL_QUERIES = 25, 7.0
"""Rows and columns that are many, and the lower bound up to which queries are small."""
SOLVED_A_SECOND, CENTRAL_A_SECOND = 25_000, 12_000
"""Rows times columns for each second of the budget with which the program of a pool ends in time, and columns squared
with which it does from the middle: so much is the work of a few dozen rounds."""


def has_many_columns(problem: Problem) -> bool:
    """Rows over many columns."""
    return bool(problem.size >= MANY)


def is_few(problem: Problem) -> bool:
    """Full rows over many columns that are few, or fewer than half as many as the columns."""
    few = problem.distinct < MANY or 2 * problem.distinct < problem.size
    return problem.full and few and problem.size >= MANY


def has_small_queries(problem: Problem) -> bool:
    """Full rows over many columns that are few, or so much alike that queries are small."""
    return problem.full and problem.size >= MANY and (problem.distinct < MANY or problem.lower <= SMALL_QUERIES)


def is_central(problem: Problem) -> bool:
    """Rows for which the program is solved from the middle: they have small queries, and it comes to an end in time."""
    shape = problem.distinct < MANY or 2 * problem.distinct >= problem.size  # between, there are too many cuts to find
    return shape and has_small_queries(problem) and problem.size**2 <= CENTRAL_A_SECOND * problem.clock.budget


def is_few_and_central(problem: Problem) -> bool:
    """Few rows for which the program is solved from the middle, of herded sets."""
    return is_few(problem) and is_central(problem)


def starts_from_samples(problem: Problem) -> bool:
    """Rows for which the program starts from samples: few columns, or many rows with small queries."""
    return problem.size < MANY or (is_central(problem) and not is_few(problem))


def is_sampled(problem: Problem) -> bool:
    """Rows for which samples make the table: small queries, and too many columns; few rows or mixtures place little."""
    generic = 4 * problem.distinct >= problem.size and problem.table_rows == problem.distinct
    return has_small_queries(problem) and not is_central(problem) and generic


def is_solvable(problem: Problem) -> bool:
    """Rows for which the program of a pool comes to an end in time, in a corner."""
    return not is_few(problem) and problem.distinct * problem.size <= SOLVED_A_SECOND * problem.clock.budget


def is_left_to_herding(problem: Problem) -> bool:
    """Rows for which no program comes to an end in time, and samples are of no use."""
    return problem.size >= MANY and not (is_central(problem) or is_sampled(problem) or is_solvable(problem))
