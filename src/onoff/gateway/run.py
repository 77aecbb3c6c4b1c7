"""Starting and stopping a gateway: in this process until a signal, in one of its threads, or as a service of the user.

The service is a unit for systemd, written and removed by `onoff gateway --install`, that starts with the user's session
and again if it fails. It holds the command line and no secret: tokens are kept beside the journal. It is closed to what
a gateway does not need; open are the network, the user's files (a journal and a log may be anywhere), and memory that
is written and then executed, which compiled kernels are.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import uvicorn

from onoff.errors import InvalidInput, OnOffError
from onoff.gateway.app import build_app
from onoff.gateway.engine import Engine
from onoff.gateway.guard import PATH_PREFIX, SITE_PATH, Guard
from onoff.system import sockets
from onoff.system.serving import OrderlyServer

STOP_GATEWAY_SECONDS: Final = 2
GATEWAY_BACKLOG: Final = 128


def listen_on_loopback(host: str, port: int) -> socket.socket:
    """A listening socket on loopback, and nowhere else; port 0 takes a free one."""
    try:
        inside = ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise InvalidInput(
            f"{host} is not a loopback address", hint="use 127.0.0.1 or ::1; the gateway is for one machine"
        )
    return sockets.listen(host, port, backlog=GATEWAY_BACKLOG)


@dataclass(frozen=True)
class Address:
    """The addresses of a gateway: `page` opens the page, `apps` is the prefix of downloads and feeds."""

    base: str
    guard: Guard

    @classmethod
    def of(cls, sock: socket.socket, engine: Engine) -> Address:
        shown, port = sockets.authority(sock), sock.getsockname()[1]
        tokens = engine.switch.tokens
        guard = Guard(frozenset({shown, f"localhost:{port}"}), page=tokens.page, app=tokens.app)
        return cls(f"http://{shown}", guard)

    @property
    def page(self) -> str:
        return f"{self.base}/#{self.guard.page}"

    @property
    def apps(self) -> str:
        return f"{self.base}{PATH_PREFIX}{self.guard.app}/v1"

    @property
    def site(self) -> str:
        """In place of the address of a web site: below it are the site's own paths."""
        return f"{self.base}{PATH_PREFIX}{self.guard.app}{SITE_PATH}"

    def as_dict(self) -> dict[str, str]:
        return {
            "page": self.page,
            "apps": self.apps,
            "site": self.site,
            "token": self.guard.page,
            "app_token": self.guard.app,
        }


class GatewayServer(OrderlyServer):
    """uvicorn that ends the event streams before it waits for connections to end."""

    def __init__(self, engine: Engine, address: Address) -> None:
        self.board = engine.board
        self.up = threading.Event()
        config = uvicorn.Config(
            build_app(engine, address.guard),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOP_GATEWAY_SECONDS,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.board.close()
        await super().shutdown(sockets)


def serve_gateway(engine: Engine, sock: socket.socket, address: Address) -> None:
    """Serve in this process until SIGINT or SIGTERM, then close the engine."""
    try:
        with contextlib.suppress(KeyboardInterrupt):
            GatewayServer(engine, address).run([sock])
    finally:
        engine.close()


@contextlib.contextmanager
def running_gateway(engine: Engine, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[Address]:
    """A gateway in a thread of this process, stopped and its engine closed at the end of the block."""
    with listen_on_loopback(host, port) as sock:
        address = Address.of(sock, engine)
        server = GatewayServer(engine, address)
        thread = threading.Thread(
            target=lambda: asyncio.run(server.serve([sock])), name="onoff-gateway-http", daemon=True
        )
        thread.start()
        try:
            while not server.up.wait(0.1):
                if not thread.is_alive():
                    raise OnOffError("the gateway did not start", hint="see its log")
            yield address
        finally:
            server.should_exit = True
            thread.join()
            engine.close()
