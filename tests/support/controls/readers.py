"""Leaky twins of the client with a mirror: see `clients` and `sessions` for the others."""

from contextlib import contextmanager
from unittest.mock import patch

from tests.support.typed import as_a, present

from onoff import wire
from onoff.audit.logs import Recorder
from onoff.client import Client, Message
from onoff.client.core import Core
from onoff.upstream.transport import Request


@contextmanager
def as_reader(client):
    """The audit with another client."""
    with patch("onoff.audit.client.Client", client):
        yield


class ForgetsReads(Core):
    """The memory is not updated by a read of the mirror."""

    def remember(self, wanted, **how):
        if self.record is None:
            yield from super().remember(wanted, **how)


class ShowsFirst(Client):
    """The memory is updated after the message is shown; the process may end between."""

    def read(self, source):
        message = present(self.mirror).copy_as(Message, self.chain.names[source])
        observe, self._runner._observe = self._runner._observe, None
        try:
            record = self.core.record
            if record is not None and observe is not None:
                from dataclasses import replace

                observe(replace(self.core.sent(record), mirror=True))
            super().read(source)
        finally:
            self._runner._observe = observe
        return message


class RefreshesToOpen(Client):
    """Opening a source causes a refresh."""

    def read(self, source):
        self.refresh()
        return super().read(source)


class RefreshesForNewOnes(Client):
    """Opening a source causes a refresh unless it is the one that was open."""

    shown = None

    def read(self, source):
        if self.shown not in (None, source):
            self.refresh()
        self.shown = source
        return super().read(source)


class FetchesAlone(Client):
    """A source that changed since the refresh is fetched alone when it is opened."""

    def read(self, source):
        mirror, transport = present(self.mirror).mirror, as_a(Recorder, self._runner.driver._transports[0])
        catalogue = present(mirror.catalogue)
        if transport.versions[source] != mirror.entries[self.chain.names[source]].version:
            query = wire.WireQuery(catalogue.epoch, b"another session.", 0, (source,), n=catalogue.n)
            transport.exchange(Request("POST", wire.QUERY_PATH, wire.QUERY_HEADERS, wire.encode_query(query), 2**20))
        return super().read(source)
