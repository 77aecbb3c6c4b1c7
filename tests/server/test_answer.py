"""From query to answer: never older than what was acknowledged, and without waiting where that can be."""

import asyncio
import os
from typing import Any

import pytest
from tests.support.raw import query
from tests.support.typed import as_a

from onoff import wire
from onoff.errors import StoreUnavailable
from onoff.server.admin import edit_catalogue, opened
from onoff.server.answers import Answerer, now
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
                answer = now(answerer.answer(query(known, 0, 1)))
                assert answer is not None
                assert said(answer, known, 0, 1) == [b"", b"%d" % k]
                assert answer == await answerer.answer(query(known, 0, 1))

    asyncio.run(body())


def test_a_query_of_the_old_catalogue_is_refused_once_there_is_a_new_one(where):
    async def body():
        async with opened(where, frame_size=FRAME) as store, opened(where) as other:
            old = await edit_catalogue(store, add=["a", "b"])
            answerer = Answerer(store)
            await answerer.shelf.refresh(store)
            new = await edit_catalogue(other, drop=["a"])
            refusal = as_a(wire.Problem, await answerer.answer(query(old, 0)))
            assert (refusal.status, refusal.type, refusal.epoch) == (409, wire.EPOCH_CHANGED, new.epoch)
            await other.publish("b", "a/b", b"moved", 0)
            assert said(await answerer.answer(query(new, 0)), new, 0) == [b"moved"]

    asyncio.run(body())


def test_a_coroutine_that_never_waits_is_done_at_once():
    async def answers():
        async with asyncio.Lock():
            return 7

    assert now(answers()) == 7


def test_a_coroutine_that_waits_goes_no_further_than_that():
    reached, left = [], []

    async def waits():
        try:
            await asyncio.sleep(0)
            reached.append(True)
        finally:
            left.append(True)

    assert now(waits()) is None
    assert (reached, left) == ([], [True])


def test_what_a_coroutine_raises_is_raised():
    async def fails():
        raise StoreUnavailable("gone", hint="")

    with pytest.raises(StoreUnavailable):
        now(fails())


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
