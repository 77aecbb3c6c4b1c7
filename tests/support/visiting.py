"""One request of a client of ordinary sites, in a process of its own that may be killed; and what is seen of it.

Where there is a resolver, names are looked up there, outside of the process, by a datagram for each, and how long the
client waits between two attempts is told it too. The clock is moved by waiting alone; nothing is waited for. Where a
twin is named, the client is that leaky one.
"""

import os
import socket
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from tests.support.controls.web import TWINS, TellsTheUpstream, Told, as_core
from tests.support.waiting import PATIENCE

import onoff
from onoff.client import Client, Hooks
from onoff.client.core import Core
from onoff.errors import OnOffError
from onoff.session.seeded import SeededEntropy
from onoff.upstream.sources import SourceList


class DrawsAfresh(Core):
    """After the end of a process the set is drawn again."""

    def retry(self):
        record = self.waiting()
        if record.mirror:
            return (yield from super().retry())
        return (yield from super().request(record.wanted, private=record.private))


def told(resolver, text):
    """Send this to the resolver, and wait until it has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.settimeout(PATIENCE)
        line.connect(("127.0.0.1", resolver))
        line.send(text.encode())
        return line.recv(100).decode()


def visit(job):
    """`get` or `retry`: what came of it."""
    twin, now = job.get("twin"), [float(job["now"])]

    def wait(seconds):
        now[0] += seconds
        if "resolver" in job:
            told(job["resolver"], f"wait {seconds:g}")

    if "resolver" in job:
        os.environ["SSL_CERT_FILE"] = job["trusted"]
        at = socket.getaddrinfo("127.0.0.1", 80, 0, socket.SOCK_STREAM)[0]
        socket.getaddrinfo = lambda host, port, *_: [(*at[:4], (told(job["resolver"], f"lookup {host}"), port))]
    core = DrawsAfresh if twin == "retry draws again" else TellsTheUpstream if twin else None
    kind = {**TWINS, "only told": Told}.get(twin, onoff.Web)
    web = kind(SourceList.load(job["list"]), now=lambda: now[0], sleep=wait)
    entropy = SeededEntropy(np.random.default_rng(job["seed"]))
    hooks = Hooks(tick=0, background=False, entropy=entropy, now=lambda: now[0])
    try:
        with (
            as_core(core) if core else nullcontext(),
            Client(web, job["tables"].model, job["journal"], scheme=job["tables"], hooks=hooks) as client,
        ):
            if job.get("again") and client.pending:
                message = client.retry()
            else:
                message = client.get(job["get"], private=job["private"])
            if "shown" in job:
                Path(job["shown"]).write_bytes(message)  # it is handed over, whatever becomes of the process
        return {"message": message.decode(), "asked": message.asked}
    except OnOffError as error:
        return {"error": type(error).__name__, "text": str(error)}
