"""HTTP by hand: exact bytes out, exact bytes in."""

import json
import secrets
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.waiting import PATIENCE

from onoff import wire


@dataclass
class Reply:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def __getitem__(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name]
        assert len(found) <= 1
        return found[0] if found else None

    @property
    def problem(self) -> wire.Problem:
        assert self["content-type"] == wire.PROBLEM_TYPE
        problem = wire.decode_problem(self.body)
        assert problem.status == self.status
        assert problem.hint
        return problem


class Line:
    """One connection."""

    def __init__(self, url: str, timeout: float = PATIENCE) -> None:
        parts = urlsplit(url)
        self.host = parts.netloc
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            piece = self.socket.recv(1 << 20)
            if not piece:
                raise EOFError(self.buffer)
            self.buffer += piece
        before, self.buffer = self.buffer.split(mark, 1)
        return before

    def reply(self) -> Reply:
        first, *lines = self.read_until(b"\r\n\r\n").decode().split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        headers = [tuple(line.split(": ", 1)) for line in lines]
        length = int({name.lower(): value for name, value in headers}["content-length"])
        whole = bytearray(self.buffer)
        while len(whole) < length:
            piece = self.socket.recv(1 << 20)
            if not piece:
                raise EOFError
            whole += piece
        body, self.buffer = bytes(whole[:length]), bytes(whole[length:])
        return Reply(int(status), headers, body)

    def ended(self) -> bool:
        """Whether the server closes the connection, without sending more."""
        try:
            return self.buffer == b"" and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def query(self, body: bytes, *, extra: str = "", encoding: str = "identity") -> Reply:
        self.send(query_request(self.host, body, extra=extra, encoding=encoding))
        return self.reply()


def query_request(host: str, body: bytes, *, extra: str = "", encoding: str = "identity") -> bytes:
    headers = dict(wire.QUERY_HEADERS) | {"accept-encoding": encoding}
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    head = f"POST /v1/query HTTP/1.1\r\nhost: {host}\r\n{''.join(lines)}content-length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def catalogue(url: str) -> wire.Catalogue:
    with Line(url) as line:
        line.send(f"GET /v1/catalogue HTTP/1.1\r\nhost: {line.host}\r\n\r\n".encode())
        return wire.decode_catalogue(line.reply().body)


def query(
    known: wire.Catalogue, *sources: int, session: bytes | None = None, step: int = 0, tags: bytes = b""
) -> bytes:
    return wire.encode_query(
        wire.WireQuery(known.epoch, session or secrets.token_bytes(16), step, tuple(sources), n=known.n, known=tags)
    )


def metrics(url: str) -> dict[str, float]:
    with Line(url) as line:
        line.send(f"GET /metrics HTTP/1.1\r\nhost: {line.host}\r\n\r\n".encode())
        lines = line.reply().body.decode().splitlines()
    return {name: float(value) for name, value in (row.split() for row in lines if not row.startswith("#"))}


def get_json(url: str, path: str) -> Any:
    with Line(url) as line:
        line.send(f"GET {path} HTTP/1.1\r\nhost: {line.host}\r\n\r\n".encode())
        return json.loads(line.reply().body)
