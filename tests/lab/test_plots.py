"""Figures: every result file has some, with all its lines."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from tests.support.typed import as_a, present

from onoff.errors import InvalidInput
from onoff.lab.results.plots import chain_figures, families_figure, figures_of, simulation_figures, sweep_figures
from onoff.lab.simulate import compare
from onoff.lab.sweep import read_spec, sweep
from onoff.lab.walk import Pattern, RandomSwitching
from onoff.model.chain import MarkovChain
from onoff.model.learn import learn
from onoff.model.traces import Trace
from onoff.schemes import SCHEMES

EXAMPLE = MarkovChain([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]])
SPEC = 'schemes = ["greedy", "single"]\nhorizons = [1, 2]\n[[chain]]\nfamily = "ring"\nn = [3, 4]\n'


def simulated(switching, **options):
    found = compare(EXAMPLE, "greedy", switching, 200, 1, **options).as_dict()
    return {"scheme": "greedy", "memory": "last-query", "seed": 1, **found}


def swept(tmp_path, text=SPEC):
    (tmp_path / "s.toml").write_text(text)
    return sweep(read_spec(tmp_path / "s.toml"), tmp_path / "s.parquet").path


def legend(axes):
    return axes.get_legend_handles_labels()[1]


def test_a_simulation_has_cost_bytes_and_sizes():
    data = simulated(Pattern.parse("ON OFF OFF"))
    figures = simulation_figures(data, message_bytes=2048)
    assert figures.keys() == {"cost", "bytes", "sizes"}
    (axes,) = figures["cost"].axes
    assert len(legend(axes)) == 6  # everything, naive, bound, paper, ours, the shade
    drawn = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in axes.lines}
    assert drawn["lower bound: nobody does better"] == [step["lower"] for step in data["steps"]]
    assert axes.get_xlabel() == "request"
    bars = [as_a(Rectangle, bar).get_width() for bar in figures["bytes"].axes[0].patches]
    assert bars == pytest.approx([2 * 9, 2 * data["baselines"]["paper"]["total"], 2 * data["total"], 2 * 5])
    (picture,) = figures["sizes"].axes[0].images
    assert present(picture.get_array())[:, 0].tolist() == [0, 0, 1]


def test_holes_and_missing_baselines_can_be_drawn():
    sparse = MarkovChain([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])
    found = compare(sparse, "greedy", RandomSwitching(4, 0.5, 0.5), 50, 1, paper=False).as_dict()
    assert found["steps"][2]["lower"] is None
    figures = simulation_figures({"scheme": "greedy", "seed": 1, **found}, 1024)
    assert len(figures["bytes"].axes[0].patches) == 3


def test_a_sweep_has_costs_over_n_and_build_times(tmp_path):
    figures = figures_of(swept(tmp_path))
    assert figures.keys() == {"first", "build", "total"}
    (axes,) = [a for a in figures["first"].axes if a.get_visible()]
    labels = ["paper's inner bound", "greedy", "single", "lower bound: nobody does better"]
    assert legend(axes) == labels
    assert np.asarray(axes.lines[1].get_xdata()).tolist() == [3, 4]
    assert legend(figures["build"].axes[0]) == ["greedy", "single"]


def test_families_stand_side_by_side(tmp_path):
    text = SPEC + '[[chain]]\nfamily = "zipf"\nn = 3\n' + '[[chain]]\nfamily = "sticky"\nn = 3\n'
    text += '[[chain]]\nfamily = "browsing"\nn = 3\n'
    figures = figures_of(swept(tmp_path, text.replace("[1, 2]", "[1]")))
    assert "total" not in figures
    titles = [axes.get_title() for axes in figures["first"].axes if axes.get_visible()]
    assert titles == ["ring", "zipf", "sticky", "browsing"]


def test_a_learnt_chain_has_its_matrix_and_fit(tmp_path):
    (tmp_path / "t.txt").write_text("a b a b b\n" * 30)
    learn(Trace(tmp_path / "t.txt")).save(tmp_path / "c.json")
    figures = figures_of(tmp_path / "c.json")
    assert figures.keys() == {"transition", "fit"}
    assert len(figures["fit"].axes[0].patches) == 3
    plain = chain_figures({"transition": np.eye(50).tolist()})
    assert plain.keys() == {"transition"}


def test_the_reproduction_has_the_papers_figures(tmp_path):
    (tmp_path / "r.json").write_text('[{"item": "x", "expected": 1, "got": 1, "ok": true}]')
    assert figures_of(tmp_path / "r.json").keys() == {"paper-symmetric", "paper-rate"}


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.json", "{"), ("x.json", "{}"), ("x.json", "[]"), ("x.json", "[1]"), ("x.parquet", "no"), ("x.txt", "\x00")],
)
def test_what_is_no_result_is_refused(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidInput, match=name):
        figures_of(tmp_path / name)


def test_a_sweep_that_failed_has_no_figures(tmp_path):
    with pytest.raises(InvalidInput, match="no row that worked"):
        sweep_figures([{"error": "too hard"}])
    with pytest.raises(InvalidInput, match="nowhere"):
        figures_of(tmp_path / "nowhere.json")


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_legend_of_a_sweep_is_inside_its_figure(count):
    """With every scheme, whatever the number of families."""
    same = {"horizon": 1, "first_cost": 2.0, "first_lower": 1.0, "inner": 3.0}
    families = [f"family {k}" for k in range(count)]
    rows = [
        {"family": name, "n": n, "scheme": scheme, **same} for name in families for n in (4, 8) for scheme in SCHEMES
    ]
    figure = families_figure(rows)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box, page = legend.get_window_extent(), figure.bbox
    assert page.x0 <= box.x0 < box.x1 <= page.x1
    assert page.y0 <= box.y0 < box.y1 <= page.y1


def test_sizes_of_queries_are_whole_numbers():
    (axes, _) = simulation_figures(simulated(Pattern.parse("ON OFF OFF")), message_bytes=2048)["sizes"].axes
    ticks = [*axes.get_xticks(), *axes.get_yticks()]
    assert [tick for tick in ticks if tick != int(tick)] == []
