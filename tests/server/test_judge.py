"""The verdict on a query: form, epoch, set, step."""

import hashlib
from typing import Any

import pytest
from tests.support.raw import query

from onoff import wire
from onoff.server.answers import Answer, Answerer, now
from onoff.server.store import LastStep, Latest, Stamp
from onoff.wire import Problem

KNOWN = wire.Catalogue(("a", "b", "c"), 512)


class Counting:
    """A store that holds one message, and notes the steps that it is to admit."""

    def __init__(self, conflict=None):
        self.conflict = conflict
        self.asked: list[Any] = []

    async def latest(self, after):
        edition = wire.Edition(KNOWN.epoch, bytes(16), 1, bytes(32))
        message = wire.WireMessage(1, 1, "a/b", b"B")
        return Latest(Stamp(bytes(16), 1), KNOWN, {"b": message}, True, edition, {"b": 1})

    async def admit(self, *step):
        self.asked.append(step)
        return Stamp(bytes(16), 1), self.conflict


def judge(body, store):
    """The verdict of a server whose shelf is up to date, and its frames."""
    answerer = Answerer(store)
    now(answerer.shelf.refresh(store))
    return now(answerer.answer(body)), answerer.shelf.frames


def test_a_good_query_gets_its_frames_once_its_step_is_admitted():
    store, body = Counting(), query(KNOWN, 1, 2, session=b"s" * 16, step=7)
    answer, frames = judge(body, store)
    assert answer == Answer([frames[1], frames[2]], 2)
    assert store.asked == [(b"s" * 16, 7, hashlib.sha256(body).digest())]


def test_a_step_that_is_not_admitted_is_told_what_stands_against_it():
    problem, _ = judge(query(KNOWN, 1), Counting(LastStep(9, b"d" * 32)))
    assert isinstance(problem, Problem)
    assert (problem.status, problem.type, problem.step) == (409, wire.STEP_CONFLICT, 9)
    assert problem.sha256 == (b"d" * 32).hex()


def test_a_query_of_another_catalogue_is_told_the_epoch_that_holds():
    store = Counting()
    problem, _ = judge(query(wire.Catalogue(("a", "b"), 512), 0), store)
    assert store.asked == []
    assert isinstance(problem, Problem)
    assert (problem.status, problem.type, problem.epoch) == (409, wire.EPOCH_CHANGED, KNOWN.epoch)


@pytest.mark.parametrize(
    "change",
    [lambda q: q[:-1], lambda q: q + b"\0", lambda q: q[:-1] + b"\0", lambda q: q[:-1] + b"\x08", lambda q: b""],
)
def test_any_other_form_is_refused_and_leaves_no_trace(change):
    store = Counting()
    problem, _ = judge(change(query(KNOWN, 1)), store)
    assert store.asked == []
    assert isinstance(problem, Problem)
    assert problem.status == 400
    assert problem.hint
