"""Web: any web site as the place where messages come from. A set of sources is asked for by ordinary GETs.

The site, and whoever sees the line, may learn which set was asked for. So everything that happens here is a function of
the set, of what the site answers, of what is known from earlier answers, and of the clock. `fetch` is not told which
member of the set is wanted, so it cannot tell it:

    order        ascending in the list; with several connections, dealt out in that order
    headers      the same for all; no cookie, no referrer
    validators   kept and sent for every member alike; what the site itself called fresh is not asked for
    redirects    followed for every member alike, at most five, to hosts that the list names
    failures     all members that failed for a passing reason are tried again together, on one schedule
    budgets      when each request leaves is planned from how many there are, before the first leaves
    time         nothing is returned before the whole set is done; one deadline for all of it
    connections  opened for one set, used by nothing else, closed with it
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urljoin

from onoff.errors import CatalogueMismatch, InvalidInput
from onoff.names import some_of
from onoff.upstream import NEW, Copies, MemberOutcome, WebCopy
from onoff.upstream.sources import Join, Source, SourceList, target_of
from onoff.upstream.transport import Connection, Deadline, Failure, Origin, Reply, Request, origin_of

SET_ATTEMPTS: Final = 3
"""How often a member is asked for before it is given up."""
SET_BACKOFF: Final = 1.0
"""Seconds before the second attempt; doubled before every further one."""
MOST_REDIRECTS: Final = 5
LONGEST_FRESH: Final = 365 * 86400.0
PASSING: Final = frozenset({408, 425, 429})
"""Statuses below 500 that may be another one later."""
MOVED: Final = frozenset({301, 302, 303, 307, 308})
MOVED_FOR_GOOD: Final = frozenset({301, 308})


class Line(Protocol):
    """A connection to one origin, as `Connection` is."""

    def exchange(self, request: Request, deadline: Deadline) -> Reply | Failure: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class FetchedSet:
    """What a set took: what became of each member, requests and bytes of bodies."""

    outcomes: Mapping[str, MemberOutcome] = field(repr=False)
    requests: int
    received: int

    @property
    def failed(self) -> tuple[str, ...]:
        """The members that failed, in the order of the list."""
        return tuple(name for name, outcome in self.outcomes.items() if outcome.state == "failed")


@dataclass(frozen=True, slots=True)
class _Got:
    """The answer to one job: the last reply or failure, where it has moved for good, and what it took.

    refused: why its last redirect was not followed; empty otherwise.
    """

    answer: Reply | Failure
    moved: str | None
    sent: tuple[tuple[Origin, float], ...]
    received: int
    refused: str = ""

    @property
    def passing(self) -> bool:
        return isinstance(self.answer, Failure) or self.answer.status >= 500 or self.answer.status in PASSING


@dataclass(frozen=True, slots=True)
class _Job:
    """One request: the members that it asks for, its address and its validators."""

    members: tuple[Source, ...]
    url: str
    validators: tuple[tuple[str, str], ...] = ()


class Web:
    """The sources of a list, as ordinary web sites serve them.

    Parameters
    ----------
    sources
        What is asked for, and how; `Web.load` reads it from a file.
    progress
        Called with how many requests of a set are done, and how many there are.
    connect, now, sleep
        To be replaced in tests and audits: how a connection is made, seconds since 1970, and waiting.

    >>> from onoff.upstream.sources import Source, SourceList
    >>> Web(SourceList((Source("Central", "https://api.example/stops/1"), Source("Lake", "https://api.example/stops/2"))))
    <Web: 2 sources>
    """

    def __init__(
        self,
        sources: SourceList,
        *,
        progress: Callable[[int, int], None] | None = None,
        connect: Callable[[Origin], Line] | None = None,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.sources = sources
        self._progress = progress
        self._by_name = {source.name: source for source in sources.sources}
        self._connect = connect or (lambda origin: Connection(origin, proxy=sources.proxy))
        self._now, self._sleep = now, sleep
        self.noticed: Callable[[Origin, int], None] | None = None
        """Called after each request with its host and the bytes that came back for it."""
        self._headers = (
            ("user-agent", sources.user_agent),
            ("accept-encoding", "gzip"),
            *sources.headers,
        )

    @classmethod
    def load(cls, path: str | Path, *, progress: Callable[[int, int], None] | None = None) -> Web:
        """The sources in a TOML file, an OPML file or a list of addresses. Raises InvalidInput."""
        return cls(SourceList.load(path), progress=progress)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sources, in the order of the list."""
        return self.sources.names

    @property
    def address(self) -> str:
        """What a journal calls this upstream: its hosts."""
        return " ".join(sorted(f"{host.scheme}://{host.host_header}" for host in self.sources.hosts))

    def __repr__(self) -> str:
        return f"<Web: {len(self.sources.sources)} sources>"

    def require(self, names: Sequence[str]) -> None:
        """Raise CatalogueMismatch, which names them, unless the list has every source of a chain."""
        if missing := [name for name in names if name not in self._by_name]:
            raise CatalogueMismatch(
                f"{len(missing)} of the chain's {len(names)} sources are not in the list: {some_of(missing)}",
                hint=f"use a chain whose names are those of the list: {some_of(self.names)}",
            )

    def fetch(self, asked: Iterable[str], copies: Copies, *, patience: float | None = None) -> FetchedSet:
        """Bring the copy of every member of a set up to date, and say what became of each.

        Parameters
        ----------
        asked
            The names of the set. Their order does not matter; that of the list is kept.
        copies
            What is known; all that came is kept in it together, once the whole set is done.
        patience
            Seconds for which the set may wait for the site's budget; None: as the list says.

        Raises
        ------
        OverBudget
            The set does not fit into the site's budget within the list's `patience`; nothing was sent.
        """
        chosen = set(asked)
        if unknown := chosen - self._by_name.keys():
            raise InvalidInput(f"{len(unknown)} of the set are not in the list", hint="ask for names of the list")
        members = [source for source in self.sources.sources if source.name in chosen]
        now = self._now()
        known = {source.name: copies.get(source.name) for source in members}
        outcomes = {source.name: MemberOutcome("fresh") for source in members}
        due = [source for source in members if not _is_fresh(known[source.name], now)]
        jobs = self._jobs(due, known)
        longest = self.sources.patience if patience is None else patience
        times = self._plan([origin_of(job.url) for job in jobs], copies, now, longest)
        deadline = Deadline(self.sources.timeout + (max(times) - now if times else 0.0))
        found: dict[str, WebCopy] = {}
        requests = received = 0
        for attempt in range(SET_ATTEMPTS):
            results = self._round(jobs, times, deadline, copies)
            again, pause = [], SET_BACKOFF * 2**attempt
            for job, got in zip(jobs, results, strict=True):
                requests, received = requests + len(got.sent), received + got.received
                for name, outcome, copy in self._read(job, got, known):
                    outcomes[name] = outcome
                    if copy is not None:
                        found[name] = copy
                if got.passing:
                    again.append(job)
                    pause = max(pause, _retry_after(got.answer))
            if not again or attempt + 1 == SET_ATTEMPTS or pause > longest or _is_over(deadline, pause):
                break
            jobs = again
            times = self._plan([origin_of(job.url) for job in jobs], copies, self._now() + pause, None)
        copies.keep(found)
        return FetchedSet(outcomes, requests, received)

    # -- what is asked -------------------------------------------------------------------------------------

    def _jobs(self, due: Sequence[Source], known: Mapping[str, WebCopy | None]) -> list[_Job]:
        join = self.sources.join
        if join is None:
            return [_Job((source,), *_where_and_validators(source, known[source.name])) for source in due]
        parts = [due[at : at + join.most] for at in range(0, len(due), join.most)]
        return [_Job(tuple(part), _joined(join, part)) for part in parts]

    def _plan(self, origins: Sequence[Origin], copies: Copies, now: float, patience: float | None) -> list[float]:
        """When each request leaves: each host has the budget of the list, and order is kept across hosts.

        patience: Seconds within which the last must leave, else OverBudget is raised; None: whenever it can.
        """
        times = [now] * len(origins)
        budget = self.sources.budget
        for host in dict.fromkeys(origins):
            places = [place for place, origin in enumerate(origins) if origin == host]
            sent = copies.sent(host, now - budget.longest)
            if patience is None:
                plan = budget.plan(len(places), now, sent)
            else:
                plan = budget.check(len(places), now, sent, patience)
            for place, at in zip(places, plan, strict=True):
                times[place] = at
        for place in range(1, len(times)):
            times[place] = max(times[place], times[place - 1])
        return times

    # -- how it travels ------------------------------------------------------------------------------------

    def _round(self, jobs: Sequence[_Job], times: Sequence[float], deadline: Deadline, copies: Copies) -> list[_Got]:
        """Every job once. Each connection takes every c-th job in turn, whatever came back for others."""
        lanes = min(self.sources.connections, len(jobs))
        work, done = list(zip(jobs, times, strict=True)), count(1)

        def tell() -> None:
            if self._progress is not None:
                self._progress(next(done), len(jobs))

        if lanes <= 1:
            return self._lane(work, deadline, copies, tell)
        with ThreadPoolExecutor(lanes) as pool:
            shares = list(pool.map(lambda lane: self._lane(work[lane::lanes], deadline, copies, tell), range(lanes)))
        return [shares[place % lanes][place // lanes] for place in range(len(jobs))]

    def _lane(
        self, work: Sequence[tuple[_Job, float]], deadline: Deadline, copies: Copies, tell: Callable[[], None]
    ) -> list[_Got]:
        results = []
        with ExitStack() as stack:
            lines: dict[Origin, Line] = {}

            def line_to(origin: Origin) -> Line:
                if origin not in lines:
                    lines[origin] = stack.enter_context(closing(self._connect(origin)))
                return lines[origin]

            for job, at in work:
                if (wait := at - self._now()) > 0:
                    self._sleep(wait)
                results.append(self._follow(job, line_to, deadline, copies))
                tell()
        return results

    def _follow(self, job: _Job, line_to: Callable[[Origin], Line], deadline: Deadline, copies: Copies) -> _Got:
        """Ask, and follow redirects, within the hosts of the list."""
        url, moved, received = job.url, None, 0
        sent: list[tuple[Origin, float]] = []
        for_good, places = True, {url}
        validators = job.validators
        while True:
            origin = origin_of(url)
            request = Request("GET", target_of(url), (*self._headers, *validators), b"", self.sources.largest)
            sent.append((origin, self._now()))
            if self.sources.budget.limits:  # durable before it leaves: a crash must not make room for more
                copies.note_sent(sent[-1:])
            answer = line_to(origin).exchange(request, deadline)
            came = len(answer.body) if isinstance(answer, Reply) else 0
            received += came
            if self.noticed is not None:
                self.noticed(origin, came)
            location = answer.header("location") if isinstance(answer, Reply) and answer.status in MOVED else None
            if not isinstance(answer, Reply) or location is None:
                return _Got(answer, moved, tuple(sent), received)
            for_good = for_good and answer.status in MOVED_FOR_GOOD
            url = urljoin(url, location).partition("#")[0]
            problem = self._refuses(url, places, len(sent))
            if problem:
                return _Got(answer, None, tuple(sent), received, problem)
            places.add(url)
            moved = url if for_good else moved

    def _refuses(self, url: str, places: set[str], asked: int) -> str:
        """Why a redirect is not followed; empty where it is."""
        try:
            origin = origin_of(url)
        except InvalidInput:
            return "it redirects to what is no address"
        if origin not in self.sources.hosts:
            return f"it redirects to another host, {origin.host}; name it under hosts if that is right"
        if url in places:
            return "its redirects lead in a ring"
        return "it redirects more than five times" if asked > MOST_REDIRECTS else ""

    # -- what came back ------------------------------------------------------------------------------------

    def _read(
        self, job: _Job, got: _Got, known: Mapping[str, WebCopy | None]
    ) -> list[tuple[str, MemberOutcome, WebCopy | None]]:
        """What became of each member of a job, and its new copy."""
        answer, now = got.answer, self._now()

        def all_failed(reason: str, status: int = 0) -> list[tuple[str, MemberOutcome, WebCopy | None]]:
            return [(member.name, MemberOutcome("failed", reason, status), None) for member in job.members]

        if isinstance(answer, Failure):
            return all_failed(answer.reason)
        fresh = now + _lifetime(answer, now)
        if answer.status == 304 and len(job.members) == 1 and (old := known[job.members[0].name]) is not None:
            again = replace(old, fetched=now, fresh_until=fresh, place=got.moved or old.place)
            return [(job.members[0].name, MemberOutcome("same", status=304), again)]
        if answer.status != 200:
            return all_failed(got.refused or f"the site answers with status {answer.status}", answer.status)
        body = _unpacked(answer, self.sources.largest)
        if isinstance(body, str):
            return all_failed(body, 200)
        media_type = answer.header("content-type") or "application/octet-stream"
        new = WebCopy(body, media_type, answer.header("etag"), answer.header("last-modified"), now, fresh, got.moved)
        if self.sources.join is None:
            return [(job.members[0].name, NEW, new)]
        parts = _split(self.sources.join, job.members, body)
        if isinstance(parts, str):
            return all_failed(parts, 200)
        plain = replace(new, etag=None, modified=None, place=None, media_type="application/json")
        return [
            (member.name, NEW, replace(plain, body=part))
            if part is not None
            else (member.name, MemberOutcome("failed", "the site's answer has no part for it", 200), None)
            for member, part in zip(job.members, parts, strict=True)
        ]


def _is_fresh(copy: WebCopy | None, now: float) -> bool:
    """Whether the site itself called it fresh; a clock that was set back before it was fetched makes it stale."""
    return copy is not None and copy.fetched <= now < copy.fresh_until


def _is_over(deadline: Deadline, pause: float) -> bool:
    try:
        return deadline.left() <= pause
    except TimeoutError:
        return True


def _where_and_validators(source: Source, copy: WebCopy | None) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Where a source is now, and the validators of its copy."""
    if copy is None:
        return source.url, ()
    etag = (("if-none-match", copy.etag),) if copy.etag else ()
    modified = (("if-modified-since", copy.modified),) if copy.modified else ()
    return copy.place or source.url, (*etag, *modified)


def _joined(join: Join, part: Sequence[Source]) -> str:
    ids = join.separator.join(quote(source.key, safe="") for source in part)
    return join.url.replace("{ids}", ids)


def _split(join: Join, members: Sequence[Source], body: bytes) -> list[bytes | None] | str:
    """The part of each member of an answer to a list; or why there are none."""
    try:
        document: Any = json.loads(body)
        for step in filter(None, join.at.split(".")):
            document = document[int(step)] if isinstance(document, list) else document[step]
    except (ValueError, RecursionError):
        return "the site's answer to a list is not JSON"
    except (KeyError, IndexError, TypeError):
        return f"the site's answer has nothing at {join.at}"
    keys = [member.key for member in members]
    if join.answer == "object":
        if not isinstance(document, dict):
            return "the site's answer is no object by key"
        found = {key: document[key] for key in keys if key in document}
    elif not isinstance(document, list):
        return "the site's answer is no array"
    elif join.key:
        found = {str(each.get(join.key)): each for each in document if isinstance(each, dict)}
    elif len(document) != len(keys):
        return f"the site's answer has {len(document)} parts for {len(keys)} sources"
    else:
        found = dict(zip(keys, document, strict=True))
    return [json.dumps(found[key], ensure_ascii=False).encode() if key in found else None for key in keys]


def _unpacked(reply: Reply, largest: int) -> bytes | str:
    """The body as it was before it was compressed; or why it cannot be had."""
    encodings = [value.strip().lower() for name, value in reply.headers if name == "content-encoding"]
    if not encodings or encodings == ["identity"]:
        return reply.body
    if encodings != ["gzip"]:
        return "the site sends an encoding that was not asked for"
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        body = unpacker.decompress(reply.body, largest + 1)
    except zlib.error:
        return "the site's answer is damaged"
    if len(body) > largest:
        return "the answer is too long"
    return body if unpacker.eof and not unpacker.unused_data else "the site's answer is damaged"


def _lifetime(reply: Reply, now: float) -> float:
    """Seconds for which the site calls its answer fresh."""
    control = ",".join(value for name, value in reply.headers if name == "cache-control").lower()
    words = [word.strip() for word in control.split(",")]
    if "no-store" in words or "no-cache" in words:
        return 0.0
    for word in words:
        if found := re.fullmatch(r'max-age="?(\d{1,10})"?', word):
            age = reply.header("age") or "0"
            return min(max(float(found[1]) - (float(age) if age.isdigit() else 0.0), 0.0), LONGEST_FRESH)
    expires = _date(reply.header("expires"))
    if expires is None:
        return 0.0
    return min(max(expires - (_date(reply.header("date")) or now), 0.0), LONGEST_FRESH)


def _retry_after(answer: Reply | Failure) -> float:
    """Seconds that the site asks to wait before the next attempt."""
    value = answer.header("retry-after") if isinstance(answer, Reply) else None
    if value is None:
        return 0.0
    if value.isdigit() and len(value) < 10:
        return float(value)
    at, date = _date(value), _date(answer.header("date") if isinstance(answer, Reply) else None)
    return max(at - date, 0.0) if at is not None and date is not None else 0.0


def _date(value: str | None) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp() if value else None
    except (ValueError, TypeError, OverflowError):
        return None
