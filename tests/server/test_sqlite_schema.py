"""The running total of all bodies: right whatever changes messages, in older stores too, and never added up anew."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.typed import as_a

from onoff.errors import InvalidWire
from onoff.server.admin import edit_catalogue, opened
from onoff.server.sqlite import SQLiteStore
from onoff.wire import FRAME_OVERHEAD, Catalogue, WireMessage

OLD_STORE = Path(__file__).parents[1] / "fixtures" / "v0.1" / "messages.db"
NAMES = ["a", "b", "c"]


def totals(path):
    """What is kept, and what it should be."""
    with closing(sqlite3.connect(path)) as db:
        (kept,) = db.execute("SELECT value FROM meta WHERE key = 'bytes'").fetchone()
        (right,) = db.execute("SELECT coalesce(sum(length(body)), 0) FROM messages").fetchone()
        return kept, right


async def fill(path, *lengths):
    async with opened(str(path)) as store:
        await edit_catalogue(store, add=NAMES)
        for name, length in zip(NAMES, lengths, strict=False):
            await store.publish(name, "a/b", bytes(length), 0)


def test_it_follows_publishes_refusals_removals_and_restores(tmp_path):
    path = tmp_path / "messages.db"

    async def change():
        await fill(path, 10, 20, 30)
        assert totals(path) == (60, 60)
        async with opened(str(path)) as store:
            await store.publish("a", "a/b", bytes(500), 0)
            assert totals(path) == (550, 550)
            await store.publish("a", "a/b", b"", 0)
            assert totals(path) == (50, 50)
            with pytest.raises(InvalidWire):
                await store.publish("b", "a/b", bytes(100_000_000), 0)
            assert totals(path) == (50, 50)
            known = await store.catalogue()
            assert await store.replace_catalogue(known.with_names(["a", "b"]), expected=known)
            assert totals(path) == (20, 20)
            await store.restore(Catalogue(("x", "y"), None), {"x": WireMessage(3, 1, "a/b", bytes(77))})
            assert totals(path) == (77, 77)

    asyncio.run(change())


def test_a_store_of_today_is_counted_once_when_it_is_opened(tmp_path):
    path = tmp_path / "messages.db"
    asyncio.run(fill(path, 10, 20, 30))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:  # as it was before there was a total
        db.executescript("DROP TRIGGER bytes_of_new; DROP TRIGGER bytes_of_old; DELETE FROM meta WHERE key = 'bytes';")
    asyncio.run(fill(path, 15))
    assert totals(path) == (65, 65)


def test_a_store_of_version_0_1_is_counted(tmp_path):
    path = tmp_path / "messages.db"
    shutil.copy(OLD_STORE, path)

    async def open_it():
        async with opened(str(path)) as store:
            return await store.catalogue()

    asyncio.run(open_it())
    kept, right = totals(path)
    assert kept == right > 0


def test_the_limit_is_that_of_all_messages_together_and_no_publish_adds_them_up(tmp_path, monkeypatch):
    path = tmp_path / "messages.db"
    most = 3 * FRAME_OVERHEAD + 100
    monkeypatch.setattr("onoff.server.store.MAX_ANSWER", most)
    statements: list[Any] = []

    async def change():
        async with opened(str(path)) as store:
            await edit_catalogue(store, add=NAMES)
            as_a(SQLiteStore, store).writer.connection.set_trace_callback(statements.append)
            await store.publish("a", "a/b", bytes(40), 0)
            await store.publish("b", "a/b", bytes(60), 0)
            with pytest.raises(InvalidWire, match="all messages together"):
                await store.publish("c", "a/b", b"x", 0)
            with pytest.raises(InvalidWire, match="all messages together"):
                await store.publish("a", "a/b", bytes(41), 0)
            await store.publish("a", "a/b", bytes(39), 0)
            await store.publish("c", "a/b", b"x", 0)

    asyncio.run(change())
    assert totals(path) == (100, 100)
    assert any("INSERT" in statement or "REPLACE" in statement for statement in statements)
    assert [statement for statement in statements if "total(" in statement or "sum(" in statement] == []
