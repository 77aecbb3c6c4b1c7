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
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
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


SERVICE_NAME: Final = "onoff-gateway.service"
SYSTEMCTL_TIMEOUT: Final = 30.0
TEXT: Final = """[Unit]
Description=onoff: read without telling the server what you read
After=network-online.target

[Service]
ExecStart={command}
WorkingDirectory={folder}
Restart=on-failure
RestartSec=5
LimitCORE=0

CapabilityBoundingSet=
LockPersonality=yes
NoNewPrivileges=yes
PrivateDevices=yes
PrivateUsers=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=full
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
UMask=0077

[Install]
WantedBy=default.target
"""


def unit_path() -> Path:
    """Where the user's unit is kept."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "systemd" / "user" / SERVICE_NAME


def unit_text(arguments: Sequence[str]) -> str:
    """The unit that runs `onoff gateway` with these arguments, in the folder of now.

    Raises InvalidInput for an argument that could add a line of its own.
    """
    command = [sys.executable, "-c", "from onoff.cli import main; main()", "gateway", *arguments]
    folder = str(Path.cwd())
    for word in (*command, folder):
        if any(ord(letter) < 32 or ord(letter) == 127 or "\ud800" <= letter <= "\udfff" for letter in word):
            raise InvalidInput(
                f"{word!r} cannot be written into a service", hint="leave out line breaks and control characters"
            )
    return TEXT.format(command=" ".join(map(_quoted, command)), folder=folder.replace("%", "%%"))


def install(arguments: Sequence[str]) -> Path:
    """Write the unit that runs `onoff gateway` with these arguments, and start it; where it was written.

    Raises InvalidInput where it cannot be written, OnOffError where systemd is not there or does not take it; then all
    is as it was.
    """
    path, text = unit_path(), unit_text(arguments)
    _systemctl("daemon-reload")  # before anything is written: whether the user has a systemd at all
    with _undone_on_error(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"{path}: {error.strerror}", hint="set XDG_CONFIG_HOME to a folder of yours") from None
        _systemctl("daemon-reload")
        _systemctl("enable", "--now", SERVICE_NAME)
    return path


@contextlib.contextmanager
def _undone_on_error(path: Path) -> Iterator[None]:
    """Put back the unit that was there before, or none, where the block fails."""
    before = path.read_bytes() if path.exists() else None
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError, OnOffError):
            if before is None:
                _systemctl("disable", "--now", SERVICE_NAME)
        with contextlib.suppress(OSError, OnOffError):
            path.write_bytes(before) if before is not None else path.unlink(missing_ok=True)
            _systemctl("daemon-reload")
        raise


def uninstall() -> Path:
    """Stop the service and remove its unit; where it was. Raises InvalidInput where there is none."""
    path = unit_path()
    if not path.exists():
        raise InvalidInput(f"{path}: there is no such service", hint="`onoff gateway --install` makes it")
    _systemctl("disable", "--now", SERVICE_NAME)
    path.unlink()
    _systemctl("daemon-reload")
    return path


def _systemctl(*words: str) -> None:
    program = shutil.which("systemctl")
    if program is None:
        raise OnOffError(
            "there is no systemctl here, so there is no service", hint="start this command with what this system has"
        )
    try:
        done = subprocess.run(
            [program, "--user", *words], capture_output=True, text=True, timeout=SYSTEMCTL_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise OnOffError(f"systemctl {words[0]} does not end", hint="is systemd of this session stuck?") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise OnOffError(f"systemctl {words[0]}: {said[0] if said else 'failed'}", hint="is this a session of systemd?")


def _quoted(word: str) -> str:
    """A word for ExecStart: systemd's own quoting, with its specifiers and variables taken literally."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
