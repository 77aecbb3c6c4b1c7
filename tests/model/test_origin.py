"""Where a model comes from, as its file says."""

import pytest

from onoff.model.chain import MarkovChain
from onoff.model.contexts import RequestModel
from onoff.model.origin import about_of, origin_in_words

P = [[0.5, 0.5], [0.2, 0.8]]


def test_what_a_file_says_is_read_from_every_kind(tmp_path):
    chain = MarkovChain(P)
    chain.save(tmp_path / "c.json", remarks={"about": {"guess": "sticky"}})
    assert about_of(tmp_path / "c.json") == {"guess": "sticky"}
    chain.save(tmp_path / "plain.json")
    assert about_of(tmp_path / "plain.json") == {}
    (tmp_path / "c.csv").write_text("0.5,0.5\n0.2,0.8\n")
    assert about_of(tmp_path / "c.csv") == {}
    model = RequestModel.fit([["a", "b", "a", "b", "b", "a"]] * 3, order=2, types=1)
    model.save(tmp_path / "m.npz")
    assert about_of(tmp_path / "m.npz") == model.about != {}


@pytest.mark.parametrize(
    ("about", "says"),
    [
        (
            {"trace": {"whose": "own", "since": 0.0, "requests": 120, "users": 1}},
            "Learnt from 120 requests of your own while OFF since 1970-01-01.",
        ),
        ({"trace": {"requests": 1, "users": 1}}, "Learnt from 1 request of 1 person."),
        ({"trace": {"file": "x"}}, "Its file does not say what it was learnt from."),
        ({"trace": "nonsense"}, "Its file does not say what it was learnt from."),
    ],
)
def test_it_is_said_in_words(about, says):
    assert origin_in_words(about) == says
