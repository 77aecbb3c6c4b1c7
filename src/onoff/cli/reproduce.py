"""`onoff reproduce`: the paper, item by item."""

from __future__ import annotations

import json as encoding
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from onoff.cli.output import Json, emit, progress, table
from onoff.errors import InvalidInput
from onoff.experiments.paper import claims_about, reproduce
from onoff.experiments.paper.claim import Item
from onoff.experiments.paper.figures import save_figures

LONGEST_CELL = 100


def reproduce_command(
    *,
    only: Annotated[str, Parameter(help="Only the items whose names contain this, such as 'table 3'; in full.")] = "",
    out: Annotated[Path | None, Parameter(help="Save the two figures (SVG, PNG) and the items (JSON) here.")] = None,
    json: Json = False,
) -> int:
    """Recompute every table, figure, example and theorem of the paper, and what it prints wrong.

    ```console
    onoff reproduce
    onoff reproduce --only "table 3"
    onoff reproduce --out figures --json
    ```

    Exit code 0 where every item is as expected, 1 otherwise.
    """
    claims = claims_about(only)
    if not claims:
        raise InvalidInput(
            f"no item is called anything like {only!r}", hint="try 'table 3', 'theorem 2', 'figure 4', 'E5'"
        )
    items: list[Item] = []
    with progress("drawing the paper's figures") as done:
        written = [] if out is None else _figures(out)  # before the work: what cannot be written is known at once
        done.now("the paper's items", total=len(claims))
        for item in reproduce(claims):
            items.append(item)
            done(len(items))
    listed = [item.as_dict() for item in items]
    if out is not None:
        items_file = out / "items.json"
        items_file.write_text(encoding.dumps(listed, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        written.append(items_file)
    emit(listed, json, lambda console: _show(console, items, written, in_full=bool(only)))
    return 0 if all(item.ok for item in items) else 1


def _figures(out: Path) -> list[Path]:
    try:
        return save_figures(out)
    except OSError as error:
        raise InvalidInput(f"cannot write to {out}: {error.strerror}", hint="name a directory") from None


def _show(console: Console, items: list[Item], written: list[Path], *, in_full: bool) -> None:
    for item in items:
        console.print(f"{'ok' if item.ok else 'FAILED':<7} {item.item}", markup=False)
        if in_full and isinstance(item.expected, dict) and isinstance(item.got, dict):
            lines = [(key, _text(value), _text(item.got.get(key))) for key, value in item.expected.items()]
            console.print(table(("", "expected", "got"), lines))
        else:
            longest = None if in_full else LONGEST_CELL
            console.print(f"          expected {_text(item.expected, longest)}", markup=False)
            console.print(f"          got      {_text(item.got, longest)}", markup=False)
    right = sum(item.ok for item in items)
    console.print(f"{right} of {len(items)} items as expected.")
    for path in written:
        console.print(f"wrote {path}", markup=False)


def _text(value: Any, longest: int | None = None) -> str:
    text = encoding.dumps(_rounded(value), ensure_ascii=False)
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6) + 0.0  # no -0.0
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
