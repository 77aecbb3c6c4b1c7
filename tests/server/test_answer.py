"""From query to answer: never older than what was acknowledged, and without waiting where that can be."""

import asyncio
import gzip
import os
from typing import Any

import pytest
from tests.support.raw import query
from tests.support.typed import as_a

from onoff import wire
from onoff.errors import StoreUnavailable
from onoff.server.admin import edit_catalogue, opened
from onoff.server.answers import INLINE_BYTES, Answer, Answerer, now
from onoff.server.sqlite import SQLiteStore
from onoff.server.store import Stamp

FRAME = 512


def said(answer, known, *sources):
    messages = wire.decode_answer(b"".join(answer.parts), sources, epoch=known.epoch, frame_size=FRAME)
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
                assert answer == as_a(Answer, await answerer.answer(query(known, 0, 1)))

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
            steps: Any = as_a(SQLiteStore, other).steps
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


# What is known is not sent again.


def tags_of(known, messages):
    return b"".join(wire.message_tag(s, message, epoch=known.epoch) for s, message in messages.items())


def test_what_a_query_knows_is_not_sent_again(where):
    async def body():
        async with opened(where) as store:
            known = await edit_catalogue(store, add=["a", "b", "c", "d"])
            answerer, held = Answerer(store), {0: wire.NOTHING, 1: wire.NOTHING, 3: wire.NOTHING}
            for publishes in ((), ("b",), ("b", "d"), ("c",), ("a", "b", "d"), ()):
                for name in publishes:
                    await store.publish(name, "a/b", os.urandom(20) + bytes(500), 0)
                tags = tags_of(known, held)
                answer = as_a(Answer, await answerer.answer(query(known, 0, 1, 3, tags=tags)))
                found = wire.decode_changed(b"".join(answer.parts), (0, 1, 3), tags, epoch=known.epoch)
                assert {known.names[source] for source in found} == set(publishes) - {"c"}
                assert answer.frames == len(found)
                assert bool(answer.parts[:-1]) == bool(found)
                packed = as_a(Answer, await answerer.answer(query(known, 0, 1, 3, tags=tags), gzip=True))
                if found:
                    assert packed.encoding == "gzip"
                    assert gzip.decompress(b"".join(packed.parts)) == b"".join(answer.parts)
                    assert len(b"".join(packed.parts)) < 160 * len(found)
                else:
                    assert packed == answer
                held |= found
            latest = (await store.latest(Stamp())).messages
            assert {known.names[source]: message for source, message in held.items()} == {
                name: message for name, message in latest.items() if name != "c"
            }

    asyncio.run(body())


def test_a_tag_of_another_message_or_catalogue_is_not_known(where):
    async def body():
        async with opened(where) as store:
            known = await edit_catalogue(store, add=["a", "b"])
            await store.publish("a", "a/b", b"A", 0)
            held = (await store.latest(Stamp())).messages["a"]
            wrong = [
                wire.message_tag(0, held, epoch=known.epoch + 1),
                wire.message_tag(1, held, epoch=known.epoch),
                wire.message_tag(0, wire.WireMessage(1, 0, "a/b", b"B"), epoch=known.epoch),
            ]
            for tag in wrong:
                answer = as_a(Answer, await Answerer(store).answer(query(known, 0, tags=tag)))
                assert wire.decode_changed(b"".join(answer.parts), (0,), tag, epoch=known.epoch) == {0: held}

    asyncio.run(body())


def test_padded_frames_all_come_and_nothing_is_compressed(where):
    """Else the length of an answer would tell the line which open requests were made."""

    async def body():
        async with opened(where, frame_size=FRAME) as store:
            known = await edit_catalogue(store, add=["a", "b"])
            refusal = await Answerer(store).answer(query(known, 0, tags=b"some tag"))
            assert as_a(wire.Problem, refusal).status == 400
            answer = as_a(Answer, await Answerer(store).answer(query(known, 0, 1), gzip=True))
            assert (answer.encoding, len(b"".join(answer.parts))) == ("", 2 * FRAME)

    asyncio.run(body())


def test_much_to_compress_is_compressed_in_a_thread_and_not_on_the_fast_path(tmp_path):
    async def body():
        async with opened(str(tmp_path / "m.db")) as store:
            known = await edit_catalogue(store, add=["a", "b"])
            await store.publish("a", "a/b", bytes(INLINE_BYTES), 0)
            answerer, asked = Answerer(store), query(known, 0, 1)
            await answerer.shelf.refresh(store)
            assert now(answerer.answer(asked, gzip=True)) is None
            assert answerer.shelf.pieces[0].packed == b""
            answer = as_a(Answer, await answerer.answer(asked, gzip=True))
            assert answer == now(answerer.answer(asked, gzip=True))
            assert gzip.decompress(b"".join(answer.parts)) == b"".join(as_a(Answer, await answerer.answer(asked)).parts)

    asyncio.run(body())
