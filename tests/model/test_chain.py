"""MarkovChain: checked in full, one exact rounding, files, laws, learning."""

import io
import json

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix, save_npz
from scipy.stats import binom

from onoff.errors import InvalidChain, UnknownSource
from onoff.model.chain import LARGEST_DENSE, MarkovChain, count_transitions
from onoff.model.rows import UNIT

P2 = [[0.8, 0.2], [0.2, 0.8]]
P3 = [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]
SPARSE = [[0.5, 0.5, 0, 0], [0, 0, 1, 0], [0.25, 0, 0, 0.75], [0, 0, 0, 1]]


def test_defaults_are_numbered_names_and_a_uniform_start():
    chain = MarkovChain(P3)
    assert chain.names == ("source-1", "source-2", "source-3")
    assert chain.initial.tolist() == [1 / 3] * 3
    assert not chain.is_sparse
    assert "3 sources" in repr(chain)


def test_the_matrix_is_the_chains_own():
    given = np.array(P2)
    chain = MarkovChain(given)
    given[0] = 0.5
    assert chain.dense().tolist() == P2
    with pytest.raises(ValueError, match="read-only"):
        chain.transition[0, 0] = 1


@pytest.mark.parametrize("make", [np.array, csr_matrix], ids=["dense", "sparse"])
def test_dense_and_sparse_chains_agree(make):
    chain = MarkovChain(make(SPARSE))
    assert chain.is_sparse == (make is csr_matrix)
    assert chain.successors([0, 1]).tolist() == [0, 1, 2]
    rows = chain.rows([2, 0])
    assert rows.columns.tolist() == [0, 1, 3]
    assert rows.weights.tolist() == [[UNIT // 4, 0, 3 * UNIT // 4], [UNIT // 2, UNIT // 2, 0]]
    squared = chain.power(2)
    squared = squared if isinstance(squared, np.ndarray) else squared.toarray()
    assert squared == pytest.approx(np.linalg.matrix_power(np.array(SPARSE), 2))
    assert chain.stationary() == pytest.approx([0, 0, 0, 1], abs=1e-6)
    assert chain.digest() == MarkovChain(SPARSE).digest()


def test_rows_of_a_set_are_the_same_integers_whatever_the_set():
    chain = MarkovChain(np.random.default_rng(1).dirichlet(np.ones(7), size=7))
    everything = chain.rows()
    for states in ([3], [6, 3], [0, 3, 5]):
        rows = chain.rows(states)
        assert [rows.weight(states.index(3), x) for x in range(7)] == [everything.weight(3, x) for x in range(7)]


def test_stationary_law_of_a_periodic_and_of_a_reducible_chain():
    assert MarkovChain([[0, 1], [1, 0]]).stationary() == pytest.approx([0.5, 0.5])
    law = MarkovChain(np.eye(3)).stationary()
    assert law @ np.eye(3) == pytest.approx(law)
    assert law.sum() == pytest.approx(1)


def test_sampling_follows_the_chain_and_the_seed():
    """Error probability 2e-9: exact binomial interval for the 0 -> 1 transitions among 20,000."""
    chain = MarkovChain(P2, initial=[1, 0])
    path = chain.sample(20_000, np.random.default_rng(5))
    assert path[0] == 0
    assert chain.sample(100, np.random.default_rng(5)).tolist() == path[:100].tolist()
    assert chain.sample(3, np.random.default_rng(5), start=1)[0] == 1
    counts, first = count_transitions([path], 2)  # type: ignore[list-item]
    assert first.tolist() == [1, 0]
    leaving = int(counts[0].sum())
    assert binom.ppf(1e-9, leaving, 0.2) <= counts[0, 1] <= binom.ppf(1 - 1e-9, leaving, 0.2)


def test_sources_are_found_by_name_and_by_number():
    chain = MarkovChain(P2, names=["news", "sport"])
    assert chain.index("sport") == chain.index(1) == chain.index(np.int64(1)) == 1
    with pytest.raises(UnknownSource, match="did you mean 'sport'"):
        chain.index("sports")
    for bad in (-1, 2, 2**63, True, 1.0, None):
        with pytest.raises(UnknownSource, match="sources are 0 to 1"):
            chain.index(bad)


def test_an_unknown_source_is_not_repeated_in_the_error():
    with pytest.raises(UnknownSource) as caught:
        MarkovChain(P2).index("my-secret-interest")
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(caught.value)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"transition": [[0.5, 0.5]]}, "1 rows and 2 columns"),
        ({"transition": csr_matrix([[0.5, 0.5]])}, "1 rows and 2 columns"),
        ({"transition": csr_matrix([[0.5, 0.4], [0, 1]])}, "row 0 sums to 0.9"),
        ({"transition": csr_matrix([[1.5, -0.5], [0, 1]])}, "row 0, column 1: -0.5"),
        ({"transition": csr_matrix([[1.0, 0], [0, np.nan]])}, "row 1, column 1: nan"),
        ({"transition": csr_matrix(([1.0, 1.0], [0, 2], [0, 1, 2]), shape=(2, 2))}, "not a CSR matrix"),
        ({"transition": csr_matrix(([1.0, 1.0], [0, -1], [0, 1, 2]), shape=(2, 2))}, "not a CSR matrix"),
        ({"transition": 3}, "not a matrix"),
        ({"transition": P2, "names": ["a"]}, "1 names for 2 sources"),
        ({"transition": P2, "names": "ab"}, "one text, not a list"),
        ({"transition": P2, "names": ["a", "a"]}, "names 0 and 1 are both 'a'"),
        ({"transition": P2, "names": ["a", " "]}, "name 1 is empty"),
        ({"transition": P2, "names": ["a", 3]}, "name 1 is empty or not text"),
        ({"transition": P2, "names": ["a", "b\n"]}, "name 1 holds a control"),
        ({"transition": P2, "names": ["a", "\u202eb"]}, "name 1 holds a control"),
        ({"transition": P2, "names": ["a", "e\u0301"]}, "name 1 is not in Unicode normal form"),
        ({"transition": P2, "names": ["a", "b" * 257]}, "name 1 is longer"),
        ({"transition": P2, "initial": [1.0]}, "1 entries for 2"),
        ({"transition": P2, "initial": [0.5, 0.4]}, "initial law: row 0 sums"),
        ({"transition": P2, "initial": 3}, "not a list"),
    ],
)
def test_bad_chains_are_refused(arguments, complaint):
    with pytest.raises(InvalidChain, match=complaint):
        MarkovChain(**arguments)


def test_a_dense_matrix_that_is_too_large_is_refused_before_it_is_copied():
    huge = np.broadcast_to(np.float64(1 / (LARGEST_DENSE + 1)), (LARGEST_DENSE + 1, LARGEST_DENSE + 1))
    with pytest.raises(InvalidChain, match="too many"):
        MarkovChain(huge)


def packed(write, *arrays):
    """What `write` writes into a file."""
    file = io.BytesIO()
    write(file, *arrays)
    return file.getvalue()


class TestFiles:
    def test_saving_and_loading_moves_nothing_however_often(self, tmp_path):
        """A journal and every kept table are bound to the digest, so a chain must be the same from its own file."""
        rng = np.random.default_rng(3)
        for n in range(2, 30):
            for initial in (None, rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(n)) * (1 + 5e-10)):
                chain = MarkovChain(rng.dirichlet(np.ones(n), size=n), initial=initial)
                chain.save(tmp_path / "chain.json")
                assert MarkovChain.load(tmp_path / "chain.json").digest() == chain.digest()

    @pytest.mark.parametrize(
        ("make", "names"), [(np.array, ("c.npz", "c.csv", "c.npy")), (csr_matrix, ("c.json", "c"))]
    )
    def test_a_name_that_says_another_format_is_refused(self, tmp_path, make, names):
        for name in names:
            with pytest.raises(InvalidChain, match="another format"):
                MarkovChain(make(SPARSE)).save(tmp_path / name)
        assert list(tmp_path.iterdir()) == []

    def test_damage_anywhere_in_a_sparse_file_is_told_as_such(self, tmp_path):
        n = 200
        chain = MarkovChain(csr_matrix(np.eye(n)), names=[f"n{x}" for x in range(n)])
        path = tmp_path / "c.npz"
        chain.save(path)
        whole, rng, refused = path.read_bytes(), np.random.default_rng(1), []
        for at in rng.integers(len(whole), size=200).tolist():
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
            try:
                assert MarkovChain.load(path).digest() == chain.digest()
            except InvalidChain as error:
                refused.append(error.message.startswith(str(path)))
        assert len(refused) > 100
        assert all(refused)

    @pytest.mark.parametrize(
        ("name", "text"), [("c.json", "[[0.8, 0.2], [0.2, 0.8]]"), ("c.csv", "0.8,0.2\n0.2,0.8\n")]
    )
    def test_the_mark_of_windows_editors_is_no_part_of_a_file(self, tmp_path, name, text):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        assert MarkovChain.load(tmp_path / name).digest() == MarkovChain(P2).digest()

    def test_json_round_trip(self, tmp_path):
        chain = MarkovChain(P3, names=["a", "b", "ü"], initial=[0.5, 0.5, 0])
        chain.save(tmp_path / "chain.json")
        assert MarkovChain.load(tmp_path / "chain.json").digest() == chain.digest()

    def test_sparse_round_trip(self, tmp_path):
        chain = MarkovChain(csr_matrix(SPARSE), names=list("abcd"), initial=[1, 0, 0, 0])
        chain.save(tmp_path / "chain.npz")
        again = MarkovChain.load(tmp_path / "chain.npz")
        assert again.is_sparse
        assert again.digest() == chain.digest()

    def test_what_scipy_saves_is_read(self, tmp_path):
        save_npz(tmp_path / "c.npz", csr_array(SPARSE))
        assert MarkovChain.load(tmp_path / "c.npz").digest() == MarkovChain(SPARSE).digest()

    def test_csv_npy_and_bare_json(self, tmp_path):
        (tmp_path / "c.csv").write_text("0.8,0.2\n0.2,0.8\n")
        np.save(tmp_path / "c.npy", np.array(P2))
        (tmp_path / "c.json").write_text(json.dumps(P2))
        digests = {MarkovChain.load(tmp_path / f"c.{kind}").digest() for kind in ("csv", "npy", "json")}
        assert digests == {MarkovChain(P2).digest()}

    def test_the_digest_depends_on_every_part(self):
        digests = {
            MarkovChain(P2).digest(),
            MarkovChain(P2, names=["a", "b"]).digest(),
            MarkovChain(P2, initial=[1, 0]).digest(),
            MarkovChain([[0.8, 0.2], [0.2 + 1e-15, 0.8]]).digest(),
        }
        assert len(digests) == 4

    @pytest.mark.parametrize(
        ("name", "content", "complaint"),
        [
            ("c.json", b"", "line 1, column 1"),
            ("c.json", b"[" * 100_000, "nested too deeply"),
            ("c.json", b'{"a": ' * 100_000, "nested too deeply"),
            ("c.json", b"\xff", "byte 0 is not UTF-8"),
            ("c.json", b"{}", 'no "transition"'),
            ("c.json", b'{"transition": 3}', "not a list"),
            ("c.json", b'{"transition": [[1]], "name": ["a"]}', "unknown key 'name'.*did you mean 'names'"),
            ("c.json", b'{"transition": [[1]], "transition": [[1]]}', "occurs twice"),
            ("c.json", b'{"transition": [[NaN]]}', "row 0, column 0: nan"),
            ("c.json", b'{"transition": [[1], [1]]}', "2 rows and 1 columns"),
            ("c.json", b'{"transition": [["1/3"]]}', "row 0, column 0: '1/3' is not a number"),
            ("c.csv", b"1,x\n", "row 0, column 1: 'x' is not a number"),
            ("c.csv", b"", "not a matrix"),
            ("c.npy", b"garbage", "not a .npy matrix"),
            ("c.npz", b"garbage", "not a sparse .npz matrix"),
            ("c.npz", packed(np.save, np.eye(2)), "not a sparse .npz matrix"),
            ("c.npz", packed(np.savez, np.eye(2)), "unknown part 'arr_0'"),
            ("c.npz", packed(save_npz, csr_matrix(P2).tocsc()), "its format is b'csc'"),
            ("c.npy", packed(np.savez, np.eye(2)), "not a .npy matrix: several arrays"),
            ("c.npy", packed(np.save, np.float64(1)), "not a matrix"),
            ("c.json", b'{"transition": [[1%s]]}' % (b"0" * 5000), "digits"),
            ("c.json", b'{"transition": [[1%s]]}' % (b"0" * 400), "too large"),
        ],
    )
    def test_bad_files_are_refused_by_place(self, tmp_path, name, content, complaint):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidChain, match=complaint):
            MarkovChain.load(tmp_path / name)

    def test_a_missing_file_and_a_huge_one(self, tmp_path, monkeypatch):
        with pytest.raises(InvalidChain, match="No such file"):
            MarkovChain.load(tmp_path / "nothing.json")
        monkeypatch.setattr("onoff.model.chain.LARGEST_FILE", 3)
        (tmp_path / "c.json").write_text(json.dumps(P2))
        with pytest.raises(InvalidChain, match="more than the 3"):
            MarkovChain.load(tmp_path / "c.json")


class TestFit:
    def test_counts_with_smoothing(self):
        chain = MarkovChain.fit([["a", "b", "a"], ["a", "a"]], smoothing=1)
        assert chain.names == ("a", "b")
        # from a: b once, a once; from b: a once; each count raised by one
        assert chain.transition == pytest.approx(np.array([[2 / 4, 2 / 4], [2 / 3, 1 / 3]]))
        assert chain.initial == pytest.approx([3 / 4, 1 / 4])

    def test_zeros_only_where_asked_for(self):
        chain = MarkovChain.fit([[0, 1, 0, 1]], smoothing=0.5, structural_zeros=True)
        assert chain.dense().tolist() == [[0, 1], [1, 0]]
        assert (MarkovChain.fit([[0, 1, 0, 1]]).dense() > 0).all()

    def test_names_fix_sources_that_were_never_seen(self):
        chain = MarkovChain.fit([["b"]], names=["a", "b", "c"])
        assert chain.dense().tolist() == [[1 / 3] * 3] * 3

    @pytest.mark.parametrize(
        ("sequences", "options", "error"),
        [
            ([], {}, InvalidChain),
            ([[]], {}, InvalidChain),
            ([["a"]], {"smoothing": -1}, InvalidChain),
            ([["a"]], {"smoothing": float("nan")}, InvalidChain),
            ([["a"]], {"names": ["b"]}, UnknownSource),
            ([[3]], {"names": ["b"]}, UnknownSource),
        ],
    )
    def test_bad_input(self, sequences, options, error):
        with pytest.raises(error):
            MarkovChain.fit(sequences, **options)

    def test_counts_that_are_no_matrix(self):
        with pytest.raises(InvalidChain, match="not a matrix"):
            MarkovChain.from_counts([1, 2])
