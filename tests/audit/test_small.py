"""The small audit: a chain leaks where people differ, types leak less, what is known before is no gain."""

import numpy as np
import pytest
from tests.model.test_fitting import two_kinds
from tests.support.typed import present

from onoff.audit.small import Small
from onoff.model.fitting import RequestTokens, fit

pytestmark = pytest.mark.slow(reason="readers are sent through sessions")

LEARNT = RequestTokens.of(two_kinds(400), 2)
CHAIN, TYPES = fit(LEARNT, 1, 1).arguments(), fit(LEARNT, 1, 2).arguments()


def readers(people: int, length: int) -> list[tuple[int, list[int]]]:
    """Others than those whom models are learnt from."""
    paths = np.random.default_rng(1).permutation(two_kinds(people, length, seed=5))
    return list(enumerate(paths.tolist()))


def test_types_give_away_less_than_a_chain_and_than_naive_switching():
    chain, types = (present(one) for one in Small().compare([CHAIN, TYPES], [TYPES], readers(150, 14)))
    assert chain["bits"] > 0.1 > types["bits"] + 2 * types["stderr"]
    assert types["naive_bits"] == chain["naive_bits"] > 0.2
    assert types["difference"] + 3 * types["difference_stderr"] < 0
    assert (chain["users"], chain["after"], chain["everything"]) == (120, 10, 20)
    assert 10 <= types["cost"] <= 20


def test_sessions_that_know_the_history_are_judged_with_attackers_that_do():
    constants = {"cap": 30.0, "weight": 0.8, "trust": 5.0, "alone": True}
    known = present(Small().knowing(TYPES, constants, [TYPES], readers(30, 45)))
    assert known["history"] == "open"
    assert known["bits"] < known["naive_bits"]


def test_too_few_readers_are_not_judged():
    assert Small().compare([CHAIN], [TYPES], readers(9, 60)) == [None]
    assert Small().knowing(CHAIN, {"alone": False}, [], readers(60, 12)) is None
