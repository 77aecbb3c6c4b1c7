"""Adapters: a program's own HTTP library asks through a client; what cannot be hidden never leaves."""

import asyncio

import httpx
import httpx2
import pytest
import requests
from tests.support.website import Answer, website

import onoff
import onoff.httpx
import onoff.httpx2
import onoff.requests
from onoff.adapters import NotListed, openly, privately
from onoff.upstream.sources import Source, SourceList
from onoff.upstream.transport import origin_of

PLAIN = "text/plain; charset=utf-8"
P = [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]]


@pytest.fixture
def world(tmp_path):
    """A site of three pages, and a client of it."""
    pages = {
        name: Answer(name.upper().encode(), headers={"content-type": "text/plain; charset=utf-8"}) for name in "abc"
    }
    with website(**pages) as site:
        listed = SourceList(
            tuple(Source(name, f"{site.url}/{name}", name) for name in "abc"), hosts=frozenset({origin_of(site.url)})
        )
        chain = onoff.MarkovChain(P, names=["a", "b", "c"])
        with onoff.Client(onoff.Web(listed), chain, journal=tmp_path / "journal") as client:
            yield site, client


def mounted(library, site, client, **options):
    transport = {httpx: onoff.httpx, httpx2: onoff.httpx2}[library].Transport(client, **options)
    return library.Client(mounts={site.url: transport})


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_private_get_asks_for_everything_and_gives_the_page(world, library):
    site, client = world
    with mounted(library, site, client) as web:
        response = web.get(f"{site.url}/b")
    assert (response.status_code, response.text, response.headers["content-type"]) == (
        200,
        "B",
        "text/plain; charset=utf-8",
    )
    assert site.targets == ["/a", "/b", "/c"]
    assert len(response.extensions["onoff"].sent.sources) == 3


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_program_says_for_all_for_a_block_or_for_one_request_what_is_private(world, library):
    site, client = world
    with mounted(library, site, client, private=False) as web:
        assert web.get(f"{site.url}/a").extensions["onoff"].sent.private is False
        with privately():
            assert web.get(f"{site.url}/a").extensions["onoff"].sent.private is True
            with openly():
                assert web.get(f"{site.url}/a").extensions["onoff"].sent.private is False
        told = web.get(f"{site.url}/a", extensions={"onoff": {"private": True}})
        assert told.extensions["onoff"].sent.private is True


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_async_clients_are_answered_too(world, library):
    site, client = world
    transport = {httpx: onoff.httpx, httpx2: onoff.httpx2}[library].Transport(client)

    async def read():
        async with library.AsyncClient(mounts={site.url: transport}) as web:
            return (await web.get(f"{site.url}/c")).text

    assert asyncio.run(read()) == "C"


def test_requests_are_answered_by_an_adapter(world):
    site, client = world
    with requests.Session() as session:
        session.mount(site.url, onoff.requests.Adapter(client))
        response = session.get(f"{site.url}/b")
    assert (response.status_code, response.text) == (200, "B")
    assert site.targets == ["/a", "/b", "/c"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda web, url: web.get(f"{url}/other"),
        lambda web, url: web.get(f"{url}/a?x=1"),
        lambda web, url: web.post(f"{url}/a", content=b"x"),
        lambda web, url: web.head(f"{url}/a"),
    ],
    ids=["other path", "other query", "post", "head"],
)
def test_what_is_not_in_the_list_raises_and_nothing_leaves(world, ask):
    site, client = world
    with mounted(httpx, site, client) as web, pytest.raises(NotListed):
        ask(web, site.url)
    assert (site.log, site.connections) == ([], 0)


def test_a_site_that_fails_is_an_error_of_the_library(world):
    site, client = world
    site.answers["/b"] = Answer(status=404)
    with mounted(httpx, site, client) as web, pytest.raises(httpx.TransportError, match="404"):
        web.get(f"{site.url}/b")
    with requests.Session() as session:
        session.mount(site.url, onoff.requests.Adapter(client))
        with pytest.raises(requests.exceptions.ConnectionError, match="404"):
            session.get(f"{site.url}/b")
