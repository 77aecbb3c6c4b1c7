"""The benchmark of web sites: each way makes the same requests, and OFF stands beside curl for the same addresses."""

import shutil

import pytest

from benchmarks import upstreams as benchmark

pytestmark = pytest.mark.slow(reason="a benchmark is run, if a small one")


def test_a_day_is_counted_for_each_way():
    cases = [benchmark.Case("departures", 8), benchmark.Case("weather", 6)]
    report = benchmark.run(cases=cases, days=1, rounds=0)
    departures, weather = (each["ways"] for each in report["cases"])
    assert departures["naive"]["requests"] == 19 + 5 * 8  # what is private is five of 24
    assert departures["always ON"]["requests"] == 24 * 8
    assert {one["requests"] for one in weather.values()} == {24}  # a set is one request
    for ways in (departures, weather):
        naive, onoff, always = (ways[way]["bytes"] for way in benchmark.WAYS)
        assert naive <= onoff <= always
    assert report["ok"] == (departures["onoff"]["requests"] <= 24 * 8)
    assert "departures     N = 8" in benchmark.show(report)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
@pytest.mark.parametrize("after_private", [False, True])
def test_an_off_request_stands_beside_curl(after_private):
    found = benchmark.beside_curl(2, 2, after_private=after_private, delay=0.0)
    assert found["sources"] >= 1
    assert found["ratio"] == pytest.approx(found["onoff_ms"] / found["curl_ms"])
