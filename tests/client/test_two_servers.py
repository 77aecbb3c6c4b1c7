"""A leader and a follower in processes of their own, publishing, readers, kills: every message is right."""

import contextlib
import itertools
import threading
import time
from typing import Any

import pytest
from tests.support.clients import Client
from tests.support.servers import two_servers
from tests.support.waiting import PATIENCE, until

from onoff.errors import OnOffError
from onoff.upstream.message_server import publish

pytestmark = pytest.mark.slow(reason="whole clients and servers are driven, and killed")

NAMES = [f"s{k}" for k in range(24)]


class Publisher:
    """Publishes at a steady rate, from several threads; a message says whose it is and how many came before."""

    THREADS = 4

    def __init__(self, url, token, per_second):
        self._publish = (url, token)
        self._per_second = per_second
        self.stop = threading.Event()
        self.acknowledged = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(k,)) for k in range(self.THREADS)]

    def _run(self, first):
        began = time.monotonic()
        for k in itertools.count(first, self.THREADS):
            if self.stop.wait(max(0.0, began + k / self._per_second - time.monotonic())):
                return
            name = NAMES[k % len(NAMES)]
            with contextlib.suppress(OnOffError):
                publish(*self._publish, name, f"{name} {k} ".encode() * (1 + k % 50), "text/plain")
                with self._lock:
                    self.acknowledged += 1

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self._threads:
            thread.join()


def read(urls, folder, seed, stop, outcomes):
    """Ask until told to stop; each request is repeated until it is answered, and its message must be right."""
    with Client(urls, None, journal=folder / f"journal-{seed}.sqlite", attempts=8) as client:
        for k in itertools.count(seed):
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
            if stop.is_set():
                return


def run_readers(folder, *, readers, seconds, kills, per_second=50):
    outcomes: dict[Any, Any] = {"right": [], "wrong": [], "failed": [], "lost": []}
    stop = threading.Event()
    with two_servers(folder, NAMES) as (leader, follower, token), Publisher(leader.url, token, per_second) as publisher:
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
        until(lambda: publisher.acknowledged)
        stop.set()
        for thread in threads:
            thread.join()
    return outcomes, publisher.acknowledged


def test_readers_of_two_servers_get_right_messages_while_messages_are_published(tmp_path):
    outcomes, published = run_readers(tmp_path, readers=4, seconds=1.5, kills=0)
    assert outcomes["wrong"] == outcomes["lost"] == []
    assert outcomes["failed"] == []
    assert len(outcomes["right"]) >= 4
    assert published


def test_kills_of_either_server_cost_time_and_no_message(tmp_path):
    outcomes, published = run_readers(tmp_path, readers=4, seconds=2, kills=1)
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
