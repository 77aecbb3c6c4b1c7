"""`onoff audit explain`: what the server could guess, for a person."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from onoff.audit.explain import Explanation, explain
from onoff.cli.audit import Html, PatternOption
from onoff.cli.output import Json, check_writable, emit, progress
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse

BAR = 40
JOINT = (
    "What is promised: from a private request on, no query of yours makes any guess about it better. What cannot be "
    "promised: open requests made before it are already known, and habits make them hint at what comes next. If that "
    "matters, switch privacy on earlier."
)


def explain_command(
    chain: Path,
    /,
    *,
    pattern: PatternOption = "ON OFF OFF ON OFF",
    scheme: str = "auto",
    seed: Annotated[int, Parameter(help="Of the sampled sessions, where not all histories can be followed.")] = 0,
    html: Html = None,
    json: Json = False,
) -> None:
    """Show what the server could guess of each private request: before, after ours, after naive switching.

    ```console
    onoff audit explain chain.json --pattern 'ON OFF OFF ON OFF'
    onoff audit explain chain.json --pattern 'OFF ON OFF' --html report.html
    ```
    """
    check_writable(html, inputs=[chain])
    with progress(f"reading {chain.name}") as work:
        loaded, statuses = MarkovChain.load(chain), parse(pattern)
        work.now("following sessions")
        found = explain(loaded, statuses, scheme, seed)
        if html is not None:
            work.now(f"writing {html.name}")
            _write(html, found, f"{chain.name}, {pattern}")
    emit(found.as_dict(), json, lambda console: _show(console, found))


def _show(console: Console, found: Explanation) -> None:
    labels = (("prior", "habits alone"), ("earlier", "+ open before"), ("ours", "+ all of onoff"), ("naive", "naive"))
    for guess in found.guesses:
        console.print(f"[bold]Request {guess.t}[/bold] (private)")
        for name, label in labels:
            value = getattr(guess, name)
            console.print(f"  {label:<14} {'█' * round(BAR * value):<{BAR}} {value:6.1%}")
        console.print(guess.in_words())
        console.print()
    console.print(JOINT)
    console.print(_how(found))


def _how(found: Explanation) -> str:
    if found.exact:
        return f"Exact: all {found.sessions} histories of queries were followed."
    return f"Mean over {found.sessions} sampled sessions."


def _write(path: Path, found: Explanation, what: str) -> None:
    from onoff.audit.report import Part, page, plot_explanation, write

    same = all(abs(guess.ours - guess.earlier) < 1e-9 for guess in found.guesses)
    verdict = (
        "After a private request, queries add nothing." if same else "Queries after a private request tell about it."
    )
    columns = ("request", "habits alone", "and open requests before", "after onoff", "after naive switching")
    lines = [(g.t, g.prior, g.earlier, g.ours, g.naive) for g in found.guesses]
    words = [guess.in_words() for guess in found.guesses]
    part = Part(what, [*words, JOINT, _how(found)], columns, lines, plot_explanation(found))
    write(path, page("What the server could guess", verdict, same, [part]))
