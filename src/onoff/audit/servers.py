"""The shipped client with several servers under the exact audit: what each server sees, and what all see together.

Every server is a separate recorder and holds the same messages. The audit takes the view of one of them: I(X_B ; bytes
at server j of step t | bytes at server j before) must be zero. For the view of all of them together (`view` None, which
is collusion) it is reported, not promised. Faults are those of `audit.client`; they happen at one server.

Beyond what `audit.client` judges, a request that leaves out a server is a breach.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from onoff.audit.client import AuditedClient, ClientRun, Fault
from onoff.audit.exact import ExactAudit, audit_exact
from onoff.audit.recorder import Recorder, SeenExchange
from onoff.errors import PrivacyBreach
from onoff.model.contexts import Model
from onoff.session.cache import TableCache

SERVER_URLS = tuple(f"http://server{place}.invalid" for place in range(16))


@dataclass
class SeveralServers(AuditedClient):
    """The client of several servers. view: which server's; None: all together. faulty: where faults happen."""

    servers: int = 2
    view: int | None = 0
    faulty: int = 0

    @property
    def _new_run(self) -> Callable[[Model, TableCache, tuple[Fault, ...], Recorder], ClientRun]:
        return partial(ServersRun, servers=self.servers, view=self.view, faulty=self.faulty)


class ServersRun(ClientRun):
    """One user of several servers."""

    def __init__(
        self,
        chain: Model,
        tables: TableCache,
        faults: tuple[Fault, ...],
        recorder: Recorder,
        *,
        servers: int,
        view: int | None,
        faulty: int,
    ) -> None:
        self.view, self.faulty = view, faulty
        others = [Recorder(chain.names, recorder.journal, judging=recorder.judging) for _ in range(servers - 1)]
        self.recorders = (recorder, *others)
        super().__init__(chain, tables, faults, recorder)

    @property
    def addresses(self) -> tuple[str, ...]:
        return SERVER_URLS[: len(self.recorders)]

    def options(self) -> dict[str, Any]:
        return {"transport": self.recorders, "mirror": False}

    def ask(self, x: int, private: bool, fault: Fault) -> bytes | None:
        before = [recorder.sums for recorder in self.recorders]
        self.recorders[self.faulty].fault = self.happens(fault)
        message = self.client.get(x, private=private).payload
        for place, (recorder, asked) in enumerate(zip(self.recorders, before, strict=True)):
            if recorder.judging and recorder.sums == asked:
                raise PrivacyBreach(f"server {place} was not asked")
        return message

    def taken(self) -> tuple[tuple[SeenExchange, ...], int]:
        taken = [recorder.take() for recorder in self.recorders]
        asked = sum(count for _, count in taken)
        if self.view is not None:
            return taken[self.view][0], asked
        return tuple(event for events, _ in taken for event in events), asked

    @property
    def state(self) -> Hashable:
        alive = tuple(tuple(recorder.last.items())[-1:] for recorder in self.recorders)
        return super().state, alive


def audit_servers(
    chain: Model,
    scheme: str,
    pattern: tuple[bool, ...],
    servers: int = 2,
    view: int | None = 0,
    faults: Sequence[Fault] = (),
    *,
    faulty: int = 0,
    judging: bool = True,
) -> ExactAudit:
    """The exact audit of the shipped client with several servers.

    faults, faulty: What may happen at every request, or nothing, each with the same probability; and at which server.
    """
    several = partial(SeveralServers, judging=judging, servers=servers, view=view, faulty=faulty)
    return audit_exact(chain, scheme, pattern, session=lambda: several(chain, scheme, tuple(faults)))
