"""A day of a reader in bytes: everything always, equal frames, the mirror, OFF requests, two servers.

The messages are in a real store and the changes come from the code of the server, so the bytes are those of bodies on
the wire, in both directions; HTTP heads and TLS add the same to every method. Each method sees the same publishing and
the same reader:

    120 feeds whose messages are their newest entries, 700 new entries a day, some feeds busier than others
    60 readings a day, 40 of them with privacy OFF and 20 in three hours of ON, by a made-up chain of habits
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onoff import figures, wire
from onoff.lab.families import browsing
from onoff.lab.results.page import SEED, Section, markdown_table, shown
from onoff.lab.walk import standard_error
from onoff.model.chain import MarkovChain
from onoff.server.admin import edit_catalogue, opened
from onoff.server.answers import Shelf, Shelved, compress_now, gzip_parts
from onoff.server.changes import ChangesBuilder
from onoff.session import Session
from onoff.session.seeded import SeededEntropy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from onoff.server.store import Store


DAY_COMMAND: Final = "python -m onoff.lab.results.build --only day"
FRAME: Final = 65536
"""Bytes of the equal frames that answers had in version 0.1."""
PUBLISHES, OPEN_READS, PRIVATE_READS = 700, 40, 20
MINUTES: Final = 24 * 60
AWAKE: Final = (7 * 60, 23 * 60)
SWITCHED_ON: Final = ((12 * 60, 13 * 60), (20 * 60, 22 * 60))
REFRESH_MINUTES: Final = 5
WAYS: Final = {
    "frames everything": "everything, always, in frames of 64 KiB",
    "everything": "everything, always, at its own length",
    "frames": "version 0.1: everything or the set, in frames of 64 KiB",
    "mirror": "ON all day: the mirror, every 5 minutes",
    "switched": "ON for 3 hours by the mirror, OFF by what changed of sets",
    "open": "of these, the 40 OFF requests alone",
    "two": "two servers, ON all day",
    "two switched": "two servers, ON for 3 hours",
    "plain": "no privacy: one message a reading",
}


@dataclass
class _Feeds:
    """Feeds and their newest entries; a message is all of a feed's."""

    n: int
    rng: random.Random
    words: list[str] = field(init=False)
    entries: list[list[dict[str, Any]]] = field(init=False)

    def __post_init__(self) -> None:
        letters = "etaoinshrdlucmfwypvbgk"
        self.words = ["".join(self.rng.choices(letters, k=self.rng.randint(2, 9))) for _ in range(4000)]
        self._commonness = [1 / (k + 5) for k in range(len(self.words))]
        self.entries = [[self._entry() for _ in range(self.rng.randint(5, 20))] for _ in range(self.n)]

    def _entry(self) -> dict[str, Any]:
        text = " ".join(self.rng.choices(self.words, weights=self._commonness, k=self.rng.randint(60, 250)))
        link = f"https://example.org/{self.rng.getrandbits(40):x}"
        return {"title": text[:60], "link": link, "time": 1_763_000_000_000 + self.rng.getrandbits(30), "html": text}

    def publish(self, feed: int) -> bytes:
        """The message after a new entry took the place of the oldest one."""
        self.entries[feed] = [self._entry(), *self.entries[feed][:-1]]
        return self.message(feed)

    def message(self, feed: int) -> bytes:
        return json.dumps({"entries": self.entries[feed]}).encode()

    def drawn(self) -> int:
        """A feed that publishes next: some are busier."""
        return self.rng.choices(range(self.n), weights=[1 / (k + 5) for k in range(self.n)])[0]


@dataclass
class _Mirror:
    """A reader's mirror: what it has, and what refreshing it took."""

    changes: ChangesBuilder
    have: wire.Edition | None = None

    async def refresh(self) -> int:
        """Bytes both ways."""
        have = self.have
        since = wire.Since(0) if have is None else wire.Since(have.number, have.life, have.digest)
        reply = await self.changes.reply(since, gzip=True)
        target = wire.changes_target(have)
        self.have = (await self.changes.edition()).edition
        return reply.length + len(target)


@dataclass
class _Digests:
    """What a reader of two servers holds of both before a request."""

    changes: ChangesBuilder
    catalogue: wire.Catalogue
    have: wire.FrameDigests | None = None

    async def refresh(self) -> int:
        """Bytes both ways, of both servers."""
        target = wire.digests_target(self.have)
        reply = await self.changes.digests(wire.decode_wanted_digests(target.partition("?")[2]))
        assert isinstance(reply, bytes)
        self.have = wire.decode_digests(reply, self.catalogue, self.have)
        return 2 * (len(target) + len(reply))


@dataclass
class _Reader:
    """One person, by every way."""

    chain: MarkovChain
    session: Session
    rng: random.Random
    wanted: Iterator[int]
    known: dict[int, bytes] = field(default_factory=dict)
    """The tags of the copies of whom switches."""

    def read(self, private: bool, sizes: Sequence[int], pieces: Sequence[Shelved]) -> dict[str, float]:
        """The bytes of one reading by every way; `sizes` are those of the frames, which are `pieces` on the shelf."""
        n, x = self.chain.n, next(self.wanted)
        asked = self.session.request(x, private=private).sources
        query, everything = wire.query_length(n), tuple(range(n))
        changed = [pieces[s] for s in asked if self.known.get(s) != pieces[s].tag]
        compress_now(changed)
        trailer = bytes(16)  # a checksum
        answer = gzip_parts(b"", changed, trailer) if changed else [trailer]
        by_set = wire.query_length(n, len(asked)) + sum(map(len, answer))
        if not private:
            self.known |= {s: pieces[s].tag for s in asked}
        return {
            "plain": query + sizes[x],
            "frames everything": query + n * FRAME,
            "everything": query + sum(sizes),
            "frames": query + (n if private else len(asked)) * FRAME,
            "mirror": 0,
            "switched": 0 if private else by_set,
            "open": 0 if private else by_set,
            "two": self._sums(everything, x, max(sizes)),
            "two switched": self._sums(everything if private else asked, x, max(sizes)),
        }

    def _sums(self, asked: Sequence[int], x: int, width: int) -> int:
        vectors = wire.draw_vectors(asked, x, n=self.chain.n, servers=2, randbelow=self.rng.randrange)
        answers = sum(any(vector) for vector in vectors) * wire.chunk_length(width, 2)
        return answers + 2 * wire.sum_query_length(self.chain.n, 2)


def day_section(days: int, n: int = 120) -> Section:
    """The section: a table and a figure over so many days with n feeds."""
    first, found = asyncio.run(_live(days, n))
    megabytes = {way: np.array([day[way] for day in found]) / 1e6 for way in WAYS}
    lines = [
        (
            text,
            f"{megabytes[way].mean():.3f}" + ("" if days == 1 else f" ± {float(standard_error(megabytes[way])):.3f}"),
        )
        for way, text in WAYS.items()
    ]
    text = (
        "## A day of a reader, in bytes\n\n"
        f"{n} feeds, {PUBLISHES} new entries a day, {OPEN_READS + PRIVATE_READS} readings a day, {PRIVATE_READS} of "
        "them in three hours of ON. Megabytes a day, both ways, without HTTP heads:\n\n"
        + markdown_table(("a day", "MB"), lines)
        + f"\n`{DAY_COMMAND}`, seed {SEED}, {_plural(days)}; sets drawn by `greedy` for a made-up chain of habits. The "
        "mirror and answers to sets are compressed, and nothing is sent twice; the mirror fetches "
        f"{first / 1e6:.3f} MB once, when it is new; it costs the same however much "
        "is read. Answers of two servers are as long as the longest message, and need no model while ON; the "
        "digests that come before are counted."
    )
    if megabytes["mirror"].mean() < megabytes["switched"].mean():
        text += " At this rate of publishing it is cheaper to stay ON than to switch OFF."
    text += "\n\n"
    text += shown("day", "Megabytes a day of one reader, by each way; logarithmic.", DAY_COMMAND)
    return Section(text, {"day": _figure({WAYS[way]: float(values.mean()) for way, values in megabytes.items()})})


def _plural(days: int) -> str:
    return "one day" if days == 1 else f"{days} days, ± the standard error of a day's mean"


async def _live(days: int, n: int) -> tuple[int, list[dict[str, float]]]:
    """The bytes of a mirror's first refresh, and those of each day by every way."""
    rng, draws = random.Random(SEED), np.random.default_rng(SEED)
    feeds = _Feeds(n, rng)
    chain = MarkovChain(browsing(n, draws))
    wanted = iter(chain.sample(days * (OPEN_READS + PRIVATE_READS), draws).tolist())
    session = Session(chain, scheme="greedy", entropy=SeededEntropy(draws))
    reader = _Reader(chain, session, rng, wanted)
    with tempfile.TemporaryDirectory(prefix="onoff-day-") as folder:
        async with opened(f"{folder}/messages.db") as store:
            names = [f"feed-{k}" for k in range(n)]
            await edit_catalogue(store, add=names)
            shelf = Shelf()
            changes = ChangesBuilder(store, shelf)
            for feed in range(n):
                await _publish(store, names[feed], feeds.message(feed))
            all_day, switched = _Mirror(changes), _Mirror(changes)
            first = await all_day.refresh()
            await switched.refresh()
            reader.known = {feed: piece.tag for feed, piece in enumerate(shelf.pieces)}
            digests = _Digests(changes, await store.catalogue())
            await digests.refresh()
            found = []
            for _ in range(days):
                total = dict.fromkeys(WAYS, 0.0)
                for kind, private in _events(rng):
                    if kind == "publish":
                        feed = feeds.drawn()
                        await _publish(store, names[feed], feeds.publish(feed))
                    elif kind == "refresh":
                        total["mirror"] += await all_day.refresh()
                        if private:
                            total["switched"] += await switched.refresh()
                            reader.known = {feed: piece.tag for feed, piece in enumerate(shelf.pieces)}
                    else:
                        sizes = [wire.FRAME_OVERHEAD + len(feeds.message(feed)) for feed in range(n)]
                        before = await digests.refresh()
                        for way, count in reader.read(private, sizes, shelf.pieces).items():
                            total[way] += count + (before if way.startswith("two") else 0)
                found.append(total)
            return first, found


async def _publish(store: Store, name: str, body: bytes) -> None:
    await store.publish(name, wire.ENTRY_TYPE, body, 0)


def _events(rng: random.Random) -> Iterator[tuple[str, bool]]:
    """What happens in a day, in order: its kind, and whether the switch is ON then."""

    def on(minute: float) -> bool:
        return any(start <= minute < end for start, end in SWITCHED_ON)

    def moment(private: bool) -> float:
        while on(minute := rng.uniform(*AWAKE)) is not private:
            pass
        return minute

    timed = [(rng.uniform(0, MINUTES), "publish") for _ in range(PUBLISHES)]
    timed += [(float(minute), "refresh") for minute in range(AWAKE[0], AWAKE[1], REFRESH_MINUTES)]
    timed += [(moment(False), "read") for _ in range(OPEN_READS)] + [
        (moment(True), "read") for _ in range(PRIVATE_READS)
    ]
    for minute, kind in sorted(timed):
        yield kind, on(minute)


def _figure(megabytes: dict[str, float]) -> Figure:
    figure, (axes,) = figures.new_figure()
    names, values = list(megabytes), list(megabytes.values())
    bars = axes.barh(names[::-1], values[::-1], color=figures.BLUE)
    axes.bar_label(bars, [f"{value:.3g} MB" for value in values[::-1]], padding=3, fontsize=8)
    axes.set(xscale="log", xlabel="megabytes a day, logarithmic", xlim=(min(values) / 2, max(values) * 6))
    axes.grid(visible=False)
    axes.tick_params(axis="y", labelsize=8)
    axes.set_title("A day of a reader", fontsize=10)
    return figure
