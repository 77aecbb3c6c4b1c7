"""Files of chains and models, read with limits and checked in full.

    chain   JSON {"transition", "names", "initial"}, a square CSV or .npy matrix, or the CSR arrays of a sparse .npz
    model   JSON {"laws", "contexts", "weights", "order", "names", "about"}, or the same as arrays in an .npz;
            sparse laws as their CSR arrays and "backoff". In JSON a context is a list of names or numbers.

A model file of 24 types, 307 contexts and 17 sources is 1 MB as .npz and is read in some 10 ms.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from onoff.errors import InvalidChain, InvalidInput, InvalidModel, nearest
from onoff.system.files import atomic_write, read_limited

CHAIN_KEYS = ("transition", "names", "initial")
OTHER_SUFFIXES = (".csv", ".npy", ".npz")
"""What a file that is not JSON ends in."""
REMARKS = ("counts", "about", "tried", "families", "own_history_bits", "advice")
"""Further keys that a file may hold; what they say is for people and other tools."""

MODEL_KEYS = ("laws", "contexts", "weights", "order", "names", "about")
MODEL = "model"
"""The part that tells a model's .npz from a chain's; it holds the version of the format."""
MODEL_VERSION = 1
PARTS = ("data", "indices", "indptr", "shape", "format", "_is_array", "names", "initial")
"""The arrays of a sparse file: those of scipy.sparse.save_npz, and ours."""
ENCODING = "utf-8-sig"
"""UTF-8, with or without a byte order mark."""
CHAINS_ONLY = (
    "this needs a first-order chain; for a model, `onoff simulate` says what it costs, `onoff audit exact` and "
    "`onoff audit traces` what it gives away"
)
MATRIX = "a CSV file holds a square matrix of numbers and no heading"


def read_chain(path: Path, largest: int) -> dict[str, Any]:
    """The arguments of MarkovChain that a file holds. Raises InvalidChain with the place of the fault in the file."""
    found = read_file(path, largest)
    if "transition" not in found:
        raise InvalidChain("a model of several types or orders, not a chain", hint=CHAINS_ONLY)
    return found


def read_file(path: Path, largest: int) -> dict[str, Any]:
    """The arguments of MarkovChain, or of RequestModel, that a file holds. Raises InvalidChain or InvalidModel."""
    try:
        size = path.stat().st_size
        if size > largest:
            raise InvalidChain(
                f"{size} bytes is more than the {largest} that are read", hint="save a large chain as .npz"
            )
        content = read_limited(path, largest)
    except OSError as error:
        raise InvalidChain(f"{error.strerror}", hint="give the path of a chain or model file") from None
    readers = dict(zip(OTHER_SUFFIXES, (_read_csv, _read_npy, _read_npz), strict=True))
    return readers.get(path.suffix.lower(), _read_json)(content)


def write_model(path: Path, parts: dict[str, Any]) -> None:
    """Write the arguments of a RequestModel, atomically, in the format of the suffix."""
    sparse = "laws" not in parts
    if path.suffix.lower() not in (".npz", ".json") or (sparse and path.suffix.lower() == ".json"):
        raise InvalidModel(
            f"{path}: the suffix belongs to another format",
            hint="a sparse model is saved as .npz" if sparse else "a model is saved as .npz or .json",
        )
    try:
        with atomic_write(path) as file:
            if path.suffix.lower() == ".json":
                file.write(json.dumps(model_document(parts), ensure_ascii=False).encode() + b"\n")
                return
            lengths = [len(context) for context in parts["contexts"]]
            items = np.array([x for context in parts["contexts"] for x in context], dtype=np.int64)
            named = {**parts, "contexts": items, "lengths": lengths, "about": json.dumps(parts["about"])}
            write = np.savez_compressed if sparse else np.savez  # many shares are alike; dense laws hardly shrink
            write(file, **{MODEL: np.array(MODEL_VERSION)}, **named)  # type: ignore[arg-type]
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}", hint="nothing was written; choose another place") from None


def model_document(parts: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a RequestModel as JSON, contexts by name; laws only where they are dense."""
    parts = {key: parts[key] for key in MODEL_KEYS}
    names = parts["names"]
    contexts = [[names[x] for x in context] for context in parts["contexts"]]
    weights = parts["weights"].tolist()
    laws = None if parts["laws"] is None else parts["laws"].tolist()
    return {**parts, "names": list(names), "contexts": contexts, "weights": weights, "laws": laws}


def check_json_name(path: Path) -> None:
    """Raise InvalidChain for a suffix under which JSON would be read as another format."""
    if path.suffix.lower() in OTHER_SUFFIXES:
        raise InvalidChain(f"{path}: the suffix belongs to another format", hint="a chain is saved as .json")


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
    if isinstance(document, dict) and "laws" in document:
        return _model_of(document)
    if not isinstance(document, dict) or "transition" not in document:
        raise InvalidChain(
            'no "transition" in it, and no "laws"',
            hint='expected {"transition": [[...]], "names": [...], "initial": [...]}',
        )
    for key in document:
        if key not in CHAIN_KEYS + REMARKS:
            raise InvalidChain(f"unknown key {key!r}", hint=nearest(key, CHAIN_KEYS + REMARKS))
    for key in CHAIN_KEYS:
        if (
            key in document
            and not isinstance(document[key], list)
            and not (key != "transition" and document[key] is None)
        ):
            raise InvalidChain(f"{key!r} is not a list", hint="write it in square brackets")
    about = document.get("about")
    return {
        **{key: document[key] for key in CHAIN_KEYS if key in document},
        **({"about": about} if isinstance(about, dict) else {}),
    }


def _model_of(document: dict[str, Any]) -> dict[str, Any]:
    """The arguments of RequestModel that a JSON document holds."""
    for key in document:
        if key not in MODEL_KEYS + REMARKS:
            raise InvalidModel(f"unknown key {key!r}", hint=nearest(key, MODEL_KEYS))
    for key, kind in (("contexts", list), ("names", list), ("weights", list), ("order", int), ("about", dict)):
        if document.get(key) is not None and not isinstance(document[key], kind):
            raise InvalidModel(f"{key!r} is not a {kind.__name__}", hint="see the how-to on learning a model")
    if "contexts" not in document:
        raise InvalidModel('no "contexts" in it', hint='such as "contexts": [[], ["news"], ["sport"]]')
    names = document.get("names") or []
    position = {name: x for x, name in enumerate(names) if isinstance(name, str)}
    contexts = []
    for c, context in enumerate(document["contexts"]):
        if not isinstance(context, list):
            raise InvalidModel(f"context {c} is not a list of sources", hint="write it in square brackets")
        numbers = [position.get(x) if isinstance(x, str) else x for x in context]
        if not all(type(x) is int for x in numbers):
            raise InvalidModel(f"context {c} names a source that is not in names", hint="names first")
        contexts.append(tuple(numbers))
    found = {key: document[key] for key in MODEL_KEYS if document.get(key) is not None}
    return {**found, "contexts": contexts}


def _model_of_arrays(parts: Any) -> dict[str, Any]:
    """The arguments of RequestModel that an .npz holds."""
    if int(parts[MODEL]) > MODEL_VERSION:
        raise ValueError(f"written by a newer version of onoff (format {int(parts[MODEL])})")
    ends = np.cumsum(parts["lengths"])
    items = parts["contexts"].tolist()
    contexts = [tuple(items[end - size : end]) for end, size in zip(ends, parts["lengths"], strict=True)]
    found = {
        "contexts": contexts,
        "names": parts["names"].tolist(),
        "weights": parts["weights"],
        "order": int(parts["order"]),
        "about": json.loads(parts["about"].item()),
    }
    if "laws" in parts:
        return {**found, "laws": parts["laws"]}
    from scipy.sparse import csr_matrix

    laws = csr_matrix((parts["data"], parts["indices"], parts["indptr"]), shape=tuple(parts["shape"]))
    common = {"common": parts["common"]} if "common" in parts else {}
    return {**found, "laws": laws, "backoff": parts["backoff"], **common}


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidChain(f"the key {key!r} occurs twice", hint="leave one out")
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
        if MODEL in parts.files:
            return _model_of_arrays(parts)
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
