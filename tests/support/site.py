"""A web site on loopback that says what a test wrote for each path, and keeps what it was asked."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Site(ThreadingHTTPServer):
    """A site of feeds on loopback: each path has what it answers, and every request is written down."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host="127.0.0.1"):
        super().__init__((host, 0), Page)
        self.pages = {}
        self.seen = []
        self.url = f"http://{host}:{self.server_address[1]}"

    def page(self, path):
        """Status, headers and body of what is at a path."""
        return self.pages[path]


class Page(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self):
        self.server.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        status, headers, body = self.server.page(self.path)
        if headers.get("etag") and self.headers.get("if-none-match") == headers["etag"]:
            status, body = 304, b""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(site):
    with site:
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()
