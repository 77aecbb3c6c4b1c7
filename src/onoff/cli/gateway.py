"""`onoff gateway`: a switch for a person, and an ordinary address for their apps."""

from __future__ import annotations

import json as jsons
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from onoff.cli.output import Json, emit, progress
from onoff.errors import InvalidInput
from onoff.system.logs import LogFormat, log_to_stderr
from onoff.system.sockets import check_port
from onoff.upstream.web import Web

GATEWAY_PORT = 8480


def gateway_command(
    *,
    upstream: Path | None = None,
    server: Annotated[list[str] | None, Parameter(env_var="ONOFF_SERVER", negative=())] = None,
    chain: Annotated[Path | None, Parameter(name=["--chain", "--model"], env_var="ONOFF_CHAIN")] = None,
    journal: Annotated[Path | None, Parameter(env_var="ONOFF_JOURNAL")] = None,
    scheme: Annotated[str, Parameter(env_var="ONOFF_SCHEME")] = "auto",
    everything: bool = False,
    refresh: float | None = None,
    on_missing: Literal["error", "everything"] = "error",
    host: str = "127.0.0.1",
    port: int = GATEWAY_PORT,
    keep: str = "full",
    log: Path | None = None,
    log_format: LogFormat = "text",
    heartbeat: float = 20.0,
    remember: Annotated[bool | None, Parameter(negative="--forget")] = None,
    accept_leak: Annotated[bool, Parameter(negative="")] = False,
    install: Annotated[bool, Parameter(negative="")] = False,
    uninstall: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> None:
    """Serve the sources of web sites, or of a message server, on this machine, with a switch on a page.

    ```console
    onoff gateway --upstream city.toml --model rides.json
    onoff gateway --server http://127.0.0.1:8470
    onoff gateway --server https://messages.example --chain chain.json --port 0 --keep counters
    onoff gateway --server https://one.example --server https://other.example
    ```

    Open the printed address in a browser. Apps download below the second one. Both stay the same.

    Parameters
    ----------
    upstream
        A list of sources of ordinary web sites: TOML, OPML, or addresses. No message server is needed.
    server
        The address of the message server; several that hold the same messages if given several times. None of several
        learns which source is wanted, for about two messages, as long as they do not tell each other what they saw.
    chain
        A chain or model file; its names are the sources. Without one every request is private, with the switch ON or
        OFF: everything is fetched by schedule and read here; of several servers each is asked for a sum.
    journal
        Where the session is kept; the switch is kept beside it. Default: one per server, in the state directory.
    scheme
        How queries are built.
    everything
        Ask for all sources whenever privacy is ON, also those that the chain calls impossible.
    refresh
        Seconds between two refreshes while privacy is ON; with several servers, while programs poll feeds. Default: as
        the list of web sites says (every), or 300.
    on_missing
        Where one of several servers does not answer: fail, or fetch everything from one that does.
    host
        127.0.0.1 or ::1.
    port
        The port to listen on; 0 takes a free one.
    keep
        What to remember of what the server saw: full, costs (no sets), counters (totals only).
    log
        Append what the server saw to this file, as JSON lines. Default: in memory only.
    log_format
        How messages on stderr are written: as text, or as one JSON object a line.
    heartbeat
        Seconds between two checks that the server answers. Web sites are never asked just to look.
    remember
        Remember what is opened while OFF, on this machine, for `onoff learn --from-gateway`; --forget stops that and
        removes what was remembered. Default: as it was. Of what is read while ON nothing is ever remembered.
    accept_leak
        Let the switch be turned OFF although the advice for the model is to stay ON.
    install
        Install a user service (systemd, launchd or Task Scheduler) that runs this command while you are logged in, and
        start it.
    uninstall
        Stop that service and remove it.
    json
        Print the addresses as one JSON document.
    """
    check_port(port)
    for name, seconds, such in (("heartbeat", heartbeat, 20), ("refresh", refresh, 300)):
        if seconds is not None and not seconds > 0:
            raise InvalidInput(
                f"a {name} every {seconds} seconds", hint=f"give --{name} a number above 0, such as {such}"
            )
    from onoff.gateway import run, service
    from onoff.gateway.engine import Engine
    from onoff.gateway.query_log import QueryLog
    from onoff.gateway.refresh import INTERVAL
    from onoff.model.contexts import load_model

    if upstream is None and not server:
        raise InvalidInput("neither a list of web sites nor a server", hint="give --upstream FILE or --server URL")
    if install or uninstall:
        words = [word for word in sys.argv[2:] if word not in {"--install", "--uninstall"}]
        path = service.install(words) if install else service.uninstall()
        emit({"service": str(path), "installed": install}, json, lambda shown: shown.print(_told(path, install)))
        return
    log_to_stderr("onoff.gateway", log_format)
    with progress("starting" if chain is None else f"reading {chain.name}"):
        where = Web.load(upstream) if upstream is not None else server or []
        loaded = None if chain is None else load_model(chain)
    options: dict[str, Any] = {}
    if loaded is not None:
        options = {"scheme": scheme, "everything": everything, "accept_leak": accept_leak}
    if upstream is None and (loaded is not None or len(server or []) > 1):
        options["on_missing"] = on_missing
    with run.listen_on_loopback(host, port) as sock:
        with progress("opening what is kept of earlier sessions"):
            engine = Engine(
                where,
                loaded,
                journal,
                log=QueryLog(keep, log),
                heartbeat=heartbeat,
                refresh=INTERVAL if refresh is None and upstream is None else refresh,
                **options,
            )
        if remember is not None:
            engine.consent("command line" if remember else None)
        address = run.Address.of(sock, engine)
        if json:
            print(jsons.dumps(address.as_dict()), flush=True)
        else:
            print(
                f"the page:  {address.page}\n"
                f"for apps:  {address.apps}/sources/NAME  or  .../feeds/NAME\n"
                + (f"all feeds: {address.apps}/feeds.opml" if upstream is None else f"the site:  {address.site}"),
                flush=True,
            )
        run.serve_gateway(engine, sock, address)


def _told(path: Path, installed: bool) -> str:
    return f"started, and kept in {path}" if installed else f"stopped and removed: {path}"
