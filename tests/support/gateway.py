"""A gateway before a server that writes everything down, and a way to speak to it byte by byte."""

import contextlib
import http.client
import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.support.waiting import PATIENCE
from tests.support.world import NAMES, P4, World, listening

from onoff.gateway.engine import Engine
from onoff.gateway.query_log import QueryLog
from onoff.gateway.run import running_gateway
from onoff.model.chain import MarkovChain

QUIET = 3600.0
"""A heartbeat that does not come twice in a test, so that everything else the server sees is a request."""


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


class Local:
    """A running gateway, its engine, and the world behind it."""

    def __init__(self, address, engine, world):
        self.address, self.engine, self.world = address, engine, world
        self.token, self.app_token = address.guard.page, address.guard.app
        self.port = urlsplit(address.base).port
        self.host = f"127.0.0.1:{self.port}"

    def send(self, method, path, headers=(), body=b""):
        """Exactly this request; `headers` are pairs, and Host is added only if it is not among them."""
        pairs = list(headers.items() if isinstance(headers, dict) else headers)
        if not any(name.lower() == "host" for name, _ in pairs):
            pairs.insert(0, ("Host", self.host))
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in pairs:
                connection.putheader(name, value)
            if body:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    def get(self, path, token=None, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send("GET", path, {"Authorization": f"Bearer {token or self.token}", **named})

    def turn(self, **body):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        return self.send("PUT", "/v1/privacy", headers, json.dumps(body).encode())


@contextlib.contextmanager
def gateway(folder, *, world=None, url=None, chain=None, level="full", log=None, heartbeat=QUIET, port=0, **options):
    """A gateway whose journal is in `folder`, before `world`, or before the server at `url`.

    `chain=False`: without a model. Without `refresh`, in seconds, it has no mirror and asks for everything while ON.
    """
    world = world or World()
    with contextlib.ExitStack() as stack:
        server = url or stack.enter_context(listening(world)).url
        defaults = {"timeout": PATIENCE, "refresh": None}
        if chain is not False:
            chain = chain or MarkovChain(P4, names=NAMES)
            defaults |= {"scheme": "single", "tick": 0.0, "backoff": 0.0, "attempts": 2}  # type: ignore[dict-item]
        engine = Engine(
            server,
            chain or None,
            folder / "journal",
            log=QueryLog(level, log),
            heartbeat=heartbeat,
            **{**defaults, **options},
        )
        stack.callback(engine.session.join, PATIENCE)  # so that another gateway may open the same files
        address = stack.enter_context(running_gateway(engine, port=port))
        assert engine.heartbeat.looked.wait(PATIENCE)  # from here on the server hears of requests only
        yield Local(address, engine, world)
