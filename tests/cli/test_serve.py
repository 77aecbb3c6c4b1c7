"""`onoff serve`, `onoff publish`, `onoff catalogue`: what they print, and what they say when they cannot."""

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from tests.support.site import Site, serving
from tests.support.typed import present
from tests.support.waiting import PATIENCE, until

from onoff.cli import run
from onoff.cli.serve import address_for_readers
from onoff.client import MirrorClient
from onoff.server import running
from onoff.server.store import token_digest
from onoff.upstream.message_server import fetch_catalogue


@pytest.fixture
def server(tmp_path):
    with running({"news": b"one", "weather": b"two"}, frame_size=512, store=tmp_path / "m.db") as server:
        yield server


def command(capsys, *arguments):
    """Exit code, JSON or text of stdout, and stderr."""
    code = run(list(arguments))
    out, err = capsys.readouterr()
    try:
        return code, json.loads(out), err
    except ValueError:
        return code, out, err


def test_publish_and_catalogue(server, tmp_path, capsys, monkeypatch):
    (tmp_path / "today.html").write_text("<p>hi</p>")
    (tmp_path / "token").write_text(server.token + "\n")
    where = ["--server", server.url]
    code, receipt, _ = command(
        capsys,
        "publish",
        "news",
        str(tmp_path / "today.html"),
        *where,
        "--token-file",
        str(tmp_path / "token"),
        "--json",
    )
    assert (code, receipt["source"], receipt["version"]) == (0, "news", 2)
    monkeypatch.setenv("ONOFF_TOKEN", server.token)
    monkeypatch.setenv("ONOFF_SERVER", server.url)
    code, text, _ = command(capsys, "publish", "news", str(tmp_path / "today.html"))
    assert (code, text) == (0, "news: version 3\n")
    code, found, _ = command(capsys, "catalogue", "--json")
    assert (code, found["sources"], found["frame_size"]) == (0, ["news", "weather"], 512)
    assert command(capsys, "catalogue") == (0, "news\nweather\n", "")


def test_the_catalogue_of_a_store_is_changed_and_the_server_follows(server, capsys):
    store = ["--store", server.settings.store]
    code, changed, _ = command(capsys, "catalogue", *store, "--add", "sports", "--drop", "weather", "--json")
    assert (code, changed["sources"]) == (0, ["news", "sports"])
    assert command(capsys, "catalogue", "--server", server.url, "--json")[1] == changed
    assert command(capsys, "catalogue", *store, "--drop", "nobody")[0] == 3


def test_a_publisher_is_made_and_its_token_shown_once(tmp_path, capsys):
    store = ["--store", str(tmp_path / "m.db")]
    assert run(["catalogue", *store, "--add", "news"]) == 0
    capsys.readouterr()
    code, made, _ = command(capsys, "serve", *store, "--add-publisher", "alice", "--only", "news", "--json")
    assert (code, made["publisher"]) == (0, "alice")
    code, token, _ = command(capsys, "serve", *store, "--add-publisher", "bob")
    assert code == 0
    assert token.startswith("onoff_")
    contents = (tmp_path / "m.db").read_bytes() + (tmp_path / "m.db-steps").read_bytes()
    assert token_digest(made["token"]) in contents
    assert made["token"].encode() not in contents


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["serve", "--store", "{}/empty.db"], 3, "empty"),
        (["serve", "--store", "{}/m.db", "--source", "a/b"], 3, "path"),
        (["serve", "--store", "{}/m.db", "--source", "a", "--frame-size", "1"], 3, "frame"),
        (["serve", "--store", "{}/m.db", "--source", "a", "--frame-size", "0"], 3, "frames of 0 bytes"),
        (["serve", "--store", "{}/m.db", "--source", "a", "--port", "99999"], 3, "99999 is not a port"),
        (["serve", "--store", "{}/m.db", "--source", "a", "--workers", "0"], 3, "0 workers"),
        (["serve", "--store", "{}/m.db", "--source", "a", "--feed-seconds", "0"], 3, "feeds every 0"),
        (["serve", "--store", "{}/m.db", "--feeds", "{}/none"], 3, "cannot read"),
        (["serve", "--store", "{}/m.db", "--sources", "{}/none"], 3, "cannot read"),
        (["serve", "--store", "gopher://x"], 3, "no store"),
        (["serve", "--store", "{}/nowhere/m.db", "--source", "a"], 3, "no directory"),
        (["serve", "--store", "unix://{}/nothing", "--source", "a"], 1, "cannot reach"),
        (["serve", "--store", "redis://localhost/0?bad=1", "--source", "a"], 3, "not an address of a store"),
        (["serve", "--store", "redis://[", "--source", "a"], 3, "not an address of a store"),
        (["serve", "--store", "redis://localhost:port/0", "--source", "a"], 3, "not an address of a store"),
        (["serve", "--store", "{}/m.db", "--source", "a", "--limit", "0"], 3, "messages of up to 0 bytes"),
        (["serve", "--store", "{}/m.db", "--source", "a", "--padding", "fixed", "--limit", "9"], 3, "--padding none"),
        (["serve", "--store", "{}/m.db", "--restore", "{}/none"], 3, "cannot restore"),
        (["serve", "--store", "{}/m.db", "--backup", "{}/no/backup"], 3, "no directory"),
        (["serve", "--nonsense"], 2, "nonsense"),
        (["publish", "news", "{}/none", "--token", "x"], 3, "cannot read"),
        (["publish", "news", __file__], 3, "token"),
        (["publish", "news", __file__, "--token", "x", "--server", "http://127.0.0.1:1"], 4, "connection refused"),
        (["publish", "news", __file__, "--token", "x", "--server", "nonsense"], 3, "not the address of a server"),
        (["publish", "news", __file__, "--token", "x", "--server", "http://["], 3, "not the address of a server"),
        (["catalogue", "--server", "http://["], 3, "not the address of a server"),
        (["publish", "a/b", __file__, "--token", "x"], 3, "path"),
        (["publish", "a", __file__, "--token", "x", "--media-type", "y"], 3, "media type"),
        (["catalogue", "--server", "http://127.0.0.1:1"], 4, "connection refused"),
        (["catalogue", "--add", "x"], 3, "--store"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(tmp_path, capsys, arguments, code, says):
    got, out, err = command(capsys, *(argument.replace("{}", str(tmp_path)) for argument in arguments))
    assert got == code
    assert says in err
    assert out == ""
    assert "Traceback" not in err
    assert not (tmp_path / "nowhere").exists()


def test_refusals_of_the_server_are_handed_on(server, capsys, tmp_path):
    (tmp_path / "long").write_bytes(bytes(1000))
    where = ["--server", server.url]
    for arguments, says in [
        (["news", str(tmp_path / "long"), "--token", server.token], "1000 bytes"),
        (["news", __file__, "--token", "wrong"], "no publisher"),
        (["sports", __file__, "--token", server.token], "no source"),
    ]:
        code, _, err = command(capsys, "publish", *arguments, *where)
        assert code == 3
        assert says in err
        assert server.token not in err


def test_something_else_at_the_address_is_told(tmp_path, capsys):
    with running(["a"]) as server:
        code, _, err = command(capsys, "catalogue", "--server", server.url + "/docs?")
    assert code in {3, 4}
    assert "Traceback" not in err


def test_sources_given_with_a_new_publisher_are_added(tmp_path, capsys):
    store = ["--store", str(tmp_path / "m.db")]
    code, token, _ = command(capsys, "serve", *store, "--source", "news", "--source", "sport", "--add-publisher", "me")
    assert code == 0
    assert token.strip()
    code, listed, _ = command(capsys, "catalogue", *store, "--json")
    assert (code, listed["sources"]) == (0, ["news", "sport"])


def test_a_message_is_read_from_standard_input(server, tmp_path, capsys, monkeypatch):
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe")))
    code, _, err = command(capsys, "publish", "news", "-", "--server", server.url, "--token", server.token)
    assert (code, err) == (0, "")


def test_a_backup_is_made_and_put_back(server, tmp_path, capsys):
    store = ["--store", server.settings.store]
    backup = str(tmp_path / "backup")
    assert command(capsys, "serve", *store, "--backup", backup) == (0, f"saved 2 messages to {backup}\n", "")
    server.publish("news", b"later")
    code, told, _ = command(capsys, "serve", *store, "--restore", backup, "--json")
    assert (code, told) == (0, {"restored": 2})
    code, told, _ = command(capsys, "serve", *store, "--backup", backup + "2", "--json")
    assert (code, told) == (0, {"file": backup + "2", "messages": 2})
    assert (tmp_path / "backup").read_bytes() != (tmp_path / "backup2").read_bytes()  # another life
    assert server.publish("news", b"next") == 2


def test_a_new_store_pads_nothing_unless_told(tmp_path, capsys):
    for name, said, framing in [
        ("plain", [], {"limit": 1024 * 1024}),
        ("small", ["--limit", "5000"], {"limit": 5000}),
        ("padded", ["--padding", "fixed"], {"frame_size": 65536}),
        ("frames", ["--frame-size", "512"], {"frame_size": 512}),
    ]:
        store = ["--store", str(tmp_path / name)]
        code, _, _ = command(capsys, "serve", *store, "--source", "a", *said, "--add-publisher", "p")
        assert code == 0
        found = command(capsys, "catalogue", *store, "--json")[1]
        assert {key: found[key] for key in found if key not in {"epoch", "sources"}} == framing


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_counts_need_the_token_that_a_file_holds(tmp_path):
    """The options reach the server that is started."""
    (tmp_path / "token").write_text("a long token of the operator\n")
    options = ["--store", str(tmp_path / "m.db"), "--source", "a", "--metrics-token-file", str(tmp_path / "token")]
    with served(*options) as url:
        assert get_status(url, "/metrics") == 401
        assert get_status(url, "/metrics", authorization="Bearer a long token of the operator") == 200
    with served("--store", str(tmp_path / "m.db"), "--metrics", "anyone") as url:
        assert get_status(url, "/metrics", **{"x-forwarded-for": "192.0.2.1"}) == 200


@pytest.mark.slow(reason="programs are started and waited for")
def test_a_list_of_addresses_is_served_under_the_titles_of_its_feeds_whatever_its_order(tmp_path):
    feed = "<rss version='2.0'><channel><title>{}</title><item><title>x</title></item></channel></rss>"
    titles = {"/a": "News", "/b": "News", "/c": "Sky"}
    with serving(Site()) as site:
        site.pages = {path: (200, {}, feed.format(title).encode()) for path, title in titles.items()}
        listed = tmp_path / "list.txt"
        options = ["--store", str(tmp_path / "m.db"), "--feeds", str(listed)]
        for paths in (list(titles), list(titles)[::-1], ["/c", "/b"]):
            listed.write_text("".join(f"{site.url}{path}\n" for path in paths))
            with open(tmp_path / "said", "w") as said, served(*options, stderr=said) as url:
                assert fetch_catalogue(url).names == ("News", "News 2", "Sky")
                until(lambda: f"all {len(paths)} feeds were asked" in (tmp_path / "said").read_text())  # noqa: B023
                with MirrorClient(url, tmp_path / f"mirror {len(paths)}") as mirror:
                    mirror.refresh()
                    assert {mirror.copy(name).version for name in ("News", "News 2", "Sky")} == {1}
            assert (tmp_path / "said").read_text().count(f"for readers: onoff gateway --server {url}\n") == 1
        assert "not in the list any more, and kept as they are: 'News'" in (tmp_path / "said").read_text()


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_the_address_for_readers_is_one_that_others_reach(host):
    assert address_for_readers("http://127.0.0.1:8470") == "http://127.0.0.1:8470"
    assert address_for_readers(f"http://{host}:8470") == f"http://{socket.getfqdn()}:8470"


@contextlib.contextmanager
def served(*options, stderr=subprocess.DEVNULL):
    command = [str(Path(sys.executable).parent / "onoff"), "serve", "--port", "0", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        yield json.loads(present(process.stdout).readline())["url"]
    finally:
        process.kill()
        process.communicate()


def get_status(url, path, **headers):
    return httpx2.get(f"{url}{path}", headers=headers, timeout=PATIENCE).status_code


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--metrics", "anyone", "--metrics-token-file", "{}/token"], "contradict each other"),
        (["--metrics-token-file", "{}/none"], "cannot read"),
        (["--metrics-token-file", "{}/short"], "too short"),
        (["--follow", "http://h", "--source", "a"], "leader's sources"),
        (["--follow", "http://["], "not the address"),
        (["--per-address", "0"], "connections for each address"),
    ],
)
def test_options_that_cannot_be_are_told(tmp_path, capsys, options, says):
    (tmp_path / "token").write_text("a long token of the operator")
    (tmp_path / "short").write_text("x")
    options = [option.replace("{}", str(tmp_path)) for option in options]
    code, _, err = command(capsys, "serve", "--store", str(tmp_path / "m.db"), *options)
    assert code == 3
    assert says in err
