"""`onoff sweep`: many chains, schemes and horizons at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from onoff.cli.output import Json, check_writable, emit, progress
from onoff.experiments.sweep import read_spec, sweep


def sweep_command(
    spec: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], help="By default SPEC.parquet.")] = None,
    cluster: Annotated[str | None, Parameter(help="Run on the Dask scheduler at this address.")] = None,
    json: Json = False,
) -> int:
    """Sweep over everything that SPEC lists, one row each, into a Parquet file.

    ```console
    onoff sweep spec.toml -o result.parquet
    onoff sweep spec.toml --cluster tcp://127.0.0.1:8786
    ```

    A sweep that was stopped goes on where it was when it is run again.
    """
    out = spec.with_suffix(".parquet") if output is None else output
    check_writable(out, inputs=[spec])
    with progress(f"reading {spec.name}") as done:
        tasks = read_spec(spec)
        done.now("rows", len(tasks))
        found = sweep(tasks, out, cluster=cluster, progress=done)
    data = {"file": str(found.path), "rows": found.rows, "computed": found.computed, "failed": found.failed}
    text = f"{found.rows} rows in {found.path}; {found.computed} computed now, {found.failed} with an error"
    emit(data, json, lambda console: console.print(text, markup=False))
    return 1 if found.failed else 0
