"""A leader and a follower in processes of their own, which can be killed and started again."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

from tests.support.ports import reserved_port
from tests.support.typed import present
from tests.support.waiting import until

from onoff.errors import OnOffError
from onoff.upstream.message_server import fetch_catalogue

ONOFF = str(Path(sys.executable).parent / "onoff")


class Server:
    """`onoff serve` on a store and a port of its own, which can be killed and started again."""

    def __init__(self, port, *options):
        self.url = f"http://127.0.0.1:{port}"
        self._command = [ONOFF, "serve", "--port", str(port), "--json", *options]
        self.start()

    def start(self):
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert json.loads(present(self._process.stdout).readline())["url"] == self.url

    def kill(self):
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def two_servers(folder, names):
    """A leader with these sources, a follower that has caught up, and a publisher's token."""
    sources = [option for name in names for option in ("--source", name)]
    leader_store = ["--store", str(folder / "leader.db")]
    add = [ONOFF, "serve", *leader_store, *sources, "--add-publisher", "p"]
    token = subprocess.run(add, capture_output=True, text=True, check=True).stdout.strip()
    with reserved_port() as one, reserved_port() as other:
        leader = Server(one, *leader_store)
        follower = Server(other, "--store", str(folder / "follower.db"), "--follow", leader.url)
        try:
            until(lambda: _has(follower.url, names))
            yield leader, follower, token
        finally:
            leader.kill()
            follower.kill()


def _has(url, names):
    with contextlib.suppress(OnOffError):
        return fetch_catalogue(url).names == tuple(names)
    return False
