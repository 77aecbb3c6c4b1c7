"""Maintenance of the store at an address: what `onoff serve` does to it before it serves, or instead of serving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from onoff.server.admin import Padding, edit_catalogue, new_publisher, opened
from onoff.server.backup import read_backup, write_backup
from onoff.server.feed_list import Feed, ListedFeed
from onoff.server.feed_names import name_feeds
from onoff.server.following import check_address, check_may_follow
from onoff.wire import Catalogue


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
    check_address(leader)
    async with opened(where) as store:
        await check_may_follow(store, leader)
        return await store.catalogue()


async def add_publisher(where: str, name: str, sources: Sequence[str]) -> str:
    """A fresh token for a publisher of the store at `where`."""
    async with opened(where) as store:
        return await new_publisher(store, name, sources)
