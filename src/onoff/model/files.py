"""Reading chain files: JSON, CSV, .npy and sparse .npz, checked and bounded before they are believed."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from onoff.errors import InvalidChain, nearest

KEYS = ("transition", "names", "initial")
OTHER_SUFFIXES = (".csv", ".npy", ".npz")
"""What a file that is not JSON ends in."""
REMARKS = ("counts", "about")
"""Further keys that a file may hold; what they say is for people and other tools."""

PARTS = ("data", "indices", "indptr", "shape", "format", "_is_array", "names", "initial")
"""The arrays of a sparse file: those of scipy.sparse.save_npz, and ours."""
ENCODING = "utf-8-sig"
"""UTF-8, with or without the mark that spreadsheets and editors of Windows put at the beginning."""
MATRIX = "a CSV file holds a square matrix of numbers and no heading"


def read_chain(path: Path, largest: int) -> dict[str, Any]:
    """The arguments of MarkovChain that a file holds. Raises InvalidChain with the place of the fault in the file."""
    try:
        size = path.stat().st_size
        if size > largest:
            raise InvalidChain(
                f"{size} bytes is more than the {largest} that are read", hint="save a large chain as .npz"
            )
        content = path.read_bytes()
    except OSError as error:
        raise InvalidChain(f"{error.strerror}", hint="give the path of a chain file") from None
    readers = dict(zip(OTHER_SUFFIXES, (_read_csv, _read_npy, _read_npz), strict=True))
    return readers.get(path.suffix.lower(), _read_json)(content)


def check_json_name(path: Path) -> None:
    """Refuse a name under which JSON would be read as something else. Raises InvalidChain."""
    if path.suffix.lower() in OTHER_SUFFIXES:
        raise InvalidChain(f"{path}: the name says another format", hint="a chain is saved as .json")


def _read_json(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content.decode(ENCODING), object_pairs_hook=_without_duplicates)
    except UnicodeDecodeError as error:
        raise InvalidChain(
            f"byte {error.start} is not UTF-8", hint="save it as UTF-8; .npy and .npz files need that ending"
        ) from None
    except json.JSONDecodeError as error:
        raise InvalidChain(f"line {error.lineno}, column {error.colno}: {error.msg}", hint="not JSON") from None
    except InvalidChain:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise InvalidChain(f"{error}", hint="give probabilities from 0 to 1") from None
    except RecursionError:
        raise InvalidChain("nested too deeply", hint="a chain file is a list of rows, nothing deeper") from None
    if isinstance(document, list):
        document = {"transition": document}
    if not isinstance(document, dict) or "transition" not in document:
        raise InvalidChain(
            'no "transition" in it', hint='expected {"transition": [[...]], "names": [...], "initial": [...]}'
        )
    for key in document:
        if key not in KEYS + REMARKS:
            raise InvalidChain(f"unknown key {key!r}", hint=nearest(key, KEYS + REMARKS))
    for key in KEYS:
        if (
            key in document
            and not isinstance(document[key], list)
            and not (key != "transition" and document[key] is None)
        ):
            raise InvalidChain(f"{key!r} is not a list", hint="write it in square brackets")
    return {key: document[key] for key in KEYS if key in document}


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidChain(f"the key {key!r} stands twice", hint="leave one out")
        found[key] = value
    return found


def _read_csv(content: bytes) -> dict[str, Any]:
    try:
        lines = [line for line in csv.reader(io.StringIO(content.decode(ENCODING))) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidChain(f"not a CSV file: {error}", hint=MATRIX) from None
    matrix = []
    for u, line in enumerate(lines):
        row = []
        for x, cell in enumerate(line):
            try:
                row.append(float(cell))
            except ValueError:
                raise InvalidChain(f"row {u}, column {x}: {cell[:40]!r} is not a number", hint=MATRIX) from None
        matrix.append(row)
    return {"transition": matrix}


def _read_npy(content: bytes) -> dict[str, Any]:
    with _damage_as("not a .npy matrix", "write it with numpy.save"):
        matrix = np.load(io.BytesIO(content), allow_pickle=False)
        if not isinstance(matrix, np.ndarray):
            raise ValueError("several arrays")
        return {"transition": np.atleast_1d(matrix)}


def _read_npz(content: bytes) -> dict[str, Any]:
    from scipy.sparse import csr_matrix

    with _damage_as("not a sparse .npz matrix", "write it with MarkovChain.save, or scipy.sparse.save_npz in CSR form"):
        parts = np.load(io.BytesIO(content), allow_pickle=False)
        for key in parts.files:
            if key not in PARTS:
                raise ValueError(f"unknown part {key!r}")
        form = parts["format"].item() if "format" in parts else "csr"
        if form not in ("csr", b"csr"):  # the same arrays in another format are another matrix
            raise ValueError(f"its format is {form!r}")
        matrix = csr_matrix((parts["data"], parts["indices"], parts["indptr"]), shape=tuple(parts["shape"]))
        return {"transition": matrix, **{key: parts[key].tolist() for key in ("names", "initial") if key in parts}}


@contextmanager
def _damage_as(fault: str, hint: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # zipfile, zlib, numpy and its parser each have their own for a damaged file
        raise InvalidChain(f"{fault}: {error}", hint=hint) from None
