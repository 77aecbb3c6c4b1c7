"""A web site on this machine for the examples. It knows nothing of onoff: what it answers is a function of the path."""

import threading
import zlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import onoff


@contextmanager
def local_site(page):
    """Serve `page(path)`, its media type and bytes; gives the address of the site, and its access log."""
    log = []

    class Pages(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are written apart, and must not wait for one another

        def do_GET(self):
            log.append(self.path)
            media_type, body = page(self.path)
            etag = f'"{zlib.crc32(body):08x}"'
            same = self.headers["if-none-match"] == etag
            self.send_response(304 if same else 200)
            self.send_header("etag", etag)
            if not same:
                self.send_header("content-type", media_type)
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if same else body)

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
