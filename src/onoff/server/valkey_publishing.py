"""PublishQueue: publishes to a shared store, in batches, each conditional on the edition that it follows.

The next digest is computed here from the edition that was looked at; the script accepts it only if that is still the
newest one, else the batch is computed again. Publishes that come meanwhile wait and go together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from onoff.errors import OnOffError, UnknownSource
from onoff.server import valkey_scripts as scripts
from onoff.server.editions import check_message, check_total, current_hour, may_overflow
from onoff.server.settling import settle
from onoff.server.valkey_values import number_pairs, pack_message
from onoff.wire import FRAME_OVERHEAD, Catalogue, Edition, WireMessage, next_digest

BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of messages that one script writes or reads, about."""


@dataclass(slots=True)
class _Waiting:
    """A publish that waits for its turn."""

    name: str
    message: WireMessage  # its version is not known yet
    done: asyncio.Future[WireMessage]


class PublishQueue:
    """The publishes of one process.

    Parameters
    ----------
    run_script
        Runs a script on the store.
    read_state
        The edition and the catalogue that a script returned.
    known
        The catalogue that was read last: whether its messages together may be too many bytes.
    """

    def __init__(
        self,
        run_script: Callable[..., Awaitable[Any]],
        read_state: Callable[[list[Any]], tuple[Edition, Catalogue, dict[bytes, int]]],
        known: Callable[[], Catalogue],
    ) -> None:
        self._run_script = run_script
        self._read_state = read_state
        self._known = known
        self._queue: deque[_Waiting] = deque()
        self._publishing: asyncio.Task[None] | None = None

    async def publish(self, name: str, message: WireMessage) -> WireMessage:
        """Publish a message without a version; return it with the one that it got. Raises what a store raises."""
        waiting = _Waiting(name, message, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.create_task(self._publish_queue())
        return await waiting.done

    async def close(self) -> None:
        """Return when nothing waits."""
        if self._publishing is not None:
            await self._publishing

    async def _publish_queue(self) -> None:
        while self._queue:
            batch, size = [self._queue.popleft()], 0
            while self._queue and size < BATCH_BYTES:
                batch.append(self._queue.popleft())
                size += len(batch[-1].message.body)
            try:
                await self._publish_batch([one for one in batch if not one.done.done()])
            except Exception as error:
                for one in batch:
                    settle(one.done, error)

    async def _publish_batch(self, batch: list[_Waiting]) -> None:
        """Publish all that can be, in order; tell each its message, or why it is refused."""
        outcomes: dict[int, WireMessage | OnOffError] = {}
        accepted = 0
        while not accepted and batch:  # until the edition that was looked at is the one that holds
            names = list(dict.fromkeys(one.name for one in batch))
            want_total = "1" if may_overflow(self._known()) else "0"
            got = await self._run_script(scripts.STATE, want_total, *names)
            edition, catalogue, _ = self._read_state([*got[:4], []])
            if may_overflow(catalogue) and want_total == "0":
                continue
            held = dict(zip(names, number_pairs(got[5:]), strict=True))
            args: list[Any] = []
            outcomes, digest, total = {}, edition.digest, int(got[4])
            for k, one in enumerate(batch):
                version, size = held[one.name]
                message = WireMessage(version + 1, one.message.published, one.message.media_type, one.message.body)
                try:
                    _check(catalogue, one.name, message, total - size if want_total == "1" else 0)
                except OnOffError as refusal:
                    outcomes[k] = refusal
                    continue
                packed = pack_message(message)
                digest = next_digest(digest, catalogue.index[one.name], message)
                args += [one.name, packed, message.version, digest, FRAME_OVERHEAD + len(message.body)]
                total += len(packed) - size
                held[one.name] = (message.version, len(packed))
                outcomes[k] = message
            accepted = not args or await self._run_script(
                scripts.PUBLISH, edition.number, edition.life, current_hour(), *args
            )
        for k, one in enumerate(batch):
            settle(one.done, outcomes[k])


def _check(catalogue: Catalogue, name: str, message: WireMessage, others: int) -> None:
    if name not in catalogue.index:
        raise UnknownSource("no source of that name", hint="`onoff catalogue` lists them")
    check_message(catalogue, message.body)
    if may_overflow(catalogue):
        check_total(catalogue, others, message.body)
