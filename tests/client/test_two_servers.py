"""A leader and a follower in processes of their own, publishing, readers, kills: every message is right."""

import contextlib
import itertools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.support.ports import reserved_port
from tests.support.waiting import PATIENCE, until

import onoff
from onoff.client.catalogue import fetch_catalogue
from onoff.client.publish import publish
from onoff.errors import OnOffError

ONOFF = str(Path(sys.executable).parent / "onoff")
NAMES = [f"s{k}" for k in range(24)]


class Server:
    """`onoff serve` on a store and a port of its own, which can be killed and started again."""

    def __init__(self, port, *options):
        self.url = f"http://127.0.0.1:{port}"
        self._command = [ONOFF, "serve", "--port", str(port), "--json", *options]
        self.start()

    def start(self):
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert json.loads(self._process.stdout.readline())["url"] == self.url

    def kill(self):
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def two_servers(folder):
    """A leader, a follower that has caught up, and a publisher's token."""
    sources = [option for name in NAMES for option in ("--source", name)]
    leader_store = ["--store", str(folder / "leader.db")]
    add = [ONOFF, "serve", *leader_store, *sources, "--add-publisher", "p"]
    token = subprocess.run(add, capture_output=True, text=True, check=True).stdout.strip()
    with reserved_port() as one, reserved_port() as other:
        leader = Server(one, *leader_store)
        follower = Server(other, "--store", str(folder / "follower.db"), "--follow", leader.url)
        try:
            until(lambda: holds_all(follower.url))
            yield leader, follower, token
        finally:
            leader.kill()
            follower.kill()


def holds_all(url):
    with contextlib.suppress(OnOffError):
        return fetch_catalogue(url).names == tuple(NAMES)
    return False


class Publisher:
    """Publishes at a steady rate; a message says whose it is and how many came before."""

    def __init__(self, url, token, per_second):
        self._publish = (url, token)
        self._pause = 1 / per_second
        self.stop = threading.Event()
        self.acknowledged = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        for k in itertools.count():
            if self.stop.wait(self._pause):
                return
            name = NAMES[k % len(NAMES)]
            with contextlib.suppress(OnOffError):
                publish(*self._publish, name, f"{name} {k} ".encode() * (1 + k % 50), "text/plain")
                self.acknowledged += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self._thread.join()


def read(urls, folder, seed, stop, outcomes):
    """Ask until told to stop; each request is repeated until it is answered, and its message must be right."""
    with onoff.Client(urls, None, journal=folder / f"journal-{seed}.sqlite", attempts=8) as client:
        for k in itertools.count(seed):
            if stop.is_set():
                return
            name = NAMES[k * 7 % len(NAMES)]
            deadline = time.monotonic() + PATIENCE
            while True:
                try:
                    message = client.get(name, private=True)
                    break
                except OnOffError as error:
                    outcomes["failed"].append(repr(error))
                    if time.monotonic() > deadline:
                        outcomes["lost"].append(repr(error))
                        return
            good = message == b"" or message.startswith(f"{name} ".encode())
            outcomes["right" if good else "wrong"].append((name, bytes(message[:40])))


def run_readers(folder, *, readers, seconds, kills, per_second=50):
    outcomes = {"right": [], "wrong": [], "failed": [], "lost": []}
    stop = threading.Event()
    with two_servers(folder) as (leader, follower, token), Publisher(leader.url, token, per_second) as publisher:
        urls = [leader.url, follower.url]
        threads = [threading.Thread(target=read, args=(urls, folder, k, stop, outcomes)) for k in range(readers)]
        for thread in threads:
            thread.start()
        for kill in range(2 * kills):
            stop.wait(seconds / (2 * kills + 1))
            victim = (leader, follower)[kill % 2]
            victim.kill()
            victim.start()
        stop.wait(seconds / (2 * kills + 1))
        stop.set()
        for thread in threads:
            thread.join()
    return outcomes, publisher.acknowledged


def test_readers_of_two_servers_get_right_messages_while_messages_are_published(tmp_path):
    outcomes, published = run_readers(tmp_path, readers=4, seconds=4, kills=0)
    assert outcomes["wrong"] == outcomes["lost"] == []
    assert outcomes["failed"] == []
    assert len(outcomes["right"]) >= 4
    assert published


def test_kills_of_either_server_cost_time_and_no_message(tmp_path):
    outcomes, published = run_readers(tmp_path, readers=4, seconds=6, kills=1)
    assert outcomes["wrong"] == outcomes["lost"] == []
    assert len(outcomes["right"]) >= 4
    assert published


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [0, 20])
def test_two_minutes_of_32_readers(tmp_path, kills):
    outcomes, published = run_readers(tmp_path, readers=32, seconds=120, kills=kills)
    print({name: len(found) for name, found in outcomes.items()}, published)
    assert outcomes["wrong"] == outcomes["lost"] == []
    assert kills or outcomes["failed"] == []
