"""`onoff demo`: every request answered, nothing leaked, and naive switching shown for what it is."""

import json

from onoff.cli import run


def test_the_demo_shows_what_it_promises(capsys):
    assert run(["demo", "--scheme", "single", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert len(steps) == 20
    for step in steps:
        assert step["wanted"] in step["seen"]
        assert step["cost"] == len(step["seen"])
        assert step["bits"] == 0
    assert sum(step["naive"] for step in steps) > 0.5


def test_the_demo_draws(capsys):
    assert run(["demo", "--scheme", "single"]) == 0
    shown = capsys.readouterr().out
    assert "naive switching" in shown.lower()
    assert "█" in shown
