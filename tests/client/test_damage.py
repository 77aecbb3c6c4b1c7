"""Every bit flip, truncation and splice of a journal: never a smaller query from damaged state.

A smaller query may only come from the record that was there, whole. Anything else is everything, in a new session,
or a named error. What a damaged log hides is caught by asking the server.
"""

import os
import random
from dataclasses import replace
from typing import Any

import pytest
from tests.support.clients import Client
from tests.support.progress import progress
from tests.support.world import NAMES, P4, Direct, World

import onoff
from onoff.errors import JournalError
from onoff.session.session import TableCache

CHAIN = onoff.MarkovChain(P4, names=NAMES)
TABLES = TableCache(CHAIN, "single")
"""Built once for all clients."""


class Specimen:
    """A journal as a crash or an orderly end leaves it, to be damaged over and over."""

    def __init__(self, folder, *, crashed):
        self.path = folder / "journal"
        self.log = folder / "journal-wal"
        self.live = folder / "journal.session"
        self.world = World()
        with self.client() as client:
            client.get("alpha", private=True)
            for _ in range(30):  # until the last query is a small one, so that damage could make it another small one
                if client.get("alpha", private=False).sent.cost == 1:
                    break
            self.record = client.core.record
        if not crashed:
            self.files = {self.path: self.path.read_bytes(), self.log: b"", self.live: self.live.read_bytes()}
        self.photograph = lambda request: None  # type: ignore[method-assign]
        self.seen = dict(self.world.seen)
        self.file = folder / "the same file"
        os.link(self.path, self.file)

    def client(self):
        settings = {"tick": 0, "background": False, "mirror": False, "transport": Direct(self.world, self.photograph)}
        return Client("http://server.test", CHAIN, self.path, scheme=TABLES, **settings)

    def photograph(self, request):
        """The files as they are while a request is under way: the log holds what the file does not have yet."""
        self.files = {path: path.read_bytes() for path in (self.path, self.log, self.live) if path.exists()}

    def put(self, files):
        """In place, so that the journal is the same file, whatever was put aside meanwhile."""
        self.path.unlink(missing_ok=True)
        os.link(self.file, self.path)
        for path, content in files.items():
            path.write_bytes(content)
        self.world.seen = dict(self.seen)
        self.world.forget_records()

    def judge(self):
        """What a client does with what is there now: "whole", "everything" or the name of an error."""
        with self.client() as client:
            try:
                client.status()
                found = client.core.record
                message = client.get("beta", private=False)
            except JournalError as error:
                assert self.world.queries == []
                return type(error).__name__
        (query,) = self.world.queries
        assert message == b"first of beta"
        if message.sent.session == self.record.session.hex():
            assert replace(found, pending=False) == self.record
            assert message.sent.step == self.record.step + 1
            return "whole"
        assert self.world.asked(query) == NAMES
        assert message.sent.step == 0
        assert message.sent.note
        return "everything"


def damages(files, rng, count):
    """`count` damaged versions: single bits (half of them where there is content), truncations, splices."""
    interesting = [(p, i) for p, content in files.items() for i, byte in enumerate(content) if byte]
    everywhere = [(p, i) for p, content in files.items() for i in range(len(content))]
    for number in range(count):
        path, at = rng.choice(interesting if number % 2 else everywhere)
        content = bytearray(files[path])
        match number % 5:
            case 0:
                del content[at:]
            case 1:
                length = rng.randrange(1, 512)
                start = rng.randrange(len(content))
                content[at : at + length] = content[start : start + length]
            case _:
                content[at] ^= 1 << rng.randrange(8)
        yield {**files, path: bytes(content)}


@pytest.mark.parametrize("crashed", [False, True], ids=["ended", "crashed"])
def test_the_specimen_is_whole(quick_folder, crashed):
    specimen = Specimen(quick_folder, crashed=crashed)
    specimen.put(specimen.files)
    assert specimen.judge() == "whole"


def try_damages(folder, crashed, seed, count):
    specimen = Specimen(folder, crashed=crashed)
    verdicts: dict[Any, Any] = {}
    for files in damages(specimen.files, random.Random(seed), count):
        specimen.put(files)
        verdict = specimen.judge()
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
        for aside in folder.glob("*.damaged*"):
            aside.unlink()
        progress(sum(verdicts.values()), count, "damaged journals")
    return verdicts


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("crashed", [False, True], ids=["ended", "crashed"])
def test_damage_never_makes_a_smaller_query(quick_folder, crashed):
    verdicts = try_damages(quick_folder, crashed, 7, 500)
    assert verdicts["everything"] > 100
    assert verdicts["whole"] > 20  # damage where nothing is kept


@pytest.mark.deep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("crashed", [False, True], ids=["ended", "crashed"])
def test_damage_never_makes_a_smaller_query_in_1e5_cases(quick_folder, crashed):
    verdicts = try_damages(quick_folder, crashed, 8, 50_000)
    assert verdicts["everything"] > 10_000
