"""The model of one person: the formula, its particles, and the history that it is made of."""

import json

import numpy as np
import pytest
from tests.support.typed import present

from onoff.errors import InvalidInput, InvalidModel
from onoff.model import people as module
from onoff.model.chain import MarkovChain
from onoff.model.context_tree import all_contexts
from onoff.model.contexts import RequestModel, load_model
from onoff.model.people import MOST_OPEN, OpenHistory, choose_constants, own_law
from onoff.session.seeded import SeededEntropy

CHAIN = MarkovChain([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.3, 0.4, 0.3]], initial=[0.2, 0.3, 0.5])
HISTORY = OpenHistory("here", 3, (0, 0, 1, None, 1, 1, 0))
CONSTANTS = {"cap": 3, "weight": 0.8, "trust": 5}


class Fixed:
    """Uniforms that are all the same: every particle is the same law."""

    def uniforms(self, count):
        return np.full(count, 0.5)


def made(population=CHAIN, history=HISTORY, **more):
    return own_law(population, history, **{**CONSTANTS, "entropy": SeededEntropy(np.random.default_rng(1)), **more})


def types_of(order=1, types=2):
    contexts = all_contexts(3, order)
    return RequestModel(np.random.default_rng(3).dirichlet(np.ones(3), size=(types, len(contexts))), contexts)


def test_every_particle_is_the_formula_by_hand():
    """C, h and k written out from the history; f is what is left, the same for every context of a particle."""
    model = made()
    assert model.types == 60
    k, scale = 0.8 * 6 / 9, 3 / 6
    pairs = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 0]]) * scale  # the pair over the gap is none
    for z in range(0, 60, 7):
        f = (model.law(z, 0) - (1 - k) * CHAIN.initial) / k
        assert f.sum() == pytest.approx(1)
        assert (f >= -1e-12).all()
        for a in range(3):
            own = (pairs[a] + 5 * f) / (pairs[a].sum() + 5)
            expected = (1 - k) * np.asarray(CHAIN.transition)[a] + k * own
            assert model.law(z, 1 + a) == pytest.approx(expected, abs=1e-12)


def test_where_a_person_goes_is_drawn_around_the_own_counts():
    """The mean of f over many particles is that of the Dirichlet law: six standard errors, 1e-8, at a fixed seed."""
    model = made(particles=4000)
    k = 0.8 * 6 / 9
    f = np.array([(model.law(z, 0) - (1 - k) * CHAIN.initial) / k for z in range(4000)])
    usual = np.linalg.matrix_power(np.asarray(CHAIN.transition), 200)[0]
    counts = np.array([3, 3, 0]) * 0.5 + usual
    mean = counts / counts.sum()
    error = np.sqrt(mean * (1 - mean) / (counts.sum() + 1) / 4000)
    assert (np.abs(f.mean(axis=0) - mean) < 6 * error).all()
    assert f.std(axis=0) == pytest.approx(np.sqrt(mean * (1 - mean) / (counts.sum() + 1)), rel=0.1)


def test_who_has_asked_nothing_is_the_population():
    model = made(history=OpenHistory("here", 3))
    for z in range(model.types):
        assert model.law(z, 0) == pytest.approx(CHAIN.initial)
        assert model.law(z, 2) == pytest.approx(np.asarray(CHAIN.transition)[1])


@pytest.mark.parametrize("order", [1, 2])
def test_around_types_the_types_are_weighted_by_what_was_asked(order):
    """With no weight on the own law, the types as they are, each with its probability given the history."""
    population = types_of(order)
    found = made(population, weight=0, particles=1)
    chances = population.weights.copy()
    for run in ((0, 0, 1), (1, 1, 0)):
        for t, x in enumerate(run):
            context = population.context_of(run[:t])
            chances = chances * [population.law(z, context)[x] for z in range(2)]
    assert found.types == 2
    assert found.weights == pytest.approx(chances / chances.sum())
    assert np.asarray(found.laws) == pytest.approx(np.asarray(population.laws))


def test_likelier_types_have_more_particles_and_no_type_has_none():
    population = types_of(types=5)
    found = made(population, particles=60)
    assert 58 <= found.types <= 66
    assert found.weights.sum() == pytest.approx(1)
    known = made(population, weight=0, particles=1)
    assert found.weights.max() <= known.weights.max() / 5


def test_particles_are_kept_by_the_file_and_told_apart_by_the_digest(tmp_path):
    model, other = made(), made(entropy=SeededEntropy(np.random.default_rng(2)))
    assert model.digest() == made().digest()
    assert model.digest() != other.digest()
    model.save(tmp_path / "own.npz")
    again = load_model(tmp_path / "own.npz")
    assert again.digest() == model.digest()
    assert isinstance(again, RequestModel)
    assert again.about["own_law"] == {
        **CONSTANTS,
        "alone": False,
        "particles": 60,
        "server": "here",
        "history": HISTORY.digest(),
    }


def test_sparse_populations_and_those_with_impossible_requests():
    sparse = RequestModel.of(MarkovChain(np.eye(3)[[1, 2, 0]], initial=[1, 0, 0]))
    model = made(sparse, entropy=Fixed())
    assert model.law(0, 1) == pytest.approx(model.law(1, 1))
    assert (np.asarray(model.laws).sum(axis=2) == pytest.approx(1)) is True
    twice = RequestModel(np.repeat(np.asarray(sparse.laws), 2, axis=0), sparse.contexts)
    assert made(twice, weight=0, particles=1).weights == pytest.approx([0.5, 0.5])  # nothing is told by the impossible


@pytest.mark.parametrize("wrong", [{"cap": 0}, {"weight": 1}, {"weight": -0.1}, {"trust": 0}, {"particles": 0}])
def test_constants_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidInput, match="cap"):
        made(**wrong)


def test_what_does_not_fit_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(module, "MOST_LAW_BYTES", 8 * 60 * 4 * 3 - 1)
    with pytest.raises(InvalidModel, match="60 particles"):
        made()


def test_no_model_is_made_of_a_history_with_something_hidden_or_of_other_sources():
    with pytest.raises(InvalidInput, match="carry on"):
        made(history=HISTORY.after(None, private=True))
    with pytest.raises(InvalidInput, match="4 sources"):
        made(history=OpenHistory("here", 4))


# -- the history ---------------------------------------------------------------------------------------------


def test_a_history_keeps_values_and_gaps_within_bounds():
    history = OpenHistory("here", 3)
    assert history.after(None) == history
    for t in range(3 * MOST_OPEN):
        history = history.after(None if t % 3 == 0 else t % 3)
    assert history.open == MOST_OPEN
    assert len(history.asked) <= 2 * MOST_OPEN
    assert history.after(None) == history.after(None).after(None)
    assert history.last == (1, 2)
    assert history.after(None).last == ()
    single, pairs = OpenHistory("here", 3, (0, 1, None, 1, 1)).counts()
    assert single.tolist() == [1, 3, 0]
    assert pairs.tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 0]]


def test_a_history_survives_json_and_what_is_none_is_refused():
    kept = HISTORY.after(2).after(None, private=True)
    assert OpenHistory.from_dict(json.loads(json.dumps(kept.as_dict()))) == kept
    assert kept.hidden
    assert kept.digest() != HISTORY.digest()
    for wrong in ({}, {**kept.as_dict(), "hidden": 1}, {**kept.as_dict(), "asked": [3]}, {**kept.as_dict(), "n": "x"}):
        with pytest.raises(InvalidInput):
            OpenHistory.from_dict(wrong)


# -- constants -----------------------------------------------------------------------------------------------


def test_constants_are_those_that_people_held_out_take_the_fewest_bits_with():
    """Whoever goes to places of their own is known by the history; whoever is like everybody is not."""
    rng = np.random.default_rng(4)
    own = 0.9 * rng.dirichlet(np.full(3, 0.2), size=40) + 0.1 / 3
    settled = present(choose_constants(CHAIN, [rng.choice(3, size=140, p=law).tolist() for law in own]))
    alike = present(choose_constants(CHAIN, [CHAIN.sample(140, rng).tolist() for _ in range(40)]))
    assert settled["weight"] >= 0.88
    assert settled["held_out_bits"] < settled["population_bits"] - 0.3
    assert alike["weight"] == min(module.WEIGHTS)
    assert alike["held_out_bits"] == pytest.approx(alike["population_bits"], abs=0.02)
    assert choose_constants(CHAIN, [[0] * 29]) is None


def test_bits_are_those_of_the_mean_of_the_law():
    """One person, scored by hand with the model's own particles; many of these, so that their mean is near."""
    requests = np.random.default_rng(6).integers(0, 3, size=30).tolist()
    found = present(choose_constants(CHAIN, [requests]))
    history = OpenHistory("", 3, tuple(requests[:20]))
    cap, weight, trust = (found[key] for key in ("cap", "weight", "trust"))
    many = SeededEntropy(np.random.default_rng(8))
    model = own_law(CHAIN, history, cap=cap, weight=weight, trust=trust, particles=3000, entropy=many)
    mean = model.weights @ np.asarray(model.laws).reshape(3000, -1)
    law = mean.reshape(4, 3)
    bits = [-np.log2(law[1 + requests[t - 1], requests[t]]) for t in range(20, 30)]
    assert found["held_out_bits"] == pytest.approx(np.mean(bits), abs=0.01)
