"""`onoff learn`: a chain or a model from a trace of requests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from onoff.cli.names import read_names
from onoff.cli.output import Json, check_writable, emit, progress, table
from onoff.experiments.learn import Learnt, learn
from onoff.experiments.traces import Options, Trace, size_of
from onoff.model.chain import DEFAULT_SMOOTHING
from onoff.model.choosing import Auto
from onoff.model.files import check_json_name

UNMARKED = (
    "this trace does not say which requests were private. The model is public: private requests must not be what it "
    "is learnt from. Mark them in a column `private`, or leave them out of the trace."
)
INCLUDED = "private requests were learnt from as asked. The model tells about them; keep it from the server."

ONLY_A_CHAIN = (
    "A chain hides private requests from a server that knows no more than the last one; people who remember more, or "
    "differ in type, show more. `onoff audit traces` measures it."
)


def learn_command(
    trace: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], help="Write it here: .json or .npz.")] = None,
    order: Annotated[int | Auto, Parameter(help="How many of the last requests matter; 1 is a chain.")] = "auto",
    types: Annotated[int | Auto, Parameter(help="How many types of people there are.")] = "auto",
    seed: Annotated[int, Parameter(help="Of the first guess of the types.")] = 0,
    format: Annotated[str | None, Parameter(help="text, csv, jsonl or msnbc; by default from the name.")] = None,
    gap: Annotated[float | None, Parameter(help="Seconds without a request that end a session.")] = None,
    smoothing: Annotated[float, Parameter(help="Added to every count, so that nothing is impossible.")] = (
        DEFAULT_SMOOTHING
    ),
    structural_zeros: Annotated[bool, Parameter(help="Transitions never seen are impossible.")] = False,
    merge_rare: Annotated[int, Parameter(help="Put sources requested less often than this together.")] = 0,
    sources: Annotated[Path | None, Parameter(help="A file with the name of every source, one a line.")] = None,
    include_private: Annotated[bool, Parameter(negative="", help="Learn from private requests too.")] = False,
    user_column: str = "user",
    source_column: str = "source",
    time_column: str = "time",
    private_column: str = "private",
    json: Json = False,
) -> None:
    """Learn how requests follow one another from TRACE, and say how far the model can be trusted.

    ```console
    onoff learn clicks.csv --gap 1800 -o model.json
    onoff learn msnbc990928.zip -o msnbc.npz
    onoff learn msnbc990928.zip --order 1 --types 1 -o chain.json
    ```

    Order and types are chosen on every tenth person, held out, where there are enough of them; else a chain is
    learnt. Requests marked as private are left out: the model is public.
    """
    if output is not None:
        if output.suffix.lower() != ".npz":
            check_json_name(output)
        check_writable(output)
    options = Options(
        format=format,
        gap=gap,
        include_private=include_private,
        sources=None if sources is None else read_names(sources),
        columns={"user": user_column, "source": source_column, "time": time_column, "private": private_column},
    )
    opened = Trace(trace, options)
    try:
        with progress("bytes", _size(trace)) as work:
            found = learn(
                opened,
                order=order,
                types=types,
                smoothing=smoothing,
                structural_zeros=structural_zeros,
                merge_rare=merge_rare,
                seed=seed,
                progress=work,
                phase=work.now,
            )
    finally:  # where nothing can be learnt, this is often why
        if opened.broken:
            print(f"onoff: {opened.broken} lines could not be read; line {opened.first_broken}", file=sys.stderr)
    if include_private and opened.marked:
        print(f"onoff: {INCLUDED}", file=sys.stderr)
    elif not opened.marked:
        print(f"onoff: {UNMARKED}", file=sys.stderr)
    if output is not None:
        found.save(output)
    emit(found.as_dict() if json else None, json, lambda console: _show(console, found, output))


def _size(path: Path) -> int | None:
    try:
        return size_of(path)
    except Exception:  # the reader itself says what is wrong with the file
        return None


def _show(console: Console, found: Learnt, output: Path | None) -> None:
    about: dict[str, Any] = found.report
    seen, smooth, fit, rows, cost = (about[key] for key in ("trace", "smoothing", "fit", "rows", "cost"))
    console.print(
        f"{seen['users']} users, {seen['requests']} requests, {found.chain.n} sources, "
        f"{seen['transitions']} transitions; {seen['private_left_out']} private requests left out"
    )
    model = about["model"]
    if model["tried"]:
        lines = [(tried["order"], tried["types"], tried["held_out_bits"]) for tried in model["tried"]]
        title = "Bits per request of people held out; less is better"
        console.print(table(("order", "types", "held out"), lines, title=title))
    elif fit is not None:
        orders = [(order, fit[f"order_{order}"]) for order in range(3) if f"order_{order}" in fit]
        lines = [(order, model["bits_fitted"], model["bits_held_out"]) for order, model in orders]
        title = f"Bits per request ({fit['scored']} held-out requests); less is better"
        console.print(table(("order", "fitted", "held out"), lines, title=title))
    kind = "a chain" if found.richer is None else f"{model['types']} types of order {model['order']}"
    console.print(f"Learnt: {kind} ({model['chosen']})")
    console.print(
        f"Smoothing {smooth['added']:g} moved rows by at most {smooth['rows_moved_most']:.3g} (total variation); "
        f"{smooth['unseen_transitions']} transitions were never seen; smallest probability "
        f"{smooth['smallest_probability']:.3g}"
    )
    if rows["few_observations"]:
        shown = ", ".join(f"{row['source']} ({row['observations']})" for row in rows["few_observations"][:8])
        console.print(f"Rows with few observations: {shown}")
    if found.richer is None:
        console.print(ONLY_A_CHAIN)
    console.print(
        f"The first request after a private one costs at least {cost['at_least']:.4f} messages, with the paper's "
        f"scheme at most {cost['paper_at_most']:.4f}; everything: {cost['everything']}"
    )
    if output is not None:
        console.print(f"Written to {output}")
