"""What can be said of readers by counting their requests, without a model: a bound on the cost, and the exact gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onoff.audit.cases import Before, Case, parts_by_person
from onoff.audit.observer import hidden_values, remembered
from onoff.information import table_chances
from onoff.model.rows import Floats
from onoff.session import Session
from onoff.session.session import Memory, SystemEntropy
from onoff.tables.table import QueryTable

MOST_SOURCES_COUNTED = 64
"""Sources up to which joint laws of three requests are counted."""


def empirical_bounds(cases: Sequence[Case], n: int) -> list[float]:
    """A lower bound on the messages of each OFF request, from how often it followed each private one.

    Any scheme that hides X asks for the sum over sources x of the largest p(x | X = u) at least. Which u that is for
    each x is found on one half of the readers, its p counted on the other, both ways: chance makes it smaller only.
    """
    wanted, later = np.array([case.wanted for case in cases]), np.array([case.later for case in cases])
    half = parts_by_person([case.person for case in cases], 2)
    found = []
    for following in later.T:
        counts = np.zeros((2, n, n))
        np.add.at(counts, (half, wanted, following), 1)
        rows = counts / np.maximum(counts.sum(axis=2, keepdims=True), 1)
        sums = [rows[other, rows[one].argmax(axis=0), np.arange(n)].sum() for one, other in ((0, 1), (1, 0))]
        found.append(max(1.0, float(np.mean(sums))))
    return found


def exact_gains(start: Session, cases: Sequence[Case], before: Before) -> list[float]:
    """Bits after one and two queries, by the law of the requests as counted on other readers.

    X is the first request of the visit or, where it is preceded by private ones, the second. The law of (X, next, next
    but one) is counted on one half of the readers and judged on the other, both ways; the mean over the session's
    random choices is exact. Empty where requests before X were open, where a query hides more than one request, and
    for many sources.
    """
    n, place = start.model.n, 1 if before == "private" else 0
    if before == "open" or n > MOST_SOURCES_COUNTED or remembered(start.memory) > 1:
        return []
    session, after = start.fork(SystemEntropy()), min(2, len(cases[0].later))
    for x in cases[0].requests[: place + 1]:
        session.request(x, private=True)
    counts = np.zeros((2, n, n, n))  # by half, X, next request, next but one
    for half, case in zip(parts_by_person([case.person for case in cases], 2), cases, strict=True):
        counts[half, case.requests[place], case.requests[place + 1], case.requests[place + after]] += 1
    gains = np.zeros((after, 2, n, n, n))
    memory = session.memory
    table = session.tables.of(memory)
    if not isinstance(table, QueryTable):
        return []
    for query, first in zip(table.queries, _by_source(memory, table, n), strict=True):
        drawn = first[:, :, None]  # of (X, next)
        known = np.einsum("habc,ab->habc", counts, first)
        gains[0] += drawn * _gain(counts, known.sum(axis=(2, 3))[..., None])[:, :, 0, None, None]
        if after > 1:
            following = memory.after(query, query[0], private=False, table=table)
            gains[1] += drawn * _second(session, following, counts, known)
    return [float((gain * counts[::-1]).sum() / counts.sum()) for gain in gains]


def _second(session: Session, memory: Memory, counts: Floats, known: Floats) -> Floats:
    """The mean gain over the second query, shape (half, X, next, next but one), by laws `known` after the first."""
    n = session.model.n
    table = session.tables.of(memory) if memory.rows.distinct > 1 else None
    chances = _by_source(memory, table, n)  # of (query, hidden, wanted)
    if hidden_values(memory)[1]:
        joint = np.einsum("hac,qac->haq", known.sum(axis=2), chances)
        return np.asarray(np.einsum("qac,haq->hac", chances, _gain(counts, joint))[:, :, None])
    joint = np.einsum("habc,qbc->haq", known, chances, optimize=True)
    return np.asarray(np.einsum("qbc,haq->habc", chances, _gain(counts, joint), optimize=True))


def _by_source(memory: Memory, table: Any, n: int) -> Floats:
    """p(q | u, x) for every query and all sources u and x; where nothing is hidden, queries are single sources."""
    if table is None:
        return np.repeat(np.eye(n)[:, None], n, axis=1)
    rows, _ = hidden_values(memory)
    chances = np.zeros((len(table), n, n))
    chances[:, [u[-1] for u in rows]] = table_chances(table)[:, list(rows.values())]
    return chances


def _gain(counts: Floats, joint: Floats) -> Floats:
    """log2 p(X | query) - log2 p(X) by the counts of each half, shape (half, X, queries); one unit of prior is added.

    joint: how often X and each query came together.
    """
    prior = counts.sum(axis=(2, 3))[..., None] + 1.0
    prior /= prior.sum(axis=1, keepdims=True)
    posterior = (joint + prior) / (joint.sum(axis=1, keepdims=True) + 1)
    return np.asarray(np.log2(posterior / prior))
