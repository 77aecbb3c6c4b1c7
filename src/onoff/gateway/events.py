"""The state of the gateway as server-sent events: now, and after every change."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Final

from onoff.gateway.engine import Engine
from onoff.gateway.snapshot import snapshot

STREAM_BEAT_SECONDS: Final = 15.0


class Streams:
    """The open event streams, so that all of them can be ended at shutdown. For one event loop."""

    def __init__(self) -> None:
        self.closing = False
        self._waiting: set[asyncio.Event] = set()

    @contextlib.contextmanager
    def open(self) -> Iterator[asyncio.Event]:
        """An event that wakes a new stream; also set by `close`."""
        news = asyncio.Event()
        self._waiting.add(news)
        try:
            yield news
        finally:
            self._waiting.discard(news)

    def close(self) -> None:
        """End all streams."""
        self.closing = True
        for news in self._waiting:
            news.set()


async def stream(engine: Engine, streams: Streams) -> AsyncIterator[str]:
    """The state now and after every change; a comment every 15 seconds, so that a closed connection is noticed."""
    loop = asyncio.get_running_loop()
    with streams.open() as news:

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(news.set)

        stop = engine.board.watch(tell)
        shown = -1
        try:
            while not streams.closing:
                news.clear()
                position = engine.switch.position  # a timer that ran out counts as a change
                if engine.board.revision == shown:
                    yield ":\n\n"
                else:
                    state = snapshot(engine)
                    shown = state["revision"]
                    yield f"id: {state['start']}-{shown}\nevent: state\ndata: {json.dumps(state)}\n\n"
                patience = STREAM_BEAT_SECONDS
                if position.until is not None:
                    patience = min(patience, max(0.0, position.until - engine.now()) + 0.01)
                # No task is made here: closing the page cancels this coroutine, and nothing is left behind.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience):
                        await news.wait()
        finally:
            stop()
