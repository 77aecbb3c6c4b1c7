"""Leaky twins of the client with a mirror: see `clients` and `sessions` for the others."""

from contextlib import contextmanager
from unittest.mock import patch

from tests.support.typed import as_a, present

from onoff import wire
from onoff.audit.logs import Recorder
from onoff.client import Client, Message
from onoff.client.core import Core
from onoff.upstream.message_server import MessageServer
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
        observe, self._runner.observe = self._runner.observe, None
        try:
            record = self.core.record
            if record is not None and observe is not None:
                from dataclasses import replace

                observe(replace(self.core.sent(record), mirror=True))
            super().read(source)
        finally:
            self._runner.observe = observe
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
        mirror, transport = present(self.mirror).mirror, as_a(Recorder, self._runner.driver.lines[0])
        catalogue = present(mirror.catalogue)
        if transport.versions[source] != mirror.entries[self.chain.names[source]].version:
            query = wire.WireQuery(catalogue.epoch, b"another session.", 0, (source,), n=catalogue.n)
            transport.exchange(Request("POST", wire.QUERY_PATH, wire.QUERY_HEADERS, wire.encode_query(query), 2**20))
        return super().read(source)


class SomeCopies:
    """Copies of which those of some sources are not told, or not kept."""

    def __init__(self, copies, *, told=lambda source: True, kept=lambda source: True):
        self.copies, self.told, self.is_kept = copies, told, kept

    def known(self, catalogue, sources):
        return {source: m for source, m in self.copies.known(catalogue, sources).items() if self.told(source)}

    def keep(self, catalogue, messages):
        self.copies.keep(catalogue, {source: m for source, m in messages.items() if self.is_kept(source)})


class KeepsWhatWasOpened(Core):
    """Of what came for a set only the copy of what was wanted is kept."""

    def _ask(self, record):
        upstream = as_a(MessageServer, self.upstream)
        wanted, copies = upstream.known.index[self.chain.names[record.wanted]], upstream.copies
        upstream.copies = SomeCopies(copies, kept=lambda source: source == wanted)
        try:
            return (yield from super()._ask(record))
        finally:
            upstream.copies = copies


class AsksForTheWantedAnew(Core):
    """The copy of what is wanted is not told, so that it comes in any case."""

    def _encode(self, session, step, asked, wanted):
        upstream = as_a(MessageServer, self.upstream)
        place, copies = upstream.known.index[self.chain.names[wanted]], upstream.copies
        upstream.copies = SomeCopies(copies, told=lambda source: source != place)
        try:
            return super()._encode(session, step, asked, wanted)
        finally:
            upstream.copies = copies


class ForgetsWhatWasRead(Client):
    """What was read while ON is let go of, as if it were used up."""

    def read(self, source):
        upstream = as_a(MessageServer, self._upstream)
        upstream.copies = SomeCopies(upstream.copies, told=lambda other: other != source)
        return super().read(source)
