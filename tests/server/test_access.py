"""Who sees the counts: this machine, or a token; anyone only where the operator said so."""

import pytest
from tests.support.raw import Line

from onoff.server import running
from onoff.server.app import MetricsAccess, bearer_digest
from onoff.server.store import token_digest

TOKEN = "a token of the operator"


def status_of(access, *, client=("127.0.0.1", 1), **headers):
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    problem = access.refusal(client, named)
    assert problem is None or problem.hint
    return 200 if problem is None else problem.status


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_told(host):
    assert status_of(MetricsAccess(), client=(host, 1)) == 200


@pytest.mark.parametrize("client", [("192.0.2.1", 1), ("2001:db8::1", 1), ("", 0), None])
def test_strangers_are_not(client):
    assert status_of(MetricsAccess(), client=client) == 403
    assert status_of(MetricsAccess(anyone=True), client=client) == 200


@pytest.mark.parametrize("name", ["forwarded", "via", "x_forwarded_for", "x_forwarded_host", "x_real_ip"])
def test_a_proxy_on_this_machine_speaks_for_strangers(name):
    assert status_of(MetricsAccess(), **{name: "192.0.2.1"}) == 403


def test_where_there_is_a_token_it_is_needed_from_everywhere():
    access = MetricsAccess(digest=token_digest(TOKEN))
    for client in [("127.0.0.1", 1), ("192.0.2.1", 1)]:
        assert status_of(access, client=client, authorization=f"Bearer {TOKEN}") == 200
        assert status_of(access, client=client, authorization=f"bearer {TOKEN}") == 200
        for wrong in ["Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer \xff"]:
            assert status_of(access, client=client, authorization=wrong) == 401
        assert status_of(access, client=client) == 401


def test_no_header_has_the_digest_of_a_token():
    assert bearer_digest(b"") == bearer_digest(b"Basic x") == bytes(32)


def get_metrics(url, extra=""):
    with Line(url) as line:
        line.send(f"GET /metrics HTTP/1.1\r\nhost: h\r\n{extra}\r\n".encode())
        return line.reply()


def test_a_server_refuses_strangers_and_says_how_to_be_let_in():
    with running(["a"], frame_size=512) as server:
        assert get_metrics(server.url).status == 200
        refused = get_metrics(server.url, "x-forwarded-for: 192.0.2.1\r\n")
        assert refused.problem.status == 403
        assert b"onoff_" not in refused.body
    with running(["a"], frame_size=512, access=MetricsAccess(digest=token_digest(TOKEN))) as server:
        refused = get_metrics(server.url)
        assert (refused.problem.status, refused["www-authenticate"]) == (401, "Bearer")
        assert get_metrics(server.url, f"authorization: Bearer {TOKEN}\r\n").status == 200
