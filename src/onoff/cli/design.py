"""`onoff design`: a table of queries for the first request after a private one."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

from cyclopts import Parameter, validators
from rich.console import Console

from onoff import bounds
from onoff.cli.interrupt import interruptible
from onoff.cli.output import Json, Work, check_writable, emit, progress, table
from onoff.errors import InvalidInput, InvalidTable, PrivacyBreach, UnknownScheme
from onoff.model.certificate import SimpleBound
from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT, Rows
from onoff.schemes import SCHEMES, design, find_scheme
from onoff.tables.files import read_table, write_table
from onoff.tables.picture import check_picture, draw_table
from onoff.tables.table import QueryTable

MOST_QUERIES_SHOWN = 24
"""Queries that the text shows one by one."""
SHOWN_IN_FULL = 12
"""Queries up to which the text is the whole table, as the paper prints it."""
WORTH_SHOWING = UNIT // 10**12
"""Queries with less mass are not shown: they come from rounding."""

Seconds = Annotated[
    float | None,
    Parameter(validator=validators.Number(gte=0), help="Seconds of processor time that the search may take."),
]
Gap = Annotated[
    float | None,
    Parameter(validator=validators.Number(gte=0), help="Stop where cost / lower bound - 1 is at most this (optimal)."),
]


def design_command(
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
    save: Annotated[Path | None, Parameter(help="Write the table and its certificate to this file (.npz).")] = None,
    check: Annotated[
        Path | None, Parameter(help="Build nothing: check the table and the certificate that --save wrote.")
    ] = None,
    json: Json = False,
) -> int:
    """Build the queries that hide the last request, for all that it may have been.

    ```console
    onoff design chain.json --scheme optimal
    onoff design chain.json --scheme greedy --table --json
    onoff design chain.json --budget 10 --picture table.svg
    onoff design chain.json --save table.npz
    onoff design chain.json --check table.npz
    ```

    Reports the expected number of messages, the proven lower bound on it and what proves it, and the paper's inner and
    outer bounds. A lower bound is called proven only where its certificate was checked in exact arithmetic.
    """
    if check is not None:
        return _check(chain, check, json)
    check_writable(save, picture, inputs=[chain])
    if picture is not None:
        check_picture(picture)
    given = {"budget": budget, "gap": gap, "c": c, "seed": seed}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    record = find_scheme(scheme)
    for name in options:
        if name not in record.options:
            fitting = ", ".join(other.name for other in SCHEMES.values() if name in other.options)
            raise UnknownScheme(f"--{name} is not for scheme {scheme!r}", hint=f"it is for --scheme {fitting}")
    with progress(f"reading {chain.name}") as work:
        loaded = MarkovChain.load(chain)
        rows = loaded.possible_rows()
        work.now(f"building the table for {loaded.n} sources")
        if "progress" in record.options:
            options["progress"] = partial(_tell, work)
        with ExitStack() as stack:
            if "stop" in record.options:
                options["stop"] = stack.enter_context(interruptible())
            started = monotonic()
            built = design(rows, scheme, **options)
            seconds = monotonic() - started
        if save is not None:
            if not isinstance(built, QueryTable):
                raise InvalidInput(f"scheme {scheme!r} gave no table to save", hint="use the scheme 'optimal'")
            work.now(f"writing {save.name}")
            write_table(save, built)
        work.now("bounds")
        report = _report(scheme, built, loaded.n, rows, seconds)
        if show_table and isinstance(built, QueryTable):
            built = built.labelled(names=loaded.names)
            report |= {"table": built.as_dict(), "names": list(loaded.names)}
        if picture is not None:
            work.now(f"drawing {picture.name}")
            draw_table(picture, built, loaded.names)
    emit(report, json, lambda console: _show(console, report, built, loaded.names, show_table))
    return 0


def _tell(work: Work, text: str) -> None:
    """Print progress of the search on stderr, and show it as the present activity."""
    work.now(f"searching: {text}")
    print(f"onoff: {text}", file=sys.stderr)


def _check(chain: Path, path: Path, json: bool) -> int:
    """Report on a saved table and its certificate, from the chain and the file alone. Returns the exit code."""
    report: dict[str, Any] = {"verified": False, "cost": None, "lower_bound": None, "optimal": False}
    code = 0
    try:
        with progress(f"reading {chain.name}") as work:
            rows = Rows.of(MarkovChain.load(chain).possible_rows())
            work.now(f"checking {path.name}")
            checked = read_table(path, rows)
    except (InvalidTable, PrivacyBreach) as error:
        report["reason"] = str(error)
        code = error.exit_code
    else:
        report |= {"verified": True, "cost": checked.cost, "lower_bound": checked.lower_bound}
        report["optimal"] = checked.optimal
    emit(report, json, lambda console: _show_check(console, report))
    return code


def _show_check(console: Console, report: dict[str, Any]) -> None:
    if not report["verified"]:
        console.print(f"Refused: {report['reason']}")
        return
    bound = "none is proved" if report["lower_bound"] is None else f"{report['lower_bound']:.6g}"
    console.print(f"Private and complete, to the last unit. Expected messages {report['cost']:.6g}, at least {bound}.")
    if report["optimal"]:
        console.print("No table is cheaper: the certificate was checked.")


def _report(scheme: str, built: Any, n: int, rows: Any, seconds: float) -> dict[str, Any]:
    found = bounds(rows)
    report = {
        "scheme": scheme,
        "n": n,
        "cost": built.cost,
        "lower_bound": built.lower_bound,
        "inner": found.inner,
        "outer": found.outer,
        "optimal": built.optimal,
        "certificate": _what_proves(built),
        "queries": len(built) if isinstance(built, QueryTable) else None,
        "seconds": seconds,
    }
    return report if isinstance(built, QueryTable) else {**report, "stderr": built.stderr}


def _what_proves(built: Any) -> str | None:
    """The kind of certificate, by name for a simple bound; None for a race, which has none."""
    proof = built.certificate if isinstance(built, QueryTable) else None
    if proof is None:
        return None
    return proof.name if isinstance(proof, SimpleBound) else str(proof.kind)


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
    shown = likely if full else [k for k in likely[:MOST_QUERIES_SHOWN] if built.mass[k] >= WORTH_SHOWING]
    queries = [(float(built.mass[k]) / UNIT, ", ".join(names[x] for x in built.query(k))) for k in shown]
    console.print(table(("probability", "query"), queries))
    if len(shown) < len(built):
        console.print(f"... and {len(built) - len(shown)} more, less likely; --table shows all.")
