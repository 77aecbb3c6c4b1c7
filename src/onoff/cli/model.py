"""`onoff model`: a first model of requests, where there is no trace to learn one from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console

from onoff.cli.output import Json, check_writable, emit, progress
from onoff.client.catalogue import fetch_catalogue
from onoff.errors import InvalidInput
from onoff.model.bounds import bounds
from onoff.model.files import check_json_name
from onoff.model.origin import about_of
from onoff.model.templates import from_template

GUESS = (
    "This model is a guess, not learnt from anybody's requests. Where people read otherwise than it says, requests "
    "while OFF tell something about the private ones before. `onoff learn` makes a model from real requests."
)


def model_command(
    *,
    template: Annotated[
        Literal["sticky", "popular", "uniform"],
        Parameter(help="sticky: often the same source again; popular: the first sources most; uniform: any."),
    ] = "sticky",
    server: Annotated[
        str, Parameter(name=["--from", "--server"], help="The address of the server whose sources it is for.")
    ],
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="Write it here, as JSON.")] = Path("model.json"),
    json: Json = False,
) -> None:
    """Make a first model for the sources of a server: a guess, and it says so.

    ```console
    onoff model --from http://127.0.0.1:8470
    onoff model --template popular --from http://127.0.0.1:8470 -o popular.json --json
    ```

    sticky hides the most and costs the most of the three, and is the one to start with.
    """
    check_json_name(output)
    check_writable(output)
    _refuse_to_replace_more_than_a_guess(output)
    with progress(f"waiting for {server}") as work:
        names = fetch_catalogue(server).names
        work.now(f"writing a model of {len(names)} sources")
        made = from_template(template, names)
        made.save(output, remarks={"about": {"guess": template, "says": GUESS}})
        work.now(f"bounds for {len(names)} sources")
        cost = bounds(made).lower
    data = {"file": str(output), "template": template, "n": made.n, "cost": cost, "guess": True, "says": GUESS}

    def show(console: Console) -> None:
        console.print(f"{output}: {made.n} sources, template {template}", markup=False)
        console.print(f"The first request after a private one will cost {cost:.4g} of {made.n} messages, at least.")
        console.print(GUESS)

    emit(data, json, show)


def _refuse_to_replace_more_than_a_guess(path: Path) -> None:
    """A model that somebody learnt, or wrote, cannot be had again as a guess can."""
    if path.exists() and path.stat().st_size and "guess" not in about_of(path):
        raise InvalidInput(f"{path}: holds something that is no guess", hint="give another path with -o, or delete it")
