"""`onoff compare`: schemes side by side on one chain, others' as ours."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from onoff.audit.exact import audit_exact
from onoff.cli.output import Json, check_writable, emit, progress, table
from onoff.errors import InvalidInput, PrivacyBreach
from onoff.model.chain import MarkovChain
from onoff.schemes import SCHEMES, design, find_scheme
from onoff.tables.show import check_picture, draw_schemes
from onoff.tables.table import QueryTable

AUDITED_SOURCES = 6
"""Sources up to which a session of each scheme is audited: its worlds grow like N to the length of the pattern."""
AUDITED_PATTERN = (True, False, False)


def compare_command(
    chain: Path,
    /,
    *,
    scheme: Annotated[
        list[str] | None,
        Parameter(help="A scheme of onoff or of a plug-in, or package.module:function; may be given many times."),
    ] = None,
    budget: Annotated[float, Parameter(help="Seconds of processor time for each scheme that searches.")] = 10.0,
    picture: Annotated[Path | None, Parameter(help="Draw costs and bound into this file (.png, .svg).")] = None,
    json: Json = False,
) -> int:
    """Compare schemes on a chain: cost, proven bound, processor time, and whether each is private.

    ```console
    onoff compare chain.json
    onoff compare chain.json --scheme greedy --scheme optimal
    onoff compare chain.json --scheme mine.schemes:build --scheme optimal --picture costs.svg
    ```

    A scheme is a function that takes rows and gives a `QueryTable`; docs/howto/plugin.md writes one. Every table is
    verified in integers, whoever made it. With up to 6 sources a session of each scheme is audited besides, on every
    request path and for every random choice. The lower bound is the best that any of them proved. A scheme that is not
    private is shown as such, and the exit code is 5.
    """
    check_writable(picture, inputs=[chain])
    if picture is not None:
        check_picture(picture)
    names = list(dict.fromkeys(scheme or [name for name in SCHEMES if name != "auto"]))
    if not budget > 0:
        raise InvalidInput(f"a budget of {budget} seconds", hint="give --budget a number above 0")
    records = [find_scheme(name) for name in names]
    with progress(f"reading {chain.name}") as work:
        loaded = MarkovChain.load(chain)
        lines = []
        for record in records:
            work.now(f"{record.name}: building")
            options = {"budget": budget} if "budget" in record.options else {}
            lines.append(_line(loaded, record.name, options, work.now))
        bound = max((line["lower_bound"] for line in lines if line["lower_bound"] is not None), default=None)
        for line in lines:
            known = bound is not None and line["cost"] is not None
            line["above_bound"] = line["cost"] / bound - 1 if known else None
        if picture is not None:
            work.now(f"drawing {picture.name}")
            costs = {line["scheme"]: line["cost"] for line in lines if line["cost"] is not None}
            draw_schemes(picture, costs, bound)
    report = {"n": loaded.n, "lower_bound": bound, "schemes": lines}
    emit(report, json, lambda console: _show(console, report))
    return 0 if all(line["private"] for line in lines) else PrivacyBreach.exit_code


def _line(chain: MarkovChain, name: str, options: dict[str, Any], tell: Any) -> dict[str, Any]:
    """What is found of one scheme."""
    line: dict[str, Any] = {"scheme": name, "cost": None, "lower_bound": None, "queries": None, "leak_bits": None}
    started = process_time()
    try:
        built = design(chain, name, **options)
        line |= {"seconds": process_time() - started, "cost": built.cost, "lower_bound": built.lower_bound}
        if isinstance(built, QueryTable):
            line["queries"] = len(built)
            built.verify()
        if isinstance(built, QueryTable) and chain.n <= AUDITED_SOURCES:  # what has no table cannot be enumerated
            tell(f"{name}: every request path of a session")
            found = audit_exact(chain, name, AUDITED_PATTERN, **options)
            line["leak_bits"] = found.leak
            found.require_private()
    except PrivacyBreach as breach:
        return {"seconds": process_time() - started, **line, "private": False, "reason": str(breach)}
    return {**line, "private": True, "reason": None}


def _show(console: Console, report: dict[str, Any]) -> None:
    lines = []
    for line in report["schemes"]:
        known = line["queries"] is not None  # what has no table has an estimate of its cost
        lines.append(
            (
                line["scheme"],
                line["cost"] if known or line["cost"] is None else f"about {line['cost']:.3g}",
                f"{100 * line['above_bound']:.2f} %" if known and line["above_bound"] is not None else "",
                line["queries"] if known else "",
                f"{line['seconds']:.2f}",
                "NO" if not line["private"] else "yes" if line["leak_bits"] is None else "yes, all paths",
            )
        )
    heads = ("scheme", "messages", "above bound", "queries", "processor s", "private")
    bound = "none proved" if report["lower_bound"] is None else f"{report['lower_bound']:.6g}"
    console.print(table(heads, lines, title=f"{report['n']} sources; no scheme needs fewer than {bound} messages"))
    for line in report["schemes"]:
        if line["reason"]:
            console.print(f"{line['scheme']}: {line['reason']}")
