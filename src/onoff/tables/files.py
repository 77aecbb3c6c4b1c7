"""Tables on disk: what took long to build is built once.

A file holds one query table in integers, named by what it was built from. It is only a cache: nothing in it is secret
(a table follows from the chain), and no query is drawn on trust. A file that cannot be read, is of another version, or
does not verify against the rows at hand to the last unit is as good as none, and is written anew. The lower bound alone
is taken at its word as far as it can be true, not above the cost: it is shown, and nothing is decided by it.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from onoff import __version__
from onoff.errors import InvalidTable, PrivacyBreach
from onoff.model.rows import Rows
from onoff.system.atomic import atomic_write
from onoff.tables.table import OPTIMAL_GAP, QueryTable

VERSION = 1
ARRAYS = ("offsets", "items", "mass", "starts", "slots", "weights")


def default_store() -> Path:
    """Where tables are kept unless told otherwise: the user's cache directory."""
    from platformdirs import user_cache_path

    return user_cache_path("onoff") / "tables"


def table_path(store: Path, digest: str, scheme: str, options: dict[str, Any]) -> Path:
    """The file for the table of everything of the chain with that digest, built in this way by this version."""
    made = json.dumps([VERSION, __version__, digest, scheme, sorted((k, repr(v)) for k, v in options.items())])
    return store / f"{hashlib.sha256(made.encode()).hexdigest()[:32]}.npz"


def save_table(path: Path, table: QueryTable) -> None:
    """Write `table`, all or nothing; where the disk refuses, the cache is simply not there."""
    arrays = {name: getattr(table, name) for name in ARRAYS}
    label = json.dumps({"version": VERSION, "lower_bound": table.lower_bound, "scheme": table.scheme})
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic_write(path, mode=0o600) as file:
            np.savez_compressed(file, label=np.array(label), **arrays)


def load_table(path: Path, rows: Rows) -> QueryTable | None:
    """The table of that file, if it is one for these rows; else None."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            label = json.loads(str(stored["label"]))
            arrays = {name: stored[name].astype(np.int64) for name in ARRAYS}
        version, bound, scheme = label["version"], label["lower_bound"], str(label["scheme"])
    except Exception:  # zipfile, zlib, numpy and its parser each have their own for a damaged file
        return None
    if version != VERSION or not (bound is None or isinstance(bound, float)):
        return None
    table = QueryTable(rows, **arrays, lower_bound=bound, scheme=scheme)
    try:
        table.verify()
    except (InvalidTable, PrivacyBreach, ValueError, IndexError):  # the last two for arrays of another shape
        return None
    return table if bound is None or 0 <= bound <= table.cost * (1 + OPTIMAL_GAP) else None
