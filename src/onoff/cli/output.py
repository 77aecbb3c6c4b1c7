"""What every command shares: JSON or text on stdout, progress on stderr."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from onoff.errors import InvalidInput

LATE_SECONDS = 2.0
"""Seconds after which a command says on stderr what it is doing."""
BAR_SECONDS = 0.3
"""The same at a terminal, where a bar is shown and removed at the end."""
MOST_SECONDS_BETWEEN_LINES = 60.0

T = TypeVar("T")
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document instead of text.")]


def emit(data: Any, as_json: bool, text: Callable[[Console], None]) -> None:
    """Print `data` as one JSON document, or have `text` print it for people."""
    if as_json:
        print(json_text(data))
    else:
        text(Console(file=sys.stdout, highlight=False, soft_wrap=True))


def json_text(data: Any) -> str:
    """One JSON document, with letters as they are where stdout can print them."""
    text = json.dumps(data, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(data)
    return text


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


def check_writable(*paths: Path | None, inputs: Iterable[Path | None] = ()) -> None:
    """Raise InvalidInput where a file cannot be written, before the work that produces its content."""
    read = [path.resolve() for path in inputs if path is not None]
    for path in paths:
        if path is None:
            continue
        if path.resolve() in read:
            raise InvalidInput(f"{path}: is read, and would be written over", hint="give another path to write to")
        folder = path.parent
        if path.is_dir():
            raise InvalidInput(f"{path}: a directory", hint="give the path of a file")
        if not folder.is_dir():
            raise InvalidInput(f"{path}: no directory {folder}", hint="make it first")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise InvalidInput(f"{path}: may not be written", hint="choose a place that you may write to")


class Work:
    """What a command is doing now. Call it with the number done so far; `now` names the next phase."""

    def __init__(self, label: str, total: int | None) -> None:
        self._begun = monotonic()
        self.now(label, total)

    def __call__(self, done: int) -> None:
        self.done = done

    def counting(self, things: Iterable[T]) -> Iterator[T]:
        """The same things, each counted as it is taken."""
        for done, thing in enumerate(things):
            self(done)
            yield thing

    def now(self, label: str, total: int | None = None) -> None:
        """Begin another phase: its label, and how many there are to do where that is known."""
        self.label, self.total, self.done = label, total, 0

    def __str__(self) -> str:
        counted = f": {self.done} of {self.total}" if self.total is not None else f": {self.done}" if self.done else ""
        return f"{self.label}{counted} ({monotonic() - self._begun:.0f} s)"


@contextmanager
def progress(label: str, total: int | None = None, *, late: float | None = None) -> Iterator[Work]:
    """Show on stderr what is under way: a bar at a terminal, elsewhere a line after `late` seconds, then less often.

    ```python
    with progress("reading the chain") as work:
        chain = MarkovChain.load(path)
        work.now("users", total=users)
        simulate(..., progress=work)  # called with the number done so far
    ```
    """
    work = Work(label, total)
    console = Console(stderr=True)
    over = threading.Event()
    speaker = threading.Thread(
        target=_show_bar if console.is_terminal else _say_lines,
        args=(work, console, over, LATE_SECONDS if late is None else late),
        name="onoff-progress",
        daemon=True,
    )
    speaker.start()
    try:
        yield work
    finally:
        over.set()
        speaker.join()


def _say_lines(work: Work, console: Console, over: threading.Event, late: float) -> None:
    pause = late
    while not over.wait(pause):
        with suppress(OSError):  # stderr is closed
            print(f"onoff: {work} ...", file=console.file, flush=True)
        pause = min(2 * pause, MOST_SECONDS_BETWEEN_LINES)


def _show_bar(work: Work, console: Console, over: threading.Event, late: float) -> None:
    if over.wait(min(late, BAR_SECONDS)):
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(work.label, total=work.total)
        while not over.wait(0.1):
            bar.update(task, description=work.label, total=work.total, completed=work.done)
