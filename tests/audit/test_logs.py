"""Logs of real gateways before a real server: honest ones are sound under every scheme, tampered ones are refused.

The chain has six sources and no two rows alike, so that `auto` searches for the optimum and looks ahead.
"""

import json
from contextlib import ExitStack

import numpy as np
import pytest
from tests.support.gateway import gateway
from tests.support.typed import as_a
from tests.support.waiting import PATIENCE

from onoff import wire
from onoff.audit import logs
from onoff.audit.logs import LogLine, audit_log
from onoff.cli import run
from onoff.model.chain import MarkovChain
from onoff.schemes import SCHEMES
from onoff.server import running
from onoff.session.memories import LastQuery
from onoff.session.session import TableCache
from onoff.tables.table import QueryTable
from onoff.upstream.transport import Failure, Http

NAMES = ("news", "sport", "weather", "trains", "music", "markets")
CHAIN = MarkovChain(np.random.default_rng(0).dirichlet(np.full(6, 0.5), size=6), names=NAMES)
PRIVATE_EVERY = 5


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    store = tmp_path_factory.mktemp("store") / "messages.db"
    with running(dict.fromkeys(NAMES, b"hello"), frame_size=512, store=store) as server:
        yield server


@pytest.fixture
def chain(tmp_path):
    path = tmp_path / "chain.json"
    CHAIN.save(path)
    return str(path)


class Wiretap:
    """Passes requests on and keeps the queries; the third answer of all is lost."""

    def __init__(self, url):
        self.inner, self.bodies = Http(url, timeout=PATIENCE), []

    def exchange(self, request):
        reply = self.inner.exchange(request)
        if request.path == wire.QUERY_PATH:
            self.bodies.append(request.body)
            if len(self.bodies) == 3:
                return Failure("lost on the way back")
        return reply

    def lines(self):
        """What a server would write: everything but the switch."""
        for body in self.bodies:
            query = wire.decode_query(body, len(NAMES))
            yield {"step": query.step, "sources": list(query.sources), "session": query.session.hex()}


def follow(local, path):
    """Ask for the sources of a path, every fifth privately, through the gateway."""
    for at, x in enumerate(path):
        assert local.turn(private=at % PRIVATE_EVERY == 0).status == 200
        assert local.get(f"/v1/sources/{NAMES[x]}").status == 200


def sample(count, seed):
    return CHAIN.sample(count, np.random.default_rng(seed)).tolist()


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def verdict(capsys, log, chain, scheme, code):
    assert run(["audit", "log", str(log), "--chain", chain, "--scheme", scheme, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_honest_logs_of_a_gateway_and_of_its_server_are_sound(scheme, server, chain, tmp_path, capsys):
    tap, log = Wiretap(server.url), tmp_path / "seen.jsonl"
    with gateway(tmp_path, url=server.url, chain=CHAIN, scheme=scheme, log=log, transport=tap) as local:
        follow(local, sample(30, 1))
    report = verdict(capsys, log, chain, scheme, 0)
    assert (report["queries"], report["sessions"], report["retries"]) == (30, 1, 0)
    assert bool(report["without_table"]) == (scheme == "race")
    seen = verdict(capsys, write(tmp_path / "server.jsonl", tap.lines()), chain, scheme, 0)
    assert (seen["queries"], seen["messages"], seen["retries"]) == (30, report["messages"], 1)


@pytest.mark.slow(reason="many cases are worked out")
def test_a_log_with_readings_from_the_mirror_is_sound_and_not_without_their_marks(server, chain, tmp_path, capsys):
    log = tmp_path / "seen.jsonl"
    for requests in (sample(30, 3), sample(30, 4)):  # the second time after a restart
        with gateway(tmp_path, url=server.url, chain=CHAIN, scheme="auto", log=log, refresh=3600.0) as local:
            follow(local, requests)
    report = verdict(capsys, log, chain, "auto", 0)
    assert (report["queries"], report["sessions"]) == (48, 1)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sum("mirror" in line for line in lines) == 12
    for line in lines:
        line.pop("mirror", None)
    assert verdict(capsys, write(tmp_path / "bare.jsonl", lines), chain, "auto", 5)["faults"]


def test_look_ahead_acts_on_this_chain():
    """The tables of `auto` are not those that it makes without looking ahead: the audit must look ahead as well."""
    everything = LastQuery(CHAIN, tuple(range(6)), 0)
    tables = (TableCache(CHAIN, "auto", look_ahead=look).of(everything) for look in (True, False))
    ahead, blind = (set(as_a(QueryTable, table).queries) for table in tables)
    assert ahead != blind


@pytest.fixture
def honest(server, tmp_path):
    log = tmp_path / "seen.jsonl"
    with gateway(tmp_path, url=server.url, chain=CHAIN, scheme="auto", log=log) as local:
        follow(local, sample(12, 2))
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_a_tampered_log_is_refused_and_the_step_is_named(honest, chain, tmp_path, capsys):
    tables = TableCache(CHAIN, "auto")
    at, other = next(
        (at, other)
        for at in range(1, len(honest))
        if not honest[at]["private"] and (other := not_drawn(tables, honest[at - 1]["sources"])) is not None
    )
    honest[at] = {**honest[at], "sources": list(other), "cost": len(other)}
    log = write(tmp_path / "tampered.jsonl", honest)
    report = verdict(capsys, log, chain, "auto", 5)
    assert report["faults"][0]["step"] == honest[at]["step"]
    assert "not a query of the table" in report["faults"][0]["reason"]
    assert run(["audit", "log", log, "--chain", chain]) == 5
    assert "not what an honest session sends" in capsys.readouterr().out


def not_drawn(tables, before):
    """A set of two sources that every source before can lead into, and that the table does not hold."""
    memory = LastQuery(CHAIN, tuple(before), before[0])
    if memory.rows.distinct == 1:
        return None
    drawn = set(tables.of(memory).queries)
    return next(((a, b) for a in range(6) for b in range(a + 1, 6) if (a, b) not in drawn), None)


def test_users_take_turns_in_a_servers_log_but_not_in_a_gateways(server, chain, tmp_path, capsys):
    tap = Wiretap(server.url)
    with ExitStack() as stack:
        users = []
        for name in ("anna", "ben"):
            (tmp_path / name).mkdir()
            one = gateway(
                tmp_path / name,
                url=server.url,
                chain=CHAIN,
                scheme="greedy",
                log=tmp_path / name / "log",
                transport=tap,
            )
            users.append(stack.enter_context(one))
        for at, (x, y) in enumerate(zip(sample(15, 3), sample(15, 4), strict=True)):
            for user, wanted in zip(users, (x, y), strict=True):
                assert user.turn(private=at % PRIVATE_EVERY == 0).status == 200
                assert user.get(f"/v1/sources/{NAMES[wanted]}").status == 200
    report = verdict(capsys, write(tmp_path / "both.jsonl", tap.lines()), chain, "greedy", 0)
    assert (report["sessions"], report["queries"], report["retries"]) == (2, 30, 1)
    anna, ben = ((tmp_path / name / "log").read_text().splitlines() for name in ("anna", "ben"))
    mixed = [json.loads(line) for pair in zip(anna, ben, strict=True) for line in pair]
    report = verdict(capsys, write(tmp_path / "mixed.jsonl", mixed), chain, "greedy", 5)
    assert report["faults"][0]["line"] == 3
    assert "after it was left" in report["faults"][0]["reason"]


def test_what_the_clock_decided_is_told_and_accuses_nobody(honest, chain, tmp_path, capsys, monkeypatch):
    """On a machine too slow for any search the honest log passes; what no table could hold is still refused."""
    monkeypatch.setattr(logs, "SLOWER", 1e9)
    log = write(tmp_path / "seen.jsonl", honest)
    report = verdict(capsys, log, chain, "auto", 0)
    assert report["without_table"] > 0
    assert report["fit"] is None
    assert run(["audit", "log", log, "--chain", chain]) == 0
    assert "cannot be rebuilt here" in capsys.readouterr().out


def test_a_search_that_was_ended_by_the_clock_is_not_relied_on():
    lines = [
        LogLine(1, 0, tuple(range(6)), True),
        LogLine(2, 1, not_drawn(TableCache(CHAIN, "optimal"), range(6)), False),
    ]
    assert not audit_log(lines, CHAIN, "optimal").sound
    hurried = audit_log(lines, CHAIN, "optimal", budget=1e-9)
    assert hurried.sound
    assert hurried.without_table == 1
