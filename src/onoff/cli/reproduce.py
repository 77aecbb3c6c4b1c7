"""`onoff reproduce`: the paper, item by item."""

from __future__ import annotations

import json as encoding
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from onoff.cli.output import Json, emit, progress
from onoff.errors import InvalidInput
from onoff.experiments.paper import CLAIMS
from onoff.experiments.paper import reproduce as check
from onoff.experiments.paper.claim import Item
from onoff.experiments.paper.figures import save_figures

LONGEST_LINE = 100


def reproduce(
    *,
    out: Annotated[Path | None, Parameter(help="Save the two figures (SVG, PNG) and the items (JSON) here.")] = None,
    json: Json = False,
) -> int:
    """Recompute every table, figure, example and theorem of the paper, and what it prints wrong.

    ```console
    onoff reproduce
    onoff reproduce --out figures --json
    ```

    Leaves with 0 when every item is as expected, with 1 otherwise.
    """
    if out is not None:  # before the work, not after it
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"cannot write to {out}: {error.strerror}", hint="name a directory") from None
    items: list[Item] = []
    with progress("the paper's items", total=len(CLAIMS)) as done:
        for item in check():
            items.append(item)
            done(len(items))
    listed = [item.as_dict() for item in items]
    written = []
    if out is not None:
        written = save_figures(out)
        items_file = out / "items.json"
        items_file.write_text(encoding.dumps(listed, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        written.append(items_file)
    emit(listed, json, lambda console: _show(console, items, written))
    return 0 if all(item.ok for item in items) else 1


def _show(console: Console, items: list[Item], written: list[Path]) -> None:
    for item in items:
        console.print(f"{'ok' if item.ok else 'FAILED':<7} {item.item}", markup=False)
        console.print(f"          expected {_short(item.expected)}", markup=False)
        console.print(f"          got      {_short(item.got)}", markup=False)
    right = sum(item.ok for item in items)
    console.print(f"{right} of {len(items)} items as expected.")
    for path in written:
        console.print(f"wrote {path}", markup=False)


def _short(value: Any) -> str:
    text = encoding.dumps(_rounded(value), ensure_ascii=False)
    return text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 1] + "…"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6) + 0.0  # no -0.0
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
