"""What sites, resolver and line see of the client, by real parts: nginx, TLS with names, processes that are killed.

The exact audit shows that the law of the sets does not depend on what is private (tests/audit/test_client_web.py). Here
everything else that can be seen from outside is shown to be a function of those sets: lookups and waits in order,
connections, the bytes sent on each, names in TLS, every request with its headers' length and validators, and what came
back. Among runs whose clients stored the same sets, what is seen is equal, whatever was wanted. Both together: the same
law, and no test of randomness is needed. One source moves, one is refused with a time to wait, one is fresh for long.

Processes are killed before calls by which something leaves them, and started again.
"""

import contextlib
import shutil
import socket
import subprocess
import threading
from itertools import product

import pytest
from tests.support.controls.web import TWINS
from tests.support.marks import KILLED_AT_EVERY_CALL
from tests.support.relay import Relay
from tests.support.waiting import until

import onoff
from onoff.client import Journal

pytestmark = [pytest.mark.nginx, *KILLED_AT_EVERY_CALL]

NAMES = ("alpha", "beta", "gamma", "delta")
CHAIN = onoff.MarkovChain(
    [[0.5, 0.3, 0.1, 0.1], [0.1, 0.5, 0.3, 0.1], [0.1, 0.1, 0.5, 0.3], [0.3, 0.1, 0.1, 0.5]], names=NAMES
)
CONFIG = """
daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;
events {{ worker_connections 512; }}
http {{
  log_format seen '$connection $ssl_server_name $request_length $request "$http_host" "$http_user_agent" '
    '"$http_accept_encoding" "$http_if_none_match" "$http_if_modified_since" "$http_cookie" "$http_referer" '
    '$status $bytes_sent';
  access_log {at}/access.log seen;
  client_body_temp_path {at}/a; proxy_temp_path {at}/b; fastcgi_temp_path {at}/c; uwsgi_temp_path {at}/d;
  scgi_temp_path {at}/e; absolute_redirect off; root {at}/www;
  gzip on; gzip_types *; gzip_min_length 1;
  ssl_certificate {at}/site.crt; ssl_certificate_key {at}/site.key;
  ssl_protocols TLSv1.2; ssl_session_tickets off; ssl_session_cache off;
  server {{
    listen unix:{at}/socket ssl; server_name one.example;
    location = /beta {{ return 301 /elsewhere/beta; }}
  }}
  server {{
    listen unix:{at}/socket ssl; server_name two.example;
    location = /gamma {{ add_header Retry-After 2 always; return 429; }}
    location = /delta {{ expires 1h; }}
  }}
}}
"""


class Resolver:
    """Answers names by the address of this machine, and keeps what it was asked and told."""

    def __init__(self):
        self.heard: list[str] = []
        self.line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.line.bind(("127.0.0.1", 0))
        self.port = self.line.getsockname()[1]
        self.thread = threading.Thread(target=self._answer)
        self.thread.start()

    def _answer(self):
        while (asked := self.line.recvfrom(1000))[0]:
            self.heard.append(asked[0].decode())
            self.line.sendto(b"127.0.0.1", asked[1])

    def close(self):
        self.line.sendto(b"", ("127.0.0.1", self.port))
        self.thread.join()
        self.line.close()


class Outside:
    """nginx, a relay before it, and a resolver."""

    def __init__(self, folder, relay, resolver):
        self.folder, self.relay, self.resolver = folder, relay, resolver
        url = "https://{host}.example:" + str(relay.port) + "/{id}"
        hosts = {"alpha": "one", "beta": "one", "gamma": "two", "delta": "two"}
        listed = "".join(f'[sources.{name}]\nid = "{name}"\nhost = "{host}"\n' for name, host in hosts.items())
        self.list, self.chain = folder / "list.toml", folder / "chain.json"
        self.list.write_text(f'[upstream]\nurl = "{url}"\n{listed}')
        CHAIN.save(self.chain)
        self.read = 0
        self.runs = 0

    def seen(self):
        """All that was seen since it was called last, once every connection is closed."""
        until(lambda: not self.relay.passing)
        heard, self.resolver.heard = self.resolver.heard, []
        sent, self.relay.sent = self.relay.sent, []
        log = (self.folder / "access.log").read_text()
        lines, self.read = log[self.read :].splitlines(), len(log)
        connections: dict[str, int] = {}
        requests = []
        for line in lines:
            number, rest = line.split(" ", 1)
            requests.append((connections.setdefault(number, len(connections)), rest))
        return tuple(heard), tuple(sent), tuple(requests)

    def run(self, killer, wants, seed, *, twin=None, killed=(None, None)):
        """Requests by processes of their own, one of which is killed and begun again: the sets, and what was seen.

        wants: (name, private) of each. killed: which of them, and before which call.
        """
        self.runs += 1
        journal = self.folder / f"run-{self.runs}" / "journal"
        journal.parent.mkdir()
        sets, seen = [], []
        for place, (name, private) in enumerate(wants):
            job = {"list": str(self.list), "chain": str(self.chain), "journal": str(journal), "twin": twin}
            job |= {"trusted": str(self.folder / "site.crt"), "resolver": self.resolver.port}
            job |= {"get": name, "private": private, "seed": [seed, place], "now": 1e9 + 60 * place}
            done = killer.run(job, kill_before=killed[1] if place == killed[0] else None)
            seen.append(self.seen())
            sets.append(stored(journal, place))
            if done["killed"]:
                done = killer.run({**job, "again": True, "seed": [seed, place, self.runs]})  # never the same draws
                seen.append(self.seen())
                sets[-1] = sets[-1] or stored(journal, place)
            came = done["result"]
            assert came.get("error") == "SourceFailed" if name == "gamma" else came["message"] == f"this is {name}", (
                came
            )
        shutil.rmtree(journal.parent)
        return tuple(sets), tuple(seen)


def stored(journal, place):
    """The set that a client stored for its request of this number; None before it is stored."""
    if not journal.exists():
        return None
    opened = Journal(journal, repair=False)
    opened.close()
    record = opened.found
    return None if record is None or record.step < place - 1 else (record.step, record.asked)


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    at = tmp_path_factory.mktemp("nginx")
    for path in ("alpha", "elsewhere/beta", "delta"):
        page = at / "www" / path
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"this is {page.name}")
    key = ["-newkey", "rsa:2048", "-nodes", "-keyout", at / "site.key", "-out", at / "site.crt", "-days", "2"]
    host = ["-subj", "/CN=one.example", "-addext", "subjectAltName=DNS:one.example,DNS:two.example"]
    subprocess.run(["openssl", "req", "-x509", *key, *host], check=True, capture_output=True)
    (at / "nginx.conf").write_text(CONFIG.format(at=at))
    nginx = subprocess.Popen(["nginx", "-e", str(at / "error.log"), "-c", str(at / "nginx.conf")])
    resolver = Resolver()
    try:
        until(lambda: (at / "socket").exists() or nginx.poll() is not None)
        assert nginx.poll() is None, (at / "error.log").read_text()
        relay = Relay(at / "socket")
        with contextlib.closing(relay):
            yield Outside(at, relay, resolver)
    finally:
        resolver.close()
        nginx.terminate()
        nginx.wait()


SECRETS = [[(first, True), (second, False)] for first, second in product(NAMES, repeat=2)]
WHOLE = (None, None)
SEED = 0
"""With it every set is stored for several secrets, and sets of three for several that are wanted in them."""


DRAWN_AGAIN = [(1, k) for k in range(1, 9)]
"""Killed before it is stored, a request has left nothing behind, and is drawn again: sets need not meet."""


def by_sets(outside, killer, runs, *, twin=None):
    """What was seen, by the sets that were stored and by where a process was killed: each time with what was wanted."""
    found: dict[object, dict[object, list[object]]] = {}
    for wants, killed in runs:
        sets, seen = outside.run(killer, wants, SEED, twin=twin, killed=killed)
        found.setdefault((sets, killed), {}).setdefault(seen, []).append(wants)
    return found


def differing(found):
    """The groups in which more than the sets was seen."""
    return [seen for seen in found.values() if len(seen) > 1]


def check(outside, killer, places):
    """Every secret, with a process killed at each of these places: the same is seen in each group."""
    found = by_sets(outside, killer, [(wants, killed) for killed in places for wants in SECRETS])
    assert differing(found) == []
    for killed in places:
        groups = [wants for (_, where), seen in found.items() for wants in seen.values() if where == killed]
        assert sum(map(len, groups)) == len(SECRETS)
        assert all(len(wants) > 1 for wants in groups) or killed in DRAWN_AGAIN
        assert any(len({wants[1] for wants in group}) > 1 for group in groups)  # another one of the set is wanted


def test_what_is_seen_is_a_function_of_the_sets(outside, killer):
    """Whole, killed before anything leaves, before the first request of a set is sent, and within everything."""
    check(outside, killer, [WHOLE, (1, 9), (1, 14), (0, 40)])


@pytest.mark.deep
def test_what_is_seen_in_four_hundred_runs(outside, killer):
    check(outside, killer, [WHOLE, *((1, k) for k in range(5, 41, 2)), *((0, k) for k in range(20, 68, 8))])


TWICE = [([(name, True), (name, True)], WHOLE) for name in NAMES]
"""Everything twice: what was wanted differs alone."""


def test_an_upstream_that_is_told_what_is_wanted_and_keeps_it_to_itself_shows_nothing(outside, killer):
    assert differing(by_sets(outside, killer, TWICE, twin="only told")) == []


@pytest.mark.parametrize("twin", TWINS)
def test_a_leaky_twin_is_seen_from_outside(outside, killer, twin):
    assert differing(by_sets(outside, killer, TWICE, twin=twin))


def test_a_client_that_draws_again_after_a_kill_is_seen_from_outside(outside, killer):
    runs = [(wants, (1, 14)) for wants in SECRETS]
    assert differing(by_sets(outside, killer, runs, twin="retry draws again"))
