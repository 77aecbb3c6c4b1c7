"""A day of a reader in bytes, on few feeds: the same day comes out the same, the ways in the order that they must."""

import random
import re

import pytest

from onoff import wire
from onoff.lab.results import day


@pytest.fixture(scope="module", autouse=True)
def quiet_feeds():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(day, "PUBLISHES", 100)
        yield


@pytest.fixture(scope="module")
def section():
    return day.day_section(1, n=12)


def megabytes(section):
    rows = dict(re.findall(r"^\| (.+?) \| ([0-9.]+)[^|]*\|$", section.text, flags=re.MULTILINE))
    return {way: float(rows[text]) for way, text in day.WAYS.items()}


def test_the_ways_stand_in_the_order_that_they_must(section):
    found = megabytes(section)
    reads = day.OPEN_READS + day.PRIVATE_READS
    assert found["frames everything"] == pytest.approx(reads * (12 * day.FRAME + wire.query_length(12)) / 1e6, abs=1e-3)
    assert found["frames everything"] > found["frames"] > found["everything"] > found["plain"]
    assert found["open"] <= found["switched"] <= found["mirror"] < found["everything"]
    assert found["two switched"] <= found["two"] * 1.2
    assert found["plain"] < found["two"]


def test_the_same_seed_gives_the_same_day(section):
    again = megabytes(day.day_section(1, n=12))
    assert again == pytest.approx(megabytes(section), abs=2e-3)  # names of lives are random, and compress as they do


def test_a_refresh_counts_what_the_server_would_send(section):
    """The mirror costs at least the empty refreshes: a head and a trailer each, and the line that asks."""
    refreshes = (day.AWAKE[1] - day.AWAKE[0]) // day.REFRESH_MINUTES
    assert megabytes(section)["mirror"] * 1e6 > refreshes * 96


def test_readings_are_private_while_it_is_on_and_only_then():
    kinds = list(day._events(random.Random(3)))
    assert [kind for kind, _ in kinds].count("publish") == day.PUBLISHES
    assert sum(kind == "read" and private for kind, private in kinds) == day.PRIVATE_READS
    assert sum(kind == "read" and not private for kind, private in kinds) == day.OPEN_READS
    on = sum(kind == "refresh" and private for kind, private in kinds)
    assert on == sum(end - start for start, end in day.SWITCHED_ON) // day.REFRESH_MINUTES
