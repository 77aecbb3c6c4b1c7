"""The rules for heads, judged alone; `test_hostile` sends them."""

import h11
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.support.typed import as_a, present

from onoff import wire
from onoff.server.http import MAX_BODY, MAX_HEAD, Head, Plain, not_a_head, read_head
from onoff.wire import MAX_QUERY, MAX_SUM_QUERY, Problem

from .hostile import refused, tolerated

PLAIN = b"POST /v1/query HTTP/1.1\r\nhost: h\r\n" + b"".join(
    b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in wire.QUERY_HEADERS
)


def head_of(data):
    return data[: data.index(b"\r\n\r\n") + 4] if b"\r\n\r\n" in data else data


def test_the_head_that_a_client_sends_is_plain():
    for beginning, plain in [(PLAIN, Plain.GZIP_QUERY), (PLAIN.replace(b"gzip", b"identity"), Plain.QUERY)]:
        assert read_head(beginning + b"content-length: 34\r\n\r\n") == Head(34, plain)
        assert read_head(beginning + b"content-length: 34\r\nconnection: Keep-Alive\r\n\r\n") == Head(34, plain)


def test_a_sum_query_under_its_own_headers_is_plain_too():
    fixed = b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in wire.SUM_QUERY_HEADERS)
    beginning = b"POST /v1/sum HTTP/1.1\r\nhost: h\r\n" + fixed
    for length, plain in [(76, Plain.SUM), (MAX_SUM_QUERY, Plain.SUM), (0, None), (MAX_SUM_QUERY + 1, None)]:
        assert read_head(beginning + b"content-length: %d\r\n\r\n" % length) == Head(length, plain)
    assert read_head(beginning + b"content-length: 76\r\nx: y\r\n\r\n") == Head(76, None)
    for swapped in [beginning.replace(b"sum-query", b"query"), PLAIN.replace(b".query", b".sum-query")]:
        assert read_head(swapped + b"content-length: 76\r\n\r\n") == Head(76, None)


@pytest.mark.parametrize(
    "headers",
    [
        b"content-length: 34\r\nconnection: close",
        b"content-length: 34\r\nconnection: close\r\nconnection: keep-alive",
        b"content-length: 34\r\nexpect: 100-continue",
        b"content-length: 34\r\ncontent-encoding: gzip",
        b"content-length: 34\r\ncontent-type: text/plain",
        b"content-length: 34\r\nx: y",
        b"content-length: 0",
        b"content-length: %d" % (MAX_QUERY + 1),
        b"x: y",
    ],
)
def test_anything_unusual_takes_the_ordinary_way(headers):
    head = read_head(PLAIN + headers + b"\r\n\r\n")
    assert isinstance(head, Head)
    assert head.plain is None


def test_another_path_is_not_a_query():
    assert read_head(b"GET /v1/query HTTP/1.1\r\nhost: h\r\n\r\n") == Head(0, plain=None)
    for other in [PLAIN.replace(b"query H", b"query? H"), PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0")]:
        assert read_head(other + b"content-length: 34\r\n\r\n") == Head(34, plain=None)


def test_lengths_up_to_the_limit_are_read():
    for length in [1, MAX_QUERY, MAX_BODY]:
        assert as_a(Head, read_head(PLAIN + b"content-length: %d\r\n\r\n" % length)).length == length
    assert as_a(Problem, read_head(PLAIN + b"content-length: %d\r\n\r\n" % (MAX_BODY + 1))).status == 413


def test_hostile_heads_are_problems_and_odd_ones_are_not():
    for name, data in refused(b"h", bytes(34)).items():
        head = head_of(data)
        problem = read_head(head) if head.endswith(b"\r\n\r\n") else not_a_head(head, 0)
        assert isinstance(problem, Problem), name
        assert problem.hint
    for name, data in tolerated(b"h", bytes(34)).items():
        assert isinstance(read_head(head_of(data)), Head), name


def test_a_beginning_is_judged_as_early_as_it_can_be():
    good = PLAIN + b"content-length: 34\r\n"
    assert all(not_a_head(good[:k], max(0, k - 1)) is None for k in range(1, len(good)))
    for bad in [b"\x16", b"get", b"POST\t", b"\r", b"P0ST /", b"A" * 17, b"GET / HTTP/1.1\n"]:
        assert present(not_a_head(bad, 0)).status == 400
    assert present(not_a_head(b"GET / HTTP/1.1\r\nx: y\n", 18)).status == 400  # the rest was judged before
    assert present(not_a_head(b"GET /" + b"x" * MAX_HEAD, 0)).status == 431


PIECES = (
    *(b"content-length: 34", b"Content-Length: 5", b"content-length: +5", b"content-length: 0", b"content-length: 05"),
    *(b"transfer-encoding: chunked", b"host: h", b"host: other", b"x: y", b"x : y", b" folded", b"", b"x: \x80"),
    *(b"x:\x00", b"upgrade: h2c", b"expect: 100-continue", b"content-length: 34, 34", b"connection: close"),
    *(b"x\tz: y", b"content-length:"),
)
ENDS = st.sampled_from([*[b"\r\n"] * 8, b"\n", b"\r", b"\r\r\n"])


@st.composite
def heads(draw):
    """A head of good and bad lines, one of its bytes perhaps another."""
    first = draw(st.sampled_from([b"POST /v1/query HTTP/1.1", b"GET http://h/x HTTP/1.0", b"PUT /a%2fb HTTP/1.1"]))
    lines = [b"host: h", *draw(st.lists(st.sampled_from(PIECES), max_size=4))]
    head = bytearray(b"".join([first, b"\r\n", *(line + draw(ENDS) for line in draw(st.permutations(lines)))]))
    if draw(st.booleans()):
        head[draw(st.integers(0, len(head) - 1))] = draw(st.integers(0, 255))
    return bytes(head) + b"\r\n"


def same_as_h11(read, examples, phases=tuple(Phase)):
    """Whatever is taken by both is one request with a body of the same length: nothing can be hidden behind it."""

    @settings(max_examples=examples, deadline=None, database=None, phases=phases)
    @given(heads())
    def agrees(head):
        taken = read(head)
        if not head.endswith(b"\r\n\r\n") or isinstance(taken, Problem):
            return
        other = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        other.receive_data(head)
        try:
            request = other.next_event()
        except h11.RemoteProtocolError:
            return
        assert isinstance(request, h11.Request)
        assert other.trailing_data[0] == b"", "it ends earlier"
        told = [value for name, value in request.headers if name == b"content-length"]
        assert [b"%d" % taken.length] == (told or [b"0"])
        assert not any(name == b"transfer-encoding" for name, _ in request.headers)

    agrees()


def test_no_other_parser_reads_another_request_out_of_a_head_that_is_taken():
    same_as_h11(read_head, 1000)


@pytest.mark.parametrize("first", [True, False])
def test_a_reader_that_is_lax_about_lengths_is_found_out(first):
    def lax(head):
        lengths = [
            line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        ]
        return Head(int(lengths[0]), None) if first and lengths and lengths[0].strip().isdigit() else Head(0, None)

    with pytest.raises(AssertionError):
        same_as_h11(lax, 5000, [Phase.generate])
