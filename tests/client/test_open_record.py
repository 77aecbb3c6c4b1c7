"""What is remembered of open requests: only by consent, only what was open, for its owner only, and not without end."""

import json
import stat

import pytest

from onoff.client import consent
from onoff.client.consent import OpenRecord
from onoff.errors import JournalWriteFailed


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal"


def lines(record):
    return [json.loads(line) for line in record.path.read_text().splitlines()]


def test_nothing_is_remembered_without_consent(journal, tmp_path):
    record = OpenRecord(journal)
    record.opened("a")
    record.interrupted()
    assert list(tmp_path.iterdir()) == []
    assert record.as_dict() == {"since": None, "requests": 0, "needed": consent.LEAST_REQUESTS}


def test_it_can_be_looked_at_while_another_thread_forgets(journal, monkeypatch):
    record, reads = OpenRecord(journal), iter([{"since": 1000.0}, None])
    monkeypatch.setattr(OpenRecord, "consent", property(lambda self: next(reads)), raising=False)
    assert record.as_dict()["since"] == 1000.0


def test_open_requests_are_remembered_and_one_line_stands_for_all_that_was_not(journal):
    record = OpenRecord(journal, lambda: 1000.0)
    record.remember("page")
    record.interrupted()
    record.opened("a")
    record.opened("ü")
    record.interrupted()
    record.interrupted()
    record.opened("a")
    request = {"user": "me", "time": 1000.0, "private": False}
    gap = {"user": "me", "private": True}
    assert lines(record) == [{**request, "source": "a"}, {**request, "source": "ü"}, gap, {**request, "source": "a"}]
    assert json.loads(record.consent_path.read_text()) == {"since": 1000.0, "by": "page"}
    for path in (record.path, record.consent_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_restart_goes_on_where_it_was(journal):
    record = OpenRecord(journal)
    record.remember("command line")
    record.opened("a")
    record.interrupted()
    again = OpenRecord(journal)
    again.remember("page")
    assert again.consent == record.consent
    assert again.requests == 1
    again.interrupted()
    again.opened("b")
    assert ["source" in line for line in lines(again)] == [True, False, True]
    with again.path.open("ab") as file:
        file.write(b'{"half')  # the power went
    assert OpenRecord(journal).requests == 2


def test_forgetting_removes_all_of_it(journal, tmp_path):
    record = OpenRecord(journal)
    record.remember("page")
    record.opened("a")
    record.forget()
    record.opened("b")
    assert list(tmp_path.iterdir()) == []
    record.remember("page")
    assert record.requests == 0
    assert not record.path.exists()


def test_a_consent_that_cannot_be_read_is_none(journal):
    OpenRecord(journal).remember("page")
    OpenRecord(journal).consent_path.write_text("{")
    assert OpenRecord(journal).consent is None


def test_a_consent_that_cannot_be_kept_is_not_given(tmp_path):
    (tmp_path / "file").write_text("")
    record = OpenRecord(tmp_path / "file" / "journal")
    with pytest.raises(JournalWriteFailed):
        record.remember("page")
    assert record.consent is None


def test_the_oldest_go_when_there_are_too_many(journal, monkeypatch):
    monkeypatch.setattr(consent, "MOST_REQUESTS", 10)
    record = OpenRecord(journal)
    record.remember("page")
    for number in range(25):
        record.opened(str(number))
    assert len(lines(record)) == record.requests <= 10
    assert lines(record)[-1]["source"] == "24"
