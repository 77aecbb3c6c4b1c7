"""`onoff design`: a table of queries for the first request after a private one."""

from __future__ import annotations

import sys
from functools import partial
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Literal

from cyclopts import Parameter, validators
from rich.console import Console

from onoff import bounds
from onoff.cli.output import Json, Work, check_writable, emit, noticing_ctrl_c, progress, table
from onoff.errors import InvalidInput, InvalidTable, PrivacyBreach, UnknownScheme
from onoff.figures import save_all
from onoff.lab.results.plots import figures_of
from onoff.model.bounds import StepBounds, step_bounds
from onoff.model.certificate import SimpleBound
from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT, Rows
from onoff.schemes import SCHEMES, design, find_scheme
from onoff.session.budget import in_words
from onoff.tables.files import read_table, write_table
from onoff.tables.show import check_picture, draw_curve, draw_table
from onoff.tables.table import QueryTable

MOST_QUERIES_SHOWN = 24
"""Queries that the text shows one by one."""
SHOWN_IN_FULL = 12
"""Queries up to which the text is the whole table, as the paper prints it."""
CURVE_STEPS, MOST_BUDGETS = 8, 1000
"""Steps of a curve whose range is not given, and of any one at most."""
CURVE_KEYS = ("leak", "cost", "lower_bound", "worst_cost", "optimal", "queries", "seconds")
CURVE_BAR = 30
"""Signs of the longest bar of a curve."""
WORTH_SHOWING = UNIT // 10**12
"""Queries with less mass are not shown: they come from rounding."""

Seconds = Annotated[
    float | None,
    Parameter(
        validator=validators.Number(gte=0),
        help="Seconds of processor time that the search may take: "
        + ", ".join(f"{one.budget:.0f} ({one.name})" for one in SCHEMES.values() if one.budget is not None)
        + " unless given.",
    ),
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
    leak: Annotated[
        str | None,
        Parameter(help="Bits of maximal leakage that the queries may tell, or START:STOP:STEP for a curve."),
    ] = None,
    ratio: Annotated[
        float | None,
        Parameter(
            validator=validators.Number(gte=0),
            help="Bits by which a query may be likelier after one hidden request than after another.",
        ),
    ] = None,
    plot: Annotated[
        bool, Parameter(negative="", help="Draw the cost against the leak: with --leak, from 0 unless it is a range.")
    ] = False,
    show_table: Annotated[bool, Parameter(name="--table", negative="", help="Add the whole table.")] = False,
    picture: Annotated[Path | None, Parameter(help="Write a picture of the table and its cost (.png, .svg).")] = None,
    save: Annotated[Path | None, Parameter(help="Write the table and its certificate to this file (.npz).")] = None,
    check: Annotated[
        Path | None, Parameter(help="Build nothing: check the table and the certificate that --save wrote.")
    ] = None,
    json: Json = False,
) -> int:
    """Build the queries that hide the last request, whatever that request was.

    ```console
    onoff design chain.json --scheme optimal
    onoff design chain.json --scheme greedy --table --json
    onoff design chain.json --budget 10 --picture table.svg
    onoff design chain.json --save table.npz
    onoff design chain.json --check table.npz
    onoff design chain.json --leak 0.5
    onoff design chain.json --leak 0:2:0.25 --plot
    ```

    Ctrl-C ends the search with the best table so far, and the exit code 130.

    Reports the expected number of messages, the proven lower bound on it and what proves it, and the paper's inner and
    outer bounds. A lower bound is called proven only where its certificate was checked in exact arithmetic.

    With --leak the queries may tell a little: by half a bit the server's best guess of what is hidden becomes, on
    average, at most 1.41 times as likely. The cost is then an average over what is hidden, all alike; the largest is
    reported beside it. A range makes a curve, which --picture writes to a file.
    """
    if check is not None:
        return _check(chain, check, json)
    check_writable(save, picture, inputs=[chain])
    if picture is not None:
        check_picture(picture)
    budgets = _budgets(leak, plot)
    given = {"budget": budget, "gap": gap, "c": c, "seed": seed, "ratio": ratio}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if len(budgets) > 1:
        if show_table or save is not None:
            raise InvalidInput(
                "a range of --leak makes a curve, which has no table to show or save",
                hint="give --leak one number of bits",
            )
        return _curve(chain, scheme, budgets, options, picture, json)
    if leak is not None:
        options["leak"] = budgets[0]
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
        built, seconds, interrupted = _built(rows, scheme, options)
        if save is not None:
            if not isinstance(built, QueryTable):
                raise InvalidInput(f"scheme {scheme!r} gave no table to save", hint="use the scheme 'optimal'")
            work.now(f"writing {save.name}")
            write_table(save, built)
        work.now("bounds")
        report = _report(scheme, built, loaded.n, rows, seconds)
        if leak is not None or ratio is not None:
            report |= _told(built)
        if show_table and isinstance(built, QueryTable):
            built = built.labelled(names=loaded.names)
            report |= {"table": built.as_dict(), "names": list(loaded.names)}
        if picture is not None:
            work.now(f"drawing {picture.name}")
            draw_table(picture, built, loaded.names)
    emit(report, json, lambda console: _show(console, report, built, loaded.names, show_table))
    if interrupted:
        print("onoff: this is the best table so far", file=sys.stderr)
        raise KeyboardInterrupt
    return 0


def _built(rows: Any, scheme: str, options: dict[str, Any]) -> tuple[Any, float, bool]:
    """The table, the seconds that it took, and whether Ctrl-C ended it early, where the scheme can be."""
    started = monotonic()
    if "enough" not in find_scheme(scheme).options:
        return design(rows, scheme, **options), monotonic() - started, False
    with noticing_ctrl_c() as ended:
        return design(rows, scheme, enough=ended, **options), monotonic() - started, ended()


def _budgets(leak: str | None, plot: bool) -> list[float]:
    """The bits of a number or of START:STOP:STEP. Raises InvalidInput where it is neither."""
    if leak is None:
        if plot:
            raise InvalidInput("--plot draws the cost against the leak", hint="give --leak too, as --leak 0:2:0.25")
        return []
    wrong = InvalidInput(f"--leak {leak}: not bits, and not START:STOP:STEP", hint="as --leak 0.5, or --leak 0:2:0.25")
    try:
        bits = [float(part) for part in leak.split(":")]
    except ValueError:
        raise wrong from None
    if plot and len(bits) == 1:
        bits = [0.0, bits[0], bits[0] / CURVE_STEPS]
    if not all(isfinite(part) and part >= 0 for part in bits) or len(bits) not in (1, 3):
        raise wrong
    if len(bits) == 1:
        return bits
    start, stop, step = bits
    if step <= 0 or stop < start or (stop - start) / step > MOST_BUDGETS:
        raise wrong
    return [start + at * step for at in range(int((stop - start) / step + 1e-9) + 1)]


def _curve(
    chain: Path, scheme: str, budgets: list[float], options: dict[str, Any], picture: Path | None, json: bool
) -> int:
    """Report on the table of every budget. Returns the exit code."""
    points = []
    with progress(f"reading {chain.name}") as work:
        rows = MarkovChain.load(chain).possible_rows()
        for bits in budgets:
            work.now(f"building the table for {bits:g} bits")
            built, seconds, interrupted = _built(rows, scheme, {**options, "leak": bits})
            if interrupted:
                raise KeyboardInterrupt
            point = _report(scheme, built, rows.n, rows, seconds) | _told(built)
            points.append({"budget": bits, **{name: point[name] for name in CURVE_KEYS}})
        if picture is not None:
            work.now(f"drawing {picture.name}")
            draw_curve(picture, points)
    report = {"scheme": scheme, "n": rows.n, "curve": points}
    emit(report, json, lambda console: _show_curve(console, report))
    return 0


def _show_curve(console: Console, report: dict[str, Any]) -> None:
    dearest = max(point["cost"] for point in report["curve"])
    lines = [
        (point["budget"], point["cost"], point["lower_bound"], "█" * round(CURVE_BAR * point["cost"] / dearest))
        for point in report["curve"]
    ]
    console.print(table(("bits of leak", "messages", "at least", "cost"), lines, title="Cost against leak"))


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
        if checked.limit is not None:
            report |= _told(checked)
    emit(report, json, lambda console: _show_check(console, report))
    return code


def _show_check(console: Console, report: dict[str, Any]) -> None:
    if not report["verified"]:
        console.print(f"Refused: {report['reason']}")
        return
    bound = "none is proved" if report["lower_bound"] is None else f"{report['lower_bound']:.6g}"
    private = f"Tells {report['leak']:.6g} bits at most" if "leak" in report else "Private"
    console.print(
        f"{private} and complete, to the last unit. Expected messages {report['cost']:.6g}, at least {bound}."
    )
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


def _told(built: QueryTable) -> dict[str, float]:
    """What a report says beside, of a table that may leak."""
    return {"leak": built.leak, "worst_cost": built.worst_cost}


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
        ("paper, telling nothing: at least", report["outer"]),
        ("paper, telling nothing: at most", report["inner"]),
        ("everything", float(len(built.rows.columns))),
    ]
    if report.get("leak"):
        lines.insert(1, ("after the dearest hidden request", report["worst_cost"]))
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
    if report.get("leak"):
        console.print(in_words(report["leak"]))
    if full and len(built) <= SHOWN_IN_FULL:
        console.print(str(built))
        return
    likely = sorted(range(len(built)), key=lambda k: (-int(built.mass[k]), k))
    shown = likely if full else [k for k in likely[:MOST_QUERIES_SHOWN] if built.mass[k] >= WORTH_SHOWING]
    queries = [(float(built.mass[k]) / UNIT, ", ".join(names[x] for x in built.query(k))) for k in shown]
    console.print(table(("probability", "query"), queries))
    if len(shown) < len(built):
        console.print(f"... and {len(built) - len(shown)} more, less likely; --table shows all.")


MOST_STEPS = 10_000


def bounds_command(
    chain: Path,
    /,
    *,
    steps: Annotated[
        int,
        Parameter(validator=validators.Number(gte=1, lte=MOST_STEPS), help="How many requests after a private one."),
    ] = 5,
    json: Json = False,
) -> None:
    """Bound the messages per request, 1, 2, ... requests after the last private one.

    ```console
    onoff bounds chain.json --steps 10
    onoff bounds chain.json --steps 3 --json
    ```

    inner: the paper's inner bound for the rows P^t, an upper bound on that request alone. outer: the paper's outer
    bound 2; lower: the best proven bound. No scheme costs less, if every source can be the last private request.
    """
    with progress("reading the chain") as work:
        loaded = MarkovChain.load(chain)
        work.now("bounds for requests", total=steps)
        found = step_bounds(loaded, steps, progress=work)
    data = {"n": loaded.n, "steps": [step.as_dict() for step in found]}
    emit(data, json, lambda console: _bounds_show(console, loaded.n, found))


def _bounds_show(console: Console, n: int, found: list[StepBounds]) -> None:
    lines = [(0, float(n), float(n), float(n)), *((step.t, step.lower, step.outer, step.inner) for step in found)]
    title = f"Messages per request, t requests after a private one, {n} sources"
    console.print(table(("t", "at least", "paper: at least", "paper: at most"), lines, title=title))
    console.print(
        "t = 0 is the private request itself. At least: no scheme needs fewer, if it may have been for any source."
    )


def plot_command(
    result: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], help="A folder; by default RESULT's.")] = None,
    format: Literal["png", "svg", "pdf"] = "png",
    message_bytes: Annotated[
        int, Parameter(validator=validators.Number(gt=0), help="The size of a message, for figures in bytes.")
    ] = 1024,
    json: Json = False,
) -> None:
    """Draw the figures of RESULT: a chain or model, or what `simulate --json`, `sweep` or `reproduce --json` wrote.

    ```console
    onoff plot run.json
    onoff plot model.npz
    onoff plot sweep.parquet -o figures --format svg
    ```
    """
    folder = result.parent if output is None else output
    with progress(f"drawing {result.name}") as work:
        figures = figures_of(result, message_bytes=message_bytes)
        work.now(f"writing {len(figures)} figures")
        try:
            written = save_all({f"{result.stem}-{name}": figure for name, figure in figures.items()}, folder, format)
        except OSError as error:
            raise InvalidInput(f"{folder}: {error.strerror}", hint="give a folder that can be written to") from None
    paths = [str(path) for path in written]
    emit({"figures": paths}, json, lambda console: console.print("\n".join(paths), markup=False))
