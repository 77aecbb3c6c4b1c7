"""`onoff audit chain`: what leaks when requests do not follow the chain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter
from rich.console import Console

from onoff.audit import mismatch
from onoff.cli.audit import Html, PatternOption
from onoff.cli.output import Json, check_writable, emit, progress, table
from onoff.errors import InvalidInput
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse
from onoff.model.rows import Integers

WHAT_IS_PROVED = (
    "The bounds on guessing and on telling apart are proved; the one in bits is the continuity of equivocation "
    "(Alhejji and Smith, 1909.00787), cited and held against exact values in our tests. They hold at every step, for "
    "all past requests. Exact values are for the first open request after a private one, and with --pattern for each "
    "step; 'the worst found' is over the directions tried, so the true worst case lies between it and the bound."
)
ONLY_THE_ESTIMATE = (
    "This is about the estimate of a first-order chain only. People remember more than their last request, and what "
    "that gives away can be a bit and more: `onoff audit traces` measures it on their real requests."
)
POINTS = 21


def chain_command(
    chain: Path,
    /,
    *,
    against: Annotated[Path | None, Parameter(help="The chain that requests really follow.")] = None,
    error: Annotated[float | None, Parameter(help="Largest total variation of a row, from 0 to 1.")] = None,
    traces: Annotated[Path | None, Parameter(help="What the chain was learnt from: its sampling error.")] = None,
    pattern: PatternOption | None = None,
    scheme: str = "auto",
    html: Html = None,
    plot: Annotated[Path | None, Parameter(help="Write the picture over the error as SVG here.")] = None,
    json: Json = False,
) -> None:
    """Tell what leaks when the true chain is another one, or is off by an error, or is known only from traces.

    ```console
    onoff audit chain chain.json --against measured.json
    onoff audit chain chain.json --error 0.05 --html report.html
    onoff audit chain chain.json --traces clicks.csv --json
    ```

    All of this presumes that requests follow some first-order chain. What real readers give away, who do not, is
    measured by `onoff audit traces`.
    """
    if (against is None) + (error is None) + (traces is None) != 2:
        raise InvalidInput("give one of --against, --error and --traces", hint="e.g. --error 0.05")
    check_writable(html, plot, inputs=[chain, against, traces])
    with progress(f"reading {chain.name}") as work:
        designed = MarkovChain.load(chain)
        if against is not None:
            truth = MarkovChain.load(against)
            work.now(f"comparing {designed.n} sources")
            data = against_chain(designed, truth, scheme, pattern)
            size = max(data["error"], 1e-3)
        elif error is not None:
            work.now(f"moving the rows of {designed.n} sources")
            data, size = {"error": error, **_at(designed, error, scheme)}, max(error, 1e-3)
        else:
            assert traces is not None
            work.now(f"reading {traces.name}")
            counts = count_traces(traces, designed)
            work.now("resampling the chain")
            found = mismatch.sampling_error(designed, counts, scheme)
            data = {"error": found.typical, "sampling": found.as_dict(), "note": ONLY_THE_ESTIMATE}
            size = max(found.high, 1e-3)
        if html is not None or plot is not None:
            work.now("drawing the picture")
            _draw(designed, scheme, min(1.0, 2 * size), data, html, plot)
    emit(data, json, lambda console: _show(console, data))


def against_chain(designed: MarkovChain, truth: MarkovChain, scheme: str, pattern: str | None) -> dict[str, Any]:
    """The errors of the rows, the bounds they give, and the exact values."""
    errors = mismatch.row_errors(designed, truth)
    data: dict[str, Any] = {
        "error": float(errors.max()),
        "rows": errors.tolist(),
        "upper": mismatch.bounds_for(float(errors.max()), designed.n).as_dict(),
        "exact": mismatch.first_step(designed, truth, scheme).as_dict(),
    }
    if pattern is None and designed.n <= mismatch.SMALL:
        pattern = "ON OFF OFF"
    if pattern is not None:
        steps = mismatch.enumerated(designed, truth, parse(pattern), scheme).steps
        data["steps"] = [
            {"t": s.t, "private": s.private, "bits": s.bits, "advantage": s.advantage, "cost": s.cost} for s in steps
        ]
    return data


def _at(designed: MarkovChain, error: float, scheme: str) -> dict[str, Any]:
    curve = mismatch.error_curve(designed, [error], scheme)
    return {
        "upper": curve.upper[0].as_dict(),
        "exact": curve.worst[0].as_dict(),
        "directions": {name: found[0].as_dict() for name, found in curve.by_direction.items()},
    }


def count_traces(path: Path, designed: MarkovChain) -> Integers:
    """Transitions of a trace between the sources of the chain."""
    from onoff.experiments.traces import Options, Trace

    trace, counts = Trace(path, Options(sources=designed.names)), np.zeros((designed.n, designed.n), dtype=np.int64)
    for run in trace.runs():
        path_taken = np.asarray(run.sources[max(run.known - 1, 0) :], dtype=np.int64)
        np.add.at(counts, (path_taken[:-1], path_taken[1:]), 1)
    return counts


def _draw(
    designed: MarkovChain,
    scheme: str,
    most: float,
    data: dict[str, Any],
    html: Path | None,
    plot: Path | None,
) -> None:
    from onoff.audit.report import Part, page, plot_error, write

    curve = mismatch.error_curve(designed, np.linspace(0, most, POINTS).tolist(), scheme)
    picture = plot_error(curve)
    if plot is not None:
        write(plot, picture)
    if html is not None:
        columns, lines = _table(data)
        part = Part("What leaks when the chain is wrong", [WHAT_IS_PROVED], columns, lines, picture)
        write(html, page("Audit of a chain", _verdict(data), True, [part]))


def _verdict(data: dict[str, Any]) -> str:
    if "sampling" in data:
        found = data["sampling"]
        return (
            f"{found['transitions']} transitions, at least {found['fewest']} from each source: a row is typically off "
            f"by {found['typical']:.3g} and, at {found['confidence']:.0%} confidence, by no more than "
            f"{found['high']:.3g}. If requests followed a first-order chain, that error of the estimate would leak "
            f"about {found['bits']:.2g} bits at the first open request, {found['bits_high']:.2g} at the same "
            f"confidence (resampled, an estimate). {ONLY_THE_ESTIMATE}"
        )
    exact, upper = data["exact"], data["upper"]
    worst = "the worst found is" if "directions" in data else "exactly"
    return (
        f"Rows off by up to {data['error']:.4g}: {worst} {exact['bits']:.4g} bits at the first open request (guess "
        f"right {exact['advantage']:.2%} more often); never more than {upper['bits']:.4g} bits "
        f"and {upper['advantage']:.2%}."
    )


def _table(data: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    if "sampling" in data:
        return ("measure", "value"), list(data["sampling"].items())
    found = "the worst found" if "directions" in data else "first open request"
    lines = [("upper bound", *data["upper"].values()), (found, *data["exact"].values())]
    lines += [(name, *found.values()) for name, found in data.get("directions", {}).items()]
    lines += [
        (f"step {s['t']} {'ON' if s['private'] else 'OFF'}", s["bits"], s["advantage"], "")
        for s in data.get("steps", [])
    ]
    return ("", "bits", "advantage of a guess", "told apart"), lines


def _show(console: Console, data: dict[str, Any]) -> None:
    console.print(table(*_table(data)))
    console.print(_verdict(data))
    console.print(WHAT_IS_PROVED)
