"""What every command shares: JSON or text on stdout, progress on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from onoff.errors import InvalidInput

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document instead of text.")]


def emit(data: Any, as_json: bool, text: Callable[[Console], None]) -> None:
    """Print `data` as one JSON document, or have `text` print it for people."""
    if as_json:
        print(json.dumps(data, ensure_ascii=False))
    else:
        text(Console(file=sys.stdout, highlight=False, soft_wrap=True))


def table(columns: Sequence[str], lines: Iterable[Sequence[Any]], title: str | None = None) -> Table:
    """A table with numbers to the right."""
    shown = Table(title=title, title_justify="left", header_style="bold")
    listed = [list(line) for line in lines]
    for at, column in enumerate(columns):
        numeric = bool(listed) and all(isinstance(line[at], int | float) for line in listed)
        shown.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for line in listed:
        shown.add_row(*(f"{cell:.6g}" if isinstance(cell, float) else escape(str(cell)) for cell in line))
    return shown


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before the work that would fill it."""
    folder = path.parent
    if path.is_dir():
        raise InvalidInput(f"{path}: a directory", hint="give the path of a file")
    if not folder.is_dir():
        raise InvalidInput(f"{path}: no directory {folder}", hint="make it first")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InvalidInput(f"{path}: may not be written", hint="choose a place that you may write to")


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, shown only where someone looks; call what it gives with the number done so far."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)
