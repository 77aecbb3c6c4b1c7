"""Administration of a store: open it, change its catalogue, add a publisher."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Literal

from onoff.errors import InvalidInput, MissingExtra
from onoff.server.store import Publisher, Store, token_digest
from onoff.wire import DEFAULT_FRAME_SIZE, DEFAULT_LIMIT, Catalogue, check_name

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

    Raises
    ------
    StoreUnavailable
        If it cannot be opened.
    InvalidInput
        If it is not the address of a store.
    MissingExtra
        If what the address needs is not installed.
    """
    scheme, separator, _ = where.partition("://")
    if not separator:
        from onoff.server.sqlite import SQLiteStore

        return SQLiteStore(where, frame_size=frame_size, limit=limit)
    if scheme in {"redis", "rediss", "valkey", "valkeys", "unix"}:
        try:
            from onoff.server.valkey import ValkeyStore
        except ModuleNotFoundError as missing:
            raise MissingExtra(f"{missing.name} is not installed", extra="server,valkey") from None
        return await ValkeyStore.open(where, frame_size=frame_size, limit=limit)
    raise InvalidInput(f"no store at {scheme}:// addresses", hint="give a file path or a redis:// address")


def reframed(
    old: Catalogue, *, padding: Padding | None = None, frame_size: int | None = None, limit: int | None = None
) -> Catalogue:
    """The same names with other framing.

    Raises
    ------
    InvalidInput
        If these contradict each other or are out of range.
    """
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
    """Change names and framing of a store.

    Returns
    -------
    Catalogue
        The new catalogue.

    Raises
    ------
    InvalidInput
        If a name or size cannot be used, or a message that stays would be too long.
    UnknownSource
        If a name to drop is not there.
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

    Raises
    ------
    InvalidWire
        If the name cannot be used.
    UnknownSource
        If the catalogue has no such source.
    """
    check_name(name)
    catalogue = await store.catalogue()
    for source in sources:
        catalogue.source(source)
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    await store.add_publisher(Publisher(name, token_digest(token), tuple(sources)))
    return token
