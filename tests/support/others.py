"""Files of other programs, at a path that somebody gave by mistake."""

import sqlite3
from contextlib import closing
from pathlib import Path


def document(path: Path) -> Path:
    """Something that a person wrote, which others may read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("Chapter one.\n" * 500)
    path.chmod(0o644)
    return path


def database(path: Path) -> Path:
    """A database that no part of onoff made, which others may read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE photos (id)")
        db.execute("INSERT INTO photos VALUES (1)")
    path.chmod(0o644)
    return path


def all_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Names, contents and modes of all files in a folder."""
    return {file.name: (file.read_bytes(), file.stat().st_mode) for file in folder.iterdir()}
