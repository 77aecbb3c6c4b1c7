"""`onoff serve`: run the message server, or make a publisher's token."""

from __future__ import annotations

import asyncio
import json as jsons
import logging
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from onoff.cli.names import read_names
from onoff.errors import InvalidInput, MissingExtra
from onoff.server.peers import MAX_PER_ADDRESS
from onoff.system.listening import check_port

DEFAULT_PORT = 8470


def default_store() -> str:
    from platformdirs import user_data_path

    return str(user_data_path("onoff") / "messages.db")


def serve(
    *,
    store: Annotated[str | None, Parameter(env_var="ONOFF_STORE")] = None,
    source: Annotated[list[str] | None, Parameter(negative=())] = None,
    sources: Path | None = None,
    frame_size: int | None = None,
    feeds: Path | None = None,
    feed_seconds: float = 300.0,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    workers: int = 1,
    per_address: int = MAX_PER_ADDRESS,
    add_publisher: str | None = None,
    only: Annotated[list[str] | None, Parameter(negative=())] = None,
    json: bool = False,
) -> None:
    """Serve the latest messages of many sources.

    ```console
    onoff serve --source news --source weather
    onoff serve --feeds feeds.opml --workers 2
    onoff serve --store redis://localhost:6379/0 --host 0.0.0.0
    onoff serve --add-publisher alice --only news
    ```

    Parameters
    ----------
    store
        A file (SQLite), or a redis:// address that several servers may share.
    source
        A source to add to the catalogue; may be given many times. Those already there stay.
    sources
        A file with one name of a source per line, to add.
    frame_size
        Bytes per message in every answer; longer messages are refused. A change makes a new epoch.
    feeds
        An OPML file, or a list of RSS or Atom addresses: each becomes a source.
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
    add_publisher
        Make a token for this publisher, print it, and stop. It is shown once.
    only
        With --add-publisher: a source it may write; may be given many times. Default: all.
    json
        Print the address, or the token, as JSON.
    """
    if workers < 1:
        raise InvalidInput(f"{workers} workers cannot serve", hint="give --workers a number from 1 up")
    if per_address < 1:
        raise InvalidInput(f"{per_address} connections for each address", hint="give --per-address a number from 1 up")
    check_port(port)
    if frame_size is not None and frame_size < 1:
        raise InvalidInput(f"frames of {frame_size} bytes", hint="give --frame-size the bytes of the longest message")
    if not feed_seconds > 0:
        raise InvalidInput(f"feeds every {feed_seconds} seconds", hint="give --feed-seconds a number above 0")
    try:
        from onoff.server import run
        from onoff.server.feeds import read_feeds
    except ModuleNotFoundError as missing:
        raise MissingExtra(f"{missing.name} is not installed", extra="server") from None
    where = store or default_store()
    listed = read_feeds(feeds) if feeds else ()
    names = [*(source or []), *(read_names(sources) if sources else ()), *(feed.name for feed in listed)]
    catalogue = asyncio.run(run.prepare(where, names, frame_size))
    if add_publisher is not None:
        token = asyncio.run(run.add_publisher(where, add_publisher, only or []))
        _print({"publisher": add_publisher, "token": token} if json else token)
        return
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if not catalogue.names:
        raise InvalidInput("the catalogue is empty", hint="add sources with --source, --sources or --feeds")
    settings = run.Settings(
        where, feeds=listed, feed_seconds=feed_seconds, workers=workers, max_per_address=per_address
    )
    with run.listen(host, port, workers=workers) as sock:
        started = {"url": run.address(sock), "sources": catalogue.n, "frame_size": catalogue.frame_size}
        _print(started if json else started["url"])
        run.serve_here(settings, sock)


def _print(value: object) -> None:
    print(value if isinstance(value, str) else jsons.dumps(value, ensure_ascii=False), flush=True)
