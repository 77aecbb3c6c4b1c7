"""Fitting: shrunk counts by hand, EM that finds types, laws dense and sparse alike."""

import numpy as np
import pytest

from onoff.errors import InvalidModel
from onoff.model import fitting as module
from onoff.model.contexts import RequestModel
from onoff.model.fitting import TO_PARENT, Fitted, RequestTokens, bits_per_request, fit


def bits_of(fitted: Fitted, tokens: RequestTokens) -> float:
    return bits_per_request(fitted.logs(tokens), tokens)[0]


LINES = [[0, 1, 0, 1, 1], [1, 0, 0], [0, 0, 0, 0, 1, 1, 0]] * 4


def two_kinds(people=300, length=12, seed=0):
    """People who stay with 0.9, and people who leave with 0.9."""
    rng = np.random.default_rng(seed)
    paths = np.zeros((people, length), dtype=np.int64)
    paths[:, 0] = rng.integers(2, size=people)
    for t in range(1, length):
        stays = rng.random(people) < np.where(np.arange(people) % 2, 0.9, 0.1)
        paths[:, t] = np.where(stays, paths[:, t - 1], 1 - paths[:, t - 1])
    return paths


def test_shrinkage_by_hand():
    model = RequestModel(**fit(RequestTokens.of(LINES, 2), 2, 1).arguments())
    K = TO_PARENT
    first = (np.array([8, 4]) + K / 2) / (12 + K)
    assert model.law(0, 0) == pytest.approx(first)
    after_0 = (np.array([16, 12]) + K * first) / (28 + K)  # 0 0 four times a round, 0 1 three times
    assert model.law(0, model.tree.number((0,))) == pytest.approx(after_0)
    after_01 = np.array([4, 8])
    after_1 = (np.array([12, 8]) + K * first) / (20 + K)
    assert model.law(0, model.tree.number((0, 1))) == pytest.approx((after_01 + K * after_1) / (12 + K))


def test_types_of_people_are_found():
    fitted = fit(RequestTokens.of(two_kinds(), 2), 1, 2, seed=1)
    model = RequestModel(**fitted.arguments())
    assert sorted(model.weights) == pytest.approx([0.5, 0.5], abs=0.05)
    stays = sorted(model.law(z, model.tree.number((0,)))[0] for z in range(2))
    assert stays == pytest.approx([0.1, 0.9], abs=0.06)
    held = RequestTokens.of(two_kinds(seed=5), 2)
    chain = fit(RequestTokens.of(two_kinds(), 2), 1, 1)
    assert bits_of(fitted, held) < bits_of(chain, held) - 0.3


def test_every_round_of_em_gains():
    rounds = []
    fit(RequestTokens.of(two_kinds(), 2), 1, 3, progress=lambda number, bits: rounds.append((number, bits)))
    assert [number for number, _ in rounds] == list(range(len(rounds)))
    assert rounds[-1][1] < rounds[0][1] - 0.1


def test_bits_are_the_likelihood_of_whole_people():
    fitted = fit(RequestTokens.of(two_kinds(), 2), 2, 2)
    model = RequestModel(**fitted.arguments())
    lines = two_kinds(5, 6, seed=9).tolist()
    total = 0.0
    for line in lines:
        chance = 0.0
        for z, weight in enumerate(model.weights):
            p, context = weight, 0
            for x in line:
                p *= model.law(z, context)[x]
                context = model.next(context, x)
            chance += p
        total -= np.log2(chance)
    assert bits_of(fitted, RequestTokens.of(lines, 2)) == pytest.approx(total / 30)


def test_sparse_arguments_are_the_same_model(monkeypatch):
    fitted = fit(RequestTokens.of(two_kinds(), 2), 3, 2)
    dense = RequestModel(**fitted.arguments())
    monkeypatch.setattr(module, "MOST_DENSE_ENTRIES", 0)
    sparse = RequestModel(**fitted.arguments())
    assert sparse.is_sparse
    assert not dense.is_sparse
    for z in range(2):
        for c in range(len(dense.contexts)):
            assert sparse.law(z, c) == pytest.approx(dense.law(z, c))


def test_the_same_seed_gives_the_same_model():
    tokens = RequestTokens.of(two_kinds(60), 2)
    digests = [RequestModel(**fit(tokens, 1, 2, seed=seed).arguments()).digest() for seed in (3, 3, 4)]
    assert digests[0] == digests[1] != digests[2]


def test_fewer_people_than_types_are_refused():
    with pytest.raises(InvalidModel, match="13 types of only 12 people"):
        fit(RequestTokens.of(LINES, 2), 1, 13)
    with pytest.raises(InvalidModel, match="order -1"):
        fit(RequestTokens.of(LINES, 2), -1, 1)
