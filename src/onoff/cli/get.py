"""`onoff get`: the latest message of one source."""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, validators
from rich.console import Console

from onoff.cli.connection import (
    ChainFile,
    JournalFile,
    SchemeOption,
    ServerOption,
    journal_path,
    need_chain,
    servers_of,
    show_forecast,
    told,
)
from onoff.cli.entry_text import entries_text, printable
from onoff.cli.mirror import MirrorFile, mirror_path
from onoff.cli.output import Json, emit, progress
from onoff.client import Client, Message
from onoff.wire import ENTRY_TYPE

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
    on_missing: Annotated[
        Literal["error", "everything"],
        Parameter(help="Where one of several servers does not answer: fail, or fetch everything from one that does."),
    ] = "error",
    dry_run: Annotated[
        bool, Parameter(negative="", help="Say what it would cost in bytes; ask for no message.")
    ] = False,
    raw: Annotated[
        bool, Parameter(negative="", help="Write the bytes as they were published, also those of a feed's entries.")
    ] = False,
    json: Json = False,
) -> None:
    """Fetch the latest message of a source and print it.

    ```console
    onoff get NAME --server http://127.0.0.1:8470 --chain chain.json
    onoff get NAME --open --json
    ```

    Privacy is ON unless --open is given: everything that changed is fetched into a mirror, and the message is read from
    there, so that the server does not learn which source is wanted. With --open it may learn that, but nothing
    about earlier private requests. A request that failed counts as made; run the command again for a new one.

    With several servers none of them learns which source is wanted, for about two messages and without a mirror.
    Without a chain every request is private.

    Entries of a feed are printed as text: title, link, time, and what they say. Anything else is written to a pipe or
    file as it was published.
    """
    address = servers_of(server)
    if open:
        need_chain(chain)
    wanted = sys.stdin.readline().rstrip("\n") if name == "-" else name
    with (
        progress("opening the journal" if chain is None else f"reading {chain}") as work,
        Client(
            address,
            chain,
            journal_path(journal, address),
            scheme,
            timeout=timeout,
            background=False,
            mirror=mirror_path(mirror, journal, address),
            max_age=max_age,
            on_missing=on_missing,
            **told(work, address),
        ) as client,
    ):
        if dry_run:
            forecast = asdict(client.forecast())
            emit(forecast, json, lambda console: show_forecast(console, forecast))
            return
        message = client.get(wanted, private=not open)
    if message.sent.note:
        print(f"onoff: {message.sent.note}", file=sys.stderr)
    if message.version == 0:
        print("onoff: nothing was published there yet", file=sys.stderr)
    entries = entries_text(message) if message.media_type.partition(";")[0] == ENTRY_TYPE and message.version else None
    if not json and (raw or (entries is None and not sys.stdout.isatty())):
        sys.stdout.flush()
        sys.stdout.buffer.write(message)
        return
    emit(_as_dict(message, client.chain.names), json, lambda console: _show(console, message, entries))


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
        "sent": {**message.sent.as_dict(), "names": [names[x] for x in message.sent.sources]},
    }


def _show(console: Console, message: Message, entries: str | None) -> None:
    """Print the message: on a terminal without control characters; entries of a feed as text in any case."""
    shown = printable(message.decode(errors="replace")) if entries is None else entries
    console.print(shown, markup=False, highlight=False, emoji=False)
