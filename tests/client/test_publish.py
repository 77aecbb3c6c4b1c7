"""What a publisher is told when the server is not one, is in trouble, or refuses."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from onoff.errors import InvalidInput, InvalidWire, ServerUnreachable
from onoff.upstream.message_server import publish
from onoff.wire import Problem, encode_problem


@contextmanager
def server_that_says(status, content):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_PUT(self):
            self.do_GET()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


REFUSALS = pytest.mark.parametrize(
    ("status", "content", "error", "words"),
    [
        (404, b"<html>", ServerUnreachable, "status 404"),
        (503, encode_problem(Problem(503, "too busy", "wait a little")), ServerUnreachable, "too busy"),
        (401, encode_problem(Problem(401, "no such token", "make one")), InvalidInput, "no such token"),
    ],
)


@pytest.mark.slow(reason="programs are started and waited for")
@REFUSALS
def test_refusals_of_a_publish(status, content, error, words):
    with server_that_says(status, content) as url, pytest.raises(error, match=words) as caught:
        publish(url, "token", "a", b"x", "text/plain")
    assert caught.value.hint


def test_a_server_that_is_of_another_kind():
    with server_that_says(200, b"hello") as url, pytest.raises(ServerUnreachable, match="no receipt"):
        publish(url, "token", "a", b"x", "text/plain")


def test_bad_names_are_refused_before_anything_is_sent():
    with pytest.raises(InvalidWire):
        publish("http://127.0.0.1:1", "token", "a\nb", b"x", "text/plain")
