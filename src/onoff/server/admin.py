"""What an operator does to a store: open it, change its catalogue, make a publisher."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence

from onoff.errors import InvalidInput, MissingExtra
from onoff.server.store import Publisher, Store, token_digest
from onoff.wire import DEFAULT_FRAME_SIZE, Catalogue, check_name

TOKEN_PREFIX = "onoff_"


@contextlib.asynccontextmanager
async def opened(where: str, *, frame_size: int | None = DEFAULT_FRAME_SIZE, limit: int = 0) -> AsyncIterator[Store]:
    """The store at `where`, closed at the end of the block."""
    store = await open_store(where, frame_size=frame_size, limit=limit)
    try:
        yield store
    finally:
        await store.close()


async def open_store(where: str, *, frame_size: int | None = DEFAULT_FRAME_SIZE, limit: int = 0) -> Store:
    """The store at a file path, or at a redis://, rediss://, valkey:// or unix:// address.

    `frame_size` and `limit` (as for `Catalogue`) are for a store that is new.
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


async def edit_catalogue(
    store: Store, *, add: Sequence[str] = (), drop: Sequence[str] = (), frame_size: int | None = None
) -> Catalogue:
    """Append the names that are new, take out the dropped ones, set the frame size; return what now holds."""
    while True:
        old = await store.catalogue()
        for name in drop:
            old.source(name)
        kept = [name for name in old.names if name not in set(drop)]
        names = tuple(dict.fromkeys([*kept, *add]))
        new = Catalogue(names, frame_size) if frame_size else old.with_names(names)
        if new == old or await store.replace_catalogue(new, expected=old):
            return new


async def new_publisher(store: Store, name: str, sources: Sequence[str] = ()) -> str:
    """A fresh token for the publisher `name`, in place of any it had. It is shown once and not kept."""
    check_name(name)
    catalogue = await store.catalogue()
    for source in sources:
        catalogue.source(source)
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    await store.add_publisher(Publisher(name, token_digest(token), tuple(sources)))
    return token
