"""The guard: which requests the gateway accepts. All others get the same 403, and have no effect.

Every page that a browser shows can reach a service on loopback: by fetch, form, image, frame, link, by a name that was
rebound to 127.0.0.1, from another port of this machine. So a request is accepted only if:

1. Host is exactly one of ours, port included; once.
2. Origin, where there is one, is the gateway itself. Sec-Fetch-Site, where there is one, says `same-origin` or `none`
   (an address that was typed). Nothing is prefetched.
3. There is a token, compared in constant time:

       Authorization: Bearer T    the page's script, and programs
       /t/T/...                   feed readers, which know nothing but addresses; only for downloads

   The **page token** may do everything. The **app token** may only download: it can neither turn the switch nor read
   what was asked. Both are kept beside the journal, so that addresses stay the same from one start to the next.
4. Only the page itself needs none: its HTML, style and script are the same for everybody and hold nothing; and whether
   the gateway is well and ready.
   The script
   finds the page token behind the # of the address that was printed, which browsers do not send, and keeps it in the
   storage of its origin, port included. There is **no cookie**: browsers send one to every port of this machine.
5. Whatever changes something is JSON; from a browser it has Sec-Fetch-Site `same-origin`.
6. A download is for a program or for a person who typed its address, not for an image, a script or a frame.

A download sends a query to the server, so rules 2 to 6 must keep foreign pages from causing one.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

Header = tuple[bytes, bytes]

TOKEN_BYTES: Final = 24
PATH_PREFIX: Final = "/t/"
PREFIX_KEY: Final = "onoff.prefix"
"""Key in the ASGI scope: the prefix that was removed from the path, from which a feed makes its own address."""
RAW_KEY: Final = "onoff.raw"
"""Key in the ASGI scope: the path without that prefix as it was sent, its escapes among it."""
PAGES: Final = frozenset({"/", "/limits", "/api", "/healthz", "/readyz"})
STATIC: Final = "/static/"
SITE_PATH: Final = "/web"
"""Below it, the paths of web sites are as the sites have them."""
DOWNLOADS: Final = ("/v1/sources", "/v1/entries/", "/v1/feeds", f"{SITE_PATH}/", "/metrics")
SAFE: Final = frozenset({"GET", "HEAD"})

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; frame-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MESSAGE_POLICY: Final = "default-src 'none'; sandbox; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""For content of publishers: it loads nothing, runs nothing and belongs to no origin."""
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
class Guard:
    """Decides for one address. `hosts` are the exact values of Host; `page` and `app` are the tokens."""

    hosts: frozenset[str]
    page: str = field(default_factory=new_token, repr=False)
    app: str = field(default_factory=new_token, repr=False)

    def admit(self, method: str, path: str, headers: Iterable[Header]) -> str | None:
        """The path without its token if the request may go on, or None."""
        found = _Headers(headers)
        host, origin, site = found.one("host"), found.one("origin"), found.one("sec-fetch-site")
        if host not in self.hosts or found.repeated or found.prefetch:
            return None
        if origin not in {None, f"http://{host}"} or site not in {None, "none", "same-origin"}:
            return None
        if method == "GET" and (path in PAGES or path.startswith(STATIC)):
            return path
        place, inside, token = self._credential(path, found)
        full, apps = _equal(token, self.page), _equal(token, self.app)
        download = method in SAFE and inside.startswith(DOWNLOADS)
        if not (full or apps) or (not download and (place == "path" or not full)):
            return None
        if download and found.one("sec-fetch-dest") not in {None, "empty", "document"}:
            return None
        if method not in SAFE and site not in {None, "same-origin"}:
            return None
        return inside

    def _credential(self, path: str, found: _Headers) -> tuple[str, str, str]:
        """Where the token was found, the path without it, and the token; "" where there is none."""
        if path.startswith(PATH_PREFIX):
            token, slash, rest = path.removeprefix(PATH_PREFIX).partition("/")
            return "path", slash + rest, token
        scheme, _, token = (found.one("authorization") or "").partition(" ")
        return "bearer", path, token if scheme.lower() == "bearer" else ""


def _equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


class _Headers:
    """Request headers. What decides may be there once at most."""

    DECIDING: Final = frozenset(
        {
            "host",
            "origin",
            "authorization",
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

    @property
    def prefetch(self) -> bool:
        """Prefetched by a browser, not asked for by the user."""
        return any(name in self._values for name in ("sec-purpose", "purpose", "x-moz"))


def guarded(app: ASGIApp, guard: Guard) -> ASGIApp:
    """`app` behind `guard`. Every answer carries `HEADERS`, save those it sets itself, and never one for CORS."""

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP is served")
        path = guard.admit(scope["method"], scope["path"], scope["headers"])
        if path is None:
            await _refuse(_protected(send))
        else:
            prefix = scope["path"].removesuffix(path)
            raw = scope.get("raw_path", b"").decode("latin-1").removeprefix(prefix)
            inner = {**scope, "path": path, "raw_path": path.encode(), PREFIX_KEY: prefix, RAW_KEY: raw}
            await app(inner, receive, _protected(send))

    return respond


def _protected(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(pair for pair in HEADERS if pair[0] not in own)]
        await send(message)

    return sending


async def _refuse(send: Send) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(REFUSAL))]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": REFUSAL})
