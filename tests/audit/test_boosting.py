"""boosting: trees find what no single feature shows, and where there is nothing to learn they leave the start alone."""

import numpy as np
import pytest

from onoff.audit import boosting
from onoff.audit.boosting import Boosted, boost

CASES, VALUES = 1200, 3


def interacting(seed):
    """The chosen value is the one whose two signs agree: neither sign alone says anything."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], size=(CASES, VALUES, 2))
    chosen = rng.integers(VALUES, size=CASES)
    for case, value in enumerate(chosen):
        signs[case, :, 1] = -signs[case, :, 0]
        signs[case, value, 1] = signs[case, value, 0]
    noise = rng.normal(size=(CASES, VALUES, 1))
    return np.concatenate([signs, noise], axis=2), chosen


def gain(model, features, chosen, start):
    law = model.law(features, start)
    assert law.sum(axis=1) == pytest.approx(np.ones(len(law)))
    return float(np.log2(law[np.arange(len(chosen)), chosen] * VALUES).mean())


def test_an_interaction_is_found():
    features, chosen = interacting(0)
    start = np.zeros((CASES, VALUES))
    model = boost(features, chosen, start)
    other, theirs = interacting(1)
    assert gain(model, other, theirs, start) > 0.9 * np.log2(VALUES)


def test_where_there_is_nothing_to_learn_the_start_is_kept():
    features, _ = interacting(0)
    chosen = np.random.default_rng(5).integers(VALUES, size=CASES)
    start = np.log(np.random.default_rng(6).dirichlet(np.ones(VALUES), size=CASES))
    start[np.arange(CASES), chosen] += 1.0  # the start knows something; the features nothing
    model = boost(features, chosen, start)
    before = np.exp(start) / np.exp(start).sum(axis=1, keepdims=True)
    assert len(model.trees) < boosting.MOST_TREES / 4
    lost = np.log2(model.law(features, start)[np.arange(CASES), chosen] / before[np.arange(CASES), chosen]).mean()
    assert abs(lost) < 0.05


def test_no_trees_are_the_start():
    features, _ = interacting(0)
    start = np.log(np.random.default_rng(6).dirichlet(np.ones(VALUES), size=CASES))
    model = Boosted(np.zeros((features.shape[2], boosting.BINS - 1)), ())
    assert model.law(features, start) == pytest.approx(np.exp(start))
