"""`onoff catalogue`: the sources of a server, or a change to those of a store."""

from __future__ import annotations

import asyncio
from typing import Annotated

from cyclopts import Parameter

from onoff.cli.connection import ServerOption, servers_of
from onoff.cli.output import json_text, progress
from onoff.errors import CatalogueMismatch, InvalidInput
from onoff.wire import Catalogue


def catalogue_command(
    *,
    server: ServerOption = None,
    store: str | None = None,
    add: Annotated[list[str] | None, Parameter(negative=())] = None,
    drop: Annotated[list[str] | None, Parameter(negative=())] = None,
    json: bool = False,
) -> None:
    """List the sources of a server, or list and change those of a store.

    ```console
    onoff catalogue
    onoff catalogue --store messages.db --add sports --drop weather
    ```

    A change makes a new epoch; servers on that store follow at once, and clients start a new session.

    Parameters
    ----------
    store
        The store itself, instead of a server: a file or a redis:// address.
    add
        With --store: a source to add at the end; may be given many times.
    drop
        With --store: a source to take out, with its message; may be given many times.
    json
        Print names, epoch, and the frame size or the limit of a message as JSON.
    """
    if store is not None:
        from onoff.server.admin import edit_catalogue, opened

        async def edit() -> Catalogue:
            async with opened(store) as held:
                return await edit_catalogue(held, add=add or [], drop=drop or [])

        with progress("opening the store"):
            found = asyncio.run(edit())
    elif add or drop:
        raise InvalidInput("a server's catalogue is changed in its store", hint="give --store")
    else:
        from onoff.client.catalogue import fetch_catalogue

        every = []
        with progress("waiting for the server") as work:
            for address in servers_of(server):
                work.now(f"waiting for {address}")
                every.append(fetch_catalogue(address))
        found = every[0]
        if any(other != found for other in every):
            raise CatalogueMismatch("the servers have different catalogues", hint="one must follow the other")
    print(json_text(found.as_dict()) if json else "\n".join(found.names))
