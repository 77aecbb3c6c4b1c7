"""The journal: durable before it returns, one writer, never believed when damaged, and without a past."""

import contextlib
import hashlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import others

from onoff import wire
from onoff.client import journal as databases
from onoff.client import journal as journals
from onoff.client.core import Record
from onoff.client.journal import Journal, MemoryJournal, remove
from onoff.client.stores import Mirror
from onoff.errors import JournalBusy, JournalUnusable, JournalWriteFailed
from onoff.upstream import Doubt

RECORD = Record("http://s.test", "c" * 64, "/chain.json", b"s" * 16, 3, b"q" * 40, b"\x0b", 1, False)


def reopened(path):
    journal = Journal(path)
    journal.close()
    return journal.found, journal.doubt


def stored(path, record):
    with contextlib.closing(Journal(path)) as journal:
        journal.store(record)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "journal.sqlite"


def test_a_new_journal_has_nothing_and_says_so(path):
    assert reopened(path) == (None, Doubt.NEW)
    assert reopened(path) == (None, Doubt.NEW)


def test_what_was_stored_is_found_again(path):
    stored(path, RECORD)
    assert reopened(path) == (RECORD, None)


def test_an_answer_is_remembered(path):
    journal = Journal(path)
    journal.store(replace(RECORD, note="why"))
    journal.complete()
    journal.close()
    assert reopened(path) == (replace(RECORD, note="why", pending=False), None)


def test_it_is_for_its_owner_only(path):
    journal = Journal(path)
    journal.store(RECORD)
    for file in (path, path.with_name(path.name + "-wal")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    journal.close()
    path.chmod(0o644)
    reopened(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_settings_are_those_that_make_it_durable(path):
    journal = Journal(path)
    settings = {
        name: journal._database.connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "secure_delete", "locking_mode")
    }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "locking_mode": "exclusive"}
    journal.close()


def test_a_second_opener_is_turned_away_in_this_process_and_in_another(path):
    journal = Journal(path)
    with pytest.raises(JournalBusy, match="in use"):
        Journal(path)
    code = f"from onoff.client.journal import Journal; Journal({str(path)!r})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "JournalBusy" in other.stderr
    journal.close()
    assert reopened(path) == (None, Doubt.NEW)


def test_the_past_is_gone_from_the_files(path):
    journal = Journal(path)
    for step in range(5):
        journal.store(replace(RECORD, step=step, query=b"query number %d" % step))
        journal.complete()
    contents = b"".join(file.read_bytes() for file in path.parent.iterdir())
    journal.close()
    assert [step for step in range(5) if b"query number %d" % step in contents] == [4]


def test_a_copy_is_recognised(path, tmp_path):
    stored(path, RECORD)
    shutil.copy(path, tmp_path / "copy")
    assert reopened(tmp_path / "copy") == (RECORD, Doubt.COPIED)
    assert reopened(path) == (RECORD, None)


NEXT = replace(RECORD, session=b"t" * 16, step=0)


@pytest.mark.parametrize("way", ["moved", "copied into the same inode"])
def test_a_journal_that_was_lost_and_put_back_is_recognised(path, tmp_path, monkeypatch, way):
    """Moved away and back it has its inode; and file systems give the inode of a deleted file to the next one."""
    if way != "moved":
        monkeypatch.setattr(journals, "_place", lambda path: bytes(32))
    stored(path, RECORD)
    path.rename(tmp_path / "away")
    stored(path, NEXT)
    if way == "moved":
        (tmp_path / "away").rename(path)
    else:
        path.write_bytes((tmp_path / "away").read_bytes())
    assert reopened(path) == (RECORD, Doubt.PUT_BACK)
    stored(path, replace(NEXT, session=b"u" * 16))
    assert reopened(path)[1] is None


def test_an_earlier_session_of_the_same_journal_is_recognised(path):
    stored(path, RECORD)
    earlier = path.read_bytes()
    stored(path, NEXT)
    assert reopened(path) == (NEXT, None)
    path.write_bytes(earlier)
    assert reopened(path) == (RECORD, Doubt.PUT_BACK)


@pytest.mark.parametrize("content", [None, b"", b"s" * 15, b"s" * 17, b"t" * 16], ids=repr)
def test_without_the_name_of_the_live_session_nothing_is_believed(path, content):
    stored(path, RECORD)
    live = path.with_name(path.name + ".session")
    assert (live.read_bytes(), stat.S_IMODE(live.stat().st_mode)) == (RECORD.session, 0o600)
    live.unlink() if content is None else live.write_bytes(content)
    assert reopened(path) == (RECORD, Doubt.PUT_BACK)


def test_the_live_session_is_named_before_its_first_row_and_never_again(path, monkeypatch):
    stored(path, RECORD)
    with monkeypatch.context() as patch:
        patch.setattr(journals, "_STORE", "no such statement")
        with pytest.raises(JournalWriteFailed):
            stored(path, NEXT)
    assert reopened(path) == (RECORD, Doubt.PUT_BACK)
    stored(path, NEXT)
    monkeypatch.setattr(os, "fsync", None)  # steps of a session write to the database alone
    stored(path, replace(NEXT, step=1))


def test_a_session_that_cannot_be_named_is_not_begun(path):
    stored(path, RECORD)
    live = path.with_name(path.name + ".session")
    live.unlink()
    live.mkdir()
    with pytest.raises(JournalWriteFailed, match="directory; nothing was sent"):
        stored(path, NEXT)
    assert reopened(path) == (RECORD, Doubt.PUT_BACK)


def test_removing_leaves_nothing(path):
    stored(path, RECORD)
    assert remove(path) == [path, path.with_name(path.name + ".session")]
    assert list(path.parent.iterdir()) == []
    assert remove(path) == []


def test_another_machine_is_recognised(path, monkeypatch):
    stored(path, RECORD)
    place = journals._place(path)
    monkeypatch.setattr(journals, "_place", lambda path: bytes(len(place)))
    assert reopened(path) == (RECORD, Doubt.COPIED)


def damage(path):
    """Our mark, and nothing else, of a journal."""
    content = bytes(68) + journals.JOURNAL_ID.to_bytes(4) + os.urandom(4024)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return content


def test_a_damaged_journal_is_put_aside_and_said_to_be(path, caplog):
    content = damage(path)
    assert reopened(path) == (None, Doubt.DAMAGED)
    aside = path.with_name(path.name + ".damaged")
    assert aside.read_bytes() == content
    assert [str(aside) in record.getMessage() for record in caplog.records] == [True]
    assert reopened(path) == (None, Doubt.NEW)


@pytest.mark.parametrize("content", [b"garbage", b"SQLite format 3\0" + bytes(4080), bytes(68) + b"onog" + bytes(9)])
def test_what_has_not_our_mark_is_left_as_it_is(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    path.chmod(0o644)
    before = others.all_of(path.parent)
    for repair in (True, False):
        with pytest.raises(JournalUnusable, match="not a journal"):
            Journal(path, repair=repair)
    assert others.all_of(path.parent) == before


@pytest.mark.parametrize(
    "change", ["step = 4", "wanted = 0", "asked = x'01'", "pending = 0", "session = zeroblob(16)", "checksum = x''"]
)
def test_a_changed_row_is_not_believed(path, change):
    stored(path, RECORD)
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE request SET {change}")
    database.close()
    assert reopened(path) == (None, Doubt.DAMAGED)


def test_an_empty_file_is_a_new_journal(path):
    path.parent.mkdir()
    path.touch()
    assert reopened(path) == (None, Doubt.NEW)


@pytest.mark.parametrize("kept", ["database", "mirror"])
def test_a_database_of_another_program_is_left_alone(path, kept):
    """A database, and a mirror, which is none of the journal's either."""
    if kept == "database":
        others.database(path)
    else:
        Mirror(path).close()
    before = others.all_of(path.parent)
    with pytest.raises(JournalUnusable, match="another program"):
        Journal(path)
    assert others.all_of(path.parent) == before


def test_a_document_that_is_only_looked_at_is_left_alone(path):
    others.document(path)
    before = others.all_of(path.parent)
    with pytest.raises(JournalUnusable, match="not a journal"):
        Journal(path, repair=False)
    assert others.all_of(path.parent) == before


@pytest.mark.parametrize("made", [others.document, others.database])
def test_what_may_be_no_journal_is_not_removed(path, made):
    made(path)
    before = others.all_of(path.parent)
    with pytest.raises(JournalUnusable):
        remove(path)
    assert others.all_of(path.parent) == before


def test_a_damaged_journal_and_what_was_put_aside_are_removed(path):
    stored(path, RECORD)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE request SET wanted = 0")
    assert reopened(path) == (None, Doubt.DAMAGED)
    stored(path, RECORD)
    content = bytearray(path.read_bytes())
    content[4096:] = bytes(len(content) - 4096)  # every page behind the header
    path.write_bytes(content)
    ends = ("", ".session", ".damaged")
    assert remove(path) == [path.with_name(path.name + end) for end in ends]
    assert list(path.parent.iterdir()) == []


def test_a_journal_of_a_newer_version_is_left_alone(path):
    journal = Journal(path)
    journal._database.connection.execute("PRAGMA user_version = 99")
    journal.close()
    with pytest.raises(JournalUnusable, match="newer"):
        Journal(path)


@pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
def test_what_is_not_an_ordinary_file_is_refused(path, tmp_path, kind):
    path.parent.mkdir()
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(path)
    with pytest.raises(JournalUnusable, match="not an ordinary file"):
        Journal(path)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(JournalWriteFailed, match="file"):
        Journal(tmp_path / "file" / "journal")


def test_a_file_that_cannot_be_opened_is_named(path, monkeypatch):
    def refuse(*arguments, **options):
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", refuse)
    with pytest.raises(JournalWriteFailed, match=r"journal\.sqlite: unable to open"):
        Journal(path)


def test_a_setting_that_sqlite_refuses_is_named(path, monkeypatch):
    monkeypatch.setattr(databases, "_SETTINGS", (("journal_mode", "DELETE", "wal"),))
    with pytest.raises(JournalUnusable, match="refuses journal_mode"):
        Journal(path)


def test_a_failure_of_a_checkpoint_is_named(path):
    journal = Journal(path)
    journal.store(RECORD)
    journal.close()
    for act in (journal.checkpoint, journal.complete, lambda: journal.store(RECORD)):
        with pytest.raises(JournalWriteFailed, match="closed database"):
            act()


def test_settling_twice_changes_nothing(path):
    for journal in (Journal(path), MemoryJournal()):
        journal.complete()
        assert journal.found is None
        journal.store(RECORD)
        journal.complete()
        journal.complete()
        assert (journal.found, journal.doubt) == (replace(RECORD, pending=False), None)  # type: ignore[comparison-overlap]
        journal.close()


def test_damage_that_cannot_be_put_aside_is_named(path):
    content = damage(path)
    (path.parent / f"{path.name}.damaged" / "in the way").mkdir(parents=True)
    with pytest.raises(JournalWriteFailed, match="cannot be put aside"):
        Journal(path)
    assert path.read_bytes() == content


def test_a_machine_without_an_id_is_known_by_its_name(path, monkeypatch):
    monkeypatch.setattr(type(path), "read_text", lambda path, encoding: b"\xff".decode(encoding))
    stored(path, RECORD)
    assert reopened(path) == (RECORD, None)
    monkeypatch.setattr("onoff.client.journal.platform.node", lambda: "another machine")
    assert reopened(path) == (RECORD, Doubt.COPIED)


def test_an_older_schema_is_migrated_and_its_row_kept(path, monkeypatch):
    stored(path, RECORD)

    def add_a_table(database):
        database.execute("CREATE TABLE more (id)")

    monkeypatch.setattr(journals, "JOURNAL_MIGRATIONS", (*journals.JOURNAL_MIGRATIONS, add_a_table))
    journal = Journal(path)
    assert journal.found == RECORD
    assert journal._database.connection.execute("PRAGMA user_version").fetchone() == (len(journals.JOURNAL_MIGRATIONS),)
    assert journal._database.connection.execute("SELECT count(*) FROM more").fetchone() == (0,)
    journal.close()


def test_a_migration_that_fails_leaves_the_journal_as_it_was(path, monkeypatch):
    stored(path, RECORD)

    def fail(database):
        database.execute("CREATE TABLE more (id)")
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(journals, "JOURNAL_MIGRATIONS", (*journals.JOURNAL_MIGRATIONS, fail))
        with pytest.raises(MemoryError):
            Journal(path)
    assert reopened(path) == (RECORD, None)


def test_repr_does_not_show_what_was_wanted():
    assert "wanted" not in repr(RECORD)


FIRST_VERSION = Path(__file__).parents[1] / "fixtures" / "v0.1"


def first_version(folder):
    """The journal of version 0.1 as if it had been written here: with the checksum of its new place."""
    path = folder / "journal"
    shutil.copy(FIRST_VERSION / "journal.db", path)
    shutil.copy(FIRST_VERSION / "journal.db.session", folder / "journal.session")
    path.chmod(0o600)
    return path


def test_a_journal_of_version_0_1_is_read(tmp_path):
    """A copy, because a file in a repository is one; what it holds is whole."""
    path = first_version(tmp_path)
    found, doubt = reopened(path)
    assert doubt is Doubt.COPIED
    assert (found.step, found.private, found.pending, found.memory) == (1, False, False, b"")
    assert found.query[8:24] == found.session  # of a version of the wire that is not spoken any more
    assert found.wanted in wire.decode_bitmap(found.asked, 3)
    assert reopened(path) == (found, Doubt.COPIED)  # the new schema holds the same


def test_a_journal_of_version_0_1_that_stayed_where_it_was_is_relied_on(tmp_path, monkeypatch):
    """The first version's checksum of a row, as it was computed then, is still right."""
    path = first_version(tmp_path)
    place = journals._place(path)
    with contextlib.closing(sqlite3.connect(path)) as database:
        columns = "server, chain, origin, session, step, query, asked, wanted, private, note, pending"
        (row,) = database.execute(f"SELECT {columns} FROM request").fetchall()
        content = ascii(row).encode()
        checksum = hashlib.sha256(content).digest()[:16] + hashlib.sha256(place + content).digest()[:16]
        database.execute("UPDATE request SET checksum = ?", (checksum,))
        database.commit()
    found, doubt = reopened(path)
    assert (found.step, doubt) == (1, None)


def test_what_a_memory_adds_is_kept_and_checked(path):
    record = replace(RECORD, memory=b"what a filter needs")
    with contextlib.closing(Journal(path)) as journal:
        journal.store(record)
    assert reopened(path) == (record, None)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE request SET memory = x''")
        database.commit()
    assert reopened(path) == (None, Doubt.DAMAGED)
