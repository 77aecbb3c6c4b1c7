"""The guard: every rule lets in what it must, and every way in that is not one of them is closed."""

import asyncio
import itertools
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.gateway import gateway
from tests.support.waiting import PATIENCE

from onoff.gateway.guard import HEADERS, PAGES, REFUSAL, STATIC, Guard, guarded, new_token

GUARD = Guard(frozenset({"127.0.0.1:80", "localhost:80"}), page="p" * 32, app="a" * 32)
HOST = ("host", "127.0.0.1:80")
OURS = ("origin", "http://127.0.0.1:80")
SAME = ("sec-fetch-site", "same-origin")
PAGE = ("authorization", "Bearer " + "p" * 32)
APP = ("authorization", "Bearer " + "a" * 32)
COOKIE = ("cookie", "onoff-80=" + "p" * 32)
JSON = ("content-type", "application/json")
TYPED = (("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"))
NEWS = "/v1/sources/news"


def admit(method, path, *headers):
    return GUARD.admit(method, path, [(name.encode(), value.encode()) for name, value in headers])


ADMITTED = {
    "a program with the app token downloads": ("GET", NEWS, HOST, APP),
    "a program with the page token downloads": ("GET", NEWS, HOST, PAGE),
    "by the name localhost": ("GET", NEWS, ("host", "localhost:80"), APP),
    "a program turns the switch": ("PUT", "/v1/privacy", HOST, PAGE, JSON),
    "the page downloads": ("GET", NEWS, HOST, PAGE, SAME, ("sec-fetch-dest", "empty")),
    "the page turns the switch": ("PUT", "/v1/privacy", HOST, PAGE, SAME, OURS, JSON),
    "the page loads its script": ("GET", "/static/page.js", HOST, SAME, ("sec-fetch-dest", "script")),
    "the page is opened": ("GET", "/", HOST, *TYPED),
    "the page links to the limits": ("GET", "/limits", HOST, SAME),
    "a program does what is not there": ("POST", "/v1/privacy", HOST, PAGE),
    "a turn without a type": ("PUT", "/v1/privacy", HOST, PAGE),
    "JSON with a charset": ("PUT", "/v1/privacy", HOST, PAGE, ("content-type", "application/json; charset=utf-8")),
}


@pytest.mark.parametrize("case", ADMITTED.values(), ids=ADMITTED)
def test_admits(case):
    assert admit(*case) == case[1]


def test_a_token_in_the_path_downloads():
    assert admit("GET", "/t/" + "a" * 32 + NEWS, HOST) == NEWS
    assert admit("GET", "/t/" + "p" * 32 + "/v1/feeds/x", HOST, *TYPED) == "/v1/feeds/x"


FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:80",
    "localhost.evil.example:80",
    "127.0.0.1.nip.io:80",
    "127.0.0.1",
    "127.0.0.1:81",
    "[::ffff:7f00:1]:80",
    "0.0.0.0:80",
    "127.1:80",
    "2130706433:80",
    "LOCALHOST:80",
    "localhost.:80",
    "",
]
REFUSED = {
    **{f"host {host!r}": ("GET", NEWS, ("host", host), APP) for host in FOREIGN_HOSTS},
    "no host": ("GET", NEWS, APP),
    "two hosts": ("GET", NEWS, HOST, HOST, APP),
    "no token": ("GET", NEWS, HOST),
    "an empty token": ("GET", NEWS, HOST, ("authorization", "Bearer ")),
    "a wrong token": ("GET", NEWS, HOST, ("authorization", "Bearer " + "q" * 32)),
    "a longer token": ("GET", NEWS, HOST, ("authorization", "Bearer " + "p" * 33)),
    "a shorter token": ("GET", NEWS, HOST, ("authorization", "Bearer " + "p" * 31)),
    "another scheme": ("GET", NEWS, HOST, ("authorization", "Basic " + "p" * 32)),
    "two tokens": ("GET", NEWS, HOST, APP, APP),
    "the token as a cookie": ("GET", NEWS, HOST, COOKIE, SAME),
    "the token as a cookie, for the state": ("GET", "/v1/state", HOST, COOKIE, SAME),
    "the token as a cookie, for a turn": ("PUT", "/v1/privacy", HOST, COOKIE, SAME, OURS, JSON),
    "the app token in the path opens nothing": ("GET", "/t/" + "a" * 32 + "/", HOST),
    "the page token in the path opens nothing": ("GET", "/t/" + "p" * 32 + "/", HOST, *TYPED),
    "an app posts": ("POST", NEWS, HOST, APP),
    "a page is not put": ("PUT", "/", HOST),
    "a page for another site": ("GET", "/", HOST, ("sec-fetch-site", "cross-site")),
    "a page for another host": ("GET", "/", ("host", "evil.example")),
    "a page ahead of time": ("GET", "/", HOST, ("sec-purpose", "prefetch")),
    "a wrong token in the path": ("GET", "/t/" + "q" * 32 + NEWS, HOST),
    "a token in the path and nothing more": ("GET", "/t/" + "p" * 32, HOST),
    "a page token in the path for more than downloads": ("GET", "/t/" + "p" * 32 + "/v1/state", HOST),
    "a page token in the path turns nothing": ("PUT", "/t/" + "p" * 32 + "/v1/privacy", HOST, JSON),
    "the right token in a wrong place": ("GET", NEWS + "?token=" + "p" * 32, HOST),
    "apps read the state": ("GET", "/v1/state", HOST, APP),
    "apps read the log": ("GET", "/v1/log", HOST, APP),
    "apps read events": ("GET", "/v1/events", HOST, APP),
    "apps turn the switch": ("PUT", "/v1/privacy", HOST, APP, JSON),
    "a typed turn": ("PUT", "/v1/privacy", HOST, PAGE, JSON, ("sec-fetch-site", "none")),
    "prefetch": ("GET", NEWS, HOST, APP, ("sec-purpose", "prefetch")),
    "old prefetch": ("GET", NEWS, HOST, APP, ("purpose", "prefetch")),
    "older prefetch": ("GET", NEWS, HOST, APP, ("x-moz", "prefetch")),
    "the origin of another host": ("GET", NEWS, HOST, APP, ("origin", "http://localhost:80")),
    "the origin over https": ("GET", NEWS, HOST, APP, ("origin", "https://127.0.0.1:80")),
    "two origins": ("GET", NEWS, HOST, APP, OURS, OURS),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_refuses(case):
    assert admit(*case) is None


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "SAME-ORIGIN", "same-origin, none"])
@pytest.mark.parametrize("credential", [PAGE, APP, COOKIE], ids=["page", "app", "cookie"])
@pytest.mark.parametrize(
    ("method", "path"), [("GET", NEWS), ("GET", "/"), ("GET", "/static/page.js"), ("PUT", "/v1/privacy")]
)
def test_no_other_site_may_ask_for_anything(site, credential, method, path):
    assert admit(method, path, HOST, credential, JSON, OURS, ("sec-fetch-site", site)) is None


@pytest.mark.parametrize("origin", ["null", "http://evil.example", "http://127.0.0.1:81", "http://127.0.0.1"])
@pytest.mark.parametrize("credential", [PAGE, APP, COOKIE], ids=["page", "app", "cookie"])
@pytest.mark.parametrize(("method", "path"), [("GET", NEWS), ("PUT", "/v1/privacy")])
def test_no_other_origin_may_ask_for_anything(origin, credential, method, path):
    assert admit(method, path, HOST, credential, JSON, SAME, ("origin", origin)) is None


@pytest.mark.parametrize("kind", ["image", "script", "iframe", "frame", "style", "embed", "object", "video", "worker"])
@pytest.mark.parametrize("credential", [PAGE, APP, COOKIE], ids=["page", "app", "cookie"])
def test_a_download_is_not_a_part_of_a_page(kind, credential):
    assert admit("GET", NEWS, HOST, credential, SAME, ("sec-fetch-dest", kind)) is None
    assert admit("GET", "/t/" + "a" * 32 + NEWS, HOST, SAME, ("sec-fetch-dest", kind)) is None


@pytest.mark.slow(reason="programs are started and waited for")
@given(
    st.text(max_size=40).filter(lambda path: path not in PAGES and not path.startswith(STATIC)),
    st.sampled_from(["GET", "PUT", "POST", "HEAD", "DELETE"]),
    st.lists(
        st.tuples(
            st.sampled_from(["host", "origin", "cookie", "authorization", "sec-fetch-site", "content-type", "x"]),
            st.one_of(
                st.text(alphabet=st.characters(max_codepoint=255), max_size=40), st.sampled_from(["127.0.0.1:80"])
            ),
        ),
        max_size=6,
    ),
)
def test_whatever_comes_without_a_token_is_refused_and_nothing_breaks(path, method, headers):
    assert GUARD.admit(method, path, [(n.encode(), v.encode("latin-1")) for n, v in headers]) is None


def test_tokens_are_new_and_long():
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) >= 32 for token in tokens)  # 24 bytes: 192 bits
    assert GUARD.page not in repr(GUARD)
    assert GUARD.app not in repr(GUARD)


# -- over TCP ----------------------------------------------------------------------------------------------


def test_every_refusal_is_the_same_and_reaches_nobody(tmp_path):
    with gateway(tmp_path) as local:
        local.engine.request("alpha").result(PATIENCE)  # the server was spoken to, and may be again
        before = len(local.world.requests)
        token = ("Authorization", f"Bearer {local.app_token}")
        ways = [
            ("GET", "/v1/sources/beta", []),
            ("GET", "/v1/sources/beta", [token, ("Origin", "http://evil.example")]),
            ("GET", "/v1/sources/beta", [token, ("Sec-Fetch-Site", "cross-site")]),
            ("GET", "/v1/sources/beta", [token, ("Host", "evil.example")]),
            ("GET", "/v1/nothing", []),
            ("HEAD", "/v1/sources/beta", []),
            ("PUT", "/v1/privacy", [token, ("Content-Type", "application/json")]),
            ("POST", "/v1/sources/beta", [token, ("Content-Type", "text/plain")]),
            ("GET", "/t/wrong/v1/sources/beta", []),
        ]
        answers = [local.send(method, path, headers) for method, path, headers in ways]
        seen = {(a.status, a.body or REFUSAL, tuple(sorted(a.headers.items()))) for a in answers}
        assert len(seen) == 1
        assert answers[0].status == 403
        assert answers[0].body == REFUSAL
        twice = [token, ("Host", local.host), ("Host", local.host)]
        assert local.send("GET", "/v1/sources/beta", twice).status == 400  # not HTTP at all
        assert len(local.world.requests) == before


def test_every_answer_carries_the_headers_and_none_for_other_origins(tmp_path):
    with gateway(tmp_path) as local:
        ways = [
            "/",
            "/limits",
            "/v1/sources",
            "/v1/sources/alpha",
            "/v1/log",
            "/v1/state",
            "/v1/nothing",
            "/v1/privacy",
        ]
        for path in [*ways, "/static/page.js", "/static/page.css"]:
            answer = local.get(path)
            for name, value in HEADERS:
                if name != b"content-security-policy":
                    assert answer.headers[name.decode()] == value.decode(), path
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert not any(name.startswith("access-control") for name in answer.headers), path
        assert "sandbox" in local.get("/v1/sources/alpha").headers["content-security-policy"]


def test_nothing_sets_a_cookie_and_a_cookie_opens_nothing(tmp_path):
    with gateway(tmp_path) as local:
        for path in ("/", "/v1/state", "/v1/sources/alpha", "/static/page.js", f"/t/{local.token}/"):
            assert "set-cookie" not in local.get(path).headers
        for cookie in (f"onoff-{local.port}={local.token}", f"token={local.token}", local.token):
            jar = [("Cookie", cookie), ("Sec-Fetch-Site", "same-origin"), ("Origin", f"http://{local.host}")]
            assert local.send("GET", "/v1/state", jar).status == 403
            assert local.send("GET", "/v1/sources/alpha", jar).status == 403


def test_the_page_without_a_token_holds_nothing(tmp_path):
    with gateway(tmp_path) as local:
        for path in ("/", "/limits", "/static/page.js"):
            answer = local.send("GET", path)
            assert answer.status == 200
            said = answer.body.decode()
            assert not any(secret in said for secret in (local.token, local.app_token, *local.engine.urls, "alpha"))


def test_each_status_is_what_is_meant(tmp_path):
    with gateway(tmp_path) as local:
        token = {"Authorization": f"Bearer {local.token}"}
        typed = {**token, "Content-Type": "text/plain"}
        app = {"Authorization": f"Bearer {local.app_token}"}
        assert local.send("GET", "/v1/nothing", token).status == 404
        assert local.send("GET", "/v1/sources/nothing", app).status == 404
        assert local.send("PUT", "/v1/privacy", typed, b'{"private": false}').status == 415
        assert local.send("PUT", "/v1/privacy", token, b'{"private": false}').status == 415
        assert local.send("POST", "/v1/privacy", token).status == 405
        assert local.send("GET", "/v1/state", app).status == 403
        assert local.send("GET", "/v1/nothing").status == 403
        assert local.engine.switch.position.private


def test_a_websocket_is_refused(tmp_path):
    with gateway(tmp_path) as local, socket.create_connection(("127.0.0.1", local.port), timeout=PATIENCE) as line:
        line.sendall(
            f"GET /v1/events HTTP/1.1\r\nHost: {local.host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Origin: http://evil.example\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        assert line.recv(1000).startswith(b"HTTP/1.1 403 ")


def test_only_http_is_served():
    with pytest.raises(RuntimeError, match="only HTTP"):
        asyncio.run(guarded(None, GUARD)({"type": "websocket"}, None, None))


def test_every_combination_of_headers_without_a_right_token_is_refused():
    values = {
        "host": [None, "127.0.0.1:80"],
        "origin": [None, "http://127.0.0.1:80"],
        "sec-fetch-site": [None, "none", "same-origin"],
        "sec-fetch-mode": [None, "navigate"],
        "content-type": [None, "application/json"],
        "cookie": [None, "onoff-80=", "onoff-80=x", "onoff-80=" + "a" * 32],
        "authorization": [None, "Bearer x"],
    }
    for chosen in itertools.product(*values.values()):
        headers = [pair for pair in zip(values, chosen, strict=True) if pair[1] is not None]
        assert admit("GET", "/v1/state", *headers) is None
        assert admit("PUT", "/v1/privacy", *headers) is None
