"""Tables on disk: used again when they fit to the last unit, and built anew when anything is wrong."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.support.typed import present

from onoff import MarkovChain, Session
from onoff.lab import families
from onoff.model.bounds import lower_bound
from onoff.model.certificate import to_json
from onoff.model.rows import Rows
from onoff.schemes import design
from onoff.session.session import TableCache
from onoff.tables.files import load_table, read_table, save_table, table_path, write_table

FIXTURES = Path(__file__).parent.parent / "fixtures" / "v0.1"


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


def relabelled(path, change):
    """The file with its label changed by `change`."""
    with np.load(path) as stored:
        arrays = dict(stored)
    label = json.loads(str(arrays["label"]))
    change(label)
    np.savez(path, **{**arrays, "label": np.array(json.dumps(label))})


@pytest.mark.parametrize("bound", ["100", "-1", "nan", "1/0", None, 1.5, "1e100000000", "9" * 100_000])
def test_a_lower_bound_that_the_certificate_does_not_prove_is_not_believed(tmp_path, rows, bound):
    path = tmp_path / "t.npz"
    save_table(path, design(rows, "greedy"))
    relabelled(path, lambda label: label.update(lower_bound=bound))
    assert load_table(path, rows) is None


def test_a_table_of_version_0_1_loads_without_proven_optimality():
    rows = MarkovChain.load(FIXTURES / "chain.json").rows()
    table = read_table(FIXTURES / "table.npz", rows)
    assert (table.certificate, table.lower_bound, table.optimal) == (None, None, False)
    assert table.cost >= lower_bound(rows)


def places(value, path=()):
    """Where the numbers of a JSON document stand."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path


def nudged(document, path, by):
    """The document with one number changed."""
    document = json.loads(json.dumps(document))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] += by
    return document


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("family", ["sets", "tree", "rows", "hits", "parts"])
def test_breaking_a_certificate_in_any_field_is_caught(tmp_path, family):
    """Whatever number is changed, the file is refused or still proves just what it said."""
    rng = np.random.default_rng(4)  # and no search below takes a second of its budget, but compiling may
    if family == "rows":
        possible = (Rows.of(families.dirichlet(5, 10.0, np.random.default_rng(seed))) for seed in range(30))
        rows = next(rows for rows in possible if design(rows, "enumerated").cost > lower_bound(rows) + 1e-4)
        table = design(rows, "enumerated")
    elif family in ("hits", "parts"):
        rows = Rows.of(families.torus({"hits": 5, "parts": 6}[family]))
        table = design(rows, "optimal", budget=600.0)
    else:
        n, degree, seed = {"sets": (8, 3, 6), "tree": (24, 3, 0)}[family]
        rows = Rows.of(families.out_degree(n, degree, np.random.default_rng(seed)))
        table = design(rows, "optimal", budget=600.0)
    kind = to_json(table.certificate)
    assert {"sets": "t", "tree": "t", "rows": "phi", "hits": "least", "parts": "proofs"}[family] in kind
    assert family != "tree" or len(kind["tree"]) > 1
    path = tmp_path / "t.npz"
    write_table(path, table)
    with np.load(path) as stored:
        arrays = dict(stored)
    label = json.loads(str(arrays["label"]))
    where = list(places(label["certificate"]))
    chosen = [where[at] for at in rng.permutation(len(where))[:25]]
    chosen += [(name,) for name in ("t", "scale") if name in label["certificate"]]
    refused = 0
    for place in chosen:
        for by in (1, -1, 2**38, -(2**38)):
            broken = {**label, "certificate": nudged(label["certificate"], place, by)}
            np.savez(path, **{**arrays, "label": np.array(json.dumps(broken))})
            found = load_table(path, rows)
            refused += found is None
            assert found is None or present(found.proven_bound) == present(table.proven_bound) <= table.exact_cost
    for field in label["certificate"]:
        broken = {key: value for key, value in label["certificate"].items() if key != field}
        np.savez(path, **{**arrays, "label": np.array(json.dumps({**label, "certificate": broken}))})
        assert load_table(path, rows) is None
    assert refused > len(chosen)


@pytest.mark.parametrize("name", ["doeblin", "pairs", "inner", 1, None])
def test_a_simple_bound_under_another_name_is_caught(tmp_path, rows, name):
    path = tmp_path / "t.npz"
    save_table(path, design(rows, "greedy"))
    relabelled(path, lambda label: label["certificate"].update(name=name))
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
        "onoff.session.session.design",
        lambda rows, *a, **k: built.append(rows.m) or design(rows, *a, **k),  # type: ignore[func-returns-value]
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
