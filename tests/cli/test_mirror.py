"""`onoff mirror`: show, refresh, verify, forget; against a server on loopback."""

import json

import pytest
from tests.support import others
from tests.support.world import NAMES, World, listening

from onoff.cli import run
from onoff.client import Mirror


@pytest.fixture
def world():
    return World()


@pytest.fixture(autouse=True)
def connected(tmp_path, monkeypatch, world):
    with listening(world) as server:
        monkeypatch.setenv("ONOFF_SERVER", server.url)
        monkeypatch.setenv("ONOFF_JOURNAL", str(tmp_path / "journal"))
        yield server


def out_of(capfd, *arguments, code=0):
    assert run(["mirror", *arguments]) == code
    return capfd.readouterr()


def test_a_mirror_is_refreshed_and_shown(capfd, world, tmp_path):
    done = json.loads(out_of(capfd, "refresh", "--json").out)
    assert (done["edition"], done["changed"], done["mirror"]) == (4, list(NAMES), str(tmp_path / "journal.mirror"))
    world.publish("beta", b"second")
    assert out_of(capfd, "refresh").out.startswith("edition 5: 1 changed")
    asked = len(world.requests)
    shown = json.loads(out_of(capfd, "show", "--json").out)
    assert (shown["edition"], [source["version"] for source in shown["sources"]]) == (5, [1, 2, 1, 1])
    assert shown["size"] == sum(len(message.body) for message in world.messages.values())
    text = out_of(capfd, "show").out
    assert "edition 5" in text
    assert "1970-01-01 00:00:01" in text
    assert len(world.requests) == asked


def test_a_mirror_is_verified_and_forgotten(capfd, tmp_path):
    out_of(capfd, "refresh")
    path = tmp_path / "journal.mirror"
    assert json.loads(out_of(capfd, "verify", "--json").out) == {"mirror": str(path), "sound": True, "damage": None}
    assert "sound" in out_of(capfd, "verify").out
    content = path.read_bytes()
    path.write_bytes(content.replace(b"first of gamma", b"wrong of gamma"))
    told = json.loads(out_of(capfd, "verify", "--json", code=1).out)
    assert told["sound"] is False
    assert "damaged" in told["damage"]
    assert json.loads(out_of(capfd, "forget", "--json").out) == {"removed": [str(path)]}
    assert "There was no mirror." in out_of(capfd, "forget").out
    for command in ("show", "verify"):
        assert "there is no mirror yet" in "".join(out_of(capfd, command, code=1))


def test_a_mirror_that_is_in_use_is_not_forgotten(capfd, tmp_path):
    mirror = Mirror(tmp_path / "journal.mirror")
    assert "in use by another client" in out_of(capfd, "forget", code=1).err
    assert mirror.path.exists()
    mirror.close()


def test_another_place_can_be_given(capfd, tmp_path):
    out_of(capfd, "refresh", "--mirror", str(tmp_path / "elsewhere"))
    assert (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "journal.mirror").exists()


@pytest.mark.parametrize("made", [others.document, others.database])
@pytest.mark.parametrize("command", ["show", "verify", "forget"])
def test_a_file_that_is_no_mirror_is_refused_and_left_alone(capfd, tmp_path, made, command):
    path = made(tmp_path / "others" / "file")
    before = others.all_of(path.parent)
    assert "onoff: " in out_of(capfd, command, "--mirror", str(path), code=1).err
    assert others.all_of(path.parent) == before
