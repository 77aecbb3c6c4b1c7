"""Schemes: constructions that turn rows p(x|u) into a query table, and the registry of their names.

    full        everything, always (single-server PIR)
    single      the wanted one or everything possible (closed form)
    greedy      the paper's Algorithm 1
    enumerated  the paper's linear programs over all subsets, or over sizes {1..c, N}
    optimal     the certified optimum, at any size that fits in memory
    race        the exponential race: no program to solve, any N
    auto        whichever of these fits the rows

Every module has a `NAME` and a `build(rows, **options) -> QueryTable`, and is imported when it is first asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from onoff.errors import UnknownScheme, nearest
from onoff.model.bounds import lower_bound
from onoff.model.rows import Rows, SparseRows
from onoff.system.shutdown import uninterrupted
from onoff.tables.table import QueryTable

SCHEMES = ("full", "single", "greedy", "enumerated", "optimal", "race", "auto")
WITHOUT_TABLE = ("race", "auto")
"""Schemes that also take rows too many for a table."""


def design(rows: Any, scheme: str = "optimal", **options: Any) -> QueryTable:
    """A private query table for `rows`: a matrix p(x|u), Rows, or a MarkovChain.

    `race`, and `auto` where no table fits, give a `Race` instead: it draws queries and has a cost, but no table.
    Where the scheme itself proves no lower bound, the table carries the best of `onoff.model.bounds`.
    Raises InvalidChain for a matrix that is none, UnknownScheme for a scheme or an option that does not exist.

    >>> design([[0.75, 0.25], [0.25, 0.75]], "single").cost
    1.5
    """
    build = builder(scheme)
    allowed = [
        name for name, option in inspect.signature(build).parameters.items() if option.kind is option.KEYWORD_ONLY
    ]
    for option in options:
        if option not in allowed:
            hint = nearest(option, allowed) if allowed else "it has none"
            raise UnknownScheme(f"scheme {scheme!r} has no option {option!r}", hint=hint)
    given = rows.possible_rows() if hasattr(rows, "possible_rows") else rows
    without_table = isinstance(given, SparseRows) and scheme in WITHOUT_TABLE
    with uninterrupted():
        table = build(given if without_table else Rows.of(given), **options)
    return table if table.lower_bound is not None else table.labelled(lower_bound=float(lower_bound(table.rows)))


def builder(scheme: str) -> Callable[..., QueryTable]:
    """The function `build(rows, **options)` of a scheme; its keyword-only parameters are its options."""
    return cast("Callable[..., QueryTable]", import_module(f"{__name__}.{known(scheme)}").build)


def known(scheme: str) -> str:
    """`scheme` itself where it is one. Raises UnknownScheme with the nearest name."""
    if scheme not in SCHEMES:
        raise UnknownScheme(f"no scheme {scheme!r}", hint=nearest(str(scheme), SCHEMES))
    return scheme
