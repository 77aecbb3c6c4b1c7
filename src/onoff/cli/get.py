"""`onoff get`, `onoff mirror` and `onoff state`: the latest message of one source, and what a client keeps."""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter, validators
from rich.console import Console

from onoff.cli.options import (
    AcceptLeak,
    ChainFile,
    JournalFile,
    LeakOption,
    MirrorFile,
    OnMissing,
    SchemeOption,
    ServerOption,
    TopicsFile,
    UpstreamFile,
    count_requests,
    journal_path,
    mirror_path,
    need_chain,
    read_topics,
    servers_of,
    show_forecast,
    told,
)
from onoff.cli.output import Json, emit, entries_text, printable, progress, table
from onoff.client import (
    Client,
    CopiesFile,
    Hooks,
    Message,
    Mirror,
    MirrorClient,
    SourceState,
    WebSources,
    upstream_of,
)
from onoff.client.core import Record
from onoff.client.journal import Journal, remove
from onoff.client.stores import delete_mirror
from onoff.errors import InvalidInput, JournalUnusable, MirrorError
from onoff.session.budget import in_words
from onoff.upstream.web import Web
from onoff.wire import ENTRY_TYPE

mirror_app = App(
    name="mirror", help="Show, refresh, verify or forget the copy of all messages that private requests read."
)


@mirror_app.command(name="show")
def show_mirror(
    *,
    upstream: UpstreamFile = None,
    server: ServerOption = None,
    journal: JournalFile = None,
    mirror: MirrorFile = None,
    json: Json = False,
) -> None:
    """Show what the mirror holds: its edition, and version, size and age of every message. No traffic.

    ```console
    onoff mirror show --server http://127.0.0.1:8470
    onoff mirror show --mirror app.sqlite.mirror --json
    onoff mirror show --upstream city.toml
    ```
    """
    path = mirror_path(mirror, journal, server, upstream)
    with progress(f"reading {path}"):
        client: MirrorClient | WebSources  # who only looks leaves what is damaged as it is
        if upstream is None:
            found = Mirror(_existing(path), repair=False)
            client = MirrorClient((server or ["http://localhost"])[0], found)
        else:
            client = WebSources(Web.load(upstream), CopiesFile(_existing(path), repair=False))
        with closing(client):
            data = _described(path, client)
    emit(data, json, lambda console: _show(console, data))


@mirror_app.command(name="refresh")
def refresh_mirror(
    *,
    upstream: UpstreamFile = None,
    server: ServerOption = None,
    journal: JournalFile = None,
    mirror: MirrorFile = None,
    json: Json = False,
) -> None:
    """Fetch all that changed since the last refresh. The server learns when, and nothing else.

    ```console
    onoff mirror refresh --server http://127.0.0.1:8470
    onoff mirror refresh --server http://127.0.0.1:8470 --json
    onoff mirror refresh --upstream city.toml
    ```

    With --upstream every source of the list is asked for, as in a private request.
    """
    address = servers_of(None if upstream is not None else server)
    path = mirror_path(mirror, journal, address, upstream)
    with progress(f"opening {path}") as work:
        client: MirrorClient | WebSources
        if upstream is None:
            client = MirrorClient(address[0], path, hooks=Hooks(waiting=told(work, address)["waiting"]))
        else:
            web = Web.load(upstream, progress=count_requests(work))
            work.now(f"asking {web.address}")
            client = WebSources(web, path)
        with closing(client):
            done = client.refresh()
    data = {**asdict(done), "changed": list(done.changed), "mirror": str(path)}
    emit(data, json, lambda console: console.print(_summary(data)))


@mirror_app.command(name="verify")
def verify_mirror(
    *,
    upstream: UpstreamFile = None,
    server: ServerOption = None,
    journal: JournalFile = None,
    mirror: MirrorFile = None,
    json: Json = False,
) -> int:
    """Check every message of the mirror. Exit code 1 where it is damaged: the next refresh fetches all of it.

    ```console
    onoff mirror verify --server http://127.0.0.1:8470
    onoff mirror verify --mirror app.sqlite.mirror --json
    ```
    """
    path = mirror_path(mirror, journal, server, upstream)
    try:
        with progress(f"reading {path}"):
            _opened(_existing(path), upstream).close()
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
    *,
    upstream: UpstreamFile = None,
    server: ServerOption = None,
    journal: JournalFile = None,
    mirror: MirrorFile = None,
    json: Json = False,
) -> None:
    """Delete the mirror. The next private request fetches all messages.

    ```console
    onoff mirror forget --server http://127.0.0.1:8470
    onoff mirror forget --mirror app.sqlite.mirror --json
    ```
    """
    path = mirror_path(mirror, journal, server, upstream)
    if path.exists():
        try:
            with progress(f"reading {path}"):
                _opened(path, upstream).close()  # raises where it is open elsewhere
        except MirrorError as error:
            if "is damaged (" not in error.message:  # in use, or not a mirror
                raise
    removed = [str(file) for file in delete_mirror(path)]
    emit({"removed": removed}, json, lambda console: console.print("\n".join(removed) or "There was no mirror."))


def _opened(path: Path, upstream: Path | None) -> Mirror | CopiesFile:
    return Mirror(path, repair=False) if upstream is None else CopiesFile(path, repair=False)


def _existing(path: Path) -> Path:
    if not path.exists():
        raise MirrorError(f"{path}: there is no mirror yet", hint="`onoff mirror refresh` makes one")
    return path


def _described(path: Path, client: MirrorClient | WebSources) -> dict[str, Any]:
    states = client.sources()
    data = {"mirror": str(path), "age": client.age, "sources": [asdict(state) for state in states]}
    if isinstance(client, WebSources):
        return {**data, "edition": 0, "size": sum(state.size for state in states), "used_today": None}
    edition = client.mirror.edition
    number = None if edition is None else edition.number
    return {**data, "edition": number, "size": client.mirror.size, "used_today": client.used_today}


def _show(console: Console, data: dict[str, Any]) -> None:
    states = [SourceState(**state) for state in data["sources"]]
    age = "" if data["age"] is None else f", refreshed {data['age']:.0f} s ago"
    if data["edition"] is None:
        console.print(f"{data['mirror']}: nothing was fetched yet")
        return
    if data["used_today"] is None:
        known = sum(state.version > 0 for state in states)
        console.print(f"copies of {known} of {len(states)} sources, {data['size']} bytes{age}")
        console.print(table(("source", "bytes", "confirmed"), [(s.name, s.size, _moment(s)) for s in states]))
        return
    console.print(f"edition {data['edition']}, {data['size']} bytes{age}; {data['used_today']} bytes received today")
    rows = [(state.name, state.version, state.size, _moment(state)) for state in states]
    console.print(table(("source", "version", "bytes", "published"), rows))


def _moment(state: SourceState) -> str:
    if not state.version:
        return "-"
    return datetime.fromtimestamp(state.published, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _summary(data: dict[str, Any]) -> str:
    changed = len(data["changed"])
    if data["outcomes"]:
        failed = [f"{name}: {each['reason']}" for name, each in data["outcomes"].items() if each["state"] == "failed"]
        lines = [f"{changed} changed, {data['requests']} requests, {data['received']} bytes, {data['seconds']:.1f} s"]
        return "\n".join([*lines, *failed])
    return f"edition {data['edition']}: {changed} changed, {data['received']} bytes, {data['seconds']:.1f} s"


EITHER = Group("Privacy", validator=validators.mutually_exclusive)


def get_command(
    name: Annotated[
        str,
        Parameter(allow_leading_hyphen=True, help="The source; - reads its name from standard input, out of history."),
    ],
    /,
    *,
    private: Annotated[
        bool, Parameter(group=EITHER, negative="", help="Hide which source is wanted; so it is unless --open is given.")
    ] = False,
    open: Annotated[bool, Parameter(group=EITHER, negative="", help="Hide only what was wanted before.")] = False,
    upstream: UpstreamFile = None,
    server: ServerOption = None,
    chain: ChainFile = None,
    journal: JournalFile = None,
    scheme: SchemeOption = "auto",
    timeout: Annotated[
        float, Parameter(validator=validators.Number(gt=0), help="Seconds before an attempt is given up.")
    ] = 30.0,
    mirror: MirrorFile = None,
    max_age: Annotated[
        float,
        Parameter(validator=validators.Number(gte=0), help="Seconds for which a mirror counts as up to date."),
    ] = 0.0,
    on_missing: OnMissing = "error",
    dry_run: Annotated[
        bool, Parameter(negative="", help="Say what it would cost in bytes; ask for no message.")
    ] = False,
    raw: Annotated[
        bool, Parameter(negative="", help="Write the bytes as they were published, also those of a feed's entries.")
    ] = False,
    accept_leak: AcceptLeak = False,
    topics: TopicsFile = None,
    leak: LeakOption = 0.0,
    json: Json = False,
) -> None:
    """Fetch the latest message of a source and print it.

    ```console
    onoff get NAME --server http://127.0.0.1:8470 --chain chain.json
    onoff get NAME --open --json
    onoff get NAME --upstream city.toml --chain chain.json
    ```

    Privacy is ON unless --open is given: everything that changed is fetched into a mirror, and the message is read from
    there, so that the server does not learn which source is wanted. With --open it may learn that, but nothing
    about earlier private requests. A request that failed counts as made; run the command again for a new one.

    With several servers none of them learns which source is wanted, for about two messages and without a mirror.
    Without a chain every request is private.

    With --upstream ordinary sites are asked, by ordinary requests: for everything that the list names, or with --open
    for a few of its sources. What they gave is kept beside the journal, and asked for again only where it has changed.

    With --topics a private request asks for about one source of each topic, and hides which topic it was about. With
    --leak open requests are cheaper, and may tell so many bits about each private one; what they told is reported.

    Entries of a feed are printed as text: title, link, time, and what they say. Anything else is written to a pipe or
    file as it was published.
    """
    address = servers_of(None if upstream is not None else server)
    if open:
        need_chain(chain)
    if upstream is not None and dry_run:
        raise InvalidInput(
            "what sites will send is not known beforehand", hint="leave out --dry-run: the answer says what it took"
        )
    if topics is not None or leak:
        need_chain(chain)
    lists = read_topics(topics)
    wanted = sys.stdin.readline().rstrip("\n") if name == "-" else name
    beside = mirror_path(mirror, journal, address) if upstream is None else mirror
    with (
        progress("opening the journal" if chain is None else f"reading {chain}") as work,
        Client(
            upstream_of(address, timeout=timeout, on_missing=on_missing)
            if upstream is None
            else Web.load(upstream, progress=count_requests(work)),
            chain,
            journal_path(journal, address, upstream),
            scheme,
            mirror=beside,
            max_age=max_age,
            accept_leak=accept_leak,
            topics=lists,
            leak=leak,
            hooks=Hooks(background=False, **told(work, address)),
        ) as client,
    ):
        if dry_run:
            forecast = asdict(client.forecast())
            emit(forecast, json, lambda console: show_forecast(console, forecast))
            return
        if upstream is not None:
            work.now(f"asking {client.url}")
        message = client.get(wanted, private=not open)
        advice = client.advice if open else None
        spent = client.spent
    if message.sent.note:
        print(f"onoff: {message.sent.note}", file=sys.stderr)
    if advice is not None and advice.word != "off":
        print(f"onoff: {advice.word}: {advice.says}", file=sys.stderr)
    if message.version == 0:
        print("onoff: nothing was published there yet", file=sys.stderr)
    if spent:
        print(f"onoff: spent on the last private request: {in_words(spent)}", file=sys.stderr)
    entries = entries_text(message) if message.media_type.partition(";")[0] == ENTRY_TYPE and message.version else None
    if not json and (raw or (entries is None and not sys.stdout.isatty())):
        sys.stdout.flush()
        sys.stdout.buffer.write(message)
        return
    data = _as_dict(message, client.chain.names) | ({} if advice is None else {"advice": advice.as_dict()})
    data["spent"] = {"bits": spent, "budget": leak, "says": in_words(spent)} if leak else None
    emit(data, json, lambda console: _get_show(console, message, entries))


def _as_dict(message: Message, names: Sequence[str]) -> dict[str, Any]:
    try:
        content = {"text": message.decode()}
    except UnicodeDecodeError:
        content = {"base64": base64.b64encode(message).decode()}
    return {
        "source": message.source,
        "version": message.version,
        "published": message.published,
        "media_type": message.media_type,
        "body": next(iter(content.values())),
        **content,
        "bytes_received": message.received,
        "messages": message.messages,
        "edition": message.edition,
        "asked": list(message.asked),
        "requests": message.requests,
        "sent": {**message.sent.as_dict(), "names": [names[x] for x in message.sent.sources]},
    }


def _get_show(console: Console, message: Message, entries: str | None) -> None:
    """Print the message: on a terminal without control characters; entries of a feed as text in any case."""
    shown = printable(message.decode(errors="replace")) if entries is None else entries
    console.print(shown, markup=False, highlight=False, emoji=False)


state_app = App(name="state", help="Show, verify or reset the journal in which a client remembers its last request.")


@state_app.command(name="show")
def show_state(
    *, upstream: UpstreamFile = None, server: ServerOption = None, journal: JournalFile = None, json: Json = False
) -> None:
    """Show where the session stands: what the server saw last, and which chain is pinned.

    ```console
    onoff state show --server http://127.0.0.1:8470
    onoff state show --journal app.sqlite --json
    ```
    """
    path = journal_path(journal, server, upstream)
    data = _state_described(path)
    emit(data, json, lambda console: console.print(table(("", ""), [(k, _plain(v)) for k, v in data.items()])))


@state_app.command(name="verify")
def verify_state(
    *, upstream: UpstreamFile = None, server: ServerOption = None, journal: JournalFile = None, json: Json = False
) -> int:
    """Check that the journal can be relied on.

    ```console
    onoff state verify --server http://127.0.0.1:8470
    onoff state verify --journal app.sqlite --json
    ```

    Exit code 1 where it cannot: the next request asks for everything.
    """
    path = journal_path(journal, server, upstream)
    data = _state_described(path)
    sound = data["doubt"] is None
    emit({"journal": str(path), "sound": sound, "doubt": data["doubt"]}, json, lambda console: _verdict(console, data))
    if not sound and not json:  # the JSON document says so
        raise JournalUnusable(f"{path}: {data['doubt']}", hint="the next request will ask for everything, once")
    return 0 if sound else JournalUnusable.exit_code


@state_app.command(name="reset")
def reset_state(
    *,
    upstream: UpstreamFile = None,
    server: ServerOption = None,
    journal: JournalFile = None,
    yes: Annotated[bool, Parameter(negative="", help="Delete without being asked.")] = False,
    json: Json = False,
) -> None:
    """Delete the journal, what was put aside of damaged ones, and what was remembered of open requests.

    ```console
    onoff state reset --server http://127.0.0.1:8470
    onoff state reset --journal app.sqlite --yes
    ```

    The next request asks for everything, once. The server still knows what it has seen, and sessions then know less.
    """
    path = journal_path(journal, server, upstream)
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


def _state_described(path: Path) -> dict[str, Any]:
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
