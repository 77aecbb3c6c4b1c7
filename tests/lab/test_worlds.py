"""Worlds of the results page: own split by person, one line for each model, and nothing where the data is not there."""

import numpy as np
import pytest
from tests.audit.test_observer import model_of

from onoff.audit import traces
from onoff.lab.results import worlds


def test_a_world_without_its_data_is_left_out(tmp_path):
    for name in worlds.REAL_WORLDS:
        assert worlds.world_section(name, tmp_path, 200, lambda line: None) is None


@pytest.mark.slow(reason="readers are sent through sessions, and attackers are taught")
def test_a_world_has_a_line_for_each_model_and_says_its_split(tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "FEWEST_CASES", 40)
    monkeypatch.setattr(traces, "FEWEST_PEOPLE", 40)
    people = model_of(3, 2, 2, 7)
    visits = people.sample_many(400, 13, np.random.default_rng(0)).tolist()
    (tmp_path / "small.txt").write_text("\n".join(" ".join("abc"[x] for x in visit) for visit in visits))
    world = worlds.RealWorld("small.txt", "a chain", worlds._chain)
    monkeypatch.setitem(worlds.REAL_WORLDS, "small", ("A small world", (world,)))
    said: list[str] = []
    section = worlds.world_section("small", tmp_path, 60, said.append)
    assert section is not None
    (line,) = [line for line in section.text.splitlines() if line.startswith("| a chain |")]
    assert " of 30 |" in line  # ten requests of three sources
    assert line.rstrip(" |").split("|")[-1].strip() in {"off", "warn", "stay-on"}
    assert "60 private requests of 60 people" in section.text
    assert "200 visits to learn from" in said[0]
