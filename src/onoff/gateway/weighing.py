"""Weighing: what each step told the server, computed after the message was delivered, and the log of steps."""

from __future__ import annotations

import logging
from typing import Any

from onoff.client import Client, Sent
from onoff.gateway.evidence import Assessment, Evidence
from onoff.gateway.jobs import Job, Step
from onoff.gateway.model_evidence import ModelEvidence
from onoff.gateway.seen import SeenLog
from onoff.gateway.several import assess_sums
from onoff.model.chain import MarkovChain
from onoff.session.filter import ModelFilter

log = logging.getLogger("onoff.gateway")


class Weighing:
    """Logs the steps of each job at once, and weighs them later.

    Parameters
    ----------
    seen
        The log.
    client
        Whose steps these are; None where there is no model, by which they could be weighed.
    """

    def __init__(self, seen: SeenLog, client: Client | None) -> None:
        self._seen = seen
        last = None if client is None else client.status()["last"]
        self.evidence = None if client is None else _evidence_for(client, last)
        self._read_here = last is not None and bool(last["mirror"])
        self._unweighed: list[Sent] = []

    def note(self, job: Job) -> None:
        """Log the steps of a job. Called before its message is delivered."""
        self._unweighed = [step.sent for step in job.steps if self._note(step, job.wanted)]

    def weigh(self, job: Job) -> None:
        """Compute what the steps noted last told the server."""
        for sent in self._unweighed:
            weighed = self._assess(sent, job.wanted)
            if not sent.mirror:
                self._seen.weigh(sent, weighed)
        self._unweighed = []

    @property
    def posterior(self) -> dict[str, Any] | None:
        """What the server can believe now, for the page; None where the log keeps less than everything."""
        return self.evidence.posterior if self.evidence is not None and self._seen.level == "full" else None

    def _note(self, step: Step, wanted: int) -> bool:
        """Log a step that the server sees, and remember that the mirror was read. Returns whether to weigh it."""
        if step.sent.mirror:
            self._read_here = True
            return True
        after, self._read_here = self._read_here, False
        return self._seen.add(step, wanted, after_reading=after)

    def _assess(self, sent: Sent, wanted: int) -> Assessment:
        if wanted >= sent.n and isinstance(self.evidence, ModelEvidence):
            return Assessment()  # read outside the model, whose filter stays as it was
        try:
            if sent.vectors:
                return assess_sums(sent, wanted, self.evidence)
            return Assessment() if self.evidence is None else self.evidence.add(sent, wanted)
        except Exception as error:  # an error in what is only displayed must not stop requests
            log.warning("a step could not be weighed: %s", type(error).__name__)
            return Assessment()


def _evidence_for(client: Client, last: dict[str, Any] | None) -> Evidence | ModelEvidence:
    """Evidence for the client's model, which goes on from the last step of its journal."""
    before = None if last is None else (last["session"], last["step"], tuple(last["sources"]))
    if isinstance(client.chain, MarkovChain):
        return Evidence(client.chain, client.tables, before)
    memory = client.core.session.memory
    return ModelEvidence(client.chain, client.tables, memory.hide if isinstance(memory, ModelFilter) else 1)
