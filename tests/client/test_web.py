"""Client over web sites: durable before the first GET, all of a set or nothing, copies that outlive a process."""

import contextlib
import json
import os
import stat

import pytest
from tests.support.typed import present
from tests.support.website import Answer, website

import onoff
from onoff.client import CopiesFile, Hooks, Journal, MemoryCopies, MemoryJournal
from onoff.client.copies import WebSources
from onoff.client.stores import LARGEST_LOG
from onoff.errors import CatalogueMismatch, InvalidInput, MirrorBusy, MirrorEmpty, MirrorError, SourceFailed
from onoff.upstream import WebCopy
from onoff.upstream.budget import Budget, OverBudget
from onoff.upstream.sources import Source, SourceList
from onoff.upstream.transport import origin_of
from onoff.upstream.web import Web

NAMES = ("a", "b", "c")
CHAIN = onoff.MarkovChain([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]], names=NAMES)
QUIET = Hooks(tick=0, background=False)


def city(**answers):
    """A site with three pages, each with a validator."""
    pages = {name: Answer(name.encode() * 3, headers={"etag": f'"{name}1"'}) for name in NAMES}
    return website(**{**pages, **answers})


def web_of(site, **options):
    sources = tuple(Source(name, f"{site.url}/{name}", name) for name in NAMES)
    return Web(SourceList(sources, hosts=frozenset({origin_of(site.url)}), **options), sleep=lambda seconds: None)


def client_of(site, journal=None, model=CHAIN, *, options=None, hooks=QUIET, **settings):
    how = {} if model is None else {"scheme": "single"}
    return onoff.Client(
        web_of(site, **(options or {})),
        model,
        MemoryJournal() if journal is None else journal,
        hooks=hooks,
        **{**how, **settings},
    )


def is_fresh(headers, _):
    """A page that has not changed."""
    return Answer(status=304) if "if-none-match" in headers else Answer(b"aaa", headers={"etag": '"a1"'})


# -- messages ----------------------------------------------------------------------------------------------


def test_on_asks_for_everything_in_order_and_off_for_a_set_with_the_wanted_one(tmp_path):
    with city() as site, client_of(site, tmp_path / "journal") as client:
        message = client.get("b", private=True)
        assert (message, message.media_type, message.age, message.outcome.state) == (
            b"bbb", "application/octet-stream", pytest.approx(0, abs=60), "new",
        )  # fmt: skip
        assert (message.asked, message.requests, message.received) == (NAMES, 3, 9)
        assert site.targets == ["/a", "/b", "/c"]
        for _ in range(20):
            site.log.clear()
            message = client.get("c", private=False)
            assert message == b"ccc"
            assert site.targets == [f"/{name}" for name in message.asked]
            assert "c" in message.asked
            assert message.requests == len(message.asked) == len(message.sent.sources)
            assert all("if-none-match" in headers for _, _, headers in site.log)


def test_the_list_of_a_file_is_used(tmp_path):
    with city() as site:
        sources = "".join(f'[sources.{name}]\nid = "{name}"\n' for name in NAMES)
        (tmp_path / "city.toml").write_text(f'[upstream]\nurl = "{site.url}/{{id}}"\n{sources}')
        with onoff.Client(onoff.Web.load(tmp_path / "city.toml"), CHAIN, tmp_path / "journal") as client:
            assert client.get("a", private=True) == b"aaa"
            assert repr(client) == "<Client: 3 sources>"


def test_while_on_copies_that_are_fresh_enough_are_read_without_traffic():
    now = [1e9]
    with city() as site, client_of(site, hooks=Hooks(tick=0, background=False, now=lambda: now[0])) as client:
        client.get("a", private=True)
        site.log.clear()
        now[0] += 20
        message = client.get("b", private=True, max_age=30)
        assert (message, message.asked, message.requests, message.received) == (b"bbb", (), 0, 0)
        assert site.log == []
        assert client.read("c") == client.copy("c") == b"ccc"
        assert [(state.name, state.size) for state in client.sources()] == [("a", 3), ("b", 3), ("c", 3)]
        now[0] += 20
        assert client.get("b", private=True, max_age=30).requests == 3


def test_what_has_not_changed_is_asked_for_conditionally_and_not_sent_again():
    with city(a=is_fresh) as site, client_of(site) as client:
        client.get("a", private=True)
        message = client.get("a", private=True)
        assert (message, message.outcome.state, message.outcome.status) == (b"aaa", "same", 304)


def test_without_a_model_every_request_is_private():
    with city() as site, client_of(site, model=None) as client:
        assert client.get("b", private=True) == b"bbb"
        with pytest.raises(InvalidInput, match="without a model"):
            client.get("b", private=False)
        assert client.expected_cost(private=True) == 3
        assert client.refresh().requests == 3


# -- durable before the first GET --------------------------------------------------------------------------


@pytest.mark.parametrize("private", [True, False])
def test_the_request_is_durable_before_the_first_get(tmp_path, private):
    seen = []
    with city() as site, client_of(site, tmp_path / "journal") as client:
        client.get("a", private=True)

        def look(headers, _):
            record = client._runner.opened[1].found
            with open(tmp_path / "journal-wal", "rb") as log:
                seen.append((record.wanted, record.pending, log.read().count(record.session) > 0))
            return Answer(b"x")

        site.answers = {f"/{name}": look for name in NAMES}
        client.get("b", private=private)
    assert set(seen) == {(1, True, True)}


class Died(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("private", [True, False])
def test_after_a_crash_all_of_the_set_is_asked_for_again(tmp_path, private):
    """The process ends within the set; the next one asks for all of it, whatever had come, and draws nothing."""
    with city() as site:
        with client_of(site, tmp_path / "journal") as client:
            client.get("a", private=True)
        site.log.clear()

        def dies(*_):
            raise Died

        client = client_of(site, tmp_path / "journal")
        client._upstream.web._read = dies  # after the answers, before anything is kept
        with pytest.raises(Died):
            client.get("b", private=private)
        client.close()
        asked = list(site.targets)
        site.log.clear()
        with client_of(site, tmp_path / "journal") as client:
            assert client.pending
            assert client.retry() == b"bbb"
            assert not client.pending
        assert site.targets == asked


# -- failures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", NAMES)
@pytest.mark.parametrize("private", [True, False])
def test_the_wanted_one_failed_after_all_of_the_set_is_done(failing, private):
    with city() as site, client_of(site) as client:
        client.get("a", private=True)
        site.answers[f"/{failing}"] = Answer(b"gone", 404)
        for wanted in NAMES:
            site.log.clear()
            if wanted == failing:
                with pytest.raises(SourceFailed, match="status 404") as caught:
                    client.get(wanted, private=private)
                assert "s old" in (caught.value.hint or "")
            else:
                assert client.get(wanted, private=private) == wanted.encode() * 3
            asked = [client.chain.names[x] for x in client.core.sent(client.core.record).sources]
            assert site.targets == [f"/{name}" for name in asked]
            assert not client.pending
        message = client.get(failing, private=private, stale_ok=True)
        assert (message, message.outcome.state, message.outcome.status) == (failing.encode() * 3, "failed", 404)


def test_an_old_copy_is_only_given_where_there_is_one():
    with city(a=Answer(b"down", 500)) as site, client_of(site) as client:
        with pytest.raises(SourceFailed, match="status 500"):
            client.get("a", private=True, stale_ok=True)
        assert client.get("b", private=True) == b"bbb"
        with pytest.raises(MirrorEmpty):
            client.read("a")
        with pytest.raises(MirrorEmpty):
            client.copy("a")
        with pytest.raises(SourceFailed, match="has not given it yet"):
            client.get("a", private=True, max_age=1e6)


def test_a_request_over_the_budget_is_refused_before_anything_leaves_and_can_be_made_later(tmp_path):
    options = {"budget": Budget.parse("4/h"), "patience": 1.0}
    with city() as site:
        with client_of(site, tmp_path / "journal", options=options) as client:
            client.get("a", private=True)
        site.log.clear()
        with client_of(site, tmp_path / "journal", options=options) as client:  # times of requests outlive the process
            with pytest.raises(OverBudget):
                client.get("a", private=True)
            assert client.pending
            assert site.log == []


# -- bad input ---------------------------------------------------------------------------------------------


def test_names_that_are_not_in_the_list_are_refused_before_anything_is_stored(tmp_path):
    other = onoff.MarkovChain([[0.5, 0.5], [0.5, 0.5]], names=["a", "z"])
    with city() as site, client_of(site, tmp_path / "journal", other) as client:
        for private in (True, False):
            with pytest.raises(CatalogueMismatch, match="1 of the chain's 2 sources are not in the list: 'z'"):
                client.get("a", private=private)
        assert site.log == []
        assert client.core.record is None


def test_a_client_of_web_sites_has_copies():
    with city() as site:
        with pytest.raises(InvalidInput, match="needs copies"):
            client_of(site, mirror=False)
        with pytest.raises(InvalidInput, match="copies of web sites"):
            onoff.Client("http://127.0.0.1:9", CHAIN, MemoryJournal(), mirror=MemoryCopies())


def test_another_site_is_a_doubt(tmp_path):
    with city() as site, city() as other:
        with client_of(site, tmp_path / "journal") as client:
            client.get("a", private=True)
        with client_of(other, tmp_path / "journal") as client:
            message = client.get("b", private=False)
            assert message.sent.note == "the server is not the one of the last request: everything was asked"
            assert message.asked == NAMES


# -- the file of copies ------------------------------------------------------------------------------------


def test_copies_and_their_validators_outlive_the_process_and_are_for_their_owner_alone(tmp_path):
    with city(a=is_fresh) as site:
        with client_of(site, tmp_path / "journal") as client:
            client.get("a", private=True)
        file = tmp_path / "journal.copies"
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
        with client_of(site, tmp_path / "journal") as client:
            assert client.get("b", private=True, max_age=3600).requests == 0
            assert client.get("a", private=True).outcome.status == 304
            with pytest.raises(MirrorBusy):
                CopiesFile(file)


def test_the_log_of_the_copies_is_folded_into_their_file_before_it_is_large(tmp_path):
    log = tmp_path / "copies-wal"
    with contextlib.closing(CopiesFile(tmp_path / "copies")) as copies:
        sizes = []
        for version in range(12):
            copies.keep({"a": WebCopy(bytes([version]) * 2**20, "text/plain", None, None, 1.0, 1.0, None)})
            sizes.append(log.stat().st_size)
        assert 2**20 < max(sizes) < LARGEST_LOG + 2**21
        assert sizes.count(0) >= 2  # folded
        assert present(copies.get("a")).body == bytes([11]) * 2**20


def test_what_was_wanted_leaves_no_trace_in_the_copies(tmp_path):
    """The file after a request is a function of the set and the answers: byte for byte, but for times."""
    found = []
    for wanted in NAMES:
        with city() as site:
            hooks = Hooks(tick=0, background=False, now=lambda: 1e9)
            web = web_of(site)
            web._now = hooks.now
            with onoff.Client(web, CHAIN, tmp_path / wanted, scheme="single", hooks=hooks) as client:
                client.get(wanted, private=True)
            found.append((tmp_path / f"{wanted}.copies").read_bytes())
    assert found[0] == found[1] == found[2]


def test_copies_round_trip_and_damage_is_none_or_begun_anew(tmp_path):
    copy = WebCopy(b"body", "text/plain", '"1"', None, 5.0, 7.0, "http://x.test/moved")
    host = origin_of("http://x.test")
    file = CopiesFile(tmp_path / "copies")
    file.keep({"a": copy, "b": copy})
    file.keep({})
    file.note_sent([(host, 1.0), (host, 9.0), (origin_of("http://y.test"), 5.0)])
    file.note_refreshed(9.0)
    file.close()
    file = CopiesFile(tmp_path / "copies")
    assert (file.get("a"), file.get("z"), file.refreshed) == (copy, None, 9.0)
    assert file.sent(host, 2.0) == [9.0]
    file._database.connection.execute("UPDATE copy SET body = x'00' WHERE name = 'a'")
    assert (file.get("a"), file.get("b")) == (None, copy)
    file.close()
    data = bytearray((tmp_path / "copies").read_bytes())
    data[4096:6000] = bytes(1904)
    (tmp_path / "copies").write_bytes(data)
    file = CopiesFile(tmp_path / "copies")
    assert file.get("b") is None
    file.close()
    (tmp_path / "mine.txt").write_text("my own document")
    with pytest.raises(MirrorError, match="left as it is"):
        CopiesFile(tmp_path / "mine.txt")
    assert (tmp_path / "mine.txt").read_text() == "my own document"


def test_closed_copies_stay_closed(tmp_path):
    with city() as site:
        sources = WebSources(web_of(site), tmp_path / "copies")
        sources.refresh()
        sources.close()
        sources.close()
        with pytest.raises(MirrorError, match="closed"):
            sources.copy("a")


def test_an_old_journal_and_its_record_stay_readable(tmp_path):
    with city() as site, client_of(site, tmp_path / "journal") as client:
        client.get("a", private=False)
        assert json.dumps(client.status()["last"]["sources"]) == "[0, 1, 2]"  # there was no journal
    journal = Journal(tmp_path / "journal")
    found = present(journal.found)
    assert (found.query, found.others, found.step) == (b"", b"", 0)
    journal.close()
