"""A web site on this machine for the examples. It knows nothing of onoff: path and time make the answer."""

import threading
import time
import zlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import onoff


class Access(NamedTuple):
    """A line of the access log: what was asked for, and the bytes that came and went, heads included."""

    path: str
    came: int
    went: int


@contextmanager
def local_site(page, clock=time.time):
    """Serve `page(path, now)`, its media type and bytes; gives the address of the site, and its access log."""
    log = []

    class Pages(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            media_type, body = page(self.path, clock())
            etag = f'"{zlib.crc32(body):08x}"'
            if self.headers["if-none-match"] == etag:
                answer = f"HTTP/1.1 304 Not Modified\r\netag: {etag}\r\n\r\n".encode()
            else:
                head = f"HTTP/1.1 200 OK\r\netag: {etag}\r\ncontent-type: {media_type}\r\ncontent-length: {len(body)}"
                answer = head.encode() + b"\r\n\r\n" + body
            log.append(Access(self.path, len(self.raw_requestline) + len(bytes(self.headers)), len(answer)))
            self.wfile.write(answer)

        def log_message(self, *_):
            """It is kept above."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", log
    finally:
        server.shutdown()
        server.server_close()


def spend_a_day(page, listed, chain, day, kind):
    """Make the requests of a day, (name, private), and print what the site was asked for each of them."""
    with local_site(page) as (url, log), TemporaryDirectory() as folder:
        path = Path(folder) / "list.toml"
        path.write_text(listed(url, chain.names))
        total = 0
        with onoff.Client(onoff.Web.load(path), chain, journal=Path(folder) / "journal") as client:
            for name, private in day:
                log.clear()
                message = client.get(name, private=private)
                asked = ", ".join(message.asked) if len(message.asked) < chain.n else f"all {chain.n} {kind}"
                print(f"{'ON ' if private else 'OFF'}  {name}: the site was asked for {asked}")
                assert len(log) == message.requests
                total += message.requests
    print(message.decode())
    return total
