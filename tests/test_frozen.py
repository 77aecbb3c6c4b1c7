"""Costs, bytes that travel and files are what they were: by `==`, against tests/fixtures/frozen.

How they are made is in tests/support/frozen.py, which also writes the fixture again where a change is meant.
"""

import json
import sqlite3
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.support import frozen

from onoff import wire
from onoff.client.journal import Journal


def kept(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((frozen.FROZEN / f"{name}.json").read_text())
    return content


COSTS = kept("costs")


@pytest.mark.parametrize("name", COSTS)
def test_costs_are_what_they_were(name: str) -> None:
    case = dict(COSTS[name])
    assert frozen.costs(case.pop("weights")) == case


def test_the_kept_costs_are_in_order() -> None:
    """What is frozen makes sense by itself: a bound is below every cost, and everything costs the most."""
    for case in COSTS.values():
        costs = {name: Fraction(case[name]) for name in (*frozen.SCHEMES, "lower bound")}
        assert costs["lower bound"] == min(costs.values())
        assert costs["full"] == max(costs.values())


def test_bytes_are_what_they_were() -> None:
    forms = kept("wire")
    assert frozen.wire_forms() == forms
    known = wire.decode_catalogue(bytes.fromhex(forms["catalogue"]))
    asked = wire.decode_query(bytes.fromhex(forms["query"]), len(known.names))
    assert (known.names, asked.sources) == (frozen.EPOCH_NAMES, (0, 2, 4))


def test_files_are_what_they_were(tmp_path: Path) -> None:
    assert frozen.files(tmp_path) == kept("files")


def test_another_cost_or_layout_is_seen(tmp_path: Path) -> None:
    name = next(iter(COSTS))
    case = dict(COSTS[name])
    counts = case.pop("weights")
    assert frozen.costs([counts[0], *counts[:-1]]) != case
    path = tmp_path / "journal"
    Journal(path).close()
    before = frozen.layout(path)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    assert frozen.layout(path) != before
