"""One rule for the names of sources: what a chain takes a server takes, and the other way round."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.typed import present

from onoff.errors import InvalidChain, InvalidWire
from onoff.model.chain import MarkovChain
from onoff.names import name_problem
from onoff.wire import Catalogue

GOOD = ["x", "x" * 256, "é", "con", "🙂", "a.b", "..a", "%2e%2e", "1e1", "-1", "a b", "東京", "<b>"]
BAD = [
    *("", " ", "x" * 257, "é" * 129, "e\u0301", "a\x00b", "a\nb", "\x1b[31m", "a\u202eb", "a\u200bb", "a\u2028b"),
    *("../x", "a/b", "a\\b", ".", "..", " a", "a ", "\ud800", "\u00a0a"),
]


def chain_takes(name: str) -> bool:
    try:
        MarkovChain([[1.0]], names=[name])
    except InvalidChain as error:
        return not error.hint
    return True


def server_takes(name: str) -> bool:
    try:
        Catalogue((name,))
    except InvalidWire as error:
        return not error.hint
    return True


@pytest.mark.parametrize("name", GOOD)
def test_good_names_are_taken_everywhere(name):
    assert name_problem(name) is None
    assert chain_takes(name)
    assert server_takes(name)


@pytest.mark.parametrize("name", BAD)
def test_bad_names_are_refused_everywhere_with_a_hint(name):
    assert present(name_problem(name)).hint
    assert not chain_takes(name)
    assert not server_takes(name)


PIECES = ["a", "é", "e\u0301", " ", "/", "\\", ".", "\x00", "\u200b", "\u2028", "\ud800", "東", "%", "\t", "🙂"]


@given(st.text(max_size=9) | st.lists(st.sampled_from(PIECES), max_size=5).map("".join))
@settings(max_examples=500)
def test_a_chain_and_a_server_agree_about_every_name(name):
    taken = name_problem(name) is None
    assert chain_takes(name) == server_takes(name) == taken
    assert not taken or name == unicodedata.normalize("NFC", name.strip())


@pytest.mark.parametrize("name", [None, 7, b"x", ["x"]])
def test_what_is_not_text_is_no_name(name):
    assert "not text" in present(name_problem(name)).message
