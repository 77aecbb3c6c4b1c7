"""`onoff serve`: run the message server, or make a publisher's token."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from onoff.cli.names import read_names
from onoff.cli.output import check_writable, json_text, progress
from onoff.errors import InvalidInput, MissingExtra
from onoff.server.access import MetricsAccess
from onoff.server.peers import MAX_PER_ADDRESS
from onoff.server.store import token_digest
from onoff.system.listening import check_port
from onoff.system.logs import log_to_stderr
from onoff.system.reading import read_limited

if TYPE_CHECKING:
    from onoff.server.feed_list import Feed, ListedFeed

SERVER_PORT = 8470
MIN_TOKEN = 16


def default_message_store() -> str:
    from platformdirs import user_data_path

    return str(user_data_path("onoff") / "messages.db")


def serve_command(
    *,
    store: Annotated[str | None, Parameter(env_var="ONOFF_STORE")] = None,
    source: Annotated[list[str] | None, Parameter(negative=())] = None,
    sources: Path | None = None,
    padding: Literal["fixed", "none"] | None = None,
    frame_size: int | None = None,
    limit: int | None = None,
    feeds: Path | None = None,
    feed_seconds: float = 300.0,
    host: str = "127.0.0.1",
    port: int = SERVER_PORT,
    workers: int = 1,
    per_address: int = MAX_PER_ADDRESS,
    metrics: Literal["loopback", "anyone"] = "loopback",
    metrics_token_file: Path | None = None,
    follow: str | None = None,
    add_publisher: str | None = None,
    only: Annotated[list[str] | None, Parameter(negative=())] = None,
    backup: Path | None = None,
    restore: Path | None = None,
    json: bool = False,
) -> None:
    """Serve the latest messages of many sources.

    ```console
    onoff serve --source news --source weather
    onoff serve --feeds feeds.opml --workers 2
    onoff serve --store redis://localhost:6379/0 --host 0.0.0.0
    onoff serve --add-publisher alice --only news
    onoff serve --store messages.db --backup messages.backup
    onoff serve --store copy.db --follow https://messages.example
    ```

    Parameters
    ----------
    store
        A file (SQLite), or a redis:// address that several servers may share.
    source
        A source to add to the catalogue; may be given many times. Those already there stay.
    sources
        A file with one name of a source per line, to add.
    padding
        none: each message at its own length (the default of a new store). fixed: all frames of an answer equally long,
        so that an eavesdropper cannot tell from lengths what is asked while privacy is OFF. A change makes a new epoch.
    frame_size
        With --padding fixed: bytes of every frame, 64 KiB if not given; longer messages are refused.
    limit
        With --padding none: bytes of the longest message, 1 MiB if not given; longer messages are refused.
    feeds
        An OPML file, or a list of RSS or Atom addresses: each becomes a source, called by its title, always the same.
    feed_seconds
        How often to ask each feed.
    host
        The address to listen on.
    port
        The port to listen on; 0 takes a free one, which is printed.
    workers
        Processes to serve with.
    per_address
        Connections that one address may hold to one worker; give more behind a reverse proxy, which has one address.
    metrics
        Whom /metrics answers: programs on this machine, or anyone. It tells when queries come and how large they are.
    metrics_token_file
        A file with a token; /metrics then answers only requests that send it.
    follow
        The address of a server to be a copy of: the same sources, messages and editions, in a store of its own.
    add_publisher
        Make a token for this publisher, print it, and stop. It is shown once.
    only
        With --add-publisher: a source it may write; may be given many times. Default: all.
    backup
        Write all messages of the store to this file, and stop.
    restore
        Put what is in this file, which --backup wrote, in place of catalogue and messages of the store, and stop.
    json
        Print the address, the token, or what was saved, as JSON.
    """
    if workers < 1:
        raise InvalidInput(f"{workers} workers cannot serve", hint="give --workers a number from 1 up")
    if per_address < 1:
        raise InvalidInput(f"{per_address} connections for each address", hint="give --per-address a number from 1 up")
    check_port(port)
    if frame_size is not None and frame_size < 1:
        raise InvalidInput(f"frames of {frame_size} bytes", hint="give --frame-size the bytes of the longest message")
    if limit is not None and limit < 1:
        raise InvalidInput(f"messages of up to {limit} bytes", hint="give --limit the bytes of the longest message")
    if not feed_seconds > 0:
        raise InvalidInput(f"feeds every {feed_seconds} seconds", hint="give --feed-seconds a number above 0")
    try:
        from onoff.server import maintenance, run
        from onoff.server.feed_list import read_feeds
    except ModuleNotFoundError as missing:
        raise MissingExtra(f"{missing.name} is not installed", extra="server") from None
    where = store or default_message_store()
    if "://" not in where and store is not None:
        check_writable(Path(where))  # a missing folder is an error, and is not created
    listed = read_feeds(feeds) if feeds else ()
    names = [*(source or []), *(read_names(sources) if sources else ())]
    if restore is not None:
        with progress(f"restoring {restore.name}"):
            restored = asyncio.run(maintenance.restore(where, restore))
        _print({"restored": restored.n} if json else f"restored {restored.n} sources from {restore}")
        return
    check_writable(backup, inputs=[Path(where)])
    access = _metrics_access(metrics, metrics_token_file)
    log_to_stderr("onoff.server")
    named: tuple[Feed, ...] = ()
    if follow is not None:
        if names or padding or frame_size or limit or feeds:
            raise InvalidInput("a server that follows has its leader's sources", hint="leave out sources and framing")
        with progress("opening the store"):
            catalogue = asyncio.run(maintenance.prepare_to_follow(where, follow))
    else:
        named = _name_feeds(where, listed)
        names += [feed.name for feed in named]
        with progress("opening the store"):
            prepared = maintenance.prepare(where, names, padding=padding, frame_size=frame_size, limit=limit)
            catalogue = asyncio.run(prepared)
    if backup is not None:
        with progress(f"writing {backup.name}"):
            saved = asyncio.run(maintenance.backup(where, backup))
        _print({"file": str(backup), "messages": saved} if json else f"saved {saved} messages to {backup}")
        return
    if add_publisher is not None:
        token = asyncio.run(maintenance.add_publisher(where, add_publisher, only or []))
        _print({"publisher": add_publisher, "token": token} if json else token)
        return
    if not catalogue.names and follow is None:
        raise InvalidInput("the catalogue is empty", hint="add sources with --source, --sources or --feeds")
    settings = run.Settings(
        where,
        feeds=named,
        feed_seconds=feed_seconds,
        workers=workers,
        max_per_address=per_address,
        access=access,
        follow=follow,
    )
    with run.listen_for_workers(host, port, workers=workers) as sock:
        started = {
            "url": run.address(sock),
            "sources": catalogue.n,
            "frame_size": catalogue.frame_size,
            "limit": catalogue.limit,
        }
        _print(started if json else started["url"])
        print(
            f"for readers: onoff gateway --server {address_for_readers(run.address(sock))}",
            file=sys.stderr,
            flush=True,
        )
        run.serve_here(settings, sock)


def _name_feeds(where: str, listed: Sequence[ListedFeed]) -> tuple[Feed, ...]:
    from onoff.server import maintenance

    if not listed:
        return ()
    with progress("feeds asked for their titles") as work:

        def asked(done: int, total: int) -> None:
            work.total = total
            work(done)

        return asyncio.run(maintenance.name_listed(where, listed, asked))


def address_for_readers(url: str) -> str:
    """The address as others reach it: a server that listens everywhere is reached by the name of its machine."""
    for everywhere in ("0.0.0.0", "[::]"):
        url = url.replace(f"//{everywhere}:", f"//{socket.getfqdn()}:")
    return url


def _metrics_access(metrics: str, token_file: Path | None) -> MetricsAccess:
    if token_file is None:
        return MetricsAccess(anyone=metrics == "anyone")
    if metrics == "anyone":
        raise InvalidInput("counts for anyone and by a token", hint="give --metrics anyone or --metrics-token-file")
    try:
        token = read_limited(token_file).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {token_file}: {error}", hint="a file with one token in it") from None
    if len(token) < MIN_TOKEN:
        raise InvalidInput(f"the token in {token_file} is too short", hint=f"at least {MIN_TOKEN} random characters")
    return MetricsAccess(digest=token_digest(token))


def _print(value: object) -> None:
    print(value if isinstance(value, str) else json_text(value), flush=True)
