"""Hostile requests: refused in the same way however they are cut, on the short way and the ordinary one."""

import contextlib
import random
from typing import Any, NamedTuple

import h11
import pytest
from tests.support.raw import Line, catalogue, get_json, query, query_request

from onoff import wire
from onoff.server import connections, running
from onoff.server.http import Head, read_head

from .hostile import FOLLOWED, SMUGGLED, refused, tolerated

NAMES = [f"s{i}" for i in range(10)]
LAST = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n"


@pytest.fixture(scope="module")
def server():
    with running(NAMES, frame_size=512, max_per_address=4096) as server:
        yield server


@pytest.fixture(scope="module")
def known(server):
    return catalogue(server.url)


@pytest.fixture(scope="module")
def asked(known):
    return query(known, 1, 4, session=bytes(16))


@pytest.fixture(scope="module")
def asked_sum(server, known):
    newest = get_json(server.url, wire.EDITION_PATH)
    edition = (newest["edition"], bytes.fromhex(newest["digest"]))
    vector = bytes([1, 0, 0, 1, 0, 1, 0, 0, 0, 0])
    return wire.encode_sum_query(wire.SumQuery(known.epoch, b"s" * 16, 0, *edition, 2, 1, vector))


class Requests(NamedTuple):
    """Requests around one kind of query."""

    good: bytes
    unusual: bytes  # as good, and answered on the ordinary way
    refused: dict[str, bytes]
    tolerated: dict[str, bytes]


def to_sums(data):
    """A request made around a sum query, sent to its path under its media type."""
    replaced = data.replace(b"/v1/query", wire.SUM_PATH.encode())
    return replaced.replace(wire.QUERY_TYPE.encode(), wire.SUM_QUERY_TYPE.encode())


@pytest.fixture(scope="module", params=["query", "sum"])
def requests(request, asked, asked_sum):
    body, change = (asked, bytes) if request.param == "query" else (asked_sum, to_sums)
    return Requests(
        change(query_request("h", body)),
        change(query_request("h", body, extra="x-unusual: 1\r\n")),
        {name: change(data) for name, data in refused(b"h", body).items()},
        {name: change(data) for name, data in tolerated(b"h", body).items()},
    )


@pytest.fixture
def ordinary_way(monkeypatch):
    """Let every head that is read say that it is nothing special."""

    def read_as_any(raw):
        head = read_head(raw)
        return Head(head.length, plain=None) if isinstance(head, Head) else head

    def patch():
        monkeypatch.setattr(connections, "read_head", read_as_any)
        monkeypatch.setattr(connections, "read_changes_request", lambda data: None)

    return patch


def whole(data):
    return [data]


def split(data):
    cuts = sorted(random.Random(len(data)).choices(range(1, max(2, len(data))), k=3))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def one_by_one(data):
    return [data[k : k + 1] for k in range(len(data))]


def transcript(server, pieces):
    """All replies on one connection until it ends, or until the last request is answered."""
    replies: list[Any] = []
    with Line(server.url) as line:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for piece in pieces:
                line.send(piece)
            line.send(LAST)
        with contextlib.suppress(EOFError, ConnectionResetError):
            while not replies or replies[-1].body != b'{"status":"ok"}':
                replies.append(line.reply())
    return replies


def is_refusal(reply):
    return 400 <= reply.status < 500 and reply["connection"] == "close" and bool(reply.problem.hint)


def test_there_are_enough_of_them(asked):
    assert len(refused(b"h", asked)) >= 100
    assert len(FOLLOWED) + len(tolerated(b"h", asked)) >= 25


@pytest.mark.parametrize("cut", [whole, split, one_by_one])
def test_hostile_requests_are_refused_and_end_the_connection(server, requests, cut):
    for name, data in requests.refused.items():
        replies = transcript(server, cut(data if cut is not one_by_one else data[:3000]))
        if cut is one_by_one and len(data) > 3000:
            continue  # a prefix of what is too long: it was sent for its work alone
        assert [is_refusal(reply) for reply in replies] == [True], (name, replies)


def test_hostile_requests_after_a_good_one_are_refused_after_its_answer(server, requests):
    good, unusual = requests.good, requests.unusual
    (answer, _) = transcript(server, [good])
    assert answer.status == 200
    for name, data in (requests.refused | FOLLOWED).items():
        for first in [good, unusual, good + unusual + good]:
            replies = transcript(server, [first + data])
            assert all(reply == answer for reply in replies[:-1]), name
            assert len(replies) == (4 if len(first) > len(unusual) else 2), name
            assert is_refusal(replies[-1]), name


@pytest.mark.slow(reason="programs are started and waited for")
def test_both_ways_reply_the_same_to_everything(server, requests, ordinary_way):
    good = requests.good
    odd = requests.tolerated | FOLLOWED
    alone = requests.refused | odd
    sent = {name: [[data], split(data)] for name, data in alone.items()}
    sent |= {f"{name}, after a good one": [[good + data], split(good + data)] for name, data in alone.items()}
    for name, data in alone.items():
        if len(data) < 1000:
            sent[name].append(one_by_one(data))
    for name, data in odd.items():
        sent[f"{name}, after a good one"].append([good, *one_by_one(data)])
    for name, data in requests.tolerated.items():
        sent[f"{name}, before a good one"] = [[data + good], split(data + good), [data, *one_by_one(good)]]
    short = {name: [transcript(server, pieces) for pieces in cuts] for name, cuts in sent.items()}
    ordinary_way()
    ordinary = {name: [transcript(server, pieces) for pieces in cuts] for name, cuts in sent.items()}
    for name, replies in short.items():
        assert all(each == replies[0] for each in [*replies, *ordinary[name]]), name


def test_what_is_answered_has_one_meaning_for_another_parser(server, requests):
    """h11 reads the same requests, in the same number, in every stream of which we answered all."""
    good = requests.good
    answered = 0
    for name, data in (requests.refused | requests.tolerated | FOLLOWED).items():
        stream = good + data + good
        replies = transcript(server, [stream])
        if replies[-1].body == b'{"status":"ok"}':
            assert len(replies) - 1 == count_by_h11(stream), name
            answered += 1
        else:
            assert is_refusal(replies[-1]), name
    assert answered == len(requests.tolerated)


def count_by_h11(stream):
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(stream)
    count = 0
    while True:
        event = connection.next_event()
        if isinstance(event, h11.EndOfMessage):
            count += 1
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            connection.start_next_cycle()
        elif event is h11.NEED_DATA:
            return count


def test_nothing_inside_a_body_is_answered(server, asked):
    """The catalogue, which is asked for inside many of them, is never told."""
    told = transcript(server, [SMUGGLED])[0].body
    assert told.startswith(b'{"epoch"')
    for name, data in refused(b"h", asked).items():
        assert told not in [reply.body for reply in transcript(server, [data])], name
