"""Behind a real nginx that keeps its connections to us open and forwards even `Upgrade`: nothing is smuggled."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.raw import Line, catalogue, query, query_request
from tests.support.waiting import PATIENCE

from onoff import wire
from onoff.server import running

from .hostile import FOLLOWED, refused, tolerated

pytestmark = pytest.mark.nginx

FRAME = 2048
NAMES = ["inbox", *(f"s{i}" for i in range(9))]
CONFIG = """
daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_buffer_size 64; client_body_temp_path {at}/a; proxy_temp_path {at}/b;
  fastcgi_temp_path {at}/c; uwsgi_temp_path {at}/d; scgi_temp_path {at}/e;
  upstream onoff {{ server {upstream}; keepalive 1; }}
  server {{
    listen unix:{at}/s;
    location / {{
      proxy_pass http://onoff; proxy_http_version 1.1; proxy_request_buffering off;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $http_connection;
    }}
  }}
}}
"""


class Proxied(Line):
    """A connection to the proxy's Unix socket."""

    def __init__(self, path: Path) -> None:
        self.host = "h"
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.buffer = b""
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise


@contextlib.contextmanager
def nginx_before(url):
    """The path of the socket of an nginx that forwards to `url` over one connection that it keeps."""
    assert shutil.which("nginx"), "nginx is missing: run `make system`"
    with tempfile.TemporaryDirectory(prefix="onoff-nginx-") as folder:
        at = Path(folder)
        (at / "nginx.conf").write_text(CONFIG.format(at=at, upstream=url.removeprefix("http://")))
        process = subprocess.Popen(["nginx", "-e", str(at / "error.log"), "-c", str(at / "nginx.conf")])
        try:
            while True:
                with contextlib.suppress(OSError), Proxied(at / "s"):
                    break
                assert process.poll() is None, (at / "error.log").read_text()
                time.sleep(0.01)
            yield at / "s"
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def server():
    with running({name: name.encode() for name in NAMES}, frame_size=FRAME) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(server):
    with nginx_before(server.url) as path:
        yield path


def victims(proxy, known, stop, wrong):
    """Ask until told to stop; note every answer that is not the one to the query. 502: the server closed a line."""
    with Proxied(proxy) as line:
        step = 0
        while not stop.is_set():
            step += 1
            sources = (2 + step % 8,)
            reply = line.query(query(known, *sources, step=step), extra="connection: keep-alive\r\n")
            if reply.status == 502:
                continue
            if reply.status != 200:
                wrong.append(reply)
                continue
            (message,) = wire.decode_answer(reply.body, sources, epoch=known.epoch, frame_size=FRAME)
            if message.body != known.names[sources[0]].encode():
                wrong.append(message)


def smuggling(server):
    """What an attacker who may publish sends: a publish in a publish, whose body would be another's request."""
    inner = (
        f"PUT /v1/sources/inbox/message HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {server.token}\r\n"
        "content-type: text/plain\r\ncontent-length: 300\r\n\r\n"
    ).encode()
    outer = f"PUT /v1/sources/s0/message HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {server.token}\r\n"
    for connection in ["upgrade", "keep-alive, Upgrade", "Upgrade, HTTP2-Settings"]:
        for upgrade in ["x", "h2c", "websocket", "TLS/1.0"]:
            headers = f"connection: {connection}\r\nupgrade: {upgrade}\r\ncontent-length: {len(inner)}\r\n\r\n"
            yield (outer + headers).encode(), inner


def test_nothing_is_smuggled_through_a_proxy(server, proxy):
    known = catalogue(server.url)
    wrong: list[Any] = []
    stop = threading.Event()
    readers = [threading.Thread(target=victims, args=(proxy, known, stop, wrong)) for _ in range(2)]
    for reader in readers:
        reader.start()
    asked = query(known, 1, session=bytes(16))
    streams = [*refused(b"h", asked).values(), *tolerated(b"h", asked).values()]
    streams += [query_request("h", asked) + data for data in FOLLOWED.values()]
    pairs = [(data[: len(data) // 2], data[len(data) // 2 :]) for data in streams]
    try:
        for first, second in [*list(smuggling(server)) * 5, *pairs]:
            with Proxied(proxy) as line, contextlib.suppress(OSError):
                line.send(first)
                time.sleep(0.001)  # so that nginx usually forwards the parts apart; right either way
                line.send(second)
                line.socket.settimeout(0.05)
                line.socket.recv(1 << 20)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    with Line(server.url) as line:
        reply = line.query(query(known, 0))
    (inbox,) = wire.decode_answer(reply.body, (0,), epoch=known.epoch, frame_size=FRAME)
    assert (inbox.version, inbox.body) == (1, b"inbox")


def test_readers_are_served_through_the_proxy(server, proxy):
    known = catalogue(server.url)
    with Proxied(proxy) as line:
        for step in range(50):
            reply = line.query(query(known, 2, 5, step=step), extra="connection: keep-alive\r\n")
            messages = wire.decode_answer(reply.body, (2, 5), epoch=known.epoch, frame_size=FRAME)
            assert [m.body for m in messages] == [b"s1", b"s4"]
