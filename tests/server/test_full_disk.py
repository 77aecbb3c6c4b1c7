"""A full disk costs publishes, never the process or its readers; with room all is as before.

On a real small file system: a tmpfs of our own, which takes root to mount.
"""

import contextlib
import os
import secrets
import subprocess
from pathlib import Path

import httpx2
import pytest
from tests.support.raw import Line, catalogue, query
from tests.support.waiting import PATIENCE

from onoff import wire
from onoff.errors import StoreUnavailable
from onoff.server.sqlite import SQLiteStore
from onoff.server.store import StepTable

from .test_run import children, make_token, served

SIZE = 28 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 28 MiB, 17 of which the table of steps takes."""
    at = tmp_path / "disk"
    at.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(at)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small file system without root: {mounted.stderr.strip()}")
    yield at
    subprocess.run(["umount", "--lazy", str(at)], check=True)


def fill(disk: Path) -> Path:
    """Take all room that is left."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    free = os.statvfs(disk)
    assert free.f_bavail == 0
    return path


def put(url, token, body):
    headers = {"authorization": f"Bearer {token}"}
    return httpx2.put(f"{url}/v1/sources/a/message", content=body, headers=headers, timeout=PATIENCE)


def asked(url, known):
    """What a new session is answered."""
    with Line(url) as line:
        reply = line.query(query(known, 0, session=secrets.token_bytes(16)))
    assert reply.status == 200
    how = {"epoch": known.epoch, "frame_size": known.frame_size, "limit": known.limit}
    return wire.decode_answer(reply.body, (0,), **how)[0].body


@pytest.mark.slow(reason="programs are started and waited for")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_disk_that_fills_costs_publishes_only_and_room_mends_it(small_disk, workers, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(small_disk))
    store = small_disk / "messages.db"
    with served(store, "--source", "a", "--workers", str(workers)) as (process, started):
        url, token = started["url"], make_token(store)
        assert put(url, token, b"before").status_code == 200
        known = catalogue(url)
        filler = fill(small_disk)
        before = children(process.pid)
        for _ in range(5):
            refused = put(url, token, secrets.token_bytes(100_000))
            assert refused.status_code == 507
            assert wire.decode_problem(refused.content).hint
        not_ready = httpx2.get(f"{url}/readyz", timeout=PATIENCE)
        assert not_ready.status_code == 503
        assert "cannot store messages" in not_ready.json()["title"]
        for _ in range(100):  # new sessions: each takes another page of the table of steps
            assert asked(url, known) == b"before"
        assert process.poll() is None
        assert children(process.pid) == before
        filler.unlink()
        assert put(url, token, b"after").status_code == 200
        assert asked(url, known) == b"after"


def test_a_store_that_finds_no_room_for_its_table_says_so_when_it_is_opened(small_disk):
    fill(small_disk)
    with pytest.raises(StoreUnavailable, match="cannot open"):
        SQLiteStore(small_disk / "messages.db")


def test_a_sparse_table_of_an_earlier_version_is_allocated_when_it_is_opened(small_disk):
    path = small_disk / "steps"
    with path.open("wb") as file:
        file.truncate(4096 + (1 << 15) * 512)
    before = path.stat().st_blocks
    StepTable(path).close()
    assert before == 0
    assert path.stat().st_blocks * 512 >= path.stat().st_size
