"""Schemes: constructions that turn rows p(x|u) into a source of queries, and the registry of them.

    full        everything, always (single-server PIR)
    single      the wanted one or everything possible (closed form)
    greedy      the paper's Algorithm 1
    enumerated  the paper's linear programs over all subsets, or over sizes {1..c, N}
    optimal     the certified optimum, at any size that fits in memory
    race        the exponential race: no program to solve, any N
    auto        whichever of these fits the rows

Each is one `Scheme` record here and one module with a function `build(rows, **options)`, imported when it is first
asked for. To add a scheme to onoff: write the module, add the record. A scheme of another distribution is known by an
entry point (`onoff.system.plugins`), or by `package.module:function`; whatever table it gives is verified.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from onoff.errors import InvalidTable, Stopped, UnknownScheme, nearest
from onoff.model.bounds import simplest
from onoff.model.rows import Rows, SparseRows
from onoff.system.interrupts import is_shutting_down, uninterrupted
from onoff.system.plugins import load_plugin, plugins
from onoff.tables.table import QueryTable

if TYPE_CHECKING:
    from onoff.schemes.race import Race


@dataclass(frozen=True)
class Scheme:
    """A construction: its name, options and properties, known without importing its module.

    name: as on the command line; also the name of its module.
    options: what its `build` takes besides the rows.
    gives_table: whether it always gives a QueryTable. One that does not also takes rows too many for a table, and may
    give a Race: a source of queries without a table.
    looks_ahead: whether it can choose among equally cheap tables by what follows (option `future`).
    budget: seconds of processor time that its search takes at most by default; None where it does not search.
    session_budget: the same for the next request of a session, which waits for it; None: as `budget`.
    """

    name: str
    options: tuple[str, ...] = ()
    gives_table: bool = True
    looks_ahead: bool = False
    budget: float | None = None
    session_budget: float | None = None
    entry: EntryPoint | None = None
    """Where the function is, of a scheme that is not ours."""

    @property
    def build(self) -> Callable[..., QueryTable | Race]:
        """The function `build(rows, **options)` of its module."""
        if self.entry is not None:
            return cast("Callable[..., QueryTable | Race]", load_plugin(self.entry))
        return cast("Callable[..., QueryTable | Race]", import_module(f"{__name__}.{self.name}").build)

    def check_options(self, given: dict[str, Any]) -> None:
        """Raise UnknownScheme for an option that the scheme does not have."""
        for option in given:
            if option not in self.options:
                hint = nearest(option, self.options) if self.options else "it has none"
                raise UnknownScheme(f"scheme {self.name!r} has no option {option!r}", hint=hint)


_SEARCH = ("budget", "seed", "future", "progress", "stop", "enough", "portfolio")
_LEAK = ("leak", "ratio", "weights")
SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme("full"),
        Scheme("single"),
        Scheme("greedy"),
        Scheme("enumerated", ("c",)),
        Scheme("optimal", ("gap", *_SEARCH, *_LEAK), looks_ahead=True, budget=120.0),
        Scheme("race", ("seed",), gives_table=False),
        Scheme("auto", (*_SEARCH, *_LEAK), gives_table=False, looks_ahead=True, budget=30.0, session_budget=2.0),
    )
}
"""Every scheme by its name."""
LEAK = Scheme("leak", (*_LEAK, "budget", "progress", "stop", "enough"), budget=120.0)
"""The optimum that may leak: what `optimal` and `auto` are where a budget of leakage is given."""


def find_scheme(name: str) -> Scheme:
    """The scheme of that name, or at `package.module:function`. Raises UnknownScheme with the nearest name."""
    if name in SCHEMES:
        return SCHEMES[name]
    others = plugins("onoff.schemes")
    if name in others:
        entry = others[name]
    elif isinstance(name, str) and all(name.rpartition(":")):
        entry = EntryPoint(name, name, "onoff.schemes")
    else:
        raise UnknownScheme(f"no scheme {name!r}", hint=nearest(str(name), (*SCHEMES, *others)))
    try:
        _, *options = inspect.signature(load_plugin(entry)).parameters
    except (TypeError, ValueError):
        raise UnknownScheme(f"{entry.value} is not a function of rows", hint="give package.module:function") from None
    return Scheme(name, tuple(options), entry=entry)


@overload
def design(
    rows: Any, scheme: Literal["full", "single", "greedy", "enumerated", "optimal"] = "optimal", **options: Any
) -> QueryTable: ...
@overload
def design(rows: Any, scheme: str, **options: Any) -> QueryTable | Race: ...
def design(rows: Any, scheme: str = "optimal", **options: Any) -> QueryTable | Race:
    """A private source of queries for `rows`: a table, exact in integers, or a race where no table fits.

    Every table carries a certificate: where the scheme proves no lower bound of its own, the best of
    `onoff.model.bounds`.

    Parameters
    ----------
    rows
        A matrix p(x|u), Rows, or a MarkovChain.
    scheme
        One of SCHEMES, one that another distribution adds, or `package.module:function`. `race`, and `auto` where no
        table fits, give a `Race`: it draws queries and has a cost, but no table. All others give a `QueryTable`.
    options
        Those of the scheme. `stop`, where it has that, is called now and then; where it returns True the search ends
        with the best table so far, and so for `enough`. `portfolio`: the strategies of the search, in their order; see
        `onoff.schemes.optimal.default_portfolio`.
        With `optimal` and `auto` also `leak` and `ratio`: how much the queries may
        tell about u, in bits of maximal leakage and as the largest ratio between the masses of a query for two values
        of u; and `weights` of the values u, which the cost is then an average over (default: all alike).

    Raises
    ------
    InvalidChain
        for what is not a matrix of probabilities.
    UnknownScheme
        for a scheme or an option that does not exist.
    InvalidInput
        for a leak or a ratio that is negative, infinite, or smaller than rounding.
    Stopped
        where the process shuts down before the search is done; with a leak, also where `stop` returned True.

    >>> design([[0.75, 0.25], [0.25, 0.75]], "single").cost
    1.5
    >>> round(design([[0.75, 0.25], [0.25, 0.75]], leak=0.3).cost, 6)  # naive: log2(1.5) = 0.58 bits
    1.268856
    """
    record = find_scheme(scheme)
    record.check_options(options)
    if options.get("leak") or options.get("ratio"):
        record = LEAK
    else:  # nothing may leak, whatever the weights
        options = {name: value for name, value in options.items() if name not in _LEAK}
    record.check_options(options)
    if "stop" in record.options:
        asked = options.get("stop", is_shutting_down)
        options = {**options, "stop": lambda: asked() or is_shutting_down()}
    given = rows.possible_rows() if hasattr(rows, "possible_rows") else rows
    without_table = isinstance(given, SparseRows) and not record.gives_table
    with uninterrupted():
        built = record.build(given if without_table else Rows.of(given), **options)
    if "stop" in record.options and is_shutting_down():
        raise Stopped("the process is shutting down: the search was not done", hint="start it again to go on")
    if record.entry is not None:
        _check_foreign(record, built)
    if not isinstance(built, QueryTable):
        return built
    return built.labelled(
        names=getattr(rows, "names", None),
        certificate=simplest(built.rows) if built.certificate is None else built.certificate,
    )


def _check_foreign(scheme: Scheme, built: object) -> None:
    """Raise InvalidTable or PrivacyBreach for what another's scheme gave, unless it is a table that keeps its word."""
    if not isinstance(built, QueryTable):
        raise InvalidTable(f"scheme {scheme.name!r} gave a {type(built).__name__}, and not a QueryTable")
    built.verify()
