"""Tables on disk: used again when they fit to the last unit, and built anew when anything is wrong."""

import numpy as np
import pytest

from onoff import MarkovChain, Session
from onoff.experiments import families
from onoff.model.rows import Rows
from onoff.schemes import design
from onoff.session.cache import TableCache
from onoff.tables.files import load_table, save_table, table_path


@pytest.fixture
def rows():
    return Rows.of(families.dirichlet(6, 1.0, np.random.default_rng(1)))


def test_a_table_comes_back_as_it_was(tmp_path, rows):
    table = design(rows, "optimal")
    save_table(tmp_path / "deep" / "t.npz", table)
    again = load_table(tmp_path / "deep" / "t.npz", rows)
    assert again is not None
    assert again.as_dict() == table.as_dict()
    assert (again.lower_bound, again.scheme, again.optimal) == (table.lower_bound, "optimal", True)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["t.npz"]


def test_what_does_not_fit_is_as_good_as_none(tmp_path, rows):
    path = tmp_path / "t.npz"
    assert load_table(path, rows) is None
    save_table(path, design(rows, "optimal"))
    other = Rows.of(families.dirichlet(6, 1.0, np.random.default_rng(2)))
    assert load_table(path, other) is None
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"not a file of ours", whole[:-1]):
        path.write_bytes(damaged)
        assert load_table(path, rows) is None


def test_damage_anywhere_is_as_good_as_no_file(tmp_path, rows):
    path = tmp_path / "t.npz"
    table = design(rows, "optimal")
    save_table(path, table)
    whole, rng = path.read_bytes(), np.random.default_rng(1)
    for at in rng.integers(len(whole), size=300).tolist():
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        found = load_table(path, rows)
        assert found is None or found.as_dict() == table.as_dict()


@pytest.mark.parametrize("bound", [100.0, -1.0, float("nan"), float("inf"), "1"])
def test_a_lower_bound_that_cannot_be_one_is_not_believed(tmp_path, rows, bound):
    path = tmp_path / "t.npz"
    save_table(path, design(rows, "greedy").labelled(lower_bound=bound))
    assert load_table(path, rows) is None


def test_a_file_that_could_not_be_put_in_place_leaves_nothing_behind(tmp_path, rows):
    path = tmp_path / "t.npz"
    path.mkdir()
    save_table(path, design(rows, "greedy"))
    assert list(tmp_path.iterdir()) == [path]


def test_a_table_that_leaks_by_one_unit_is_not_used(tmp_path, rows):
    path = tmp_path / "t.npz"
    save_table(path, design(rows, "optimal"))
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["weights"] = arrays["weights"].copy()
    arrays["weights"][0] += 1
    np.savez(path, **arrays)
    assert load_table(path, rows) is None


def test_the_name_depends_on_everything_that_the_table_does(tmp_path):
    names = {
        table_path(tmp_path, digest, scheme, options)
        for digest in ("a", "b")
        for scheme in ("optimal", "auto")
        for options in ({}, {"budget": 1.0})
    }
    assert len(names) == 8


def test_sessions_keep_the_first_table_only(tmp_path, monkeypatch):
    chain = MarkovChain(families.dirichlet(6, 1.0, np.random.default_rng(3)))
    built = []
    monkeypatch.setattr(
        "onoff.session.cache.design", lambda rows, *a, **k: built.append(rows.m) or design(rows, *a, **k)
    )
    for _ in range(2):
        session = Session(chain, scheme="optimal", store=tmp_path)
        session.request(0, private=True)
        query = session.request(1, private=False)
        if len(query) > 1:
            session.prepare()
    assert built[0] == 6
    assert 6 not in built[1:]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_store_that_cannot_be_written_is_done_without(tmp_path):
    (tmp_path / "file").write_text("in the way")
    chain = MarkovChain(families.dirichlet(4, 1.0, np.random.default_rng(4)))
    session = Session(chain, scheme="optimal", store=tmp_path / "file")
    session.request(0, private=True)
    assert 1 in session.request(1, private=False)


def test_looking_ahead_can_be_turned_off():
    chain = MarkovChain(families.dirichlet(6, 1.0, np.random.default_rng(5)))
    assert TableCache(chain, "auto").look_ahead
    assert not TableCache(chain, "auto", look_ahead=False).look_ahead
    assert not TableCache(chain, "greedy").look_ahead
