"""`onoff plot`: figures of a result file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from onoff.cli.output import Json, emit, progress
from onoff.errors import InvalidInput
from onoff.experiments.plots import figures_of
from onoff.figures import save_all


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
