"""Tables on disk: a table that took long to build is built once, and can be checked independently.

A file holds one query table in integers and its certificate, which proves a lower bound on the cost of every table for
the same rows. Nothing in it is secret (a table follows from the chain), and nothing in it is trusted: `read_table`
checks every identity of the table and the certificate against the given rows, and knows nothing of how either was
made.

As a cache (`save_table`, `load_table`) a file is named by what it was built from; one that cannot be read, is of
another version, or does not verify exactly is ignored, and written again.

    version 1   no certificate: its tables have no proven lower bound
    version 2   label: {"version", "scheme", "certificate", "lower_bound" (exact, as "a/b")}, and for a table that
                may leak "limit"
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from onoff import __version__
from onoff.errors import InvalidTable, PrivacyBreach
from onoff.model.certificate import from_json, limit_from_json, to_json
from onoff.model.rows import Rows
from onoff.system.files import atomic_write, open_ordinary
from onoff.tables.table import QueryTable

TABLE_FILE_VERSION = 2
ARRAYS = ("offsets", "items", "mass", "starts", "slots", "weights")


def default_table_folder() -> Path:
    """Where tables are kept unless told otherwise: the user's cache directory."""
    from platformdirs import user_cache_path

    return user_cache_path("onoff") / "tables"


def table_path(store: Path, digest: str, scheme: str, options: dict[str, Any]) -> Path:
    """The file for the table of everything of the chain with that digest, built in this way by this version."""
    made = json.dumps(
        [TABLE_FILE_VERSION, __version__, digest, scheme, sorted((k, repr(v)) for k, v in options.items())]
    )
    return store / f"{hashlib.sha256(made.encode()).hexdigest()[:32]}.npz"


def write_table(path: Path, table: QueryTable) -> None:
    """Write `table` and its certificate, atomically. Raises OSError where that fails."""
    certificate = None if table.certificate is None else to_json(table.certificate)
    label = {
        "version": TABLE_FILE_VERSION,
        "scheme": table.scheme,
        "certificate": certificate,
        "lower_bound": None if table.proven_bound is None else str(table.proven_bound),
    }
    if table.limit is not None:
        label["limit"] = asdict(table.limit)
    with atomic_write(path, mode=0o600) as file:
        arrays = {name: getattr(table, name) for name in ARRAYS}
        np.savez_compressed(file, label=np.array(json.dumps(label)), **arrays)


def read_table(path: Path, rows: Rows) -> QueryTable:
    """The table of that file for these rows, every identity and its certificate checked.

    Raises InvalidTable where the file is not a table, is for other rows, or has a certificate that does not prove what
    the file says; PrivacyBreach where its table is not private.
    """
    try:
        with open_ordinary(path) as file, np.load(file, allow_pickle=False) as stored:
            label = json.loads(str(stored["label"]))
            arrays = {name: stored[name].astype(np.int64) for name in ARRAYS}
        version, scheme = label["version"], str(label["scheme"])
        limit = limit_from_json(label["limit"]) if "limit" in label else None
    except FileNotFoundError:
        raise InvalidTable(f"{path}: no such file", hint="`onoff design --save` writes one") from None
    except Exception:  # zipfile, zlib, numpy and its parser each have their own for a damaged file
        raise InvalidTable(f"{path}: not a file of a table", hint="`onoff design --save` writes one") from None
    if version not in (1, TABLE_FILE_VERSION):
        raise InvalidTable(f"{path}: a table of version {version!r}", hint=f"1 to {TABLE_FILE_VERSION} are known")
    table = QueryTable(rows, **arrays, scheme=scheme, limit=limit)
    try:
        table.verify()
    except (ValueError, IndexError) as error:  # arrays of another shape; our own InvalidTable is a ValueError
        raise InvalidTable(f"{path}: not a table for these rows: {error}") from None
    if version == 1 or label.get("certificate") is None:
        return table
    proved = table.labelled(certificate=from_json(label["certificate"]))
    said = label.get("lower_bound")
    if said != str(proved.proven_bound):  # as it is written: nothing is worked out that a file asks for
        raise InvalidTable(f"{path}: the certificate proves {proved.lower_bound}, not {str(said)[:40]}")
    return proved


def save_table(path: Path, table: QueryTable) -> None:
    """Keep `table` in a cache; where it cannot be written, nothing is kept."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_table(path, table)


def load_table(path: Path, rows: Rows) -> QueryTable | None:
    """The table of that file of a cache, if it is one for these rows; else None."""
    try:
        return read_table(path, rows)
    except (InvalidTable, PrivacyBreach):
        return None
