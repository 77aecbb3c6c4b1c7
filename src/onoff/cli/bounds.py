"""`onoff bounds`: what hiding must cost, and what it need not exceed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators
from rich.console import Console

from onoff.cli.output import Json, emit, progress, table
from onoff.model.bounds import StepBounds, step_bounds
from onoff.model.chain import MarkovChain

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
    emit(data, json, lambda console: _show(console, loaded.n, found))


def _show(console: Console, n: int, found: list[StepBounds]) -> None:
    lines = [(0, float(n), float(n), float(n)), *((step.t, step.lower, step.outer, step.inner) for step in found)]
    title = f"Messages per request, t requests after a private one, {n} sources"
    console.print(table(("t", "at least", "paper: at least", "paper: at most"), lines, title=title))
    console.print(
        "t = 0 is the private request itself. At least: no scheme needs fewer, if it may have been for any source."
    )
