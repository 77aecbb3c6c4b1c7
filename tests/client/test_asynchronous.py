"""The client from an event loop: the same answers, one step per request."""

import asyncio

import pytest
from tests.support.clients import AsyncClient
from tests.support.world import NAMES, P4, Direct, World

import onoff
from onoff import wire
from onoff.client import MemoryJournal
from onoff.errors import OnOffError, UnknownSource


def test_requests_at_once_are_steps_one_after_the_other():
    world = World()

    async def session():
        settings = {"tick": 0, "transport": Direct(world), "mirror": False}
        chain = onoff.MarkovChain(P4, names=NAMES)
        async with AsyncClient("http://server.test", chain, MemoryJournal(), "single", **settings) as client:
            assert repr(client) == "<AsyncClient: 4 sources>"
            messages = await asyncio.gather(*(client.get(name, private=name == "beta") for name in NAMES))
            assert messages == [f"first of {name}".encode() for name in NAMES]
            assert (await client.status())["last"]["step"] == 3
            assert await client.expected_cost(private=True) == 4
            with pytest.raises(UnknownSource):
                await client.get("nobody", private=True)
            with pytest.raises(OnOffError, match="nothing is waiting"):
                await client.retry()
        with pytest.raises(OnOffError, match="closed"):
            await client.get("alpha", private=True)

    asyncio.run(session())
    assert [wire.decode_query_head(query).step for query in world.queries] == [0, 1, 2, 3]
    world.check()
