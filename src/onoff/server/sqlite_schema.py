"""The tables of the SQLite store: how they are made, and how those of an earlier version are brought up to date.

    meta        catalogue (JSON as on the wire), schema, and of the edition: count (its number), life, digest,
                born (the hour since 1970 in which counting of change began), bytes (of all bodies together)
    messages    name, version, published, media_type, body, count (the edition of its publish)
    digests     number, digest: of the last `KEPT_DIGESTS` editions of this life
    hours       hour since 1970, bytes of frames published in it
    publishers  name, digest, sources (JSON)
    feeds       url, name: what the source of each feed is called; made where it is missing

`bytes` is kept by triggers, so that it is right for every writer, and no publish has to sum over all messages.
Opening creates them where they are missing.

Schema 1 (version 0.1) had no editions: count, and nothing of life, digest, digests and hours. Opening brings it up
to date in one transaction: its content becomes the first edition of a new life.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onoff.errors import StoreUnavailable
from onoff.server.editions import HOURS, KEPT_DIGESTS, current_hour, new_life
from onoff.server.store import readable
from onoff.wire import Catalogue, Edition, decode_catalogue, encode_catalogue, first_digest

SCHEMA_VERSION = 2

_BASE = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE messages (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, published INTEGER NOT NULL,
    media_type TEXT NOT NULL, body BLOB NOT NULL, count INTEGER NOT NULL
);
CREATE INDEX messages_by_count ON messages (count);
CREATE TABLE publishers (name TEXT PRIMARY KEY, digest BLOB NOT NULL, sources TEXT NOT NULL);
"""
_EDITIONS = """
CREATE TABLE digests (number INTEGER PRIMARY KEY, digest BLOB NOT NULL);
CREATE TABLE hours (hour INTEGER PRIMARY KEY, bytes INTEGER NOT NULL);
"""

_BYTES = (  # a row that REPLACE takes the place of fires no trigger of its own: the first one counts it
    """CREATE TRIGGER bytes_of_new BEFORE INSERT ON messages BEGIN
        UPDATE meta SET value = value + length(NEW.body)
            - coalesce((SELECT length(body) FROM messages WHERE name = NEW.name), 0) WHERE key = 'bytes'; END""",
    """CREATE TRIGGER bytes_of_old AFTER DELETE ON messages BEGIN
        UPDATE meta SET value = value - length(OLD.body) WHERE key = 'bytes'; END""",
)

_FEEDS = "CREATE TABLE IF NOT EXISTS feeds (url TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID"


_KINDS = {"catalogue": bytes, "schema": int, "count": int, "life": bytes, "digest": bytes, "born": int, "bytes": int}


def check_owner(db: sqlite3.Connection, path: Path) -> None:
    """Raise StoreUnavailable where the file has tables, and they are not those of a store."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if tables and not {"meta", "messages", "publishers"} <= tables:
        raise StoreUnavailable(f"{path} is a database of something else", hint="give another path")


def prepare_tables(db: sqlite3.Connection, path: Path, empty: Catalogue) -> None:
    """Make the tables, or bring them up to date, within the transaction that `db` is in.

    Raises
    ------
    StoreUnavailable
        If the file is a database of something else, of a newer version, or damaged.
    """
    if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone():
        _run(db, _BASE)
        rows = [("catalogue", encode_catalogue(empty)), ("count", 0), ("schema", 1)]
        db.executemany("INSERT INTO meta VALUES (?, ?)", rows)
    row = db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    if row is None:
        raise StoreUnavailable(f"{path} is a database of something else", hint="give another path")
    if row[0] == 1:
        _run(db, _EDITIONS)
        set_meta(db, born=current_hour(), schema=SCHEMA_VERSION)
        text, count = read_meta(db, "catalogue", "count")
        begin_life(db, readable(lambda: decode_catalogue(text)), count)
    elif row[0] != SCHEMA_VERSION:
        raise StoreUnavailable(
            f"{path} has schema {row[0]}, this onoff writes {SCHEMA_VERSION}", hint="use a newer onoff"
        )
    db.execute(_FEEDS)
    if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'bytes_of_new'").fetchone():
        db.execute("REPLACE INTO meta SELECT 'bytes', coalesce(sum(length(body)), 0) FROM messages")
        for statement in _BYTES:
            db.execute(statement)
    read_meta(db, *_KINDS)  # what is damaged is found now, and not by the first reader


def _run(db: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        db.execute(statement)


def read_meta(db: sqlite3.Connection, *keys: str) -> list[Any]:
    """The values of these keys, in their order. Raises StoreUnavailable where one is damaged."""
    return checked_meta(dict(db.execute("SELECT key, value FROM meta").fetchall()), *keys)


def checked_meta(found: Mapping[str, Any], *keys: str) -> list[Any]:
    """The values of these keys among all that were found. Raises StoreUnavailable where one is damaged."""
    return readable(lambda: [_of_kind(_KINDS[key], found[key]) for key in keys])


def _of_kind(kind: type, value: Any) -> Any:
    if type(value) is not kind or (isinstance(value, int) and value < 0):  # a column holds what was put there
        raise TypeError(f"{value!r:.40} instead of {kind.__name__}")
    return value


def set_meta(db: sqlite3.Connection, **values: object) -> None:
    db.executemany("REPLACE INTO meta VALUES (?, ?)", values.items())


def begin_life(db: sqlite3.Connection, catalogue: Catalogue, number: int) -> None:
    """Let the content as it is be the first edition of a new life."""
    life = new_life()
    set_edition(db, Edition(catalogue.epoch, life, number, first_digest(catalogue.epoch, life)))


def set_edition(db: sqlite3.Connection, edition: Edition) -> None:
    """Begin the history anew at this edition."""
    set_meta(db, count=edition.number, life=edition.life, digest=edition.digest)
    db.execute("DELETE FROM digests")
    db.execute("INSERT INTO digests VALUES (?, ?)", (edition.number, edition.digest))


def advance(db: sqlite3.Connection, number: int, digest: bytes, size: int) -> None:
    """Make the next edition of the same life."""
    hour = current_hour()
    set_meta(db, count=number, digest=digest)
    db.execute("INSERT INTO digests VALUES (?, ?)", (number, digest))
    db.execute("DELETE FROM digests WHERE number <= ?", (number - KEPT_DIGESTS,))
    db.execute(
        "INSERT INTO hours VALUES (?, ?) ON CONFLICT (hour) DO UPDATE SET bytes = bytes + excluded.bytes", (hour, size)
    )
    db.execute("DELETE FROM hours WHERE hour <= ?", (hour - HOURS,))
