"""What every command shares: JSON or text on stdout, progress on stderr."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Final, TypeVar

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from onoff.errors import InvalidInput
from onoff.system.interrupts import prompt_when_repeated

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
            raise InvalidInput(f"{path}: this input file would be overwritten", hint="give another path to write to")
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


# Control characters are removed from what is printed, so that a publisher cannot send commands to the terminal.

VISIBLE_CONTROLS: Final = "\n\t"
BLOCKS: Final = frozenset({"p", "div", "br", "li", "ul", "ol", "tr", "table", "pre", "blockquote", "hr", "dt", "dd"})
HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
UNSEEN: Final = frozenset({"script", "style", "template", "title"})


def printable(text: str) -> str:
    """`text` without control characters.

    >>> printable("a\\x1b[2Jb")
    'a[2Jb'
    """
    return "".join(c for c in text if c.isprintable() or c in VISIBLE_CONTROLS)


def entries_text(body: bytes) -> str | None:
    """The entries of a message of the type of feeds, newest first; None if it is not such a message."""
    try:
        document = json.loads(body)
        listed = document.get("entries", [document])
        return printable("\n\n".join(_entry_text(entry) for entry in listed))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None


def _entry_text(entry: dict[str, Any]) -> str:
    said = str(entry["text"]) if "text" in entry else html_lines(str(entry.get("html", "")))
    head = [str(entry.get("title") or "(no title)"), str(entry.get("link") or ""), _moment(entry.get("time"))]
    return "\n".join([*filter(None, head), *([""] if said.strip() else []), said.strip()]).rstrip()


def _moment(milliseconds: object) -> str:
    if not isinstance(milliseconds, int) or isinstance(milliseconds, bool):
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return ""


def html_lines(value: str) -> str:
    """The text of HTML, a line for each block.

    >>> html_lines("<p>One &amp; <b>two</b></p><ul><li>three</ul>")
    'One & two\\n\\n- three'
    """
    reader = _Lines()
    reader.feed(value)
    reader.close()
    return re.sub(r"\n{3,}", "\n\n", "".join(reader.parts)).strip()


class _Lines(HTMLParser):
    """Collects text; whitespace counts as one blank except in `pre`."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._unseen = self._pre = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._unseen += tag in UNSEEN
        self._pre += tag == "pre"
        if tag in BLOCKS | HEADINGS:
            self._break(2 if tag in HEADINGS else 1)
        if tag == "li":
            self.parts.append("- ")

    def handle_endtag(self, tag: str) -> None:
        self._unseen -= tag in UNSEEN and self._unseen > 0
        self._pre -= tag == "pre" and self._pre > 0
        if tag in BLOCKS | HEADINGS and tag != "li":
            self._break(2 if tag == "p" else 1)

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        text = data if self._pre else re.sub(r"\s+", " ", data)
        if not self.parts or self.parts[-1].endswith("\n"):
            text = text if self._pre else text.lstrip()
        if text:
            self.parts.append(text)

    def _break(self, lines: int) -> None:
        """End the text so far with at least `lines` line breaks."""
        if self.parts:
            tail = "".join(self.parts[-2:])
            self.parts.append("\n" * max(0, lines - (len(tail) - len(tail.rstrip("\n")))))


@contextmanager
def noticing_ctrl_c() -> Iterator[Callable[[], bool]]:
    """For work that can end early: after Ctrl-C, which does not raise, the callable that is yielded returns True.

    A second Ctrl-C raises at once.
    """
    asked = threading.Event()

    @prompt_when_repeated
    def ask(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        os.write(2, b"onoff: ending with what there is; Ctrl-C again gives it up\n")  # a print may be under way

    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield asked.is_set
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
