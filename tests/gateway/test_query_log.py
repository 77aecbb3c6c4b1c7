"""The query log: one record of each query, and everything that is told of it a function of the list."""

import json
from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from onoff.client import ServerView
from onoff.gateway.engine import CountedTransport
from onoff.gateway.evidence import Assessment
from onoff.gateway.query_log import MOST_UNSETTLED, QueryLog, Totals
from onoff.upstream.transport import Failure, Reply, Request
from onoff.wire import CHANGES_PATH, QUERY_PATH, SUM_PATH

READ = ServerView("session", 0, (0, 1, 2, 3), 4, private=True, mirror=True)


def query(number: int, *, private: bool = True) -> ServerView:
    return ServerView("session", number, (0, 1), 4, private=private)


class Line:
    """Answers, unless it is cut: then nothing leaves."""

    cut = False

    def exchange(self, request: Request) -> Reply | Failure:
        return Failure("cut", left=False) if self.cut else Reply(200, (), b"answer")


def test_a_query_has_left_if_the_transport_says_so() -> None:
    log, line = QueryLog(), Line()
    counted = CountedTransport(line, lambda left: log.answered(left=left))
    ask = Request("POST", QUERY_PATH, (), b"query", 0)
    first = log.append(5.0, query(0), 1)
    assert log.queries == []  # not known yet
    counted.exchange(Request("GET", CHANGES_PATH, (), b"", 0))
    assert log.queries == []  # what else is exchanged says nothing of it
    counted.exchange(ask)
    line.cut = True
    counted.exchange(ask)  # the same again, after the answer was damaged
    second = log.append(6.0, query(1), 1)
    counted.exchange(Request("POST", SUM_PATH, (), b"sums", 0))
    assert log.queries == [first, second]
    assert [each.left for each in log.queries] == [True, False]
    line.cut = False
    counted.exchange(ask)  # sent again by its key
    assert [each.left for each in log.queries] == [True, True]
    assert counted.counted == {"sent": 10, "received": 18, "queries": 2}


def test_what_was_never_exchanged_did_not_leave() -> None:
    log = QueryLog()
    log.append(5.0, query(0), 1)
    log.settle()
    assert [each.left for each in log.queries] == [False]
    assert log.totals == Totals(unsent=1)


def test_what_was_read_is_no_query_but_the_next_one_says_so() -> None:
    log = QueryLog()
    assert log.append(4.0, READ, 2) is None
    for number in range(2):
        log.append(5.0, query(number), 1)
        log.answered(left=True)
    assert [json.loads(line).get("mirror", False) for line in log.lines()] == [True, False]


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.sampled_from([True, False, None]), st.sampled_from([None, 0.0, 0.5]), st.booleans()
        ),
        max_size=3 * MOST_UNSETTLED,
    )
)
def test_totals_are_sums_over_what_was_sent_at_every_level(
    steps: list[tuple[bool, bool | None, float | None, bool]],
) -> None:
    """However much is kept: `counters` forgets queries, and counts the same."""
    logs = [QueryLog("full"), QueryLog("costs"), QueryLog("counters")]
    for number, (private, left, bits, reading) in enumerate(steps):
        for log in logs:
            if reading:
                log.append(4.0, READ, 2)
            logged = log.append(5.0, query(number, private=private), 1)
            assert logged is not None
            if left is not None:
                log.answered(left=left)
            log.settle()
            logged.assessment = Assessment(2.0, 1.0, bits, 0.25)
    sent = [(private, bits) for private, left, bits, _ in steps if left]
    expected = Totals(
        len(sent),
        sum(private for private, _ in sent),
        2 * len(sent),
        4 * len(sent),
        len(sent),
        sum(bits or 0.0 for _, bits in sent),
        0.25 * len(sent),
        sum(bits is None for _, bits in sent),
        len(steps) - len(sent),
    )
    assert [log.totals for log in logs] == [expected] * 3
    assert [json.loads(line) for line in logs[2].lines()] == [asdict(expected)]
    assert [json.loads(line).get("sent", True) for line in logs[1].lines()] == [bool(left) for _, left, _, _ in steps]
    assert all(each.wanted is None for log in logs[1:] for each in log.queries)
