"""The benchmark of the client measures what it says, in few rounds."""

import json

import pytest

from benchmarks import client


@pytest.mark.slow(reason="programs are started and waited for")
def test_it_times_both_in_turns_and_imports_nothing_heavy(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "IMPORTS", 1)
    monkeypatch.setattr(client, "MODEL_STEPS", 12)
    result = client.run(rounds=5)
    assert result["ratio"] == result["draw_and_commit_ms"] / result["bare_commit_ms"]
    assert result["heavy_imports"] == []
    assert json.loads(json.dumps(result)) == result
    assert "draw and commit of a request" in client.show(result)
    ratio = result["model_step_cpu_ms"] / result["model_greedy_step_cpu_ms"]
    assert result["model_step_ratio"] == pytest.approx(ratio)
    assert "24 types of order 2, 17 sources" in client.show(result)
    assert list(tmp_path.iterdir()) == []
