"""The audit of a log: silent on honest sessions, and each rule red on a line that breaks it."""

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.chains import NAMED, P2, P3
from tests.support.clients import Client
from tests.support.typed import present
from tests.support.world import NAMES, P4, Direct, World

from onoff.audit import logs
from onoff.audit.logs import LogLine, audit_log, parse_line, read_log
from onoff.client import MemoryJournal
from onoff.errors import InvalidInput, PrivacyBreach
from onoff.model.chain import MarkovChain
from onoff.session import Session
from onoff.session.seeded import SeededEntropy

SPARSE = NAMED["zeros 4"]


def honest(chain, length=200, scheme="greedy", every=5, seed=0, truth=None):
    session, rng = Session(chain, scheme), np.random.default_rng(seed)
    lines = []
    for t, x in enumerate((truth or chain).sample(length, rng).tolist()):
        query = session.request(x, private=t % every == 0)
        lines.append(LogLine(t + 1, t, query.sources, t % every == 0, len(query), "s", noted=query.note is not None))
    return lines


@pytest.mark.parametrize("scheme", ["full", "single", "greedy"])
@pytest.mark.parametrize("name", ["P2", "P3", "zeros 3", "zeros 4", "equal rows 3"])
def test_honest_sessions_are_sound(name, scheme):
    lines = honest(NAMED[name], scheme=scheme)
    audit = audit_log(lines, NAMED[name], scheme)
    audit.require_sound()
    assert audit.queries == 200
    assert audit.messages == sum(len(line.sources) for line in lines)
    server = [replace(line, private=None, cost=None) for line in lines]
    assert audit_log(server, NAMED[name], scheme).sound


def broken(lines, at, **changes):
    return [*lines[:at], replace(lines[at], **changes), *lines[at + 1 :]]


def first(lines, condition):
    return next(i for i, line in enumerate(lines) if i and condition(line))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sources": ()}, "no source"),
        ({"sources": (1, 0)}, "ascend"),
        ({"sources": (1, 1)}, "ascend"),
        ({"sources": (0, 4)}, "does not exist"),
        ({"sources": (-1, 0)}, "does not exist"),
        ({"cost": 9}, "at a cost of 9"),
        ({"step": 9}, "was followed by step 9"),
        ({"step": 0}, "was followed by step 0"),
    ],
)
def test_a_line_out_of_form_is_named(changes, reason):
    lines = honest(SPARSE)
    audit = audit_log(broken(lines, 3, **changes), SPARSE, "greedy")
    assert not audit.sound
    assert (audit.faults[0].line, reason in audit.faults[0].reason) == (4, True)
    with pytest.raises(PrivacyBreach, match=f"line 4, .*{reason}"):
        audit.require_sound()


def test_on_must_ask_for_everything_possible():
    lines = honest(SPARSE)
    at = first(lines, lambda line: line.private and len(line.sources) > 1)
    fault = audit_log(broken(lines, at, sources=lines[at].sources[1:], cost=None), SPARSE, "greedy").faults[0]
    assert "could be wanted" in fault.reason


def test_off_must_follow_the_table_of_the_query_before():
    lines = honest(P3, scheme="single")
    at = first(lines, lambda line: not line.private and len(lines[line.step - 1].sources) == 3)
    fault = audit_log(broken(lines, at, sources=(0, 1), cost=None), P3, "single").faults[0]
    assert "not a query of the table" in fault.reason
    assert fault.line == at + 1


def test_after_a_plain_request_one_source_is_asked():
    lines = honest(P3)
    at = first(lines, lambda line: not line.private and len(lines[line.step - 1].sources) == 1)
    fault = audit_log(broken(lines, at, sources=(0, 1), cost=None), P3, "greedy").faults[0]
    assert "nothing was hidden" in fault.reason


def test_a_retry_shows_the_same_set_or_is_a_fault():
    lines = honest(P2, 20)
    assert audit_log([*lines[:5], lines[4], *lines[5:]], P2, "greedy").retries == 1
    other = (0,) if lines[4].sources != (0,) else (1,)
    audit = audit_log([*lines[:5], replace(lines[4], sources=other, cost=None), *lines[5:]], P2, "greedy")
    assert "sent again with another set" in audit.faults[0].reason


def test_a_new_session_begins_with_everything():
    lines = honest(P2, 20)
    plain = LogLine(99, 0, (0,), False, 1, "another")
    assert "did not start by asking" in audit_log([*lines, plain], P2, "greedy").faults[0].reason
    audit = audit_log([*lines, replace(plain, sources=(0, 1), cost=2, noted=True)], P2, "greedy")
    assert audit.sound
    assert audit.sessions == 2
    assert audit.everything >= 1


def test_a_log_that_starts_within_a_session_is_read_from_there():
    lines = honest(P3)
    assert audit_log(lines[37:], P3, "greedy").sound


def test_a_scheme_without_tables_is_held_to_what_every_table_must_satisfy(monkeypatch):
    class Tableless:
        cost, lower_bound, nbytes = 1.0, None, 0

    monkeypatch.setattr("onoff.audit.logs.TableCache.of", lambda self, memory: Tableless())
    everything = LogLine(1, 0, (0, 1, 2, 3), True)
    assert audit_log([everything, LogLine(2, 1, (0, 2), False)], SPARSE).sound
    ruled_out = audit_log([everything, LogLine(2, 1, (0,), False)], SPARSE).faults[0].reason
    assert "rules out a source" in ruled_out
    two = [everything, LogLine(2, 1, (0, 2), False), LogLine(3, 2, (0, 1, 2, 3), True)]
    assert audit_log(two, SPARSE).sound
    unreachable = [LogLine(1, 3, (0, 1), None), LogLine(2, 4, (1, 3), None)]
    assert "cannot be wanted" in audit_log(unreachable, SPARSE).faults[0].reason


def test_draws_that_do_not_fit_their_tables_are_told():
    """For the honest log the fit is uniform up to the grid of the test: below 1e-6 once in a million runs."""
    assert present(audit_log(honest(P3, 2000), P3, "greedy").fit) > 1e-6
    other = MarkovChain([[0.3, 0.3, 0.4], [0.3, 0.6, 0.1], [0.6, 0.1, 0.3]])
    audit = audit_log(honest(P3, 2000, truth=other), P3, "greedy")
    assert audit.sound
    assert present(audit.fit) < 1e-6
    assert audit_log(honest(P3, 3), P3, "greedy").fit is None


def test_files_are_read_line_by_line_and_faults_have_their_number(tmp_path):
    path = tmp_path / "log.jsonl"
    lines = honest(P2, 10)
    path.write_text(
        "\n".join(
            json.dumps(
                {"step": line.step, "sources": line.sources, "private": line.private, "time": "now", "note": None}
            )
            for line in lines
        )
        + "\n\n"
    )
    assert [line.sources for line in read_log(path)] == [line.sources for line in lines]
    assert audit_log(read_log(path), P2, "greedy").sound
    with pytest.raises(InvalidInput, match="No such file"):
        list(read_log(tmp_path / "none"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no step and sources"),
        ('{"step": 0}', "no step and sources"),
        ('{"step": -1, "sources": []}', "no step and sources"),
        ('{"step": 0, "sources": ["0"]}', "no step and sources"),
        ('{"step": 0, "sources": [true]}', "no step and sources"),
        ('{"step": 0, "sources": [0], "private": 1}', "private is"),
        ('{"step": 0, "sources": [0], "cost": "1"}', "cost a whole"),
    ],
)
def test_lines_that_cannot_be_read_are_refused(text, complaint):
    with pytest.raises(InvalidInput, match=f"line 7.*{complaint}"):
        parse_line(text, 7)


def test_endless_lines_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "LONGEST_LOG_LINE", 10)
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 0, "sources": [0]}')
    with pytest.raises(InvalidInput, match="longer than 10"):
        list(read_log(path))


def test_queries_after_reads_of_the_mirror_are_sound_and_counted():
    """A server's log of a client that reads its mirror while ON: it hears of the open requests alone."""
    seen: list[Any] = []
    rng, world = random.Random(3), World(NAMES)
    entropy = SeededEntropy(np.random.default_rng(3))  # how many queries follow reads must not be left to chance
    settings = {"tick": 0, "background": False, "transport": Direct(world), "observe": seen.append, "entropy": entropy}
    chain = MarkovChain(P4, names=NAMES)
    with Client("http://server.test", chain, MemoryJournal(), "greedy", **settings) as client:
        client.get("alpha", private=False)
        client.refresh()
        for _ in range(120):
            name = rng.choice(NAMES)
            client.read(name) if rng.random() < 0.5 else client.get(name, private=False)
    heard = [sent for sent in seen if not sent.mirror]
    lines = [
        LogLine(number, sent.step, sent.sources, None, len(sent.sources), sent.session)
        for number, sent in enumerate(heard)
    ]
    audit = audit_log(lines, chain, "greedy")
    audit.require_sound()
    assert audit.after_reads > 5
    assert audit.as_dict()["after_reads"] == audit.after_reads
    known = [replace(line, private=False) for line in lines]  # who knows the switch knows of reads, and must say so
    assert not audit_log(known, chain, "greedy").sound
