"""Backups: what is restored is what was saved, in another life; a file that is not whole changes nothing."""

import asyncio
import gzip

import pytest

from onoff.errors import InvalidInput
from onoff.server.admin import edit_catalogue, opened, read_backup, restore, write_backup
from onoff.server.store import Stamp


async def filled(where, names=("a", "b", "ç")):
    async with opened(where) as store:
        await edit_catalogue(store, add=names)
        for k, name in enumerate([*names, *names[:2]]):
            await store.publish(name, "text/plain", b"%d of " % k + name.encode(), k)
        return await store.latest(Stamp())


def test_what_is_restored_is_what_was_saved_in_another_life(where, tmp_path):
    async def body():
        saved = await filled(where)
        async with opened(where) as store:
            assert await write_backup(store, tmp_path / "backup") == 3
            await store.publish("a", "a/b", b"later", 0)
            await edit_catalogue(store, drop=["b"], add=["d"])
            assert await restore(where, tmp_path / "backup") == saved.catalogue
            restored = await store.latest(Stamp())
            assert (restored.catalogue, restored.messages) == (saved.catalogue, saved.messages)
            assert restored.edition.life != saved.edition.life
            assert (await store.publish("a", "a/b", b"next", 0)).version == saved.messages["a"].version + 1

    asyncio.run(body())


@pytest.mark.redis
def test_a_backup_moves_a_store_to_another_kind(tmp_path, shared_redis):
    shared_redis.flush()

    async def body():
        saved = await filled(str(tmp_path / "m.db"))
        async with opened(str(tmp_path / "m.db")) as store:
            await write_backup(store, tmp_path / "backup")
        async with opened(shared_redis.url) as store:
            await restore(shared_redis.url, tmp_path / "backup")
            assert (await store.latest(Stamp())).messages == saved.messages

    asyncio.run(body())


def test_a_backup_is_for_its_owner_and_the_same_each_time(tmp_path):
    async def body():
        await filled(str(tmp_path / "m.db"))
        async with opened(str(tmp_path / "m.db")) as store:
            for name in ("one", "two"):
                await write_backup(store, tmp_path / name)

    asyncio.run(body())
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert gzip.decompress((tmp_path / "one").read_bytes()).startswith(b'{"epoch":')


def test_every_truncation_and_damage_is_refused_and_changes_nothing(tmp_path):
    where = str(tmp_path / "m.db")

    async def body():
        await filled(where)
        async with opened(where) as store:
            await write_backup(store, tmp_path / "backup")
            await store.publish("a", "a/b", b"stays", 0)
            before = await store.latest(Stamp())
            whole = (tmp_path / "backup").read_bytes()
            inside = gzip.decompress(whole)
            bad = [whole[:size] for size in range(0, len(whole), 7)]
            bad += [gzip.compress(inside[:size]) for size in range(0, len(inside), 7)]
            bad += [
                b"",
                b"text",
                gzip.compress(b"{}\n"),
                gzip.compress(inside + b"\0"),
                gzip.compress(b"[" * 10_000_000),
            ]
            for data in bad:
                (tmp_path / "bad").write_bytes(data)
                with pytest.raises(InvalidInput, match="cannot restore"):
                    await restore(where, tmp_path / "bad")
            assert await store.latest(Stamp()) == before

    asyncio.run(body())


def test_a_backup_that_cannot_be_written_or_read_says_so(tmp_path):
    async def body():
        await filled(str(tmp_path / "m.db"))
        async with opened(str(tmp_path / "m.db")) as store:
            with pytest.raises(InvalidInput, match="cannot write"):
                await write_backup(store, tmp_path / "no" / "backup")

    asyncio.run(body())
    with pytest.raises(InvalidInput, match="No such file"):
        read_backup(tmp_path / "nothing")
