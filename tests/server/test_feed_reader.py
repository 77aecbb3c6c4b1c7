"""Feeds of strangers: limits on time, memory and depth, and an error of that feed alone."""

import asyncio
import json
import os
import threading

import pytest
from tests.support.waiting import PATIENCE, until

from onoff.server.feed_reader import MAX_DEPTH, BadFeed, FeedReader, Limits, ReaderProcess, check_depth

ROOM = 100_000
GOOD = b"<rss version='2.0'><channel><item><title>Good</title><description>x</description></item></channel></rss>"
TIMED = GOOD.replace(b"<title>", b"<pubDate>Tue, 02 Jan 2024 00:00:00 GMT</pubDate><title>")
ENDLESS = b"<rss><channel><item></x>" + b"<div><p>" * 60_000  # minutes for feedparser, by way of its lenient parser
LONG = b"<item><title>" + b"t" * 3000 + b"</title></item>"
HUGE = b"<rss version='2.0'><channel>" + LONG * 6000 + b"</channel></rss>"


def deep(levels: int) -> bytes:
    return b"<rss><channel>" + b"<a>" * (levels - 2) + b"</a>" * (levels - 2) + b"</channel></rss>"


def title(reply) -> str:
    return json.loads(reply[0])["entries"][0]["title"]


def test_a_feed_is_read_in_another_process_and_so_is_the_next():
    async def body():
        async with FeedReader(1) as reader:
            assert title(await reader.read(GOOD, {}, ROOM)) == "Good"
            first = reader.pids()
            assert (await reader.read(TIMED, {"content-type": "text/xml"}, ROOM))[1] == 1_704_153_600_000
            assert (await reader.read(GOOD, {}, ROOM))[1] is None
            assert reader.pids() == first != [os.getpid()]
            with pytest.raises(BadFeed, match="no entry"):
                await reader.read(b"<rss version='2.0'><channel/></rss>", {}, ROOM)
            with pytest.raises(BadFeed, match="fit"):
                await reader.read(GOOD, {}, 10)
            assert reader.pids() == first

    asyncio.run(body())


@pytest.mark.slow(reason="programs are started and waited for")
@pytest.mark.parametrize(
    ("hostile", "limits", "says"),
    [
        (deep(100_000), Limits(), "nested"),
        (ENDLESS, Limits(cpu_seconds=0.3), "processor"),
        (HUGE, Limits(memory_bytes=80 << 20), "memory"),
    ],
)
def test_a_feed_beyond_a_limit_is_refused_and_the_next_is_read(hostile, limits, says):
    async def body():
        async with FeedReader(1, limits) as reader:
            for _ in range(2):
                with pytest.raises(BadFeed, match=says):
                    await reader.read(hostile, {}, ROOM)
                assert title(await reader.read(GOOD, {}, ROOM)) == "Good"

    asyncio.run(body())


def test_while_one_feed_takes_long_others_are_read():
    endless_limits = Limits(cpu_seconds=3600.0, wall_seconds=3600.0)  # it is ended by us, on a slow machine too

    async def body():
        async with FeedReader(2, endless_limits) as reader:
            endless = asyncio.create_task(reader.read(ENDLESS * 8, {}, ROOM))
            for _ in range(3):
                assert title(await reader.read(GOOD, {}, ROOM)) == "Good"
            assert not endless.done()
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless
            assert title(await reader.read(GOOD, {}, ROOM)) == "Good"

    asyncio.run(body())


def test_a_reader_that_hangs_is_given_up():
    async def body():
        async with FeedReader(1, Limits(wall_seconds=0.01)) as reader:
            with pytest.raises(BadFeed, match="longer than"):
                await reader.read(ENDLESS * 8, {}, ROOM)
            reader.limits = Limits(wall_seconds=PATIENCE)
            assert title(await reader.read(GOOD, {}, ROOM)) == "Good"

    asyncio.run(body())


def test_a_thread_that_comes_after_its_reader_was_given_up_starts_no_process(monkeypatch):
    given_up, outcomes = threading.Event(), []
    exchange = ReaderProcess.exchange

    def late(process, *arguments):
        assert given_up.wait(PATIENCE)
        try:
            return exchange(process, *arguments)
        except BadFeed as error:
            outcomes.append(str(error))
            raise

    monkeypatch.setattr(ReaderProcess, "exchange", late)

    async def body():
        async with FeedReader(1, Limits(wall_seconds=0.01)) as reader:
            with pytest.raises(BadFeed, match="longer than"):
                await reader.read(GOOD, {}, ROOM)
            reader.limits = Limits(wall_seconds=PATIENCE)
            given_up.set()
            assert title(await reader.read(GOOD, {}, ROOM)) == "Good"

    asyncio.run(body())  # waits for its threads
    assert outcomes == ["its reader was stopped"]


def test_no_process_stays_behind():
    async def body():
        async with FeedReader(2) as reader:
            await asyncio.gather(*(reader.read(GOOD, {}, ROOM) for _ in range(4)))
            return reader.pids()

    pids = asyncio.run(body())
    assert pids
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_the_depth_of_a_feed_is_limited_and_what_is_no_xml_is_left_to_the_parser():
    check_depth(deep(MAX_DEPTH))
    with pytest.raises(BadFeed):
        check_depth(deep(MAX_DEPTH + 1))
    check_depth(b"no xml")
    check_depth(b"")
