"""The comparison: one run with its bounds and baselines, in the agreed form."""

import json

import numpy as np
import pytest
from tests.support.typed import present

from onoff.lab import simulate
from onoff.lab.families import dirichlet
from onoff.lab.simulate import compare, paper_costs
from onoff.lab.walk import Pattern, RandomSwitching
from onoff.model.chain import MarkovChain

EXAMPLE = MarkovChain([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]])


def test_the_report_has_the_agreed_keys():
    found = compare(EXAMPLE, "greedy", Pattern.parse("ON OFF OFF"), 2000, seed=1).as_dict()
    assert json.loads(json.dumps(found)) == found
    assert [step["t"] for step in found["steps"]] == [0, 1, 2]
    assert [step["private"] for step in found["steps"]] == [True, False, False]
    assert [step["lower"] for step in found["steps"]] == pytest.approx([3, 1.6, 1.15])
    assert [step["expected"] for step in found["steps"]] == pytest.approx([3, 1.6, 1.18])
    assert found["total"] == pytest.approx(sum(step["cost"] for step in found["steps"]))
    assert found["steps"][0]["sizes"] == {"3": 2000}
    base = found["baselines"]
    assert base["everything"] == {"cost": [3, 3, 3], "total": 9}
    assert base["naive"]["cost"] == [3, 1, 1]
    assert base["naive"]["leak"] == pytest.approx(0.18496, abs=1e-5)
    assert base["paper"]["cost"] == pytest.approx([3, 1.6, 1.18])
    assert base["paper"]["stderr"] == [0, 0, 0]


def test_random_switching_reports_shares():
    found = compare(EXAMPLE, "single", RandomSwitching(3, 0.5, 0.5), 500, seed=1, paper=False).as_dict()
    assert found["steps"][0]["private"] is True
    assert 0 < found["steps"][1]["private"] < 1
    assert found["baselines"]["paper"] is None
    share = found["steps"][1]["private"]
    assert found["baselines"]["naive"]["cost"][1] == pytest.approx(3 * share + 1 - share)


def test_the_papers_scheme_is_sampled_where_its_states_are_many(monkeypatch):
    chain = MarkovChain(dirichlet(5, 1.0, np.random.default_rng(0)))
    pattern = Pattern.parse("ON OFF*3")
    exact = paper_costs(chain, pattern, seed=1)
    monkeypatch.setattr(simulate, "PAPER_STATES", 2)
    drawn = present(paper_costs(chain, pattern, seed=1))
    assert drawn[3].stderr > 0
    for one, other in zip(drawn, exact, strict=True):
        assert other.stderr == 0
        assert abs(one.cost - other.cost) <= 6 * one.stderr + 1e-9
    monkeypatch.setattr(simulate, "LARGEST_FOR_PAPER", 4)
    assert paper_costs(chain, pattern, seed=1) is None
