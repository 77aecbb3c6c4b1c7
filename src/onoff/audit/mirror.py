"""The shipped client with its mirror under the exact audit: reads while ON, refreshes by schedule, open requests.

Every step the server publishes something. Then the mirror is refreshed if the schedule says so; then the person makes a
request, while ON by reading the mirror, while OFF by asking. Without a schedule a private request refreshes by itself.
Faults are those of `audit.client`; a crash at a read comes between the durable write and the message.

Beyond what `audit.client` judges, a read that causes traffic is a breach, whatever the traffic is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from onoff.audit.client import AuditedClient, ClientRun, Fault
from onoff.audit.exact import ExactAudit, audit_exact
from onoff.audit.recorder import Recorder
from onoff.client import Sent
from onoff.errors import MirrorEmpty, OnOffError, PrivacyBreach
from onoff.model.contexts import Model
from onoff.session.cache import TableCache

RefreshPattern = tuple[bool, ...]
MIRROR_LIMITS = (Fault.RESTORED,)
"""Not covered: a folder restored from before a read, which the server cannot know of."""


@dataclass
class MirroredClient(AuditedClient):
    """The client with a mirror. refreshes: at which steps, over and over; None: at every private request."""

    refreshes: RefreshPattern | None = None

    @property
    def _new_run(self) -> Callable[[Model, TableCache, tuple[Fault, ...], Recorder], ClientRun]:
        return partial(MirrorRun, refreshes=self.refreshes)


class MirrorRun(ClientRun):
    """One user with a mirror."""

    def __init__(
        self,
        chain: Model,
        tables: TableCache,
        faults: tuple[Fault, ...],
        recorder: Recorder,
        *,
        refreshes: RefreshPattern | None,
    ) -> None:
        self.refreshes = refreshes
        self.steps = 0
        self.crashes = False
        super().__init__(chain, tables, faults, recorder)

    def options(self) -> dict[str, Any]:
        return {"observe": self._observed, "transport": self.recorder}

    def _observed(self, sent: Sent) -> None:
        """Called when the read is durable and the message is not yet returned."""
        if sent.mirror and self.crashes:
            self.crash()

    def ask(self, x: int, private: bool, fault: Fault) -> bytes | None:
        crash = fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
        self.recorder.publish(self.steps % self.chain.n)
        scheduled = self.refreshes is not None and self.refreshes[self.steps % len(self.refreshes)]
        self.steps += 1
        if scheduled:
            self.recorder.fault = self.happens(Fault.NONE if crash else fault)
            try:
                self.client.refresh()
            except OnOffError:
                if fault is not Fault.GIVEN_UP:
                    raise
        if self.refreshes is None or not private:
            return super().ask(x, private, fault)
        self.recorder.fault = self.happens(Fault.NONE)
        self.crashes = crash
        before = len(self.recorder.events)
        message = None
        try:
            message = self.client.read(x).payload
        except MirrorEmpty:
            if Fault.GIVEN_UP not in self.faults:
                raise
        finally:
            self.crashes = False
        if self.recorder.judging and len(self.recorder.events) != before:
            raise PrivacyBreach(f"reading the mirror at step {self.steps - 1} caused traffic")
        return message

    @property
    def state(self) -> Hashable:
        mirror = self.client.mirror
        edition = None if mirror is None else mirror.mirror.edition
        return super().state, self.steps, edition


def audit_mirror(
    chain: Model,
    scheme: str,
    pattern: tuple[bool, ...],
    refreshes: RefreshPattern | None = None,
    faults: Sequence[Fault] = (),
    *,
    judging: bool = True,
) -> ExactAudit:
    """The exact audit of the shipped client with a mirror.

    refreshes: At which steps the mirror is refreshed, over and over; while ON requests then only read it. None: every
    private request refreshes.
    faults: What may happen at every request, or nothing, each with the same probability.
    """
    return audit_exact(
        chain,
        scheme,
        pattern,
        session=lambda: MirroredClient(chain, scheme, tuple(faults), judging=judging, refreshes=refreshes),
    )
