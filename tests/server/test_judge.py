"""The verdict on a query, without a store: form, epoch, set."""

import hashlib

import pytest
from tests.support.raw import query

from onoff import wire
from onoff.server import answers as module
from onoff.server.answers import Shelf
from onoff.server.store import LastStep, Latest, Stamp
from onoff.wire import Problem

KNOWN = wire.Catalogue(("a", "b", "c"), 512)


@pytest.fixture
def shelf():
    life = bytes(16)
    edition = wire.Edition(KNOWN.epoch, life, 1, bytes(32))
    shelf = Shelf()
    shelf.take(Latest(Stamp(life, 1), KNOWN, {"b": wire.WireMessage(1, 1, "a/b", b"B")}, True, edition, {"b": 1}))
    return shelf


@pytest.fixture
def asked():
    """The steps that were to be admitted."""
    return []


def judge(body, shelf, asked, conflict=None):
    def admit(*step):
        asked.append(step)
        return conflict

    return module.judge(body, shelf, admit)


def test_a_good_query_gets_its_frames_once_its_step_is_admitted(shelf, asked):
    body = query(KNOWN, 1, 2, session=b"s" * 16, step=7)
    assert judge(body, shelf, asked) == [shelf.frames[1], shelf.frames[2]]
    assert asked == [(b"s" * 16, 7, hashlib.sha256(body).digest())]


def test_a_step_that_is_not_admitted_is_told_what_stands_against_it(shelf, asked):
    problem = judge(query(KNOWN, 1), shelf, asked, LastStep(9, b"d" * 32))
    assert isinstance(problem, Problem)
    assert (problem.status, problem.type, problem.step) == (409, wire.STEP_CONFLICT, 9)
    assert problem.sha256 == (b"d" * 32).hex()


def test_a_query_of_another_catalogue_is_told_the_epoch_that_holds(shelf, asked):
    problem = judge(query(wire.Catalogue(("a", "b"), 512), 0), shelf, asked)
    assert isinstance(problem, Problem)
    assert (problem.status, problem.type, problem.epoch) == (409, wire.EPOCH_CHANGED, KNOWN.epoch)


@pytest.mark.parametrize(
    "change",
    [lambda q: q[:-1], lambda q: q + b"\0", lambda q: q[:-1] + b"\0", lambda q: q[:-1] + b"\x08", lambda q: b""],
)
def test_any_other_form_is_refused_and_leaves_no_trace(shelf, asked, change):
    problem = judge(change(query(KNOWN, 1)), shelf, asked)
    assert asked == []
    assert isinstance(problem, Problem)
    assert problem.status == 400
    assert problem.hint
