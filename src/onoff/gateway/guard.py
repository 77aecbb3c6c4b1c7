"""The guard: who may speak to the gateway. Everybody else gets one and the same 403, and nothing happens.

A service on loopback is reached by every page that a browser shows: by fetch, form, image, frame, link, by a name that
was rebound to 127.0.0.1, from another port of this machine. So before anything is looked at:

1. Host is exactly one of ours, port included; once.
2. Origin, where there is one, is the gateway itself. Sec-Fetch-Site, where there is one, says `same-origin` or `none`
   (an address that was typed). Nothing is prefetched.
3. There is a token, compared in constant time:

       Authorization: Bearer T    programs
       /t/T/...                   feed readers, which know nothing but addresses; only for downloads
       cookie                     the page, after /t/T/ was opened; HttpOnly, SameSite=Strict, one per port

   The **page token** is new at every start and may do everything. The **app token** is kept, so that a feed has a
   stable address, and may only download: it can neither turn the switch nor read what was asked.
4. A cookie is sent along by the browser, whoever asks; SameSite does not tell two ports of one host apart. So with a
   cookie Sec-Fetch-Site must be there and say `same-origin`; only pages, which send no query, may also be typed.
5. Whatever changes something is JSON; from a browser it has an Origin and Sec-Fetch-Site `same-origin`.
6. A download is for a program or for a person who typed its address, not for an image, a script or a frame.

Nothing here knows what a request means; a download sends a query, so rules 2 to 6 are what keeps pages from it.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

TOKEN_BYTES: Final = 24
PREFIX: Final = "/t/"
PREFIX_KEY: Final = "onoff.prefix"
"""In the scope that goes on: what was taken off the path, so that a feed can name its own address."""
PAGES: Final = frozenset({"/", "/limits"})
DOWNLOADS: Final = ("/v1/sources", "/v1/feeds/")
METHODS: Final = frozenset({"GET", "PUT"})
SAFE: Final = frozenset({"GET"})

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; frame-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MESSAGE_POLICY: Final = "default-src 'none'; sandbox; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""For what publishers wrote: wherever it is shown it loads nothing, runs nothing and belongs to no origin."""
HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-dns-prefetch-control", b"off"),
    (b"x-frame-options", b"DENY"),
)
REFUSAL: Final = b"403: open the address that `onoff gateway` printed, or send its token\n"


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


@dataclass(frozen=True)
class Admitted:
    """A request that may go on: its path without a token, and whether it opens the page for a browser."""

    path: str
    opens: bool = False


@dataclass(frozen=True)
class Guard:
    """Decides for one address. `hosts` are the exact values of Host; `page` and `app` are the tokens."""

    hosts: frozenset[str]
    port: int
    page: str = field(default_factory=new_token, repr=False)
    app: str = field(default_factory=new_token, repr=False)

    @property
    def cookie(self) -> str:
        """The cookie's name. Ports share cookies, so it names the port."""
        return f"onoff-{self.port}"

    def admit(self, method: str, path: str, headers: Iterable[Header]) -> Admitted | None:
        """The request as it may go on, or None."""
        found = _Headers(headers)
        host, origin, site = found.one("host"), found.one("origin"), found.one("sec-fetch-site")
        place, inside, token = self._credential(path, found)
        full, apps = _equal(token, self.page), _equal(token, self.app)
        if host not in self.hosts or method not in METHODS or not (full or apps) or found.repeated:
            return None
        if origin not in {None, f"http://{host}"} or site not in {None, "none", "same-origin"} or found.prefetch:
            return None
        if place == "path" and inside == "/":
            return Admitted("/", opens=True) if full and method == "GET" else None
        download = method == "GET" and inside.startswith(DOWNLOADS)
        if not download and (place == "path" or not full):
            return None
        if download and found.one("sec-fetch-dest") not in {None, "empty", "document"}:
            return None
        if place == "cookie" and not (full and _from_our_page(method, inside, origin, site, found)):
            return None
        if method not in SAFE and not (site in {None, "same-origin"} and found.json):
            return None
        return Admitted(inside)

    def _credential(self, path: str, found: _Headers) -> tuple[str, str, str]:
        """Where the token was, the path without it, and the token; the empty one if there is none."""
        if path.startswith(PREFIX):
            token, slash, rest = path.removeprefix(PREFIX).partition("/")
            return "path", slash + rest, token
        scheme, _, token = (found.one("authorization") or "").partition(" ")
        if scheme.lower() == "bearer":
            return "bearer", path, token
        return "cookie", path, found.cookie(self.cookie)


def _from_our_page(method: str, path: str, origin: str | None, site: str | None, found: _Headers) -> bool:
    """Whether a request with the cookie comes from the page itself, or is a person who opens it."""
    if method not in SAFE:
        return origin is not None and site == "same-origin"
    return site == "same-origin" or (site == "none" and path in PAGES and found.one("sec-fetch-mode") == "navigate")


def _equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


class _Headers:
    """Request headers. What decides may be there once at most."""

    DECIDING: Final = frozenset(
        {
            "host",
            "origin",
            "authorization",
            "cookie",
            "content-type",
            "sec-fetch-site",
            "sec-fetch-mode",
            "sec-fetch-dest",
        }
    )

    def __init__(self, headers: Iterable[Header]) -> None:
        self._values: dict[str, str] = {}
        self.repeated = False
        for raw_name, raw_value in headers:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            self.repeated |= name in self._values and name in self.DECIDING
            self._values[name] = value

    def one(self, name: str) -> str | None:
        return self._values.get(name)

    def cookie(self, name: str) -> str:
        """The value of a cookie; empty unless it is there once."""
        pairs = (part.strip().partition("=") for part in self._values.get("cookie", "").split(";"))
        values = [value for key, _, value in pairs if key == name]
        return values[0] if len(values) == 1 else ""

    @property
    def json(self) -> bool:
        return self._values.get("content-type", "").partition(";")[0].strip().lower() == "application/json"

    @property
    def prefetch(self) -> bool:
        """Asked ahead of time by a browser, without anybody wanting it yet."""
        return any(name in self._values for name in ("sec-purpose", "purpose", "x-moz"))


def guarded(app: App, guard: Guard) -> App:
    """`app` behind `guard`. Every answer carries `HEADERS`, save those it sets itself, and never one for CORS."""

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP is served")
        admitted = guard.admit(scope["method"], scope["path"], scope["headers"])
        if admitted is None:
            await _answer(_protected(send), 403, [(b"content-type", b"text/plain; charset=utf-8")], REFUSAL)
        elif admitted.opens:
            jar = f"{guard.cookie}={guard.page}; Path=/; HttpOnly; SameSite=Strict"
            await _answer(_protected(send), 303, [(b"location", b"/"), (b"set-cookie", jar.encode())], b"")
        else:
            prefix = scope["path"].removesuffix(admitted.path)
            inner = {**scope, "path": admitted.path, "raw_path": admitted.path.encode(), PREFIX_KEY: prefix}
            await app(inner, receive, _protected(send))

    return respond


def _protected(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(pair for pair in HEADERS if pair[0] not in own)]
        await send(message)

    return sending


async def _answer(send: Send, status: int, headers: list[Header], body: bytes) -> None:
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
