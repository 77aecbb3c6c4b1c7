"""What must stay the same whatever becomes of the code inside: costs, bytes that travel, files.

    python -m tests.support.frozen          writes tests/fixtures/frozen again

Do that only where a change of one of them is meant, and say so in the changelog. The rows themselves are in the
fixture, as integers, so that nothing in it depends on how a family of chains is drawn. `enumerated` solves a program in
floats before it counts in integers: another version of the solver may move the last of the 2**60 units.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sqlite3
import sys
import tempfile
from fractions import Fraction
from itertools import chain as joined
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.typed import as_a

import onoff
from onoff import wire
from onoff.client.journal import Journal
from onoff.client.stores import Mirror
from onoff.server.sqlite import SQLiteStore
from onoff.session.seeded import SeededEntropy
from onoff.tables.files import read_table, write_table

FIXTURES = Path(__file__).parents[1] / "fixtures"
FROZEN = FIXTURES / "frozen"
SCHEMES: dict[str, dict[str, Any]] = {
    "full": {},
    "single": {},
    "greedy": {},
    "enumerated": {},
    "enumerated, at most 2 or all": {"c": 2},
}
SIZES = (2, 3, 5, 6)
DRAWS = 8
EPOCH_NAMES = ("news", "weather", "Zürich", "東京", "a b")
SESSION, LIFE = bytes(range(16)), bytes(range(16, 32))
MESSAGE = wire.WireMessage(3, 1_700_000_000_000, "text/plain; charset=utf-8", b"hello")


def weights() -> dict[str, list[list[int]]]:
    """Small chains of every family: whole numbers, of which each row is taken by its sum."""
    from onoff.lab.families import FAMILIES

    return {
        f"{name}, {n}": np.rint(4096 * family(n, np.random.default_rng(n))).astype(int).tolist()
        for name, family in FAMILIES.items()
        for n in SIZES
    }


def rows_of(counts: list[list[int]]) -> list[list[Fraction]]:
    return [[Fraction(count, sum(row)) for count in row] for row in counts]


def costs(counts: list[list[int]]) -> dict[str, str]:
    """The cost of each scheme that takes no time to search, the proven bound, and what races draw with a seed."""
    rows = rows_of(counts)
    tables = {
        name: as_a(onoff.QueryTable, onoff.design(rows, name.partition(",")[0], **options))
        for name, options in SCHEMES.items()
    }
    found = {name: str(table.exact_cost) for name, table in tables.items()}
    race, entropy = onoff.design(rows, "race"), SeededEntropy(np.random.default_rng(1))
    likely = [row.index(max(row)) for row in counts]
    drawn = [race.draw(u, likely[u], entropy) for u in (draw % len(rows) for draw in range(DRAWS))]
    bound = tables["full"].proven_bound
    return {**found, "lower bound": str(bound), "race": " ".join("".join(map(str, query)) for query in drawn)}


def wire_forms() -> dict[str, str]:
    """One example of everything that travels, in hex."""
    padded, catalogue = wire.Catalogue(EPOCH_NAMES, 256), wire.Catalogue(EPOCH_NAMES, None, 1000)
    n, epoch = len(EPOCH_NAMES), catalogue.epoch
    digest = wire.next_digest(wire.first_digest(epoch, LIFE), 2, MESSAGE)
    edition = wire.Edition(epoch, LIFE, 1, digest)
    vectors = wire.draw_vectors((0, 2, 4), 2, n=n, servers=3, randbelow=lambda below: below - 1)
    frames = [wire.encode_frame(s, MESSAGE if s == 2 else wire.NOTHING, epoch=epoch, frame_size=None) for s in range(n)]
    known = wire.frame_tag(frames[0]) + wire.NO_TAG + wire.frame_tag(frames[4])
    forms = {
        "catalogue": wire.encode_catalogue(catalogue),
        "catalogue, padded": wire.encode_catalogue(padded),
        "query": wire.encode_query(wire.WireQuery(epoch, SESSION, 7, (0, 2, 4), n=n)),
        "query that knows": wire.encode_query(wire.WireQuery(epoch, SESSION, 7, (0, 2, 4), n=n, known=known)),
        "frame": frames[2],
        "frame, padded": wire.encode_frame(2, MESSAGE, epoch=padded.epoch, frame_size=256),
        "frame of nothing": frames[0],
        "answer": wire.encode_answer([frames[0], frames[2]]),
        "answer to it": wire.encode_changed([frames[0], frames[2], frames[4]], known, epoch=epoch),
        "edition": wire.encode_edition(wire.EditionReport(edition, 12, 345)),
        "changes asked": wire.changes_target(edition).encode(),
        "changes": wire.encode_changes_head(edition, 0)
        + frames[2]
        + wire.encode_changes_trailer(edition, 0, [frames[2]]),
        "problem": wire.encode_problem(wire.Problem(409, "conflict", "ask again", step=3, sha256="00" * 32)),
        "seen": wire.encode_seen(wire.Seen(3, "00" * 32)),
        "seen nothing": wire.encode_seen(None),
        **{
            f"sum asked of server {place}": wire.encode_sum_query(
                wire.SumQuery(epoch, SESSION, 7, 1, digest, 3, place, vector)
            )
            for place, vector in enumerate(vectors)
        },
        **{f"sum of server {place}": wire.sum_answer(frames, v, 3) for place, v in enumerate(vectors)},
    }
    return {name: form.hex() for name, form in forms.items()}


def layout(path: Path) -> list[str]:
    """What an SQLite file of ours is: its mark, the version of its tables, and the tables."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        pragmas = ("application_id", "user_version")
        marks = [f"{pragma} {database.execute(f'PRAGMA {pragma}').fetchone()[0]}" for pragma in pragmas]
        made = database.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
        return marks + [" ".join(sql.split()) for (sql,) in made]


def digest_of(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def table_digest(table: onoff.QueryTable) -> str:
    arrays = (table.offsets, table.items, table.mass, table.starts, table.slots, table.weights)
    return digest_of(*joined.from_iterable((np.asarray(a, "<i8").tobytes(), b";") for a in arrays))


def files(folder: Path) -> dict[str, Any]:
    """The files that are written today, and those of the first version, and what is read from them."""
    chain = onoff.MarkovChain.load(FIXTURES / "v0.1" / "chain.json")
    rows = onoff.Rows.of(chain.transition)
    Journal(folder / "journal").close()
    Mirror(folder / "mirror").close()
    asyncio.run(SQLiteStore(folder / "store").close())
    chain.save(folder / "chain.json")
    made = onoff.design(rows, "greedy")
    write_table(folder / "table.npz", made)
    with np.load(folder / "table.npz") as arrays:
        parts = {name: f"{arrays[name].dtype.kind} {arrays[name].ndim}" for name in sorted(arrays)}
    old = read_table(FIXTURES / "v0.1" / "table.npz", rows)
    return {
        "v0.1": {
            path.name: digest_of(path.read_bytes())
            for path in sorted((FIXTURES / "v0.1").iterdir())
            if path.suffix not in {".db-shm", ".db-wal"}
        },
        "v0.1, read": {"chain": chain.digest(), "table": table_digest(old), "cost": str(old.exact_cost)},
        "chain": (folder / "chain.json").read_text(),
        "table": parts | {"of greedy": table_digest(read_table(folder / "table.npz", rows))},
        **{name: layout(folder / name) for name in ("journal", "mirror", "store")},
    }


def main() -> None:
    FROZEN.mkdir(exist_ok=True)
    frozen: dict[str, dict[str, Any]] = {
        "costs": {name: {"weights": counts, **costs(counts)} for name, counts in weights().items()},
        "wire": wire_forms(),
    }
    with tempfile.TemporaryDirectory() as folder:
        frozen["files"] = files(Path(folder))
    for name, content in frozen.items():
        lines = (f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value)}" for key, value in content.items())
        (FROZEN / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"written: {FROZEN}", file=sys.stderr)


if __name__ == "__main__":
    main()
