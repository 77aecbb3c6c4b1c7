"""The count of hops: what is entered from another file, in every round."""

import sys
from pathlib import Path

import pytest

import onoff
from benchmarks import walks


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "SETTLING_SECONDS", 0)


def test_a_hop_is_entered_from_another_file() -> None:
    before, flag = sys.getprofile(), [0]
    tracer = walks.Tracer(flag)
    try:
        walks.rounds(flag, lambda _: onoff.bounds([[0.5, 0.5], [0.25, 0.75]]), warm_up=1)
    finally:
        walked = {(file, name): hop for file, name, hop in tracer.stop().functions}
        sys.setprofile(before)
    assert walked["model/bounds.py", "bounds"]  # from outside the package
    assert walked["model/rows.py", "Rows.of"]  # from bounds
    assert walked["model/rows.py", "to_units"] is False  # from its own file
    assert not any("<" in name for _, name in walked)


def test_what_is_not_in_every_round_does_not_count() -> None:
    before, flag = sys.getprofile(), [0]
    tracer = walks.Tracer(flag)
    try:
        walks.rounds(flag, lambda step: step == 2 and onoff.MarkovChain([[1.0]]), warm_up=1)
    finally:
        walked = tracer.stop().functions
        sys.setprofile(before)
    assert walked == []
    assert any("chain.py" in file for noted in tracer.hops for file, _ in noted)


@pytest.mark.slow(reason="servers and gateways are started and asked some forty times under a profiler")
@pytest.mark.parametrize(
    ("walk", "rooms"),
    [("off", {"client"}), ("design", {"cli"}), ("server", {"server"}), ("click", {"gateway", "client"})],
)
def test_the_script_walks(walk: str, rooms: set[str]) -> None:
    walked = walks.walk_through(walk, Path(onoff.__file__).parents[1])
    hops = [(file, name) for file, name, hop in walked.functions if hop]
    assert rooms <= {file.split("/")[0] for file, _ in hops}
    assert "MainThread" in walked.threads
    if walk == "click":  # what the page opens, not what it offers to other programs
        assert any(file == "gateway/app.py" and name.endswith("entries") for file, name in hops)
    figures = walks.count({walk: walked})
    assert all(figure["functions"] >= figure["hops"] >= figure["files"] > 0 for figure in figures.values())
