"""The switch: durable, timed, and ON in doubt."""

import json
import os
import stat

import pytest

from onoff.errors import InvalidInput, JournalWriteFailed
from onoff.gateway.switch import LONGEST_TIMER, UNREADABLE, Position, Switch


class Clock:
    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "journal.switch.json"


def test_it_begins_with_on(path, clock):
    assert Switch(path, clock).position == Position(private=True)


def test_what_was_turned_is_there_after_a_restart(path, clock):
    Switch(path, clock).turn(private=False)
    assert Switch(path, clock).position == Position(private=False)
    Switch(path, clock).turn(private=True, seconds=60)
    assert Switch(path, clock).position == Position(private=True, until=1060)


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("restart", [True, False])
def test_a_timer_turns_it_back_at_its_moment_and_says_so(path, clock, private, restart):
    switch = Switch(path, clock)
    switch.turn(private=private, seconds=60)
    clock.now = 1059.999
    switch = Switch(path, clock) if restart else switch
    assert switch.position == Position(private, until=1060)
    clock.now = 1060
    switch = Switch(path, clock) if restart else switch
    assert switch.position == Position(not private, ran_out=1060)


def test_a_clock_that_is_put_back_does_not_turn_it_back_again(path, clock):
    switch = Switch(path, clock)
    switch.turn(private=True, until=1060)
    clock.now = 2000
    assert not switch.position.private
    clock.now = 1000
    assert not switch.position.private


def test_turning_ends_a_timer(path, clock):
    switch = Switch(path, clock)
    switch.turn(private=False, seconds=60)
    switch.turn(private=False)
    clock.now = 9999
    assert switch.position == Position(private=False)


@pytest.mark.parametrize(
    "when",
    [
        {"seconds": 0},
        {"seconds": -1},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"until": 999.0},
        {"until": 1000.0},
        {"until": 1001 + LONGEST_TIMER},
        {"seconds": 5, "until": 2000},
    ],
)
def test_a_timer_that_makes_no_sense_changes_nothing(path, clock, when):
    switch = Switch(path, clock)
    before = path.read_bytes()
    with pytest.raises(InvalidInput):
        switch.turn(private=False, **when)
    assert switch.position.private
    assert path.read_bytes() == before


def test_the_file_is_for_its_owner_and_replaced_whole(path, clock):
    switch = Switch(path, clock)
    before = path.stat().st_ino
    switch.turn(private=False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.stat().st_ino != before
    assert os.listdir(path.parent) == [path.name]


def test_the_tokens_stay(path, clock):
    tokens = Switch(path, clock).tokens
    switch = Switch(path, clock)
    switch.turn(private=False)
    assert switch.tokens == tokens == Switch(path, clock).tokens
    assert tokens.page != tokens.app
    assert tokens.page not in repr(tokens)
    path.unlink()
    assert not {tokens.page, tokens.app} & {Switch(path, clock).tokens.page, Switch(path, clock).tokens.app}


def test_a_file_without_a_page_token_is_given_one_that_stays(path, clock):
    path.parent.mkdir()
    path.write_text(json.dumps({name: value for name, value in GOOD.items() if name != "page_token"}))
    switch = Switch(path, clock)
    assert (switch.tokens.app, switch.note) == ("x" * 32, None)
    assert Switch(path, clock).tokens == switch.tokens


GOOD = {"version": 1, "private": False, "until": None, "app_token": "x" * 32, "page_token": "y" * 32}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        *(
            json.dumps(GOOD | change).encode()
            for change in (
                {"version": 2},
                {"private": 0},
                {"private": None},
                {"until": "soon"},
                {"until": float("nan")},
                {"until": -1},
                {"until": 1e300},
                {"until": 10**400},
                {"app_token": ""},
                {"app_token": None},
                {"app_token": "short"},
                {"page_token": "short"},
                {"page_token": 1},
            )
        ),
        *(json.dumps({k: v for k, v in GOOD.items() if k != gone}).encode() for gone in GOOD if gone != "page_token"),
    ],
)
def test_what_cannot_be_read_is_on_and_put_aside(path, clock, content):
    path.parent.mkdir()
    path.write_bytes(content)
    switch = Switch(path, clock)
    assert switch.position == Position(private=True)
    assert switch.note == UNREADABLE
    assert path.with_name(path.name + ".damaged").read_bytes() == content
    switch.turn(private=False)
    assert switch.note is None
    assert not Switch(path, clock).position.private


def test_the_good_file_is_good(path, clock):
    path.parent.mkdir()
    path.write_text(json.dumps(GOOD))
    switch = Switch(path, clock)
    assert (switch.position, switch.note) == (Position(private=False), None)
    assert (switch.tokens.app, switch.tokens.page) == ("x" * 32, "y" * 32)


def test_a_turn_that_cannot_be_kept_is_not_made(path, clock):
    switch = Switch(path, clock)
    path.unlink()
    path.mkdir()  # in the way
    with pytest.raises(JournalWriteFailed, match="not turned"):
        switch.turn(private=False)
    assert switch.position.private
    assert list(path.parent.iterdir()) == [path]
    path.rmdir()
    assert Switch(path, clock).position.private
