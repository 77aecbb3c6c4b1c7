"""Lists of sources: which address is asked for each, as a person writes it down.

    TOML     [upstream] with `url`, a pattern such as "https://api.example/v1/stops/{id}", and [sources.NAME] tables
    OPML     what feed readers export
    a list   `ADDRESS`, or `NAME ADDRESS`, one a line; `#` begins a comment

Everything is checked before anything is sent. An error names the line and says how to mend it.
"""

from __future__ import annotations

import re
import string
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

from onoff.errors import InvalidInput
from onoff.names import name_problem
from onoff.system.files import read_limited
from onoff.upstream.budget import Budget
from onoff.upstream.transport import Origin, check_proxy, origin_of

MOST_SOURCES: Final = 100_000
LARGEST_BODY: Final = 16 * 2**20
"""Bytes of an answer that are read at most, unless the list says otherwise."""
NO_LIMIT: Final = Budget()
DURATIONS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0}
_UPSTREAM: Final = {
    "url", "every", "budget", "connections", "hosts", "headers", "timeout", "patience", "largest", "proxy",
    "user_agent", "list",
}  # fmt: skip
_LIST: Final = {"url", "separator", "most", "answer", "at", "key"}
_RESERVED: Final = {
    "host", "connection", "content-length", "transfer-encoding", "cookie", "referer", "if-none-match",
    "if-modified-since", "accept-encoding", "user-agent", "upgrade", "te", "expect", "range",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """One source: its name, the address that is asked for it, its key in lists, and where it is, if it has a place."""

    name: str
    url: str
    key: str = ""
    at: tuple[float, float] | None = None

    @property
    def origin(self) -> Origin:
        return origin_of(self.url)

    @property
    def target(self) -> str:
        """What stands in the request line: path and query."""
        return target_of(self.url)


@dataclass(frozen=True, slots=True)
class Join:
    """How a site takes several sources in one request, and how the answer is split.

    url        with `{ids}`, the keys of a set joined by `separator`
    most       keys in one request at most
    answer     "array": the parts in the order asked, or each with its key under `key`; "object": the parts by key
    at         where the array or object stands in the answer, as "data.stops"; empty: it is the answer
    """

    url: str
    separator: str = ","
    most: int = 100
    answer: Literal["array", "object"] = "array"
    at: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class SourceList:
    """Sources and how their site wants to be asked. `every`: seconds between two rounds while ON."""

    sources: tuple[Source, ...]
    every: float | None = None
    budget: Budget = NO_LIMIT
    connections: int = 1
    hosts: frozenset[Origin] = frozenset()
    headers: tuple[tuple[str, str], ...] = ()
    timeout: float = 30.0
    patience: float = 60.0
    largest: int = LARGEST_BODY
    proxy: str | None = None
    user_agent: str = "onoff"
    join: Join | None = None
    where: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(source.name for source in self.sources)

    def requests_for(self, members: int) -> int:
        """How many requests a set of so many members takes, where none of it is known to be fresh."""
        return members if self.join is None else -(-members // self.join.most)

    @classmethod
    def load(cls, path: str | Path) -> SourceList:
        """The list in a file: TOML, OPML, or one address a line. Raises InvalidInput with the line and the mend."""
        path = Path(path)
        data = _read(path)
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InvalidInput(f"{path}: not text", hint="give a TOML file, OPML, or a list of addresses") from None
        head = text.lstrip()[:1]
        if head == "<":
            return _checked(cls(_from_opml(data, path), where=str(path)), text)
        if path.suffix == ".toml" or head == "[":
            return _from_toml(text, path)
        return _checked(cls(_from_lines(text, path), where=str(path)), text)


def target_of(url: str) -> str:
    """The path and query of an address, as the request line has it."""
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def seconds_of(text: object, what: str) -> float:
    """A duration as people write it: `30 s`, `5 min`, or a number of seconds.

    >>> seconds_of("30 s", "every"), seconds_of(90, "every")
    (30.0, 90.0)
    """
    if isinstance(text, int | float) and not isinstance(text, bool) and 0 < text < 1e9:
        return float(text)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|h|day)", text.strip()) if isinstance(text, str) else None
    if found is None or float(found[1]) == 0:
        raise InvalidInput(f"{what}: {text!r} is no duration", hint='write it as "30 s", "5 min" or "1 h"')
    return float(found[1]) * DURATIONS[found[2]]


# -- the three forms -------------------------------------------------------------------------------------------------


def _read(path: Path) -> bytes:
    try:
        return read_limited(path)
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise InvalidInput(f"{path}: {reason}", hint="give a TOML file, OPML, or a list of addresses") from None


def _from_lines(text: str, path: Path) -> tuple[Source, ...]:
    found = []
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            name, _, url = line.strip().rpartition(" ")
            found.append(Source(name.strip() or _name_of(url), url))
    if not found:
        raise InvalidInput(f"{path}: no source is listed", hint="write one address a line, or NAME ADDRESS")
    return tuple(found)


def _from_opml(data: bytes, path: Path) -> tuple[Source, ...]:
    import listparser

    parsed = listparser.parse(data)
    if parsed.get("bozo"):
        raise InvalidInput(f"{path}: not OPML: {parsed.get('bozo_exception')}", hint="export it again")
    taken: dict[str, Source] = {}
    for feed in parsed.feeds:
        if any(known.url == feed.url for known in taken.values()):
            continue  # readers list a feed once for each folder
        name = base = " ".join((feed.title or "").replace("/", " ").replace("\\", " ").split()) or _name_of(feed.url)
        number = 2
        while name in taken:
            name, number = f"{base} {number}", number + 1
        taken[name] = Source(name, feed.url)
    if not taken:
        raise InvalidInput(f"{path}: no feed is listed", hint="export it again")
    return tuple(taken.values())


def _name_of(url: str) -> str:
    """A name for an address that has none: its host and path, without slashes."""
    try:
        parts = urlsplit(url)
        return " ".join(f"{parts.netloc}{parts.path}".replace("/", " ").replace("\\", " ").split()) or url
    except ValueError:
        return url


def _from_toml(text: str, path: Path) -> SourceList:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path}: not TOML: {error}", hint="see the line; names with spaces need quotes") from None
    _only(document, {"upstream", "sources"}, "", text, path)
    upstream, tables = document.get("upstream", {}), document.get("sources", {})
    if not isinstance(upstream, dict) or not isinstance(tables, dict) or not tables:
        raise InvalidInput(f"{path}: no sources", hint="write a table for each, as [sources.Central]")
    _only(upstream, _UPSTREAM, "upstream", text, path)
    pattern = _text(upstream, "url", "upstream", text, path)
    join = _join(upstream.get("list"), text, path)
    sources = tuple(_source(name, table, pattern, text, path) for name, table in tables.items())
    plain: dict[str, Any] = {}
    try:
        if "every" in upstream:
            plain["every"] = seconds_of(upstream["every"], "every")
        for key in ("timeout", "patience"):
            if key in upstream:
                plain[key] = seconds_of(upstream[key], key)
        if "budget" in upstream:
            plain["budget"] = Budget.parse(str(upstream["budget"]))
    except InvalidInput as error:
        key = error.message.split(":")[0] if ":" in error.message else "budget"
        raise InvalidInput(f"{path}, line {_line(text, key)}: {error.message}", hint=error.hint) from None
    for key, most in (("connections", 16), ("largest", 2**30)):
        if key in upstream:
            value = upstream[key]
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise _wrong(text, path, key, f"{key} is not a number from 1 to {most}", f"write {key} = 1")
            plain[key] = value
    for key in ("proxy", "user_agent"):
        if key in upstream:
            plain[key] = _text(upstream, key, "upstream", text, path)
    try:
        if "proxy" in plain:
            check_proxy(plain["proxy"])
    except InvalidInput as error:
        raise _wrong(text, path, "proxy", f"proxy: {error.message}", error.hint or "") from None
    hosts = upstream.get("hosts", [])
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise _wrong(text, path, "hosts", "hosts is not a list of addresses", 'write hosts = ["https://cdn.example"]')
    try:
        plain["hosts"] = frozenset(origin_of(host) for host in hosts)
    except InvalidInput as error:
        raise _wrong(text, path, "hosts", f"hosts: {error.message}", error.hint or "") from None
    plain["headers"] = _headers(upstream.get("headers", {}), text, path)
    return _checked(SourceList(sources, join=join, where=str(path), **plain), text, pattern)


def _source(name: str, table: Any, pattern: str | None, text: str, path: Path) -> Source:
    here = f"[sources.{name}]"
    if not isinstance(table, dict):
        raise _wrong(text, path, here, f"{name} is not a table", 'write [sources.NAME] and under it id = "..."')
    place = None
    if "at" in table:
        at = table["at"]
        good = isinstance(at, list) and len(at) == 2 and all(isinstance(x, int | float) and abs(x) < 1e6 for x in at)
        if not good:
            raise _wrong(text, path, here, f"{name}: at is not two numbers", "write at = [47.378, 8.540]")
        place = (float(at[0]), float(at[1]))
    values = {key: str(value) for key, value in table.items() if key not in {"at", "url"}}
    if "url" in table:
        url = _text(table, "url", here, text, path) or ""
    elif pattern is None:
        raise _wrong(text, path, here, f"{name} has no address", "give it a url, or [upstream] a url with {id}")
    else:
        url = _filled(pattern, {**values, "name": name}, name, here, text, path)
    return Source(name, url, values.get("id", name), place)


def _filled(pattern: str, values: Mapping[str, str], name: str, here: str, text: str, path: Path) -> str:
    """The pattern with the values of a source, each as it stands in an address."""
    try:
        wanted = [field for _, field, _, _ in string.Formatter().parse(pattern) if field is not None]
    except ValueError:
        raise _wrong(text, path, "url", f"url: {pattern!r} is no pattern", "close every {") from None
    for field in wanted:
        if field not in values:
            hint = f"give it {field} = ..., or leave {{{field}}} out of the url"
            raise _wrong(text, path, here, f"{name} has no value for {{{field}}}", hint)
    return pattern.format_map({field: quote(values[field], safe="") for field in wanted})


def _join(table: Any, text: str, path: Path) -> Join | None:
    if table is None:
        return None
    hint = 'write [upstream.list] with url = "https://...?ids={ids}"'
    if not isinstance(table, dict) or "{ids}" not in str(table.get("url", "")):
        raise _wrong(text, path, "[upstream.list]", "a list of sources needs a url with {ids}", hint)
    _only(table, _LIST, "upstream.list", text, path)
    answer, most = table.get("answer", "array"), table.get("most", 100)
    if answer not in {"array", "object"}:
        raise _wrong(text, path, "answer", f"answer = {answer!r}", 'write "array" or "object"')
    if not isinstance(most, int) or not 1 <= most <= MOST_SOURCES:
        raise _wrong(text, path, "most", "most is not a number of sources", "write most = 100")
    rest = {key: str(table[key]) for key in ("separator", "at", "key") if key in table}
    return Join(str(table["url"]), most=most, answer=answer, **rest)


def _headers(given: Any, text: str, path: Path) -> tuple[tuple[str, str], ...]:
    """Headers that every request carries, the same for all sources."""
    if not isinstance(given, dict):
        raise _wrong(text, path, "headers", "headers is not a table", 'write [upstream.headers] and accept = "..."')
    found = []
    for name, value in given.items():
        good = re.fullmatch(r"[A-Za-z0-9-]+", name) and isinstance(value, str) and value.isprintable()
        if not good or name.lower() in _RESERVED:
            raise _wrong(text, path, name, f"the header {name} cannot be set", "leave it out: it is set, or forbidden")
        found.append((name.lower(), value))
    return tuple(sorted(found))


# -- what must hold for every list -----------------------------------------------------------------------------------


def _checked(given: SourceList, text: str, pattern: str | None = None) -> SourceList:
    """The list with its hosts, if every name and address in it can be used."""
    path = given.where
    if len(given.sources) > MOST_SOURCES:
        raise InvalidInput(f"{path}: {len(given.sources)} sources", hint=f"at most {MOST_SOURCES}")
    seen: dict[str, str] = {}
    names: set[str] = set()
    try:
        home = {origin_of(pattern.split("{")[0])} if pattern and "{" not in pattern[:9] else set()
    except InvalidInput as error:
        raise InvalidInput(f"{path}, line {_line(text, 'url')}: url: {error.message}", hint=error.hint) from None
    hosts = set(given.hosts) | home
    for source in given.sources:
        where = f"{path}, line {_line(text, source.name)}"
        if (problem := name_problem(source.name)) is not None:
            raise InvalidInput(f"{where}: the name {problem.message}", hint=problem.hint)
        if source.name in names:
            raise InvalidInput(f"{where}: {source.name} is listed twice", hint="give each source a name of its own")
        names.add(source.name)
        try:
            origin = origin_of(source.url)
        except InvalidInput as error:
            raise InvalidInput(f"{where}: {source.name}: {error.message}", hint=error.hint) from None
        if urlsplit(source.url).fragment:
            raise InvalidInput(f"{where}: {source.name}: an address with #", hint="leave out # and what follows")
        if home and origin not in hosts:
            raise InvalidInput(
                f"{where}: {source.name} is at another host, {origin.host}",
                hint=f'name it: hosts = ["{origin.scheme}://{origin.host_header}"] under [upstream]',
            )
        if source.url in seen:
            raise InvalidInput(
                f"{where}: {source.name} and {seen[source.url]} have the same address",
                hint="list each address once; whoever asks for one asks for the other",
            )
        seen[source.url] = source.name
        hosts.add(origin)
    if given.join is not None:
        try:
            hosts.add(origin_of(given.join.url.split("{")[0]))
        except InvalidInput as error:
            raise InvalidInput(f"{path}: the url of lists: {error.message}", hint=error.hint) from None
        if len({source.key for source in given.sources}) != len(given.sources):
            raise InvalidInput(f"{path}: two sources with the same id", hint="lists need an id of its own for each")
    _require_time_for_everything(given, text)
    return replace(given, hosts=frozenset(hosts))


def _require_time_for_everything(given: SourceList, text: str) -> None:
    """Raise InvalidInput where the budget of a host does not let everything be asked for as often as `every` says."""
    if given.every is None:
        return
    of_host = Counter(source.origin for source in given.sources) if given.join is None else {}
    most = max(of_host.values(), default=given.requests_for(len(given.sources)))
    # What one round exceeds. How long ON may go on, where there is a limit by the day, is for people to say.
    over = [limit for limit in given.budget.limits if most > limit.count]
    least = max((most * limit.seconds / limit.count for limit in over), default=0.0)
    if given.every < least:
        raise InvalidInput(
            f"{given.where}, line {_line(text, 'every')}: {most} requests every {given.every:g} s exceed the budget "
            f"{given.budget}",
            hint=f'write every = "{ceil(least)} s" or longer, or list fewer sources',
        )


def _only(table: Mapping[str, Any], known: set[str], where: str, text: str, path: Path) -> None:
    for key in table:
        if key not in known:
            place = f" under [{where}]" if where else ""
            raise _wrong(text, path, key, f"{key!r} is not known{place}", f"known: {', '.join(sorted(known))}")


def _text(table: Mapping[str, Any], key: str, where: str, text: str, path: Path) -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise _wrong(text, path, key, f"{key} under {where} is not text", f'write {key} = "..."')
    return value


def _wrong(text: str, path: Path, what: str, message: str, hint: str) -> InvalidInput:
    return InvalidInput(f"{path}, line {_line(text, what)}: {message}", hint=hint)


def _line(text: str, what: str) -> int:
    """The first line that names this; 1 where none does, as for what is missing."""
    bare = what.strip("[]").removeprefix("sources.")
    for number, line in enumerate(text.splitlines(), 1):
        if what in line or re.search(rf"(?<!\w){re.escape(bare)}(?!\w)", line):
            return number
    return 1
