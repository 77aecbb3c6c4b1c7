"""RequestModel: contexts and their steps, laws dense and sparse, files of both kinds, bad input by its place."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from tests.support.typed import present

from onoff.errors import InvalidChain, InvalidInput, InvalidModel, UnknownSource
from onoff.model.chain import MarkovChain
from onoff.model.context_tree import all_contexts
from onoff.model.contexts import RequestModel, load_model
from onoff.model.rows import UNIT

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v0.1"
NAMES = ("left", "centre", "right")


def model_of(n=3, order=2, types=2, seed=0, **more):
    rng = np.random.default_rng(seed)
    contexts = all_contexts(n, order)
    return RequestModel(
        rng.dirichlet(np.ones(n), size=(types, len(contexts))), contexts, weights=rng.dirichlet(np.ones(types)), **more
    )


def sparse_model():
    """Two types of variable order: only (0, 1) of the pairs is a context, everything else is left to the parent."""
    contexts = [(), (0,), (1,), (2,), (0, 1)]
    first = [[0.2, 0.3, 0.5], [0, 0.5, 0], [0.4, 0, 0], [0, 0, 0.9], [0, 0, 0.7]]
    second = [[0.6, 0.2, 0.2], [0.1, 0, 0], [0, 0.1, 0], [0.1, 0, 0], [0.2, 0, 0]]
    one = csr_matrix([*first, *second])
    backoff = 1 - np.asarray(one.sum(axis=1)).reshape(2, 5)
    backoff[:, 0] = 0
    return RequestModel(one, contexts, NAMES, [0.25, 0.75], backoff=backoff)


def as_dense(model):
    laws = [[model.law(z, c) for c in range(len(model.contexts))] for z in range(model.types)]
    return RequestModel(laws, model.contexts, model.names, model.weights)


# -- contexts ----------------------------------------------------------------------------------------------


def test_next_is_the_longest_suffix_that_is_a_context():
    for model in (model_of(), model_of(2, 3, 1), sparse_model()):
        for c, context in enumerate(model.contexts):
            for x in range(model.n):
                longer = (*context, x)
                suffixes = (longer[i:] for i in range(len(longer) + 1))
                expected = next(s for s in suffixes if len(s) <= model.order and model.tree.number(s) is not None)
                assert model.contexts[model.next(c, x)] == expected
    many = model_of()
    every = np.arange(len(many.contexts))
    assert many.next(every, 1).tolist() == [many.next(c, 1) for c in every.tolist()]


def test_steps_that_are_searched_equal_those_that_are_kept(monkeypatch):
    kept = model_of(4, 3, 1)
    steps = [[kept.next(c, x) for x in range(4)] for c in range(len(kept.contexts))]
    monkeypatch.setattr("onoff.model.context_tree.LARGEST_STEPS", 0)
    searched = model_of(4, 3, 1)
    assert [[searched.next(c, x) for x in range(4)] for c in range(len(searched.contexts))] == steps


def test_a_history_leaves_its_last_requests():
    model = model_of()
    assert model.contexts[model.context_of([0, 1, 2, 0, 1])] == (0, 1)
    assert model.contexts[model.context_of([2])] == (2,)
    assert model.context_of([]) == 0
    assert sparse_model().contexts[sparse_model().context_of([2, 1])] == (1,)


# -- laws --------------------------------------------------------------------------------------------------


def test_sparse_laws_are_their_own_part_and_the_share_left_to_the_parent():
    model = sparse_model()
    p = model.law
    assert p(0, 1) == pytest.approx([0.1, 0.65, 0.25])  # (0,): 0.5 own, half of the law of ()
    assert p(0, 4) == pytest.approx(np.array([0, 0, 0.7]) + 0.3 * p(0, 2))
    assert p(1, 3) == pytest.approx(np.array([0.1, 0, 0]) + 0.9 * p(1, 0))
    belief = csr_matrix(np.random.default_rng(1).dirichlet(np.ones(10), size=4))
    assert model.mixtures(belief) == pytest.approx(as_dense(model).mixtures(belief))
    columns = np.array([0, 2])
    assert model.mixtures(belief, columns) == pytest.approx(as_dense(model).mixtures(belief)[:, columns])


def test_a_chain_is_a_model_and_back():
    P = np.random.default_rng(2).dirichlet(np.ones(4), size=4)
    for chain in (MarkovChain(P, initial=[0.1, 0.2, 0.3, 0.4]), MarkovChain(csr_matrix(P))):
        model = RequestModel.of(chain)
        assert (model.types, model.order, model.n) == (1, 1, 4)
        assert model.is_sparse == chain.is_sparse
        for x in range(4):
            assert model.law(0, model.next(0, x)) == pytest.approx(P[x])
        assert model.initial_rows().weights.tolist() == chain.initial_rows().weights.tolist()
        assert np.allclose(present(model.as_chain()).dense(), P)
    assert model_of().as_chain() is None


def test_the_first_request_is_the_mixture_of_the_types():
    model = sparse_model()
    rows = model.initial_rows()
    assert rows.weights[0] / UNIT == pytest.approx([0.25 * 0.2 + 0.75 * 0.6, 0.225, 0.275])


def test_samples_follow_the_laws():
    model = sparse_model()
    paths = model.sample_many(40_000, 3, np.random.default_rng(0))
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (paths[:, 0], paths[:, 1]), 1 / len(paths))
    expected = sum(
        w * model.law(z, 0)[:, None] * np.stack([model.law(z, model.next(0, x)) for x in range(3)])
        for z, w in enumerate(model.weights)
    )
    assert np.abs(pairs - expected).max() < 0.01  # four standard errors
    assert model.sample(5, np.random.default_rng(1)).shape == (5,)


# -- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.npz", "model.json"])
def test_a_file_gives_the_same_model_and_says_what_it_was_learnt_on(tmp_path, name):
    model = model_of(names=NAMES, about={"trace": "clicks.csv", "users": 12})
    model.save(tmp_path / name)
    found = load_model(tmp_path / name)
    assert isinstance(found, RequestModel)
    assert found.digest() == model.digest()
    assert found.about == {"trace": "clicks.csv", "users": 12}
    assert found.names == NAMES


def test_sparse_models_are_npz(tmp_path):
    model = sparse_model()
    model.save(tmp_path / "m.npz")
    assert load_model(tmp_path / "m.npz").digest() == model.digest() != as_dense(model).digest()
    with pytest.raises(InvalidModel, match="another format"):
        model.save(tmp_path / "m.json")
    with pytest.raises(InvalidModel, match="another format"):
        as_dense(model).save(tmp_path / "m.csv")
    with pytest.raises(InvalidInput, match="nothing was written"):
        model.save(tmp_path / "nowhere" / "m.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.npz"]


@pytest.mark.parametrize("name", ["m.npz", "m.json"])
def test_reading_a_large_file_takes_few_steps(tmp_path, name):
    """24 types x 307 contexts x 17 sources are 125,256 numbers: no call of a function for each."""
    model = model_of(17, 2, 24)
    assert len(model.contexts) == 307
    model.save(tmp_path / name)
    assert load_model(tmp_path / name).digest() == model.digest()  # whatever is imported or compiled is at hand now
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        load_model(tmp_path / name)
    finally:
        sys.setprofile(None)
    assert 0 < calls < 24 * 307 * 17 / 5


def test_chain_files_of_every_kind_are_still_chains(tmp_path):
    chain = load_model(FIXTURES / "chain.json")
    assert isinstance(chain, MarkovChain)
    assert chain.names == NAMES
    assert chain.dense().tolist() == [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]
    assert chain.digest() == MarkovChain.load(FIXTURES / "chain.json").digest()
    MarkovChain(csr_matrix(chain.dense()), NAMES).save(tmp_path / "chain.npz")
    assert isinstance(load_model(tmp_path / "chain.npz"), MarkovChain)
    assert present(RequestModel.load(FIXTURES / "chain.json").as_chain()).digest() == chain.digest()


def test_a_model_file_is_not_a_chain(tmp_path):
    model_of().save(tmp_path / "m.npz")
    with pytest.raises(InvalidChain, match="not a chain"):
        MarkovChain.load(tmp_path / "m.npz")


def test_digests_tell_models_apart():
    digests = {
        model.digest()
        for model in (
            model_of(),
            model_of(seed=1),
            model_of(names=NAMES),
            model_of(order=1),
            model_of(types=1),
            sparse_model(),
            as_dense(sparse_model()),
        )
    }
    assert len(digests) == 7
    assert model_of().digest() == model_of(about={"anything": 1}).digest()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"lows": 1}, "unknown key 'lows'"),
        ({"contexts": None}, 'no "contexts"'),
        ({"contexts": [[], ["left"], ["middle"], ["right"]]}, "context 2 names a source"),
        ({"contexts": [[], "left", [1], [2]]}, "context 1 is not a list"),
        ({"order": "two"}, "'order' is not a int"),
        ({"laws": [[1, 0, 0]]}, "laws of shape"),
        ({"laws": [[["a", 0, 0]] * 4]}, "not numbers"),
    ],
)
def test_bad_json_is_named(tmp_path, change, fault):
    document = {"names": NAMES, "contexts": [[], ["left"], ["centre"], ["right"]], "laws": [[[0.2, 0.3, 0.5]] * 4]}
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    assert isinstance(load_model(path), MarkovChain)  # one type, order 1
    path.write_text(json.dumps({k: v for k, v in {**document, **change}.items() if v is not None}))
    with pytest.raises(InvalidModel) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert fault in str(caught.value)


def test_a_damaged_file_is_said_to_be_damaged(tmp_path):
    model_of().save(tmp_path / "m.npz")
    content = (tmp_path / "m.npz").read_bytes()
    (tmp_path / "m.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidChain, match=r"m\.npz"):
        load_model(tmp_path / "m.npz")


# -- bad models --------------------------------------------------------------------------------------------

SINGLES = [(), (0,), (1,), (2,)]


def laws(*rows):
    return [list(rows)]


EVEN = [1 / 3] * 3


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((laws(EVEN, EVEN, [0.5, 0.4, 0], EVEN), SINGLES), "type 0, context 2 (centre): the law sums to 0.9, not to 1"),
        ((laws(EVEN, EVEN, EVEN, [1.5, -0.5, 0]), SINGLES), "type 0, context 3 (right), source centre: -0.5"),
        ((laws(EVEN, EVEN, EVEN, [np.nan, 0.5, 0.5]), SINGLES), "source left: nan"),
        ((laws(EVEN, EVEN), [(), (0,), (1,)]), "laws of shape (1, 2, 3) for 3 contexts"),
        ((laws(EVEN, EVEN), [(0,), ()]), "the first context is not ()"),
        ((laws(EVEN, EVEN, EVEN), [(), (0,), (0,)]), "contexts 1 and 2 are the same"),
        ((laws(EVEN, EVEN), [(), (3,)]), "context 1 (3,) names a source that is none of 3"),
        ((laws(EVEN, EVEN, EVEN), [(), (1,), (0, 1)]), "context 2 (left, centre): without its latest request, (left)"),
        ((laws(EVEN, EVEN, EVEN), [(), (0,), (0, 1)]), "context 2 (left, centre): without its oldest request, (cent"),
        ((laws([0.5, 0.5, 0], EVEN, EVEN, [0, 0, 1]), [*SINGLES[:3], (1, 1)]), None),
        ((laws([1, 0, 0], [0.5, 0.5, 0], [1, 0, 0], EVEN), SINGLES), "context 3 (right) can never be reached"),
        (([], []), "no contexts"),
    ],
)
def test_a_bad_model_is_refused_with_the_place(arguments, fault):
    if fault is None:
        RequestModel(*arguments, NAMES)  # type: ignore[call-arg]
        return
    with pytest.raises(InvalidModel) as caught:
        RequestModel(*arguments, NAMES)  # type: ignore[call-arg]
    assert fault in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"weights": [1, 0]}, "type 1 has weight zero"),
        ({"weights": [0.5, 0.4]}, "the weights sum to 0.9"),
        ({"weights": [1]}, "1 weights for 2 types"),
        ({"weights": [1.5, -0.5]}, "type 1: -0.5 is not a weight"),
        ({"order": 0}, "context 1 (left) is longer than the order 0"),
        ({"backoff": [[0]]}, "backoff with dense laws"),
    ],
)
def test_bad_weights_and_orders_are_refused(more, fault):
    with pytest.raises(InvalidModel) as caught:
        RequestModel([[EVEN] * 4] * 2, SINGLES, NAMES, **more)
    assert fault in caught.value.message


def test_a_context_that_only_a_longer_one_leads_to_is_reached():
    """(1, 0) is entered from (0, 1), not from (1,): after (1,) alone nobody wants 0."""
    contexts = [(), (0,), (1,), (0, 1), (1, 0)]
    one = [[1, 0], [0, 1], [0, 1], [1, 0], [0.5, 0.5]]
    assert RequestModel([one], contexts).order == 2
    one[3] = [0, 1]
    with pytest.raises(InvalidModel, match=r"context 4 .* can never be reached"):
        RequestModel([one], contexts)


def test_a_context_must_be_reached_by_people_of_one_type():
    """One type never wants 1 after 0, and the other never wants 0 at all."""
    contexts = [(), (0,), (1,), (0, 1)]
    apart = [[[0.5, 0.5], [1, 0], [1, 0], [1, 0]], [[0, 1], [0.5, 0.5], [0, 1], [0, 1]]]
    with pytest.raises(InvalidModel, match=r"context 3 .* can never be reached"):
        RequestModel(apart, contexts)
    apart[1][0] = [0.5, 0.5]
    assert RequestModel(apart, contexts).types == 2


def test_a_sparse_context_that_cannot_be_reached_is_found():
    matrix = csr_matrix([[0.5, 0.5, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    with pytest.raises(InvalidModel, match=r"context 3 .* can never be reached"):
        RequestModel(matrix, SINGLES)
    with pytest.raises(InvalidModel, match="backoff"):
        RequestModel(matrix, SINGLES, backoff=np.full((1, 4), 0.5))


def test_sources_are_found_by_name_and_number():
    model = model_of(names=NAMES)
    assert model.index("right") == model.index(2) == 2
    with pytest.raises(UnknownSource):
        model.index("rigth")
