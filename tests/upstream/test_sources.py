"""Lists of sources: three forms, and every fault in them named with its line and its mend."""

import pytest

from onoff.errors import InvalidInput
from onoff.upstream.sources import Join, SourceList, seconds_of

CITY = """
[upstream]
url = "https://api.example/v1/stops/{id}/departures"
every = "30 s"
budget = "500/min 10000/day"

[sources.Central]
id = "100042"
at = [47.378, 8.540]

[sources."Lake View"]
id = "1/2 ?"
"""


def written(tmp_path, text, name="city.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_toml_gives_addresses_places_schedule_and_budget(tmp_path):
    city = SourceList.load(written(tmp_path, CITY))
    assert city.names == ("Central", "Lake View")
    assert city.sources[0].url == "https://api.example/v1/stops/100042/departures"
    assert city.sources[0].at == (47.378, 8.540)
    assert (
        city.sources[1].url == "https://api.example/v1/stops/1%2F2%20%3F/departures"
    )  # a value cannot leave its place
    assert (city.every, str(city.budget)) == (30.0, "500/min 10000/day")
    assert {host.host for host in city.hosts} == {"api.example"}


def test_a_list_of_addresses_and_opml_need_no_names(tmp_path):
    plain = SourceList.load(
        written(tmp_path, "# mine\nhttps://a.example/x\nNews at noon https://b.example/y?z=1\n", "l")
    )
    assert plain.names == ("a.example x", "News at noon")
    assert plain.sources[1].target == "/y?z=1"
    opml = """<?xml version="1.0"?><opml version="2.0"><body>
      <outline type="rss" text="A/B" xmlUrl="https://a.example/feed"/>
      <outline type="rss" text="A/B" xmlUrl="https://b.example/feed"/></body></opml>"""
    assert SourceList.load(written(tmp_path, opml, "feeds.opml")).names == ("A B", "A B 2")


def test_a_site_that_takes_lists(tmp_path):
    text = CITY + '\n[upstream.list]\nurl = "https://api.example/v1/stops?ids={ids}"\nmost = 20\nanswer = "object"\n'
    assert SourceList.load(written(tmp_path, text)).join == Join(
        "https://api.example/v1/stops?ids={ids}", most=20, answer="object"
    )


WRONG = {
    "unknown placeholder": (CITY.replace("{id}", "{stop}"), 7, "no value for {stop}", "leave {stop} out"),
    "same address": (CITY.replace('id = "1/2 ?"', 'id = "100042"'), 11, "have the same address", "once"),
    "other host": (CITY + 'url = "https://other.example/x"\n', 11, "another host, other.example", "hosts ="),
    "bad budget": (CITY.replace("500/min", "500 per minute"), 5, "no budget", "500/min"),
    "zero budget": (CITY.replace("500/min", "0/min"), 5, "no budget", "500/min"),
    "budget by the minute": (CITY.replace("500/min", "1/min"), 4, "2 requests every 30 s exceed", 'every = "120 s"'),
    "budget by seconds": (CITY.replace("500/min", "1/20s"), 4, "2 requests every 30 s exceed", 'every = "40 s"'),
    "bad duration": (CITY.replace("30 s", "soon"), 4, "no duration", "5 min"),
    "unknown key": (CITY.replace("every", "evry"), 4, "'evry' is not known", "every"),
    "no address": (CITY.replace("url = ", "user_agent = "), 7, "has no address", "url"),
    "not an address": (CITY.replace("https://api", "ftp://api"), 3, "begins with ftp:", "https"),
    "bad place": (CITY.replace("[47.378, 8.540]", "[1]"), 7, "not two numbers", "at ="),
    "open brace": (CITY.replace("{id}", "{id"), 3, "no pattern", "close"),
    "bad name": (CITY.replace('"Lake View"', '"Lake/View"'), 11, "looks like a path", "slashes"),
    "connections": (CITY.replace("every =", "connections = 0\nevery ="), 4, "from 1 to 16", "connections"),
    "proxy": (CITY.replace("every =", 'proxy = "http://127.0.0.1:1"\nevery ='), 4, "SOCKS5 proxy", "socks5://"),
    "cookie": (CITY + '\n[upstream.headers]\nCookie = "a=b"\n', 15, "Cookie cannot be set", "leave it out"),
    "list without ids": (CITY + '\n[upstream.list]\nurl = "https://api.example/"\n', 14, "{ids}", "{ids}"),
}


@pytest.mark.parametrize(("text", "line", "message", "hint"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_with_its_line_and_the_mend(tmp_path, text, line, message, hint):
    with pytest.raises(InvalidInput) as caught:
        SourceList.load(written(tmp_path, text))
    assert message in caught.value.message
    assert f"line {line}:" in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[upstream\n", b"<opml", b"[sources]\n"])
def test_what_is_no_list_is_refused(tmp_path, content):
    path = tmp_path / "list.toml"
    path.write_bytes(content)
    with pytest.raises(InvalidInput):
        SourceList.load(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(InvalidInput):
            SourceList.load(path)


@pytest.mark.parametrize("text", ["0 s", "-1 s", "", "1 fortnight", True, 0, None, 1e12])
def test_durations_that_are_none(text):
    with pytest.raises(InvalidInput):
        seconds_of(text, "every")
