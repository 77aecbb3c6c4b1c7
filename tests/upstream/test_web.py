"""Web: what leaves is a function of the set, of the answers and of the clock; what comes back is read whole."""

import gzip
import json
import socket
import zlib
from contextlib import closing, suppress

import pytest
from tests.support.accepting import Accepting
from tests.support.website import Answer, website

from onoff.errors import InvalidInput
from onoff.upstream.budget import Budget, OverBudget
from onoff.upstream.sources import Join, Source, SourceList
from onoff.upstream.transport import origin_of
from onoff.upstream.web import Web


class Memory:
    """Copies in memory."""

    def __init__(self):
        self.copies, self.log = {}, []

    def get(self, name):
        return self.copies.get(name)

    def keep(self, copies):
        self.copies.update(copies)

    def sent(self, host, since):
        return [at for where, at in self.log if where == host and at >= since]

    def note_sent(self, requests):
        self.log += requests


class Time:
    """A clock that only waiting moves."""

    def __init__(self):
        self.now, self.slept = 1e9, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def listed(site, names="abc", **options):
    hosts = frozenset({origin_of(site.url), *options.pop("hosts", ())})
    return SourceList(tuple(Source(name, f"{site.url}/{name}", name) for name in names), hosts=hosts, **options)


def states(fetched):
    return {name: outcome.state for name, outcome in fetched.outcomes.items()}


def test_a_set_is_asked_in_the_order_of_the_list_on_one_connection_and_kept_together():
    with website(a=Answer(b"A"), b=Answer(b"B"), c=Answer(b"C")) as site:
        copies = Memory()
        fetched = Web(listed(site)).fetch(["c", "a"], copies)
        assert site.targets == ["/a", "/c"]
        assert site.connections == 1
        assert {name: copy.body for name, copy in copies.copies.items()} == {"a": b"A", "c": b"C"}
        assert (states(fetched), fetched.requests, fetched.received) == ({"a": "new", "c": "new"}, 2, 2)


def test_every_request_has_the_same_headers_and_no_more():
    with website(a=Answer(b"A", headers={"set-cookie": "id=1"}), b=Answer(b"B")) as site:
        web, copies = Web(listed(site, "ab", headers=(("accept", "text/plain"),))), Memory()
        web.fetch("ab", copies)
        web.fetch("ab", copies)
        host = site.url.removeprefix("http://")
        plain = {"host": host, "user-agent": "onoff", "accept-encoding": "gzip", "accept": "text/plain"}
        assert [headers for _, _, headers in site.log] == [plain] * 4


def test_with_several_connections_members_are_dealt_out_in_order():
    with website(**{name: Answer(name.encode()) for name in "abcdefg"}) as site:
        Web(listed(site, "abcdefg", connections=3)).fetch("gfedcba", copies := Memory())
        lanes: dict[int, list[str]] = {}
        for connection, target, _ in site.log:
            lanes.setdefault(connection, []).append(target[1:])
        assert sorted(lanes.values()) == [["a", "d", "g"], ["b", "e"], ["c", "f"]]
        assert {name: copy.body.decode() for name, copy in copies.copies.items()} == dict(
            zip("abcdefg", "abcdefg", strict=True)
        )


def test_what_has_a_validator_is_asked_for_conditionally_whoever_wants_it():
    def tagged(headers, _):
        return Answer(status=304) if headers.get("if-none-match") == '"1"' else Answer(b"A", headers={"etag": '"1"'})

    with website(b=Answer(b"B", headers={"last-modified": "Mon, 02 Nov 2026 10:00:00 GMT"})) as site:
        site.answers["/a"] = tagged
        web, copies = Web(listed(site, "ab")), Memory()
        web.fetch("ab", copies)
        fetched = web.fetch("ab", copies)
        assert states(fetched) == {"a": "same", "b": "new"}
        assert fetched.received == 1
        assert copies.get("a").body == b"A"
        assert site.log[3][2]["if-modified-since"] == "Mon, 02 Nov 2026 10:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "lifetime"),
    [
        ({"cache-control": "max-age=60"}, 60),
        ({"cache-control": "max-age=60", "age": "20"}, 40),
        ({"cache-control": "max-age=60, no-cache"}, 0),
        ({"expires": "Mon, 02 Nov 2026 10:01:00 GMT", "date": "Mon, 02 Nov 2026 10:00:00 GMT"}, 60),
        ({"cache-control": "max-age=junk"}, 0),
        ({}, 0),
    ],
)
def test_a_copy_is_fresh_for_as_long_as_the_site_says(headers, lifetime):
    with website(a=Answer(b"A", headers=headers)) as site:
        clock, copies = Time(), Memory()
        web = Web(listed(site, "a"), now=clock, sleep=clock.sleep)
        web.fetch("a", copies)
        clock.now += lifetime - 0.5
        web.fetch("a", copies)
        assert len(site.log) == (1 if lifetime else 2)
        clock.now += 1
        web.fetch("a", copies)
        assert len(site.log) == (2 if lifetime else 3)


def test_all_that_failed_for_a_passing_reason_is_tried_again_together():
    def flaky(_, times):
        return Answer(b"late") if times == 1 else Answer(status=503)

    with website(a=Answer(b"A"), c=Answer(status=404)) as site:
        site.answers |= {"/b": flaky, "/d": flaky}
        clock = Time()
        fetched = Web(listed(site, "abcd"), now=clock, sleep=clock.sleep).fetch("abcd", copies := Memory())
        assert site.targets == ["/a", "/b", "/c", "/d", "/b", "/d"]
        assert clock.slept == [1.0]
        assert states(fetched) == {"a": "new", "b": "new", "c": "failed", "d": "new"}
        assert fetched.outcomes["c"].status == 404
        assert copies.get("c") is None


def test_a_site_that_asks_to_wait_is_obeyed_and_given_up_after_three_attempts():
    with website(a=Answer(status=429, headers={"retry-after": "7"})) as site:
        clock = Time()
        fetched = Web(listed(site, "a"), now=clock, sleep=clock.sleep).fetch("a", Memory())
        assert clock.slept == [7.0, 7.0]
        assert (fetched.requests, fetched.failed) == (3, ("a",))
        site.answers["/a"] = Answer(status=429, headers={"retry-after": "999999999"})
        assert Web(listed(site, "a"), now=clock, sleep=clock.sleep).fetch("a", Memory()).requests == 1


def test_redirects_are_followed_within_the_hosts_and_a_new_place_is_remembered():
    with website(new=Answer(b"A"), b=Answer(b"B")) as site:
        site.answers["/a"] = Answer(status=301, headers={"location": "/new"})
        web, copies = Web(listed(site, "ab")), Memory()
        assert states(web.fetch("ab", copies)) == {"a": "new", "b": "new"}
        web.fetch("ab", copies)
        assert site.targets == ["/a", "/new", "/b", "/new", "/b"]


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://127.0.0.2:1/x", "another host"),
        ("/a", "in a ring"),
        ("javascript:1", "no address"),
        ("/deeper", "more than five times"),
    ],
)
def test_a_redirect_that_leads_astray_fails_that_member_alone(location, reason):
    with website(b=Answer(b"B")) as site:
        site.answers["/a"] = Answer(status=302, headers={"location": location})
        if location == "/deeper":
            site.answers |= {
                f"/deeper{'r' * k}": Answer(status=302, headers={"location": f"/deeper{'r' * (k + 1)}"})
                for k in range(9)
            }
        fetched = Web(listed(site, "ab")).fetch("ab", Memory())
        assert states(fetched) == {"a": "failed", "b": "new"}
        assert reason in fetched.outcomes["a"].reason
        assert site.targets[-1] == "/b"
        assert len(site.log) <= 7


BOMB = gzip.compress(bytes(10**7))
DAMAGED = {
    "too long": Answer(bytes(2001)),
    "compressed endlessly": Answer(BOMB, headers={"content-encoding": "gzip"}),
    "damaged gzip": Answer(b"no gzip", headers={"content-encoding": "gzip"}),
    "cut gzip": Answer(gzip.compress(b"A" * 99)[:-4], headers={"content-encoding": "gzip"}),
    "more than gzip": Answer(gzip.compress(b"A") + b"x", headers={"content-encoding": "gzip"}),
    "other encoding": Answer(zlib.compress(b"A"), headers={"content-encoding": "deflate"}),
    "cut off": Answer(b"AAAA", cut=2),
    "wrong length": Answer(b"A", headers={"content-length": "7"}, cut=1),
}


@pytest.mark.parametrize("answer", DAMAGED.values(), ids=DAMAGED)
def test_a_bad_answer_fails_that_member_alone(answer):
    with website(
        a=answer, b=Answer(b"B"), c=Answer(gzip.compress(b"C" * 50), headers={"content-encoding": "gzip"})
    ) as site:
        clock = Time()
        web = Web(listed(site, largest=60 if answer.body == BOMB else 2000), now=clock, sleep=clock.sleep)
        fetched = web.fetch("abc", copies := Memory())
        assert states(fetched) == {"a": "failed", "b": "new", "c": "new"}
        assert copies.get("c").body == b"C" * 50


def test_a_site_that_is_not_there_fails_all_and_raises_nothing():
    with website() as site:
        pass
    clock = Time()
    fetched = Web(listed(site), now=clock, sleep=clock.sleep).fetch("abc", Memory())
    assert fetched.failed == ("a", "b", "c")
    assert fetched.requests == 9


@pytest.mark.parametrize(
    ("url", "reason"),
    [("http://nobody.invalid", "the host name is unknown"), ("https://127.0.0.1:{port}", "TLS failed: ")],
)
def test_a_name_that_is_unknown_and_tls_that_fails_are_named_for_all_alike(url, reason, monkeypatch):
    lookup = socket.getaddrinfo

    def known(host, *rest, **options):
        if host == "nobody.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return lookup(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", known)
    with website(a=Answer(b"A"), b=Answer(b"B")) as site:
        clock = Time()
        place = url.format(port=site.url.rpartition(":")[2])
        sources = SourceList(
            tuple(Source(name, f"{place}/{name}") for name in "ab"), hosts=frozenset({origin_of(place)})
        )
        fetched = Web(sources, now=clock, sleep=clock.sleep).fetch("ab", Memory())
        assert fetched.failed == ("a", "b")
        assert all(outcome.reason.startswith(reason) for outcome in fetched.outcomes.values())
        assert (fetched.requests, clock.slept) == (6, [1.0, 2.0])  # three attempts, all together
        assert site.log == []


def test_an_answer_without_an_end_is_given_up_when_it_is_too_long():
    class Endless(Accepting):
        def accepted(self, connection):
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                while True:
                    connection.sendall(b"400\r\n" + bytes(1024) + b"\r\n")

    with closing(Endless()) as site:
        clock = Time()
        fetched = Web(listed(site, "a", largest=10_000), now=clock, sleep=clock.sleep).fetch("a", Memory())
        assert fetched.outcomes["a"].reason == "the answer is too long"


def test_a_site_that_never_answers_takes_no_more_than_the_time_of_the_set():
    heard: list[bytes] = []

    class Silent(Accepting):
        def accepted(self, connection):
            with connection, suppress(OSError):
                heard.append(connection.recv(65536))
                connection.recv(65536)  # until it is closed

    with closing(Silent()) as site:
        clock = Time()
        fetched = Web(listed(site, timeout=0.2), now=clock, sleep=clock.sleep).fetch("abc", Memory())
        assert fetched.failed == ("a", "b", "c")
        assert {outcome.reason for outcome in fetched.outcomes.values()} == {"no whole answer within 0.2 s"}
        assert clock.slept == []  # no time for another attempt
    assert [request[:6] for request in heard] in ([], [b"GET /a"])  # whoever is wanted; none where connecting took long


def test_a_budget_spreads_the_set_and_counts_every_request():
    with website(a=Answer(b"A"), b=Answer(b"B"), c=Answer(b"C")) as site:
        clock, copies = Time(), Memory()
        web = Web(listed(site, budget=Budget.parse("2/min")), now=clock, sleep=clock.sleep)
        web.fetch("abc", copies)
        assert clock.slept == [60.0]
        clock.now += 1
        hasty = Web(listed(site, budget=Budget.parse("2/min"), patience=30.0), now=clock, sleep=clock.sleep)
        with pytest.raises(OverBudget) as caught:
            hasty.fetch("abc", copies)
        assert caught.value.seconds > 0
        assert len(site.log) == 3


LISTS = {
    "array": (Join("URL/list?ids={ids}"), [{"v": 1}, {"v": 3}]),
    "object": (Join("URL/list?ids={ids}", answer="object", at="data"), {"data": {"c": {"v": 3}, "a": {"v": 1}}}),
    "by key": (Join("URL/list?ids={ids}", key="id"), [{"id": "c", "v": 3}, {"id": "a", "v": 1}]),
}


@pytest.mark.parametrize(("join", "document"), LISTS.values(), ids=LISTS)
def test_where_a_site_takes_lists_a_set_is_one_request(join, document):
    with website() as site:
        site.answers["/list?ids=a,c"] = Answer(json.dumps(document).encode())
        whole = Join(join.url.replace("URL", site.url), join.separator, join.most, join.answer, join.at, join.key)
        fetched = Web(listed(site, join=whole)).fetch("ca", copies := Memory())
        assert fetched.requests == 1
        assert [json.loads(copies.get(name).body)["v"] for name in "ac"] == [1, 3]


@pytest.mark.parametrize("body", [b"[1]", b"{}", b"no json", b"[" * 100_000, b'{"data": 1}'])
def test_an_answer_to_a_list_that_cannot_be_split_fails_its_members(body):
    with website() as site:
        site.answers["/l?ids=a,b"] = Answer(body)
        fetched = Web(listed(site, "ab", join=Join(f"{site.url}/l?ids={{ids}}"))).fetch("ab", copies := Memory())
        assert fetched.failed == ("a", "b")
        assert copies.copies == {}


def test_what_is_not_in_the_list_is_refused_before_anything_leaves():
    with website(a=Answer(b"A")) as site, pytest.raises(InvalidInput):
        Web(listed(site, "a")).fetch(["a", "z"], Memory())
    assert site.log == []
