"""Anchor types: the likelihood of all pairs at once is that of each, EM finds homes, what does not fit is refused."""

from typing import Any

import numpy as np
import pytest

from onoff.errors import InvalidModel
from onoff.model import anchors
from onoff.model.anchors import check_anchors_fit, fit_anchors
from onoff.model.contexts import RequestModel, load_model
from onoff.model.fitting import RequestTokens, bits_per_request, fit
from onoff.session import Session
from onoff.session.seeded import SeededEntropy


def residents(people: int, n: int = 6, length: int = 30, seed: int = 0) -> list[list[int]]:
    """People who mostly go between two places of their own."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(people):
        home, work = rng.choice(n, size=2, replace=False)
        path = rng.choice([home, work], size=length, p=[0.7, 0.3])
        elsewhere = rng.random(length) < 0.2
        found.append(np.where(elsewhere, rng.integers(n, size=length), path).tolist())
    return found


TOKENS = RequestTokens.of(residents(60), 6)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_bits_are_those_of_the_model(share):
    fitted = fit_anchors(TOKENS, share=share)
    model = RequestModel(**fitted.arguments())
    others = residents(5, seed=1)
    logs = []
    for path in others:
        per_type = np.log2(model.weights)
        context = 0
        for x in path:
            per_type = per_type + np.log2([model.law(z, context)[x] for z in range(model.types)])
            context = model.next(context, x)
        logs.append(np.logaddexp2.reduce(per_type))
    tokens = RequestTokens.of(others, 6)
    assert bits_per_request(fitted.logs(tokens), tokens)[0] == pytest.approx(-np.sum(logs) / (5 * 30))
    assert model.types == 30 + (60 if share else 0)


def test_a_step_of_em_counts_what_each_pair_explains():
    """The expected numbers of requests by case, against a sum over pairs and requests."""
    counts = np.random.default_rng(1).integers(3, size=(2, 5, 4)).astype(float)
    laws = anchors._laws(anchors._shrunk(counts.sum(axis=0)), np.array([0.2, 0.5, 0.4]), np.array([0.5, 0.8, 0.3]))
    weights = anchors._with_prior(np.zeros((4, 4)), np.ones((4, 4)))
    expected = np.zeros((3, 2, 5, 4))
    for person in range(2):
        likely = np.zeros((4, 4))
        for h, w in np.argwhere(weights > 0):
            case = [0 if c not in (h + 1, w + 1) else 1 if c == h + 1 else 2 for c in range(5)]
            kind = [1 if x == h else 2 if x == w else 0 for x in range(4)]
            logs = np.log([[laws[case[c], kind[x], c, x] for x in range(4)] for c in range(5)])
            likely[h, w] = (counts[person] * logs).sum()
        chance = np.where(weights > 0, weights * np.exp(likely - likely.max()), 0)
        chance /= chance.sum()
        for h, w in np.argwhere(weights > 0):
            for c in range(5):
                case_of_c = 1 if c == h + 1 else 2 if c == w + 1 else 0
                expected[case_of_c, 0, c, h] += chance[h, w] * counts[person, c, h]
                expected[case_of_c, 1, c, w] += chance[h, w] * counts[person, c, w]
    sequences = RequestTokens(*_as_tokens(counts), 4)
    _, assigned, _, _ = anchors._expected(sequences, laws, weights)
    np.testing.assert_allclose(assigned, expected, atol=1e-9)


def _as_tokens(counts: Any) -> tuple[Any, Any, Any, Any]:
    """Tokens with these counts: each request is its own run, after one that is not to be explained."""
    sources, people, place, told = [], [], [], []
    for person, last, x in np.argwhere(counts):
        for _ in range(int(counts[person, last, x])):
            if last:
                sources.append(last - 1)
                people.append(person)
                place.append(0)
                told.append(False)
            sources.append(x)
            people.append(person)
            place.append(1 if last else 0)
            told.append(True)
    return np.array(sources), np.array(people), np.array(place), np.array(told)


def test_homes_are_told_apart_where_types_are_not():
    held = RequestTokens.of(residents(30, seed=2), 6)
    ours = fit_anchors(TOKENS)
    ours_bits, theirs = (bits_per_request(one.logs(held), held)[0] for one in (ours, fit(TOKENS, 1, 4)))
    assert ours_bits < theirs - 0.1
    assert ours.mixing.min() > 0.5


def test_a_model_of_anchors_is_sparse_and_is_read_as_the_same(tmp_path):
    model = RequestModel(**fit_anchors(TOKENS, share=0.3).arguments())
    dense = RequestModel(model.dense(), model.contexts, weights=model.weights)
    assert model.is_sparse
    rng = np.random.default_rng(0)
    for c in (0, 3):
        np.testing.assert_allclose(model.block(c), dense.block(c))
        mass = rng.random((2, model.types))
        np.testing.assert_allclose(model.mixed(c, mass), mass @ dense.block(c).T)
        np.testing.assert_allclose(model.law(35, c), dense.law(35, c))
    ours, theirs = (Session(one, "greedy", entropy=SeededEntropy(np.random.default_rng(3))) for one in (model, dense))
    for x, private in ((1, True), (2, False), (1, False), (4, False)):
        assert ours.request(x, private=private).sources == theirs.request(x, private=private).sources
    model.save(tmp_path / "m.npz")
    assert load_model(tmp_path / "m.npz").digest() == model.digest()
    with pytest.raises(InvalidModel, match="common laws of shape"):
        RequestModel(**{**model.parts(), "common": np.ones((7, 6))})
    with pytest.raises(InvalidModel, match="with dense laws"):
        RequestModel(model.dense(), model.contexts, common=model.common)


def test_what_fits_is_estimated_before_anything_is_learnt():
    assert check_anchors_fit(50, 267) < 2**29
    assert check_anchors_fit(150) < 2**32
    with pytest.raises(InvalidModel, match=r"249,500 anchor types of 500 sources take about \d+\.\d GB, and a request"):
        check_anchors_fit(500)
