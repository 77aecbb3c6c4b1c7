"""Learning: estimates equal hand counts, and the report says what they are worth."""

import itertools
import json
import zipfile
from collections import Counter

import numpy as np
import pytest
from tests.support.data import MSNBC, needs_msnbc
from tests.support.typed import as_a

from onoff.errors import InvalidInput
from onoff.lab.families import dirichlet
from onoff.model import learn as module
from onoff.model.chain import MarkovChain
from onoff.model.contexts import RequestModel
from onoff.model.learn import learn
from onoff.model.traces import Options, Trace
from onoff.schemes import design

pytestmark = pytest.mark.slow(reason="whole experiments are run")


def learnt(path, content, options=None, **how):
    path.write_text(content)
    return learn(Trace(path, options), **how)


def test_estimates_equal_hand_counts(tmp_path):
    found = learnt(tmp_path / "t.txt", "a b a a\nb a\n", smoothing=0)
    assert found.chain.names == ("a", "b")
    assert found.counts.tolist() == [[1, 1], [2, 0]]
    assert found.chain.transition.tolist() == [[0.5, 0.5], [1, 0]]
    assert found.chain.initial.tolist() == pytest.approx([0.5, 0.5])
    smoothed = learnt(tmp_path / "t.txt", "a b a a\nb a\n", smoothing=0.5)
    assert smoothed.chain.transition.tolist() == [[0.5, 0.5], [2.5 / 3, 0.5 / 3]]


def test_interleaved_requests_count_as_their_users_sequences(tmp_path):
    """The same requests as whole lines and as single requests of users in turn."""
    rng = np.random.default_rng(1)
    lines = [rng.integers(4, size=rng.integers(1, 9)).tolist() for _ in range(60)]
    text = "\n".join(" ".join(f"s{x}" for x in line) for line in lines)
    longest = max(map(len, lines))
    turns = [(u, line[i]) for i in range(longest) for u, line in enumerate(lines) if i < len(line)]
    events = "user,source\n" + "\n".join(f"{u},s{x}" for u, x in turns)
    sources = Options(sources=[f"s{x}" for x in range(4)])
    one = learnt(tmp_path / "t.txt", text, sources)
    two = learnt(tmp_path / "t.csv", events, sources)
    by_hand = Counter(pair for line in lines for pair in itertools.pairwise(line))
    assert {(a, b): c for (a, b), c in np.ndenumerate(one.counts) if c} == by_hand
    assert (one.counts == two.counts).all()
    assert one.chain.initial.tolist() == two.chain.initial.tolist()
    assert one.chain.digest() == MarkovChain.fit(lines, one.chain.names).digest()


def test_batches_do_not_change_counts(tmp_path, monkeypatch):
    content = "user,source\n" + "".join(f"{i % 7},{'abc'[i * i % 3]}\n" for i in range(200))
    whole = learnt(tmp_path / "t.csv", content)
    monkeypatch.setattr(module, "BATCH", 3)
    assert (learnt(tmp_path / "t.csv", content).counts == whole.counts).all()


def test_orders_are_told_apart(tmp_path):
    """Independent requests, a chain, and a process of order two: the report ranks the models rightly."""
    rng = np.random.default_rng(0)
    chain = MarkovChain(dirichlet(4, 0.3, rng))
    chained = [chain.sample(20, rng) for _ in range(400)]
    independent = rng.integers(4, size=(400, 20))
    second = rng.integers(4, size=(400, 20))
    for t in range(2, 20):
        second[:, t] = np.where(rng.random(400) < 0.8, (second[:, t - 1] + second[:, t - 2]) % 4, second[:, t])
    bits = {}
    for name, lines in (("independent", independent), ("chain", chained), ("second", second)):
        text = "\n".join(" ".join(map(str, line)) for line in lines)
        fit = learnt(tmp_path / "t.txt", text).report["fit"]
        bits[name] = [fit[f"order_{order}"]["bits_held_out"] for order in range(3)]
        assert fit["scored"] == 40 * 18
        assert [fit[f"order_{order}"]["parameters"] for order in range(3)] == [3, 12, 48]
    assert max(bits["independent"]) - min(bits["independent"]) < 0.05
    assert bits["chain"][1] < bits["chain"][0] - 0.3
    assert abs(bits["chain"][2] - bits["chain"][1]) < 0.05
    assert bits["second"][2] < bits["second"][1] - 0.3


def test_order_1_likelihood_is_the_sum_over_transitions(tmp_path):
    text = "\n".join(["a b a b b"] * 9 + ["a a a"])
    found = learnt(tmp_path / "t.txt", text, smoothing=1)
    # fitted to the first nine: a->b 18, b->a 9, b->b 9; scored from the third request of a run on
    p_ab, p_ba, p_bb = 19 / 20, 10 / 20, 10 / 20
    by_hand = 9 * (np.log(p_ba) + np.log(p_ab) + np.log(p_bb))
    fit = found.report["fit"]
    assert fit["order_1"]["log_likelihood"] == pytest.approx(by_hand)
    assert fit["order_1"]["bits_held_out"] == pytest.approx(-np.log2(1 / 20))


def test_many_sources_leave_order_two_out(tmp_path):
    text = "\n".join(" ".join(f"s{(i * k) % 70}" for i in range(5)) for k in range(1, 70))
    fit = learnt(tmp_path / "t.txt", text).report["fit"]
    assert "order_2" not in fit
    assert fit["scored"] == 6 * 4


def test_rare_sources_are_put_together(tmp_path):
    found = learnt(tmp_path / "t.txt", "a b a b x a y b\n", smoothing=0, merge_rare=2)
    assert found.chain.names == ("a", "b", "other")
    assert found.counts.tolist() == [[0, 2, 1], [1, 0, 1], [1, 1, 0]]
    assert found.report["trace"]["merged_sources"] == 2
    clash = learnt(tmp_path / "t.txt", "other b other b x b\n", merge_rare=2)
    assert clash.chain.names == ("other", "b", "other sources")


def test_the_report_names_what_is_thin(tmp_path):
    found = learnt(tmp_path / "t.txt", "a b a b\n", Options(sources=["a", "b", "c"]))
    rows = found.report["rows"]
    assert rows["unseen"] == ["c"]
    assert {row["source"] for row in rows["few_observations"]} == {"a", "b", "c"}
    assert rows["fewest"] == 0
    smooth = found.report["smoothing"]
    assert smooth["added"] == 0.1
    assert smooth["unseen_transitions"] == 7
    assert smooth["rows_moved_most"] == pytest.approx(0.2 / 1.3)  # b: one request, moved by 0.2 of 1.3
    assert smooth["smallest_probability"] == pytest.approx(0.1 / 2.3)
    cost = found.report["cost"]
    assert cost["at_least"] <= cost["paper_at_most"] <= cost["everything"] == 3


def test_structural_zeros_stay(tmp_path):
    found = learnt(tmp_path / "t.txt", "a b a b\nb b\n", structural_zeros=True)
    assert found.chain.transition[0].tolist() == [0, 1]
    assert found.report["smoothing"]["structural_zeros"] is True


def test_the_file_is_a_chain_file_with_counts(tmp_path):
    found = learnt(tmp_path / "t.txt", "a b a\nb a\n")
    found.save(tmp_path / "chain.json")
    assert MarkovChain.load(tmp_path / "chain.json").digest() == found.chain.digest()
    assert json.loads((tmp_path / "chain.json").read_text())["counts"] == [[0, 1], [2, 0]]
    with pytest.raises(InvalidInput, match="No such file"):
        found.save(tmp_path / "nowhere" / "chain.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chain.json", "t.txt"]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    found = learnt(tmp_path / "t.txt", "a b a\nb a\n")
    (tmp_path / "chain.json").write_text("old")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("onoff.system.files.os.replace", full)
    with pytest.raises(InvalidInput, match="No space left on device"):
        found.save(tmp_path / "chain.json")
    assert (tmp_path / "chain.json").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("content", "how", "complaint"),
    [("a a a\n", {}, "only one source"), ("a b a\n", {"merge_rare": 99}, "only one source"), ("", {}, "no requests")],
)
def test_nothing_to_learn_is_refused(tmp_path, content, how, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        learnt(tmp_path / "t.txt", content, **how)


def test_too_many_sources_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_LEARNT_SOURCES", 3)
    with pytest.raises(InvalidInput, match="more than 3"):
        learnt(tmp_path / "t.txt", "a b c d\n")


def test_requests_are_kept_alike_whole_or_in_turns_and_not_across_private_ones(tmp_path):
    """The same people as lines, and as single requests in turn, give the same model to the last bit."""
    rng = np.random.default_rng(2)
    lines = [rng.integers(3, size=rng.integers(2, 9)).tolist() for _ in range(80)]
    (tmp_path / "t.txt").write_text("\n".join(" ".join(f"s{x}" for x in line) for line in lines))
    turns = [(u, line[i]) for i in range(9) for u, line in enumerate(lines) if i < len(line)]
    (tmp_path / "t.csv").write_text("user,source\n" + "\n".join(f"{u},s{x}" for u, x in turns))
    sources = Options(sources=["s0", "s1", "s2"])
    how = {"order": 3, "types": 1}
    one = learn(Trace(tmp_path / "t.txt", sources), **how).model
    two = learn(Trace(tmp_path / "t.csv", sources), **how).model
    assert one.digest() == two.digest()
    assert as_a(RequestModel, one).order == 3
    marked = "user,source,private\n" + "u,s0,off\nu,s1,on\nu,s2,off\nu,s0,off\n" * 3 + "v,s1,off\nv,s2,off\n"
    (tmp_path / "p.csv").write_text(marked)
    found = learn(Trace(tmp_path / "p.csv", sources), order=2, types=1)
    first = as_a(RequestModel, found.model).law(0, 0)
    assert first[0] == pytest.approx(first[1])  # u starts with s0 and v with s1; s2 after a private one starts nothing
    assert first[2] < first[0]


def test_memory_is_bounded_by_letting_whole_people_go(tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_text("a b a c\n" * 400 + "b b a\n" * 400)
    monkeypatch.setattr(module, "MOST_KEPT", 700)
    monkeypatch.setattr(module, "BATCH", 50)
    found = learn(Trace(tmp_path / "t.txt"), order=2, types=1)
    about = found.report["model"]
    assert about["share_kept"] < 0.5
    assert 700 / 8 < about["people"] <= 700 / 3
    assert found.report["trace"]["requests"] == 2800
    assert found.counts.sum() == 400 * 3 + 400 * 2


@pytest.mark.slow(reason="reads a million sequences twice")
@needs_msnbc
def test_msnbc_equals_an_independent_count_and_has_the_known_costs():
    """989,818 users; the costs of the first open request after a private one."""
    found = learn(Trace(MSNBC))
    assert found.report["trace"]["users"] == 989_818
    assert found.chain.n == 17
    assert found.chain.names[:3] == ("frontpage", "news", "tech")
    with zipfile.ZipFile(MSNBC) as packed:
        lines = packed.read("msnbc990928.seq").decode().split("\n", 7)[7]
    pages = np.array(lines.replace("\n", " 0 ").split(), dtype=np.uint8).astype(int)  # 0: the end of a visit
    pairs = np.bincount(18 * pages[:-1] + pages[1:], minlength=18 * 18).reshape(18, 18)
    assert (found.counts == pairs[1:, 1:]).all()
    cost = found.report["cost"]
    assert round(cost["paper_at_most"], 3) == 11.114
    assert round(cost["at_least"], 3) == 10.686
    assert round(design(found.chain, "optimal").cost, 3) == 10.686
    assert 10.76 < design(found.chain, "greedy").cost < 10.80
    fit = found.report["fit"]
    assert fit["order_0"]["bits_held_out"] > fit["order_1"]["bits_held_out"] > fit["order_2"]["bits_held_out"]
