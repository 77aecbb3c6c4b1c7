"""Guessed models: what each template says, over any catalogue."""

import numpy as np
import pytest

import onoff
from onoff.errors import InvalidInput
from onoff.model.chain import MOST_TEMPLATE_SOURCES, TEMPLATES, from_template

NAMES = ["a", "b", "c", "d"]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("n", [2, 4, 120])
def test_each_is_a_chain_where_nothing_is_impossible(template: str, n: int) -> None:
    chain = from_template(template, [f"s{k}" for k in range(n)])
    assert chain.n == n
    assert (chain.dense() > 0).all()
    assert np.allclose(chain.initial @ chain.dense(), chain.initial)


def test_requests_are_independent_where_nothing_is_said_of_them() -> None:
    for template in ("uniform", "popular"):
        assert onoff.bounds(from_template(template, NAMES)).lower == 1
    assert onoff.bounds(from_template("sticky", NAMES)).lower > 2


def test_the_first_sources_are_the_popular_ones() -> None:
    row = from_template("popular", NAMES).dense()[2]
    assert row.tolist() == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25])


def test_what_cannot_be_made_is_said() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'sticky'"):
        from_template("stiky", NAMES)
    for names in (["a"], [str(k) for k in range(MOST_TEMPLATE_SOURCES + 1)]):
        with pytest.raises(InvalidInput, match=f"a model of {len(names)} sources"):
            from_template("uniform", names)
