"""Upstream: the servers as the gateway sees them. A client, its mirror, and the state of the connections.

One server: while ON a message is read from the mirror, which causes no traffic; while OFF it is one step of the
session. Without a model there is no client, and the mirror serves both positions. From a server without `/v1/changes`
everything is asked for while ON.

Several servers: a request is a sum from each of them, ON and OFF, and the mirror, which is refreshed from the first
server, is for programs that poll feeds. Without a model every request is private.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from onoff.client import BuildProgress, Client, Copy, Message, MirrorClient, Refresh, Sent, SourceState
from onoff.client.exchange import Transport
from onoff.client.refreshing import NoChanges
from onoff.client.setup import transports
from onoff.errors import InvalidInput, OnOffError, ServerUnreachable, UnknownSource
from onoff.gateway.board import Board
from onoff.gateway.estimate import Estimate
from onoff.gateway.history import EntryStore
from onoff.gateway.jobs import Job
from onoff.gateway.meter import Meter
from onoff.gateway.presence import Presence
from onoff.gateway.refresher import INTERVAL, Refresher
from onoff.gateway.setup import GatewaySetup
from onoff.gateway.steps import StepObserver


class Upstream:
    """What fetches messages, one job at a time.

    Parameters
    ----------
    setup
        The servers and the model.
    board
        Notified of every change.
    now
        The time in seconds since 1970.
    private
        Whether the switch is ON now.
    heartbeat
        Seconds between two checks that the servers answer.
    refresh
        Seconds between two refreshes of the mirror; None: no mirror, unless there is nothing else.
    transport, timeout, client_options
        Passed to the client.
    """

    def __init__(
        self,
        setup: GatewaySetup,
        board: Board,
        now: Callable[[], float],
        private: Callable[[], bool],
        *,
        heartbeat: float,
        refresh: float | None,
        transport: Transport | Sequence[Transport] | None,
        timeout: float,
        client_options: dict[str, Any],
    ) -> None:
        self.setup, self._board, self._now = setup, board, now
        self.building: tuple[int, float] | None = None
        """Rows of the table that is being built, and since when."""
        self.estimate: Estimate | None = None
        self.entries = EntryStore()
        self._unmodelled: list[str] = []  # in the order in which they were found, for their numbers
        self._modelled = frozenset(() if setup.chain is None else setup.chain.names)
        self.meters = tuple(Meter(line) for line in transports(setup.urls, transport, timeout))
        self._observer = StepObserver(self.meters, now)
        by_mirror_alone = setup.chain is None and not setup.several
        self.client = None if by_mirror_alone else self._new_client(refresh, client_options)
        self.presence = Presence(setup.urls, None if setup.chain is None else setup.chain.names, heartbeat, board)
        if self.client is not None:
            self.estimate = Estimate(self.client, board, always_private=setup.always_private)
        self.refresher = self._new_refresher(refresh, private)

    def _new_client(self, refresh: float | None, options: dict[str, Any]) -> Client:
        client = Client(
            self.setup.urls,
            self.setup.chain,
            journal=self.setup.journal,
            observe=self._observer.observed,
            progress=self._progressed,
            transport=self.meters,
            mirror=False if refresh is None else self.setup.mirror_path,
            **options,
        )
        if self.setup.chain is not None:  # without a model that takes names from a server, which may be down now
            client.status()  # opens the journal, so that a second gateway fails here
        return client

    def _new_refresher(self, interval: float | None, private: Callable[[], bool]) -> Refresher | None:
        if self.client is None:
            mirror = MirrorClient(self.setup.url, self.setup.mirror_path, transport=self.meters[0])
            refresh = mirror.refresh
        elif self.client.mirror is not None and interval is not None:
            refresh, mirror = self.client.refresh, self.client.mirror
        else:
            return None

        def mirror_serves() -> bool:
            return not self.setup.several and (self.setup.always_private or private())

        mirror.arrived = self.entries.arrived
        mirror.sources()  # opens the file, so that a second gateway fails here
        return Refresher(refresh, mirror, interval or INTERVAL, mirror_serves, self._refreshed, self._board)

    # -- messages ------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The sources: the model's, or the catalogue's where there is no model; none before that is known."""
        if self.setup.chain is not None:
            return self.setup.chain.names
        known = None if self.refresher is None else self.refresher.mirror.mirror.catalogue
        catalogue = known or self.presence.catalogue
        return () if catalogue is None else catalogue.names

    @property
    def unmodelled(self) -> tuple[str, ...]:
        """Sources that the server has by now and the model does not: read from the mirror, which needs one server."""
        if self.setup.chain is None or self.setup.several or self.refresher is None:
            return ()
        catalogue = self.refresher.mirror.mirror.catalogue
        found = () if catalogue is None else catalogue.names
        for name in found:
            if name not in self._unmodelled and name not in self._modelled:
                self._unmodelled.append(name)
        return tuple(name for name in self._unmodelled if name in found)

    @property
    def all_names(self) -> tuple[str, ...]:
        """All that can be read."""
        return (*self.names, *self.unmodelled)

    def index(self, source: str) -> int:
        """The number of a source, the same for as long as the gateway runs. Raises UnknownSource."""
        if source in self.names:
            return self.names.index(source)
        if source in self.unmodelled:
            return len(self.names) + self._unmodelled.index(source)
        raise UnknownSource("no such source", hint="GET /v1/sources lists them")

    def require_modelled(self, wanted: int) -> None:
        """Raises InvalidInput for a source that cannot be asked for openly."""
        if self.setup.chain is not None and wanted >= self.setup.chain.n:
            raise InvalidInput(
                "the model does not know this source, so OFF cannot ask for it; nothing was sent",
                hint="turn privacy ON to read it, or learn a model that knows it",
            )

    def run(self, job: Job) -> Message:
        """The message that a job asks for; what was stored for it is added to its steps."""
        with self._observer.steps_of(job):
            by_mirror = not self.setup.several and (job.private or self.client is None)
            if by_mirror and self.refresher is not None and self.refresher.supported:
                try:
                    self.refresher.wait_for_first()
                except NoChanges:
                    if self.client is None:
                        raise
                else:
                    return self._read_mirror(job)
            assert self.client is not None
            if job.again:
                return self.client.retry()
            return self.client.get(self.names[job.wanted], private=job.private or self.setup.always_private)

    def _read_mirror(self, job: Job) -> Message:
        assert self.refresher is not None
        if self.client is not None and job.wanted >= len(self.names):
            return self.client.read_unmodelled(self._unmodelled[job.wanted - len(self.names)])
        if self.client is not None:
            return self.client.read(job.wanted)
        names = self.names
        message = self.refresher.mirror.copy_as(Message, names[job.wanted])
        return message.after(Sent("", -1, (), len(names), job.private, mirror=True), messages=0, received=0)

    def copy(self, source: str) -> Copy | None:
        """The message of `source` as the mirror has it, which may be refreshed first; None where there is no mirror.

        Not a request: for programs that poll every source whatever the person wants.
        """
        self.index(source)
        if self.refresher is None or not self.refresher.supported:
            return None
        try:
            self.refresher.wait_until_fresh()
        except NoChanges:
            return None
        return self.refresher.mirror.copy(source)

    def states(self) -> dict[str, SourceState]:
        """What the mirror knows of each source."""
        return {} if self.refresher is None else {state.name: state for state in self.refresher.mirror.sources()}

    def refresh_soon(self) -> None:
        """Have the mirror refreshed now, where clicks are served from it."""
        if self.refresher is not None and self.refresher.supported and not self.setup.several:
            self.refresher.refresh_soon()

    # -- the state of the servers ----------------------------------------------------------------------

    def _refreshed(self, outcome: Refresh | OnOffError) -> None:
        if isinstance(outcome, Refresh | ServerUnreachable):  # the refresher itself shows other errors
            self.presence.report(outcome)

    def _progressed(self, progress: BuildProgress) -> None:
        self.building = (progress.sources, self._now()) if progress.state == "building" else None
        self.wake_estimate()
        self._board.changed()

    def wake_estimate(self) -> None:
        """Compute the cost of the next request again."""
        if self.estimate is not None:
            self.estimate.wake()

    # -- life ----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the threads; a job under way goes on."""
        self.presence.close()
        if self.estimate is not None:
            self.estimate.close()
        if self.refresher is not None:
            self.refresher.close()

    def close(self) -> None:
        """Close the journal and the mirror, when no job is under way."""
        with suppress(OnOffError):
            if self.client is not None:
                self.client.close()
            elif self.refresher is not None:
                self.refresher.mirror.close()
