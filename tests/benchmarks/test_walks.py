"""The count of hops: what is entered from another file, in every round."""

import sys

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
        walked = {(file, name): hop for file, name, hop in tracer.stop()}
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
        walked = tracer.stop()
        sys.setprofile(before)
    assert walked == []
    assert any("chain.py" in file for noted in tracer.hops for file, _ in noted)
