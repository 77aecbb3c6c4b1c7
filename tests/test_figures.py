"""The look of figures: told apart without colour, and the same numbers give the same file."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from onoff import figures
from onoff.schemes import SCHEMES, design
from onoff.tables.show import draw_table

SOURCE = Path(figures.__file__).parent
ROWS = [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]


def test_lines_are_told_apart_without_colour():
    assert len({(line.marker, line.dash) for line in figures.LINES.values()}) == len(figures.LINES)


def lightness_and_hue(colour):
    """CIE L*a*b* of #RRGGBB under D65."""
    srgb = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
    xyz = to_xyz @ linear / [0.9505, 1.0, 1.0888]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_lines_are_told_apart_by_colour():
    """A distance of 2.3 is just noticed side by side; lines that cross a figure need many times that."""
    places = {name: lightness_and_hue(line.colour) for name, line in figures.LINES.items()}
    near = {
        (one, other): float(np.linalg.norm(places[one] - places[other]))
        for one, other in itertools.combinations(places, 2)
    }
    assert [pair for pair, apart in near.items() if apart < 25] == []


def test_requests_are_counted_by_ones(tmp_path):
    for steps in (2, 3, 9, 40):
        figure, (axes,) = figures.new_figure()
        figures.draw_costs(axes, range(steps), {"paper": [1.0] * steps})
        figures.save(figure, tmp_path / "f.png")
        assert [tick for tick in axes.get_xticks() if tick != int(tick)] == []


def test_every_scheme_has_its_line():
    assert set(SCHEMES) <= figures.LINES.keys()


def draw_costs(path):
    figure, (axes,) = figures.new_figure()
    figures.draw_costs(axes, range(3), {"paper": [3.0, None, 2.0], "lower": [1.0, 1.5, 1.0]})
    figures.shade_private(axes, [True, False, 0.5])
    axes.legend()
    figures.save(figure, path)


def draw_design(path):
    draw_table(path, design(ROWS, "greedy"), ("a", "b", "c"))


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("draw", [draw_costs, draw_design])
@pytest.mark.parametrize("kind", ["png", "svg", "pdf", "PNG"])
def test_the_same_numbers_give_the_same_file(tmp_path, draw, kind):
    for name in ("one", "two"):
        draw(Path(tmp_path / f"{name}.{kind}"))
    content = (tmp_path / f"one.{kind}").read_bytes()
    assert len(content) > 1000
    assert content == (tmp_path / f"two.{kind}").read_bytes()


def test_several_are_saved_by_name_in_a_folder_that_is_made(tmp_path):
    drawn = {name: figures.new_figure()[0] for name in ("a", "b")}
    assert figures.save_all(drawn, tmp_path / "new" / "folder", "svg") == [
        tmp_path / "new/folder/a.svg",
        tmp_path / "new/folder/b.svg",
    ]
    assert (tmp_path / "new/folder/b.svg").stat().st_size > 100


def test_a_legend_that_takes_long_to_place_warns_nobody(monkeypatch):
    """As on a busy machine: each look at the clock is a minute later."""
    clock = itertools.count(step=60)
    monkeypatch.setattr("matplotlib.legend.time.perf_counter", lambda: next(clock))
    figure, (axes,) = figures.new_figure()
    axes.plot([1, 2], [3, 4], label="cost")
    figures.add_legend(axes)
    assert "cost" in figures.as_svg(figure)
    axes.legend()
    with pytest.warns(UserWarning, match="can be slow"):
        figures.as_svg(figure)


def test_every_legend_is_told_its_place():
    drawn = [line for path in SOURCE.rglob("*.py") for line in path.read_text().splitlines() if ".legend(" in line]
    assert drawn
    assert [line for line in drawn if "loc" not in line] == []
