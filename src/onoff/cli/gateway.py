"""`onoff gateway`: a switch for a person, and an ordinary address for their apps."""

from __future__ import annotations

import json as jsons
import logging
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from onoff.cli.output import Json
from onoff.errors import InvalidInput, MissingExtra
from onoff.system.listening import check_port

DEFAULT_PORT = 8480


def gateway(
    *,
    server: Annotated[str, Parameter(env_var="ONOFF_SERVER")],
    chain: Path,
    journal: Path | None = None,
    scheme: str = "auto",
    everything: bool = False,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    keep: str = "full",
    log: Path | None = None,
    heartbeat: float = 20.0,
    json: Json = False,
) -> None:
    """Serve the sources of a message server on this machine, with a switch on a page.

    ```console
    onoff gateway --server http://127.0.0.1:8470 --chain chain.json
    onoff gateway --server https://messages.example --chain chain.json --port 0 --keep counters
    ```

    Open the printed address in a browser. Apps download below the second one, which stays the same.

    Parameters
    ----------
    server
        The address of the message server.
    chain
        A chain or model file; its names are the sources.
    journal
        Where the session is kept; the switch is kept beside it. Default: one per server, in the state directory.
    scheme
        How queries are built.
    everything
        Ask for all sources whenever privacy is ON, also those that the chain calls impossible.
    host
        127.0.0.1 or ::1.
    port
        The port to listen on; 0 takes a free one.
    keep
        What to remember of what the server saw: full, costs (no sets), counters (totals only).
    log
        Append what the server saw to this file, as JSON lines. Default: in memory only.
    heartbeat
        Seconds between two looks whether the server is there.
    json
        Print the addresses as one JSON document.
    """
    check_port(port)
    if not heartbeat > 0:
        raise InvalidInput(
            f"a heartbeat every {heartbeat} seconds", hint="give --heartbeat a number above 0, such as 20"
        )
    try:
        from onoff.gateway import run
        from onoff.gateway.engine import Engine
        from onoff.gateway.seen import SeenLog
    except ModuleNotFoundError as missing:
        raise MissingExtra(f"{missing.name} is not installed", extra="gateway") from None
    from onoff.model.contexts import load_model

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    loaded = load_model(chain)
    with run.listen(host, port) as sock:
        engine = Engine(
            server,
            loaded,
            journal,
            log=SeenLog(keep, log),
            heartbeat=heartbeat,
            scheme=scheme,
            everything=everything,
        )
        address = run.Address.of(sock, engine)
        if json:
            print(jsons.dumps(address.as_dict()), flush=True)
        else:
            print(f"the page:  {address.page}\nfor apps:  {address.apps}/sources/NAME  or  .../feeds/NAME", flush=True)
        run.serve_here(engine, sock, address)
