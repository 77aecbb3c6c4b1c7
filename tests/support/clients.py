"""The client, made from one flat set of settings: those of its upstream, of its hooks, and its own."""

from collections.abc import Sequence
from dataclasses import fields
from inspect import signature

from onoff.client import AsyncClient as OnOffAsyncClient
from onoff.client import Client as OnOffClient
from onoff.client import Hooks, upstream_of
from onoff.client.client import randbelow

OF_UPSTREAM = tuple(signature(upstream_of).parameters)[1:]
OF_HOOKS = tuple(field.name for field in fields(Hooks))


def Client(url, chain, journal=None, scheme="auto", *, kind=OnOffClient, transport=None, **settings):  # noqa: N802
    """A client whose transports, attempts, clocks and so on are given by name. transport: of one server, or of each."""
    if transport is not None:
        settings["transports"] = transport if isinstance(transport, Sequence) else [transport]
    if (entropy := settings.get("entropy")) is not None:
        settings["randbelow"] = randbelow(entropy)
    place = upstream_of(url, **{key: settings.pop(key) for key in OF_UPSTREAM if key in settings})
    hooks = Hooks(**{key: settings.pop(key) for key in OF_HOOKS if key in settings})
    return kind(place, chain, journal, scheme, hooks=hooks, **settings)


def AsyncClient(*arguments, **settings):  # noqa: N802
    """The same for asyncio."""
    return Client(*arguments, kind=OnOffAsyncClient, **settings)
