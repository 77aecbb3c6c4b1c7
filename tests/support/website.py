"""An ordinary web site for tests: what it answers is scripted by path, and it keeps what it was asked."""

import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """What a path answers; `cut`: bytes of the body after which the connection is closed."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


@dataclass
class Website:
    """A running site.

    answers   by target (path and query): an Answer, or a function of the request's headers and of how often it came
    log       (connection, target, headers) of every request, in the order in which they came
    """

    url: str = ""
    answers: dict[str, Answer | Callable[[dict[str, str], int], Answer]] = field(default_factory=dict)
    log: list[tuple[int, str, dict[str, str]]] = field(default_factory=list)
    connections: int = 0
    lock: Any = field(default_factory=threading.Lock)

    @property
    def targets(self) -> list[str]:
        return [target for _, target, _ in self.log]

    def answer(self, target: str, headers: dict[str, str]) -> Answer:
        given = self.answers.get(target, Answer(b"no such page", 404))
        if callable(given):
            return given(headers, sum(target == each for each in self.targets) - 1)
        return given


@contextmanager
def website(**answers: Answer):
    """A site on a port of its own, until the end of the block."""
    site = Website(answers={f"/{name}": answer for name, answer in answers.items()})

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are written apart: else each answer would wait for an ACK
        number = 0

        def setup(self):
            super().setup()
            with site.lock:
                site.connections += 1
                self.number = site.connections

        def do_GET(self):
            headers = {name.lower(): value for name, value in self.headers.items()}
            with site.lock:
                site.log.append((self.number, self.path, headers))
                given = site.answer(self.path, headers)
            self.send_response_only(given.status)
            for name, value in given.headers.items():
                self.send_header(name, value)
            if "content-length" not in {name.lower() for name in given.headers} and given.status != 304:
                self.send_header("content-length", str(len(given.body)))
            self.end_headers()
            self.wfile.write(given.body if given.cut is None else given.body[: given.cut])
            if given.cut is not None:
                self.close_connection = True

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
