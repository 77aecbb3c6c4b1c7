"""The shelf: for each source the frame of its latest message, ready to send, as of one stamp of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from onoff.server.store import Latest, LocalStore, Stamp, Store, readable
from onoff.wire import NOTHING, Catalogue, Edition, WireMessage, encode_frame


class Shelf:
    """The frames of one catalogue, as of one stamp."""

    def __init__(self) -> None:
        self.stamp = Stamp()
        self.catalogue = Catalogue(())
        self.epoch = self.catalogue.epoch
        self.frames: list[bytes] = []
        self.changed: list[int] = []  # the edition of each source's latest message; 0 if it has none
        self.edition: Edition | None = None
        self.watcher: Callable[[Latest], None] | None = None  # called with everything that is taken
        self._refreshing = asyncio.Lock()

    async def refresh(self, store: Store, wanted: Stamp | None = None) -> None:
        """Bring the frames up to the store's latest messages, unless they are as new as `wanted`."""
        async with self._refreshing:
            if wanted is None or wanted.life != self.stamp.life or wanted.changes > self.stamp.changes:
                latest = await store.latest(self.stamp)
                if latest.catalogue != self.catalogue and not latest.whole:
                    latest = await store.latest(Stamp())
                self.take(latest)

    def refresh_sync(self, local: LocalStore | None) -> bool:
        """Bring the frames up to the store without waiting; False if that cannot be done: use `refresh`.

        A store on another machine cannot be asked without waiting, and a changed catalogue needs all messages.
        """
        if local is None:
            return False
        latest = local.changed_since(self.stamp)
        if latest is not None:
            if latest.catalogue != self.catalogue:
                return False
            self.take(latest)
        return True

    def take(self, latest: Latest) -> None:
        """Take in what changed since the stamp of the shelf; everything where the catalogue changed."""
        if latest.whole:
            self.catalogue, self.epoch = latest.catalogue, latest.catalogue.epoch
            self.frames = [
                self._frame(source, latest.messages.get(name, NOTHING))
                for source, name in enumerate(self.catalogue.names)
            ]
            self.changed = [latest.changed.get(name, 0) for name in self.catalogue.names]
        else:
            for name, message in latest.messages.items():
                source = self.catalogue.index[name]
                self.frames[source] = self._frame(source, message)
                self.changed[source] = latest.changed[name]
        self.stamp, self.edition = latest.stamp, latest.edition
        if self.watcher is not None:
            self.watcher(latest)

    def _frame(self, source: int, message: WireMessage) -> bytes:
        known = self.catalogue
        return readable(
            lambda: encode_frame(source, message, epoch=self.epoch, frame_size=known.frame_size, limit=known.limit)
        )
