"""A real Chromium, a gateway, and a visitor who writes down everything that the page does."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import sync_playwright
from tests.support.gateway import gateway
from tests.support.waiting import PATIENCE

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP rebound.example 127.0.0.1",
]
WATCH = """
window.violations = [];
const note = (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
document.addEventListener("securitypolicyviolation", note);
"""


@pytest.fixture(scope="module")  # not longer: while Playwright runs, its event loop occupies this thread
def chromium():
    with (
        sync_playwright() as playwright,
        contextlib.closing(
            playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=1000 * PATIENCE)
        ) as browser,
    ):
        yield browser


class Visit:
    """One page of one visitor, and what it did: consoles, errors, requests."""

    def __init__(self, context):
        self.context = context
        self.context.set_default_timeout(1000 * PATIENCE)
        self.page = context.new_page()
        self.complaints: list[Any] = []
        self.requests: list[Any] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in {"error", "warning"} else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        context.on("request", lambda request: self.requests.append(request.url))

    def open(self, local):
        self.page.goto(local.address.page)
        self.page.wait_for_selector("body:not([data-state=gone])")
        self.page.wait_for_selector(".tile")
        return self

    def unfold(self):
        """Open all that is one tap away."""
        for summary in self.page.query_selector_all("main details:not([open]) > summary"):
            if summary.is_visible():
                summary.click()
        return self

    def see(self, selector):
        """Wait for it."""
        return self.page.wait_for_selector(selector)

    def gone(self, selector):
        """Wait until it is hidden."""
        self.page.wait_for_selector(selector, state="hidden")

    def text(self, selector):
        return self.page.inner_text(selector)

    def choose(self, name):
        """Click a tile and wait until its message is there."""
        self.page.click(f".tile[data-source='{name}']")
        self.see(f"#message-title:text-is('{name}')")
        self.see("#tiles:not(:has([aria-busy=true]))")

    def turn(self, word):
        if self.text("#word") != word:
            self.page.click("#switch")
        self.see(f"#word:text-is('{word}')")

    def check(self, local):
        """Nothing to complain about, and nobody was spoken to but the gateway."""
        assert self.complaints == []
        assert self.page.evaluate("window.violations") == []
        assert self.requests
        assert {url for url in self.requests if not url.startswith(f"{local.address.base}/")} == set()


@pytest.fixture
def visitor(chromium):
    """Makes visits; each has its own cookies."""
    with contextlib.ExitStack() as stack:

        def visit(**options):
            context = stack.enter_context(contextlib.closing(chromium.new_context(**options)))
            context.add_init_script(WATCH)
            return Visit(context)

        yield visit


@pytest.fixture
def local(tmp_path):
    with gateway(tmp_path) as running:
        yield running


class Elsewhere:
    """A web server of somebody else: serves `pages`, and writes down who asked for what."""

    def __init__(self):
        self.pages: dict[Any, Any] = {}
        self.requests: list[Any] = []
        self.headers: list[Any] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(self.path)
                outer.headers.extend(self.headers.items())
                page = outer.pages.get(self.path)
                self.send_response(404 if page is None else 200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write((page or "").encode())

            do_POST = do_GET  # noqa: N815 (the library's name)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"


@pytest.fixture
def elsewhere():
    server = Elsewhere()
    thread = threading.Thread(target=server.server.serve_forever)
    thread.start()
    yield server
    server.server.shutdown()
    thread.join()
    server.server.server_close()
