"""Figures of models: what is drawn is what the model says."""

import numpy as np
import pytest
from tests.support.chains import request_model

from onoff.lab.results.plots import figures_of, model_figures, tried_figure, usage
from onoff.model.chain import MarkovChain
from onoff.model.contexts import RequestModel

P3 = [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]
MODEL = request_model(P3, ("a", "b", "c"))
TRIED = [{"order": k, "types": z, "held_out_bits": 2 - 0.1 * k - 0.01 * z} for k in (1, 2) for z in (1, 2, 6)]


def test_what_a_type_requests_in_the_long_run():
    assert usage(MODEL, 0) == pytest.approx(MarkovChain(P3).stationary(), abs=1e-6)
    assert usage(MODEL, 1).sum() == pytest.approx(1)


def test_types_transitions_and_what_was_tried_are_drawn(tmp_path):
    model = RequestModel(**{**MODEL.parts(), "about": {"model": {"tried": TRIED}}})
    figures = model_figures(model)
    assert list(figures) == ["types", "transition", "tried"]
    (heat, *_) = figures["types"].axes
    assert np.asarray(heat.images[0].get_array()) == pytest.approx(np.stack([usage(model, z) for z in (0, 1)]))
    assert [label.get_text() for label in heat.get_yticklabels()] == ["60.0%", "40.0%"]
    matrix = np.asarray(figures["transition"].axes[0].images[0].get_array())
    assert matrix[0] == pytest.approx(0.6 * model.law(0, 1) + 0.4 * model.law(1, 1))
    for name in ("m.npz", "m.json"):
        model.save(tmp_path / name)
        assert list(figures_of(tmp_path / name)) == ["types", "transition", "tried"]


def test_one_line_for_each_order():
    (axes,) = tried_figure(TRIED).axes
    assert [line.get_label() for line in axes.lines] == ["order 1", "order 2"]
    assert np.asarray(axes.lines[1].get_ydata()).tolist() == pytest.approx([1.79, 1.78, 1.74])


def test_many_sources_are_not_drawn():
    wide = RequestModel(np.full((1, 1, 201), 1 / 201), [()])
    assert model_figures(wide) == {}
