"""`onoff state`: show, verify or reset the journal. What was wanted is never shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console

from onoff.cli.connection import JournalFile, ServerOption, journal_path
from onoff.cli.output import Json, emit, table
from onoff.client.journal import Journal, remove
from onoff.client.record import Record
from onoff.errors import InvalidInput, JournalUnusable

state_app = App(name="state", help="Show, verify or reset the journal in which a client remembers its last request.")


@state_app.command(name="show")
def show_state(*, server: ServerOption = None, journal: JournalFile = None, json: Json = False) -> None:
    """Show where the session stands: what the server saw last, and which chain is pinned.

    ```console
    onoff state show --server http://127.0.0.1:8470
    onoff state show --journal app.sqlite --json
    ```
    """
    path = journal_path(journal, server)
    data = _described(path)
    emit(data, json, lambda console: console.print(table(("", ""), [(k, _plain(v)) for k, v in data.items()])))


@state_app.command(name="verify")
def verify_state(*, server: ServerOption = None, journal: JournalFile = None, json: Json = False) -> int:
    """Check that the journal can be relied on.

    ```console
    onoff state verify --server http://127.0.0.1:8470
    onoff state verify --journal app.sqlite --json
    ```

    Exit code 1 where it cannot: the next request asks for everything.
    """
    path = journal_path(journal, server)
    data = _described(path)
    sound = data["doubt"] is None
    emit({"journal": str(path), "sound": sound, "doubt": data["doubt"]}, json, lambda console: _verdict(console, data))
    if not sound and not json:  # the JSON document says so
        raise JournalUnusable(f"{path}: {data['doubt']}", hint="the next request will ask for everything, once")
    return 0 if sound else JournalUnusable.exit_code


@state_app.command(name="reset")
def reset_state(
    *,
    server: ServerOption = None,
    journal: JournalFile = None,
    yes: Annotated[bool, Parameter(negative="", help="Delete without being asked.")] = False,
    json: Json = False,
) -> None:
    """Delete the journal, and what was put aside of damaged ones.

    ```console
    onoff state reset --server http://127.0.0.1:8470
    onoff state reset --journal app.sqlite --yes
    ```

    The next request asks for everything, once.
    """
    path = journal_path(journal, server)
    if not yes and not _agreed(f"Delete {path}? [y/N] "):
        raise InvalidInput("nothing was deleted", hint="answer y, or give --yes")
    removed = [str(file) for file in remove(path)]
    emit({"removed": removed}, json, lambda console: console.print("\n".join(removed) or "There was no journal."))


def _agreed(question: str) -> bool:
    """Whether the user answers yes; no where there is no terminal."""
    try:
        return input(question).strip().lower() in {"y", "yes"}
    except EOFError:
        print(file=sys.stderr)
        return False


def _described(path: Path) -> dict[str, Any]:
    """What the journal holds, without the secret source."""
    if not path.exists():
        return {"journal": str(path), "doubt": "there is no journal", "last": None}
    journal = Journal(path, repair=False)
    journal.close()
    return {"journal": str(path), "doubt": journal.doubt, "last": _public(journal.found)}


def _public(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {
        "server": record.server,
        "chain": record.chain,
        "origin": record.origin,
        "session": record.session.hex(),
        "step": record.step,
        "asked": sum(byte.bit_count() for byte in record.asked),
        "private": record.private,
        "pending": record.pending,
        "note": record.note,
    }


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_plain(part)}" for key, part in value.items())
    return "-" if value is None else str(value)


def _verdict(console: Console, data: dict[str, Any]) -> None:
    console.print(f"{data['journal']}: {'sound' if data['doubt'] is None else data['doubt']}")
