"""What each of several servers saw of a request, and what it could tell them.

A server sees a vector (`wire.sums`): an entry for each source, uniform on its class whatever is wanted. No server sees
the set that the vectors were drawn in. What is computed for the set here, from the same tables as with one server, is
an upper bound: what a server would learn if it saw the set. All servers together see where their vectors differ: at the
wanted source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onoff import wire
from onoff.client import Sent
from onoff.client.forecast import cost_of_set
from onoff.gateway.evidence import Assessment, Evidence
from onoff.gateway.model_evidence import ModelEvidence


def views_of(sent: Sent, names: Sequence[str], catalogue: wire.Catalogue) -> list[list[int]]:
    """What each server saw: its vector's entry for each of `names`; nothing if the catalogue is another one by now."""
    if any(len(vector) != catalogue.n for vector in sent.vectors) or any(name not in catalogue.index for name in names):
        return []
    order = [catalogue.index[name] for name in names]
    return [[vector[at] for at in order] for vector in sent.vectors]


def assess_sums(sent: Sent, wanted: int, evidence: Evidence | ModelEvidence | None) -> Assessment:
    """Weigh a step that several servers saw.

    evidence: Weighs its set as if one server had seen it; None: there is no model, and every set is everything.
    """
    expected = cost_of_set(len(sent.sources), len(sent.vectors))
    lower = expected if sent.private else 1.0
    if evidence is None:
        return Assessment(expected, lower, 0.0, None)
    by_set = evidence.add(replace(sent, vectors=()), wanted)
    return Assessment(expected, lower, by_set.bits, by_set.naive)
