"""`onoff mirror`: show, refresh, verify or forget the copy of all messages that private requests read."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console

from onoff.cli.connection import JournalFile, ServerOption, journal_path, servers_of, told
from onoff.cli.output import Json, emit, progress, table
from onoff.client import Mirror, MirrorClient, SourceState
from onoff.client.mirror import delete_mirror
from onoff.errors import MirrorError

mirror_app = App(
    name="mirror", help="Show, refresh, verify or forget the copy of all messages that private requests read."
)

MirrorFile = Annotated[
    Path | None,
    Parameter(name="--mirror", env_var="ONOFF_MIRROR", help="The mirror; unless given, it lies beside the journal."),
]


def mirror_path(mirror: Path | None, journal: Path | None, server: list[str] | None) -> Path:
    """The mirror that was given, or the one beside the journal."""
    if mirror is not None:
        return mirror
    beside = journal_path(journal, server)
    return beside.with_name(f"{beside.name}.mirror")


@mirror_app.command(name="show")
def show_mirror(
    *, server: ServerOption = None, journal: JournalFile = None, mirror: MirrorFile = None, json: Json = False
) -> None:
    """Show what the mirror holds: its edition, and version, size and age of every message. No traffic.

    ```console
    onoff mirror show --server http://127.0.0.1:8470
    onoff mirror show --mirror app.sqlite.mirror --json
    ```
    """
    path = mirror_path(mirror, journal, server)
    with progress(f"reading {path}"):
        found = Mirror(_existing(path), repair=False)  # who only looks leaves what is damaged as it is
        with MirrorClient((server or ["http://localhost"])[0], found) as client:
            data = _described(path, client)
    emit(data, json, lambda console: _show(console, data))


@mirror_app.command(name="refresh")
def refresh_mirror(
    *, server: ServerOption = None, journal: JournalFile = None, mirror: MirrorFile = None, json: Json = False
) -> None:
    """Fetch all that changed since the last refresh. The server learns when, and nothing else.

    ```console
    onoff mirror refresh --server http://127.0.0.1:8470
    onoff mirror refresh --server http://127.0.0.1:8470 --json
    ```
    """
    address = servers_of(server)
    path = mirror_path(mirror, journal, address)
    with progress(f"opening {path}") as work:
        waiting = told(work, address)["waiting"]
        with MirrorClient(address[0], path, waiting=waiting) as client:
            done = client.refresh()
    data = {**asdict(done), "changed": list(done.changed), "mirror": str(path)}
    emit(data, json, lambda console: console.print(_summary(data)))


@mirror_app.command(name="verify")
def verify_mirror(
    *, server: ServerOption = None, journal: JournalFile = None, mirror: MirrorFile = None, json: Json = False
) -> int:
    """Check every message of the mirror. Exit code 1 where it is damaged: the next refresh fetches all of it.

    ```console
    onoff mirror verify --server http://127.0.0.1:8470
    onoff mirror verify --mirror app.sqlite.mirror --json
    ```
    """
    path = mirror_path(mirror, journal, server)
    try:
        with progress(f"reading {path}"):
            Mirror(_existing(path), repair=False).close()
        damage = None
    except MirrorError as error:
        if not json:
            raise
        damage = error.message
    verdict = {"mirror": str(path), "sound": damage is None, "damage": damage}
    emit(verdict, json, lambda console: console.print(f"{path}: sound"))
    return 0 if damage is None else MirrorError.exit_code


@mirror_app.command(name="forget")
def forget_mirror(
    *, server: ServerOption = None, journal: JournalFile = None, mirror: MirrorFile = None, json: Json = False
) -> None:
    """Delete the mirror. The next private request fetches all messages.

    ```console
    onoff mirror forget --server http://127.0.0.1:8470
    onoff mirror forget --mirror app.sqlite.mirror --json
    ```
    """
    path = mirror_path(mirror, journal, server)
    if path.exists():
        try:
            with progress(f"reading {path}"):
                Mirror(path, repair=False).close()  # raises where it is open elsewhere
        except MirrorError as error:
            if "the mirror is damaged" not in error.message:  # in use, or not a mirror
                raise
    removed = [str(file) for file in delete_mirror(path)]
    emit({"removed": removed}, json, lambda console: console.print("\n".join(removed) or "There was no mirror."))


def _existing(path: Path) -> Path:
    if not path.exists():
        raise MirrorError(f"{path}: there is no mirror yet", hint="`onoff mirror refresh` makes one")
    return path


def _described(path: Path, client: MirrorClient) -> dict[str, Any]:
    edition = client.mirror.edition
    return {
        "mirror": str(path),
        "edition": None if edition is None else edition.number,
        "age": client.age,
        "size": client.mirror.size,
        "used_today": client.used_today,
        "sources": [asdict(state) for state in client.sources()],
    }


def _show(console: Console, data: dict[str, Any]) -> None:
    if data["edition"] is None:
        console.print(f"{data['mirror']}: nothing was fetched yet")
        return
    age = "" if data["age"] is None else f", refreshed {data['age']:.0f} s ago"
    console.print(f"edition {data['edition']}, {data['size']} bytes{age}; {data['used_today']} bytes received today")
    states = (SourceState(**state) for state in data["sources"])
    rows = [(state.name, state.version, state.size, _moment(state)) for state in states]
    console.print(table(("source", "version", "bytes", "published"), rows))


def _moment(state: SourceState) -> str:
    if not state.version:
        return "-"
    return datetime.fromtimestamp(state.published, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _summary(data: dict[str, Any]) -> str:
    changed = len(data["changed"])
    return f"edition {data['edition']}: {changed} changed, {data['received']} bytes, {data['seconds']:.1f} s"
