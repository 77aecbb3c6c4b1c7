"""From query to answer: never older than what was acknowledged, and without waiting where that can be."""

import asyncio
import os
from typing import Any

from tests.support.raw import query
from tests.support.typed import as_a

from onoff import wire
from onoff.server.admin import edit_catalogue, opened
from onoff.server.answers import Answerer
from onoff.server.sqlite import SQLiteStore
from onoff.server.store import Stamp

FRAME = 512


def said(answer, known, *sources):
    messages = wire.decode_answer(b"".join(answer), sources, epoch=known.epoch, frame_size=FRAME)
    return [message.body for message in messages]


def test_what_another_process_published_is_answered_at_once_without_waiting(tmp_path):
    """Each publish would otherwise send every waiting connection the long way round."""

    async def body():
        where = str(tmp_path / "m.db")
        async with opened(where, frame_size=FRAME) as store, opened(where) as other:
            known = await edit_catalogue(store, add=["a", "b"])
            answerer = Answerer(store)
            await answerer.shelf.refresh(store)
            for k in range(5):
                await other.publish("b", "a/b", b"%d" % k, 0)
                answer = answerer.answer_now(query(known, 0, 1))
                assert answer is not None
                assert said(answer, known, 0, 1) == [b"", b"%d" % k]
                assert answer == await answerer.answer(query(known, 0, 1))

    asyncio.run(body())


def test_a_new_catalogue_is_judged_by_the_ordinary_way(where):
    async def body():
        async with opened(where, frame_size=FRAME) as store, opened(where) as other:
            old = await edit_catalogue(store, add=["a", "b"])
            answerer = Answerer(store)
            await answerer.shelf.refresh(store)
            new = await edit_catalogue(other, drop=["a"])
            assert answerer.answer_now(query(old, 0)) is None
            refusal = as_a(wire.Problem, await answerer.answer(query(old, 0)))
            assert (refusal.status, refusal.type, refusal.epoch) == (409, wire.EPOCH_CHANGED, new.epoch)
            await other.publish("b", "a/b", b"moved", 0)
            assert said(await answerer.answer(query(new, 0)), new, 0) == [b"moved"]

    asyncio.run(body())


def test_stamp_and_messages_are_of_one_moment_though_the_generation_is_the_same(tmp_path):
    """A worker that died, or is slow, between commit and generation leaves rows and a catalogue that nobody knows."""

    async def body():
        where = str(tmp_path / "m.db")
        async with opened(where, frame_size=FRAME) as store, opened(where) as other:
            await edit_catalogue(store, add=["a"])
            answerer = Answerer(store)
            await answerer.shelf.refresh(store)
            steps: Any = as_a(SQLiteStore, other)._steps
            steps.change_generation = lambda: None
            known = await edit_catalogue(other, add=["b"])
            published = await other.publish("b", "a/b", b"early", 0)
            latest = await store.latest(Stamp())
            assert latest.catalogue == known
            assert latest.messages == {"b": published}
            assert latest.stamp == (await other.latest(Stamp())).stamp
            await answerer.shelf.refresh(store)
            assert said(await answerer.answer(query(known, 0, 1, session=os.urandom(16))), known, 0, 1) == [
                b"",
                b"early",
            ]

    asyncio.run(body())
