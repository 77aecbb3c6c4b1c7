"""`onoff serve`: run the message server, or make a publisher's token."""

from __future__ import annotations

import asyncio
import json as jsons
import mimetypes
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from onoff.cli.options import DEFAULT_SERVER, SERVER_PORT, ServerOption, read_names, servers_of
from onoff.cli.output import check_writable, json_text, progress
from onoff.errors import CatalogueMismatch, InvalidInput
from onoff.server.http import MAX_PER_ADDRESS
from onoff.server.store import token_digest
from onoff.system.files import read_limited
from onoff.system.logs import LogFormat, log_to_stderr
from onoff.system.sockets import check_port
from onoff.wire import ANY_TYPE, MAX_LIMIT, Catalogue, check_media_type

if TYPE_CHECKING:
    from onoff.server.app import MetricsAccess
    from onoff.server.feeds import Feed, ListedFeed


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
    log_format: LogFormat = "text",
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
        An OPML file, or a list of RSS or Atom addresses: each becomes a source, named after its title; the
        name is stable across restarts.
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
    log_format
        How messages on stderr are written: as text, or as one JSON object a line.
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
    from onoff.server import admin, run
    from onoff.server.feeds import read_feeds

    where = store or default_message_store()
    if "://" not in where and store is not None:
        check_writable(Path(where))  # a missing folder is an error, and is not created
    listed = read_feeds(feeds) if feeds else ()
    names = [*(source or []), *(read_names(sources) if sources else ())]
    if restore is not None:
        with progress(f"restoring {restore.name}"):
            restored = asyncio.run(admin.restore(where, restore))
        _print({"restored": restored.n} if json else f"restored {restored.n} sources from {restore}")
        return
    check_writable(backup, inputs=[Path(where)])
    access = _metrics_access(metrics, metrics_token_file)
    log_to_stderr("onoff.server", log_format)
    named: tuple[Feed, ...] = ()
    if follow is not None:
        if names or padding or frame_size or limit or feeds:
            raise InvalidInput("a server that follows has its leader's sources", hint="leave out sources and framing")
        with progress("opening the store"):
            catalogue = asyncio.run(admin.prepare_to_follow(where, follow))
    else:
        named = _name_feeds(where, listed)
        names += [feed.name for feed in named]
        with progress("opening the store"):
            prepared = admin.prepare(where, names, padding=padding, frame_size=frame_size, limit=limit)
            catalogue = asyncio.run(prepared)
    if backup is not None:
        with progress(f"writing {backup.name}"):
            saved = asyncio.run(admin.backup(where, backup))
        _print({"file": str(backup), "messages": saved} if json else f"saved {saved} messages to {backup}")
        return
    if add_publisher is not None:
        token = asyncio.run(admin.add_publisher(where, add_publisher, only or []))
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
        log_format=log_format,
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
    from onoff.server import admin

    if not listed:
        return ()
    with progress("feeds asked for their titles") as work:

        def asked(done: int, total: int) -> None:
            work.total = total
            work(done)

        return asyncio.run(admin.name_listed(where, listed, asked))


def address_for_readers(url: str) -> str:
    """The address as others reach it: a server that listens everywhere is reached by the name of its machine."""
    for everywhere in ("0.0.0.0", "[::]"):
        url = url.replace(f"//{everywhere}:", f"//{socket.getfqdn()}:")
    return url


def _metrics_access(metrics: str, token_file: Path | None) -> MetricsAccess:
    from onoff.server.app import MetricsAccess  # with uvicorn, which comes with an extra

    if token_file is None:
        return MetricsAccess(anyone=metrics == "anyone")
    if metrics == "anyone":
        raise InvalidInput(
            "--metrics anyone and --metrics-token-file contradict each other",
            hint="give --metrics anyone or --metrics-token-file",
        )
    try:
        token = read_limited(token_file).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {token_file}: {error}", hint="a file with one token in it") from None
    if len(token) < MIN_TOKEN:
        raise InvalidInput(f"the token in {token_file} is too short", hint=f"at least {MIN_TOKEN} random characters")
    return MetricsAccess(digest=token_digest(token))


def _print(value: object) -> None:
    print(value if isinstance(value, str) else json_text(value), flush=True)


def publish_command(
    name: str,
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    *,
    server: Annotated[str, Parameter(env_var="ONOFF_SERVER")] = DEFAULT_SERVER,
    token: Annotated[str | None, Parameter(env_var="ONOFF_TOKEN")] = None,
    token_file: Annotated[Path | None, Parameter(env_var="ONOFF_TOKEN_FILE")] = None,
    media_type: str | None = None,
    json: bool = False,
) -> None:
    """Make a file the latest message of a source.

    ```console
    onoff publish news today.html --token-file token
    onoff publish news - --media-type text/plain --token-file token
    ```

    Parameters
    ----------
    name
        The source.
    file
        The message; - reads it from standard input.
    server
        The address of the message server.
    token
        The publisher's token, as `onoff serve --add-publisher` printed it.
    token_file
        A file that holds the token; unlike an argument it is not seen by other users.
    media_type
        What the message is; guessed from the file's name otherwise.
    json
        Print the receipt as JSON.
    """
    from onoff.upstream.message_server import publish

    secret = token if token is not None else _read(token_file).decode(errors="replace").strip() if token_file else ""
    if not secret or not secret.isascii() or not secret.isprintable():
        raise InvalidInput(
            "no token, or one that is malformed",
            hint="give what `onoff serve --add-publisher` printed, in --token-file or ONOFF_TOKEN",
        )
    kind = media_type or mimetypes.guess_type(file.name)[0] or ANY_TYPE
    body = _read(file)
    with progress(f"publishing to {server}"):
        receipt = publish(server, secret, name, body, check_media_type(kind))
    print(jsons.dumps(receipt) if json else f"{name}: version {receipt['version']}")


def _read(path: Path) -> bytes:
    try:
        if str(path) == "-":
            return sys.stdin.buffer.read(MAX_LIMIT + 1)  # a byte too many is refused as any long message
        return read_limited(path, MAX_LIMIT)
    except OSError as error:
        raise InvalidInput(
            f"cannot read {path}: {error.strerror}", hint="give a file, or - for standard input"
        ) from None


def catalogue_command(
    *,
    server: ServerOption = None,
    store: str | None = None,
    add: Annotated[list[str] | None, Parameter(negative=())] = None,
    drop: Annotated[list[str] | None, Parameter(negative=())] = None,
    json: bool = False,
) -> None:
    """List the sources of a server, or list and change those of a store.

    ```console
    onoff catalogue
    onoff catalogue --store messages.db --add sports --drop weather
    ```

    A change makes a new epoch; servers on that store follow at once, and clients start a new session.

    Parameters
    ----------
    store
        The store itself, instead of a server: a file or a redis:// address.
    add
        With --store: a source to add at the end; may be given many times.
    drop
        With --store: a source to take out, with its message; may be given many times.
    json
        Print names, epoch, and the frame size or the limit of a message as JSON.
    """
    if store is not None:
        from onoff.server.admin import edit_catalogue, opened

        async def edit() -> Catalogue:
            async with opened(store) as held:
                return await edit_catalogue(held, add=add or [], drop=drop or [])

        with progress("opening the store"):
            found = asyncio.run(edit())
    elif add or drop:
        raise InvalidInput("a server's catalogue is changed in its store", hint="give --store")
    else:
        from onoff.upstream.message_server import fetch_catalogue

        every = []
        with progress("waiting for the server") as work:
            for address in servers_of(server):
                work.now(f"waiting for {address}")
                every.append(fetch_catalogue(address))
        found = every[0]
        if any(other != found for other in every):
            raise CatalogueMismatch("the servers have different catalogues", hint="one must follow the other")
    print(json_text(found.as_dict()) if json else "\n".join(found.names))
