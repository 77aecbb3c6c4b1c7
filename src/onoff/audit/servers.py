"""The shipped client with several servers under the exact audit: what each server sees, and what all see together.

Every server is a separate recorder and holds the same messages. The audit takes the view of one of them: I(X_B ; bytes
at server j of step t | bytes at server j before) must be zero. For the view of all of them together (`view` None, which
is collusion) it is reported, not promised. Faults are those of `audit.client`; they happen at one server.

Beyond what `audit.client` judges, a request that leaves out a server is a breach.

One server may lie (`lie`): it adds the difference of two valid frames of a source to every answer that is not empty.
After a refusal the client sends nothing by itself. A person may insist (`insists`) and ask for the same once more, so
that all servers see that answers were refused. To the liar that tells nothing; the others learn what the liar decided
on seeing what it was asked, which is the same as being told.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from onoff.audit.client import AuditedClient, ClientRun, Fault
from onoff.audit.exact import ExactAudit, audit_exact
from onoff.audit.recorder import Recorder, SeenExchange
from onoff.errors import BadAnswer, PrivacyBreach
from onoff.model.contexts import Model
from onoff.session.cache import TableCache

SERVER_URLS = tuple(f"http://server{place}.invalid" for place in range(16))


@dataclass
class SeveralServers(AuditedClient):
    """The client of several servers. view: which server's; None: all together. faulty: where faults happen.

    lie: the source about which the faulty server lies; None: it does not. insists: whether the person then asks again.
    """

    servers: int = 2
    view: int | None = 0
    faulty: int = 0
    lie: int | None = None
    insists: bool = True

    @property
    def _new_run(self) -> Callable[[Model, TableCache, tuple[Fault, ...], Recorder], ClientRun]:
        return partial(
            ServersRun,
            servers=self.servers,
            view=self.view,
            faulty=self.faulty,
            lie=self.lie,
            insists=self.insists,
        )


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
        lie: int | None,
        insists: bool,
    ) -> None:
        self.view, self.faulty, self.insists = view, faulty, insists
        others = [Recorder(chain.names, recorder.journal, judging=recorder.judging) for _ in range(servers - 1)]
        self.recorders = (recorder, *others)
        self.recorders[faulty].lie = lie
        super().__init__(chain, tables, faults, recorder)

    @property
    def addresses(self) -> tuple[str, ...]:
        return SERVER_URLS[: len(self.recorders)]

    def options(self) -> dict[str, Any]:
        return {"transport": self.recorders, "mirror": False}

    def ask(self, x: int, private: bool, fault: Fault) -> bytes | None:
        before = [recorder.sums for recorder in self.recorders]
        self.recorders[self.faulty].fault = self.happens(fault)
        message: bytes | None = None
        try:
            message = self.client.get(x, private=private).payload
        except BadAnswer:
            if self.recorders[self.faulty].lie is None:
                raise
            with suppress(BadAnswer):
                message = self.client.retry().payload if self.insists else None
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
    lie: int | None = None,
    insists: bool = True,
) -> ExactAudit:
    """The exact audit of the shipped client with several servers.

    faults, faulty: What may happen at every request, or nothing, each with the same probability; and at which server.
    lie, insists: The source about which that server lies; None: it does not. Whether the person then asks again.
    """
    several = partial(
        SeveralServers, judging=judging, servers=servers, view=view, faulty=faulty, lie=lie, insists=insists
    )
    return audit_exact(chain, scheme, pattern, session=lambda: several(chain, scheme, tuple(faults)))
