"""Tokens and features: contexts, counts and trees equal those counted by hand."""

from collections import Counter

import numpy as np
import pytest
from tests.support.typed import present

from onoff.errors import InvalidModel
from onoff.model import fitting as module
from onoff.model.context_tree import ContextTree
from onoff.model.fitting import Features, RequestTokens, numbered

RNG = np.random.default_rng(0)
LINES = [RNG.integers(3, size=RNG.integers(1, 9)).tolist() for _ in range(50)]


def contexts_by_hand(tree, line):
    for t in range(len(line)):
        past = tuple(line[:t])
        suffixes = (past[i:] for i in range(len(past) + 1))
        yield next(s for s in suffixes if len(s) <= tree.order and tree.number(s) is not None)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_every_request_is_in_the_longest_context_that_its_past_leaves(order):
    tokens = RequestTokens.of(LINES, 3)
    tree = tokens.tree(order)
    people, context, source = tokens.in_contexts(tree)
    expected = [
        (u, tree.number(c), x)
        for u, line in enumerate(LINES)
        for c, x in zip(contexts_by_hand(tree, line), line, strict=True)
    ]
    assert list(zip(people.tolist(), context.tolist(), source.tolist(), strict=True)) == expected


def test_the_tree_holds_what_was_seen_often_enough(monkeypatch):
    monkeypatch.setattr(module, "LEAST_SEEN", 8)
    tree = RequestTokens.of(LINES, 3).tree(3)
    seen = Counter(tuple(line[t - k : t]) for line in LINES for t in range(len(line)) for k in range(2, min(t, 3) + 1))
    expected = {(), (0,), (1,), (2,), *(c for c, count in seen.items() if count >= 8)}
    assert set(tree.contexts) == expected
    assert 4 < len(expected) < 40


def test_too_many_contexts_are_refused_with_the_memory_they_would_take(monkeypatch):
    monkeypatch.setattr(module, "MOST_CONTEXTS", 10)
    with pytest.raises(InvalidModel, match=r"order 3 over 3 sources: 13 contexts .* GB") as caught:
        RequestTokens.of(LINES, 3).tree(3)
    assert "order 1" in (caught.value.hint or "")


def test_features_are_closed_and_counts_add_up():
    tokens = RequestTokens.of(LINES, 3)
    features = Features.of(tokens, tokens.tree(2))
    n, tree = 3, features.tree
    assert features.counts.sum() == sum(map(len, LINES))
    for at, (c, x) in enumerate(zip(*np.divmod(features.keys, n), strict=True)):
        if c:
            parent = features.parent[at]
            assert divmod(int(features.keys[parent]), n) == (tree.parent[c], x)
        else:
            assert features.parent[at] == -1
    everyone = np.asarray(features.counts.sum(axis=0), dtype=float).reshape(1, -1)
    longer = features.with_longer(everyone)
    pairs = Counter((line[t - 1], line[t]) for line in LINES for t in range(1, len(line)))
    for (a, x), count in pairs.items():
        assert longer[0, int(np.searchsorted(features.keys, present(tree.number((a,))) * n + x))] == count
    firsts = Counter(line[0] for line in LINES)
    assert features.totals(longer)[0, 0] == sum(firsts.values())
    assert features.totals(longer)[0, tree.number((1,))] == sum(c for (a, _), c in pairs.items() if a == 1)


def test_some_people_are_numbered_anew():
    some = RequestTokens.of(LINES, 3).of_people(np.arange(50) % 10 == 3)
    assert some.sources.tolist() == [x for line in LINES[3::10] for x in line]
    assert some.people.tolist() == [u for u, line in enumerate(LINES[3::10]) for _ in line]


def test_sequences_of_names_or_numbers():
    assert numbered(["ab", "b"], None) == ([[0, 1], [1]], ["a", "b"], 2)
    assert numbered([["b", "a"]], ["b", "a", "c"]) == ([[0, 1]], ["b", "a", "c"], 3)
    assert numbered([[0, 2]], None) == ([[0, 2]], None, 3)
    for sequences, names in (([], None), ([["d"]], ["a"]), ([[5]], ["a"]), ([[-1]], None)):
        with pytest.raises(InvalidModel):
            numbered(sequences, names)


def test_extending_contexts():
    tree = ContextTree([(), (0,), (1,), (0, 1)], 2)
    assert tree.extended(np.array([0, 0, 1, 1, -1]), np.array([0, 1, 1, 0, 0])).tolist() == [1, 2, 3, -1, -1]
