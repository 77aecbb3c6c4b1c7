"""Administration of a store: open it, change its catalogue, add a publisher."""

from __future__ import annotations

import contextlib
import gzip
import secrets
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Literal, cast

from onoff.errors import InvalidInput, InvalidWire, MissingExtra
from onoff.server.answers import Shelf
from onoff.server.changes import ChangesBuilder
from onoff.server.feeds import Feed, ListedFeed, name_feeds
from onoff.server.following import check_may_follow
from onoff.server.store import Publisher, Store, token_digest
from onoff.system.files import atomic_write, open_ordinary
from onoff.system.plugins import load_plugin, plugins
from onoff.upstream.transport import check_url
from onoff.wire import (
    DEFAULT_FRAME_SIZE,
    DEFAULT_LIMIT,
    MAX_CATALOGUE,
    Catalogue,
    ChangesDecoder,
    Since,
    WireMessage,
    check_name,
    decode_catalogue,
    encode_catalogue,
)

TOKEN_PREFIX = "onoff_"

Padding = Literal["fixed", "none"]


@contextlib.asynccontextmanager
async def opened(where: str, *, frame_size: int | None = None, limit: int = 0) -> AsyncIterator[Store]:
    """The store at `where`, closed at the end of the block.

    where: The path of a file, or the address of a Valkey or Redis.
    """
    store = await open_store(where, frame_size=frame_size, limit=limit)
    try:
        yield store
    finally:
        await store.close()


async def open_store(where: str, *, frame_size: int | None = None, limit: int = 0) -> Store:
    """The store at a file path, or at a redis://, rediss://, valkey:// or unix:// address.

    Raises StoreUnavailable if it cannot be opened, InvalidInput if it is not the address of a store, MissingExtra if
    what the address needs is not installed.
    """
    scheme, separator, _ = where.partition("://")
    if not separator:
        from onoff.server.sqlite import SQLiteStore

        return SQLiteStore(where, frame_size=frame_size, limit=limit)
    if scheme in {"redis", "rediss", "valkey", "valkeys", "unix"}:
        try:
            from onoff.server.valkey import ValkeyStore
        except ModuleNotFoundError as missing:
            raise MissingExtra(f"{missing.name} is not installed", extra="valkey") from None
        return await ValkeyStore.open(where, frame_size=frame_size, limit=limit)
    others = plugins("onoff.stores")
    if scheme in others:
        return cast("Store", await load_plugin(others[scheme]).open(where, frame_size=frame_size, limit=limit))
    raise InvalidInput(f"no store at {scheme}:// addresses", hint="give a file path or a redis:// address")


def reframed(
    old: Catalogue, *, padding: Padding | None = None, frame_size: int | None = None, limit: int | None = None
) -> Catalogue:
    """The same names with other framing. Raises InvalidInput if these contradict each other or are out of range."""
    fixed = frame_size is not None or (limit is None and old.frame_size is not None)
    if padding is not None:
        fixed = padding == "fixed"
    if (fixed and limit is not None) or (not fixed and frame_size is not None):
        raise InvalidInput(
            "a frame size is for padded answers, a limit for those that are not",
            hint="give --frame-size with --padding fixed, or --limit with --padding none",
        )
    if fixed:
        return Catalogue(old.names, frame_size or old.frame_size or DEFAULT_FRAME_SIZE)
    kept = old.limit if old.frame_size is None else max(DEFAULT_LIMIT, old.limit)
    return Catalogue(old.names, None, limit or kept)


async def edit_catalogue(
    store: Store,
    *,
    add: Sequence[str] = (),
    drop: Sequence[str] = (),
    padding: Padding | None = None,
    frame_size: int | None = None,
    limit: int | None = None,
) -> Catalogue:
    """The catalogue of a store after its names and framing were changed.

    Raises InvalidInput if a name or size cannot be used, or a message that stays would be too long, UnknownSource if a
    name to drop is not there.
    """
    while True:
        old = await store.catalogue()
        for name in drop:
            old.source(name)
        kept = [name for name in old.names if name not in set(drop)]
        names = tuple(dict.fromkeys([*kept, *add]))
        new = reframed(old, padding=padding, frame_size=frame_size, limit=limit).with_names(names)
        if new == old or await store.replace_catalogue(new, expected=old):
            return new


async def new_publisher(store: Store, name: str, sources: Sequence[str] = ()) -> str:
    """A fresh token for a publisher, in place of any it had. It is shown once and not kept.

    Raises InvalidWire if the name cannot be used, UnknownSource if the catalogue has no such source.
    """
    check_name(name)
    catalogue = await store.catalogue()
    for source in sources:
        catalogue.source(source)
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    await store.add_publisher(Publisher(name, token_digest(token), tuple(sources)))
    return token


# Backups: catalogue and messages in the form in which a new reader gets them, without publishers and sessions.
#
#     file    gzip of: catalogue, as on the wire | line feed | changes since 0, as on the wire

READ_BYTES = 1024 * 1024


async def write_backup(store: Store, path: Path) -> int:
    """Write all messages of the store to `path`, atomically; return how many.

    Raises InvalidInput if the file cannot be written.
    """
    shelf = Shelf()
    reply = await ChangesBuilder(store, shelf).reply(Since(0), gzip=False)
    try:
        with (
            atomic_write(path, mode=0o600, durable=True) as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as out,
        ):
            out.write(encode_catalogue(shelf.catalogue) + b"\n")
            for part in reply.parts:
                out.write(part)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}", hint="check free space and permissions") from None
    return sum(changed > 0 for changed in shelf.changed)


def read_backup(path: Path) -> tuple[Catalogue, dict[str, WireMessage]]:
    """Catalogue and messages of a backup, all checked.

    Raises InvalidInput if the file is not a backup, or not whole.
    """
    messages: dict[str, WireMessage] = {}
    try:
        with open_ordinary(path) as packed, gzip.open(packed, "rb") as file:
            catalogue = decode_catalogue(file.readline(MAX_CATALOGUE + 1).removesuffix(b"\n"))
            decoder = ChangesDecoder(catalogue)
            while piece := file.read(READ_BYTES):
                messages.update((catalogue.names[source], message) for source, message in decoder.feed(piece))
            decoder.finish()
    except (OSError, EOFError, zlib.error, InvalidWire) as error:
        reason = error.message if isinstance(error, InvalidWire) else getattr(error, "strerror", None) or str(error)
        raise InvalidInput(
            f"cannot restore {path}: {reason}", hint="give a file that `onoff serve --backup` wrote"
        ) from None
    return catalogue, messages


# What `onoff serve` does to the store at an address before it serves, or instead of serving.


async def prepare(
    where: str,
    names: Sequence[str],
    *,
    padding: Padding | None = None,
    frame_size: int | None = None,
    limit: int | None = None,
) -> Catalogue:
    """Create the store if needed, add these names to its catalogue, and return the catalogue."""
    async with opened(where) as store:
        return await edit_catalogue(store, add=names, padding=padding, frame_size=frame_size, limit=limit)


async def name_listed(
    where: str, listed: Sequence[ListedFeed], progress: Callable[[int, int], None]
) -> tuple[Feed, ...]:
    """The feeds with the names that the store at `where` keeps for them; see `name_feeds`."""
    async with opened(where) as store:
        return await name_feeds(store, listed, progress)


async def backup(where: str, path: Path) -> int:
    """Write a backup of the store at `where`; return the number of messages in it."""
    async with opened(where) as store:
        return await write_backup(store, path)


async def restore(where: str, path: Path) -> Catalogue:
    """Put a backup in place of what is in the store at `where`; return its catalogue."""
    catalogue, messages = read_backup(path)  # before a store is made for it
    async with opened(where) as store:
        await store.restore(catalogue, messages)
    return catalogue


async def prepare_to_follow(where: str, leader: str) -> Catalogue:
    """Make sure that the store is there and may become a copy of the leader's; return its catalogue."""
    check_url(leader)
    async with opened(where) as store:
        await check_may_follow(store, leader)
        return await store.catalogue()


async def add_publisher(where: str, name: str, sources: Sequence[str]) -> str:
    """A fresh token for a publisher of the store at `where`."""
    async with opened(where) as store:
        return await new_publisher(store, name, sources)
