"""The benchmark of the optimum measures what it says, at sizes that take no time."""

import json

import pytest

from benchmarks import optimal
from onoff.lab import families
from onoff.lab.families import FAMILIES

pytestmark = pytest.mark.slow(reason="a benchmark is run, if a small one")


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(optimal, "FAMILIES", {name: FAMILIES[name] for name in NAMES})
    few = {name: optimal.FEW_ROWS[name] for name in FEW_ROWS}
    sizes = {"QUICK_SIZES": (4,), "GROWTH": {False: (6, 8)}, "ENUMERATED_AT": 4, "OPTIMAL_AT": 16}
    for name, value in {**sizes, "FEW_ROWS": few, "FEW_ROWS_SEEDS": (1,), "FEW_ROWS_BUDGET": 0.2}.items():
        monkeypatch.setattr(optimal, name, value)
    monkeypatch.setattr(optimal, "FIRST_STATED", {name: optimal.FIRST_STATED[name] for name in STATED})
    monkeypatch.setattr(optimal, "STATED_BUDGET", 0.2)
    dirichlet = families.dirichlet  # 60 sources are only to load what is loaded once
    monkeypatch.setattr(families, "dirichlet", lambda n, *given, **how: dirichlet(8 if n == 60 else n, *given, **how))
    apart = optimal._apart  # each process of its own loads and compiles everything again: one shows it

    def rarely_apart(work, *given):
        return apart(work, *given) if work is optimal._racing else work(*given)

    monkeypatch.setattr(optimal, "_apart", rarely_apart)


FEW_ROWS = tuple(optimal.FEW_ROWS)[:2]
STATED = ("6 of Dirichlet 1, 300",)
NAMES = ("dirichlet 0.1", "dirichlet 1", "dirichlet 10", "ring", "grid")


def test_every_family_and_the_baselines_in_one_run(small):
    result = optimal.run()
    assert json.loads(json.dumps(result)) == result
    assert {case["family"] for case in result["cases"]} == {*NAMES, "k-subsets 2", "k-subsets 3"}
    for case in result["cases"]:
        assert case["optimal"]
        assert case["ratios"]["optimal"] == pytest.approx(1, abs=1e-6)
        assert min(case["ratios"].values()) > 1 - 1e-6
    for name in NAMES[:3]:
        found = result["baselines"][name]
        assert found["enumerated_over_optimal"] == found["enumerated"] / found["optimal"]
        assert found["optimal_100_over_enumerated"] == found["optimal_100"] / found["enumerated"]
    assert [case["rows"] for case in result["few_rows"]] == list(FEW_ROWS)
    assert all(1 - 1e-9 <= case["optimal"] <= case["race"] + 1e-9 for case in result["few_rows"])
    shown = optimal.show(result)
    assert "exponent" in shown
    assert all(f"| {name} |" in shown for name in NAMES)
    lines = {line.split(" | ")[0]: line.split(" | ") for line in optimal.show_stated(result["stated"])}
    for case in result["stated"]:
        before, now = (float(cell) for cell in lines[f"| {case['rows']}"][1:3])
        assert before == pytest.approx(case["before"][0] / case["before"][1], abs=1e-4)
        assert now == pytest.approx(case["cost"] / case["lower_bound"], abs=1e-4)


def test_grids_stand_beside_what_they_were(monkeypatch):
    monkeypatch.setattr(optimal, "GRIDS", {name: optimal.GRIDS[name] for name in ("torus 5 x 5", "torus 6 x 6")})
    unknown, known = optimal.grids(1)
    assert (unknown["before"], known["before"]) == (None, (10.0, 10.0))
    assert optimal.grid_line(unknown).startswith("| torus 5 x 5 | | | 8.0000 | 8.0000 | 0.00 % |")
    assert optimal.grid_line(known).startswith("| torus 6 x 6 | 10 | 10 | 10.0000 | 10.0000 | 0.00 % |")
