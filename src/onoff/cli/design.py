"""`onoff design`: a table of queries for the first request after a private one."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

from cyclopts import Parameter, validators
from rich.console import Console

from onoff import bounds as bounds_of
from onoff.cli.output import Json, check_writable, emit, table
from onoff.experiments.table_picture import check_picture, draw_table
from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT
from onoff.schemes import builder
from onoff.schemes import design as design_rows
from onoff.tables.table import QueryTable

MOST_SHOWN = 24
"""Queries that the text shows one by one."""
SHOWN_IN_FULL = 12
"""Queries up to which the text is the whole table, as the paper prints it."""
WORTH_SHOWING = UNIT // 10**12
"""Mass from which a query is shown; what is below is left of roundings."""
TALKS_WHILE_BUILDING = ("optimal", "auto")

Seconds = Annotated[
    float | None, Parameter(validator=validators.Number(gte=0), help="Seconds that the search may take.")
]
Gap = Annotated[
    float | None,
    Parameter(validator=validators.Number(gte=0), help="Stop where cost / lower bound - 1 is at most this (optimal)."),
]


def design(
    chain: Path,
    /,
    *,
    scheme: Annotated[
        str, Parameter(help="full, single, greedy, enumerated, optimal, race, or auto for whichever fits.")
    ] = "optimal",
    budget: Seconds = None,
    gap: Gap = None,
    c: Annotated[int | None, Parameter(help="Queries of at most c sources, or everything (enumerated).")] = None,
    seed: Annotated[
        int | None,
        Parameter(validator=validators.Number(gte=0), help="Of the search (optimal), of the estimated cost (race)."),
    ] = None,
    show_table: Annotated[bool, Parameter(name="--table", negative="", help="Add the whole table.")] = False,
    picture: Annotated[Path | None, Parameter(help="Write a picture of the table and its cost (.png, .svg).")] = None,
    json: Json = False,
) -> None:
    """Build the queries that hide the last request, for all that it may have been.

    ```console
    onoff design chain.json --scheme optimal
    onoff design chain.json --scheme greedy --table --json
    onoff design chain.json --budget 10 --picture table.svg
    ```

    Reports the expected number of messages, the proven lower bound on it, and the paper's inner and outer bounds.
    """
    if picture is not None:
        check_picture(picture)
        check_writable(picture)
    loaded = MarkovChain.load(chain)
    given = {"budget": budget, "gap": gap, "c": c, "seed": seed}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    builder(scheme)
    if scheme in TALKS_WHILE_BUILDING:
        options["progress"] = lambda text: print(f"onoff: {text}", file=sys.stderr)
    rows = loaded.possible_rows()
    started = monotonic()
    built = design_rows(rows, scheme, **options)
    seconds = monotonic() - started
    report = _report(scheme, built, loaded.n, rows, seconds)
    if show_table and isinstance(built, QueryTable):
        report["table"] = built.as_dict()
    if picture is not None:
        draw_table(picture, built, report, loaded.names)
    emit(report, json, lambda console: _show(console, report, built, loaded.names, show_table))


def _report(scheme: str, built: Any, n: int, rows: Any, seconds: float) -> dict[str, Any]:
    found = bounds_of(rows)
    report = {
        "scheme": scheme,
        "n": n,
        "cost": built.cost,
        "lower_bound": built.lower_bound,
        "inner": found.inner,
        "outer": found.outer,
        "optimal": built.optimal,
        "queries": len(built) if isinstance(built, QueryTable) else None,
        "seconds": seconds,
    }
    return report if isinstance(built, QueryTable) else {**report, "stderr": built.stderr}


def _show(console: Console, report: dict[str, Any], built: Any, names: tuple[str, ...], full: bool) -> None:
    lines = [
        ("expected messages", report["cost"]),
        ("at least, for every scheme", report["lower_bound"]),
        ("paper: at least", report["outer"]),
        ("paper: at most", report["inner"]),
        ("everything", float(len(built.rows.columns))),
    ]
    console.print(
        table(
            ("hiding the last request", "messages"), lines, title=f"Scheme {report['scheme']}, built by {built.scheme}"
        )
    )
    if not isinstance(built, QueryTable):
        console.print(f"No table: queries are raced for; the cost is estimated, +- {report['stderr']:.2g}.")
        return
    verdict = (
        "No table is cheaper: proved."
        if report["optimal"]
        else f"At most {100 * (report['cost'] / report['lower_bound'] - 1):.3g} % above the least possible."
    )
    console.print(f"{len(built)} queries in {report['seconds']:.2f} s. {verdict}")
    if full and len(built) <= SHOWN_IN_FULL:
        console.print(str(built))
        return
    likely = sorted(range(len(built)), key=lambda k: (-int(built.mass[k]), k))
    shown = likely if full else [k for k in likely[:MOST_SHOWN] if built.mass[k] >= WORTH_SHOWING]
    queries = [(float(built.mass[k]) / UNIT, ", ".join(names[x] for x in built.query(k))) for k in shown]
    console.print(table(("probability", "query"), queries))
    if len(shown) < len(built):
        console.print(f"... and {len(built) - len(shown)} more, less likely; --table shows all.")
