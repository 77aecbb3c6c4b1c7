"""`onoff catalogue`: the sources of a server, or a change to those of a store."""

from __future__ import annotations

import asyncio
from typing import Annotated

from cyclopts import Parameter

from onoff.cli.output import json_text, progress
from onoff.cli.publish import DEFAULT_SERVER
from onoff.errors import InvalidInput
from onoff.wire import Catalogue


def catalogue_command(
    *,
    server: Annotated[str, Parameter(env_var="ONOFF_SERVER")] = DEFAULT_SERVER,
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
    server
        The address of the message server.
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

        with progress(f"waiting for {server}"):
            found = fetch_catalogue(server)
    print(json_text(found.as_dict()) if json else "\n".join(found.names))
