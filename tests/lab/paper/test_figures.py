"""The figures: both formats, labelled axes, and the computed numbers in them."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from onoff.lab.paper import claim
from onoff.lab.paper.theorems import rate_figure, save_figures, symmetric_figure


@pytest.mark.slow(reason="many cases are worked out")
def test_both_figures_are_saved_as_svg_and_png_and_saved_alike_again(tmp_path):
    first = save_figures(tmp_path / "a" / "b")
    assert [path.name for path in first] == [
        "figure-3b-symmetric-chain.svg",
        "figure-3b-symmetric-chain.png",
        "figure-4-rate.svg",
        "figure-4-rate.png",
    ]
    for path in first:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
        else:
            assert path.read_bytes().startswith(b"\x89PNG\r\n")
    again = save_figures(tmp_path / "c")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


@pytest.mark.parametrize("draw", [symmetric_figure, rate_figure])
def test_axes_are_labelled_and_lines_have_names(draw):
    (axes,) = draw().axes
    assert axes.get_xlabel()
    assert "rate" in axes.get_ylabel()
    assert axes.get_title(loc="left")
    assert len(axes.get_legend().get_texts()) >= 3


def test_the_rate_figure_shows_the_printed_curves():
    (axes,) = rate_figure().axes
    for line, (total, rates) in zip(axes.lines, claim.RATE_CURVES.items(), strict=True):
        assert line.get_label() == total
        assert np.asarray(line.get_ydata()) == pytest.approx(rates, abs=1e-14)


def test_the_symmetric_figure_shows_both_bounds_and_the_optimum_on_the_inner_one():
    (axes,) = symmetric_figure().axes
    inner, outer, optimum = (dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in axes.lines[:3])
    assert inner[0.0] == pytest.approx(1 / 2)
    assert outer[0.0] == pytest.approx(2 / 3)
    assert inner[0.5] == pytest.approx(2 / 3)
    assert all(inner[alpha] == pytest.approx(rate) for alpha, rate in optimum.items() if alpha in inner)
