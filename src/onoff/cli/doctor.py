"""`onoff doctor`: is everything in place for private requests, and what will they cost?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from onoff.cli.options import (
    ChainFile,
    JournalFile,
    MirrorFile,
    SchemeOption,
    ServerOption,
    UpstreamFile,
    count_requests,
    journal_path,
    mirror_path,
    servers_of,
    size_text,
)
from onoff.cli.output import Json, Work, emit, progress
from onoff.client.copies import MirrorClient, WebSources, fetch_edition_of
from onoff.client.forecast import cost_of_set, frame_sizes, sum_bytes, table_bytes, table_messages
from onoff.client.journal import Journal
from onoff.client.stores import Mirror
from onoff.errors import (
    CatalogueMismatch,
    InvalidChain,
    JournalBusy,
    JournalUnusable,
    MirrorBusy,
    MirrorError,
    OnOffError,
    PrivacyBreach,
    ServerUnreachable,
)
from onoff.information import foretell
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model, load_model
from onoff.model.origin import advice_of
from onoff.model.people import constants_of
from onoff.schemes import design
from onoff.session.session import start
from onoff.tables.table import QuerySource, QueryTable
from onoff.upstream.message_server import NoChanges, fetch_catalogue, require_sources
from onoff.upstream.sources import SourceList
from onoff.upstream.sum_servers import shared_infrastructure
from onoff.upstream.web import Web
from onoff.wire import Catalogue, decode_bitmap

MOST_WAITING = 200
"""Requests of waiting that are looked at."""
TINY = 1e-4
"""A smaller transition probability makes a rare request expensive, and in a learnt chain it is seldom intended."""


def doctor_command(
    *,
    upstream: UpstreamFile = None,
    server: ServerOption = None,
    chain: ChainFile = None,
    journal: JournalFile = None,
    scheme: SchemeOption = "auto",
    mirror: MirrorFile = None,
    json: Json = False,
) -> int:
    """Check chain, server, catalogue, journal and mirror, and say what requests will cost. Sends no query.

    ```console
    onoff doctor --server http://127.0.0.1:8470 --chain chain.json
    onoff doctor --server http://127.0.0.1:8470 --chain chain.json --journal app.sqlite --json
    onoff doctor --upstream city.toml --chain chain.json
    ```

    With --upstream every address of the list is tried, all alike, as a private request does, and what came is kept for
    the next one; then it says what ON and OFF take in requests, bytes and minutes, and where that exceeds the budget.

    The exit code is that of the first fault: 3 for chain or catalogue, 4 for a server, 1 for journal or mirror, 5 for
    several servers that look like one operator. Without a chain every request is private, and its checks are left out.
    """
    address = servers_of(None if upstream is not None else server)
    with progress("reading the chain") as work:
        files = journal_path(journal, address, upstream), mirror_path(mirror, journal, address, upstream)
        if upstream is None:
            checks = list(_examine(address, chain, files, scheme, work))
        else:
            checks = list(_examine_sites(Web.load(upstream, progress=count_requests(work)), chain, files, scheme, work))
    emit({"ok": all(check["ok"] for check in checks), "checks": checks}, json, lambda console: _show(console, checks))
    return next((check["exit_code"] for check in checks if not check["ok"]), 0)


def _examine(
    servers: list[str], chain: Path | None, files: tuple[Path, Path], scheme: str, work: Work
) -> Iterator[dict[str, Any]]:
    """The checks, one after the other; those that need a chain are left out where there is none."""
    journal, mirror = files
    loaded: list[Model] = []
    catalogues: list[Catalogue] = []
    tables: list[QuerySource] = []

    def reach(server: str) -> str:
        work.now(f"waiting for {server}")
        catalogue = fetch_catalogue(server)
        catalogues.append(catalogue)
        return f"{catalogue.n} sources, messages of up to {catalogue.limit} bytes"

    yield from _examine_chain(chain, loaded)
    for server in servers:
        yield _checked("server", partial(reach, server))
    if len(servers) > 1:
        if len(catalogues) == len(servers):
            yield _checked("editions", lambda: _editions(servers))
        yield _checked("operators", lambda: _operators(servers))
    if loaded and catalogues:
        yield _checked("catalogue", lambda: _compare(loaded[0].names, catalogues[0]))
    sound = _checked("journal", lambda: _sound(journal))
    yield sound
    for model in loaded:
        if isinstance(model, MarkovChain) and journal.exists() and sound["ok"]:
            yield _checked("next private request", partial(_foretold, model, journal))
    mirrored = _checked("mirror", lambda: _mirrored(mirror))
    yield mirrored
    if loaded:
        work.now(f"building the table for {loaded[0].n} sources")
        yield _checked("expected cost", lambda: _cost(loaded[0], scheme, tables, len(servers)))
    if tables and catalogues and mirrored["ok"] and len(servers) == 1:
        work.now(f"waiting for {servers[0]}")
        yield _checked("expected bytes", lambda: _bytes(servers[0], mirror, loaded[0], tables[0]))
    if len(servers) > 1 and len(catalogues) == len(servers):
        work.now(f"waiting for {servers[0]}")
        n = loaded[0].n if loaded else catalogues[0].n
        yield _checked("expected bytes", lambda: _sum_bytes(servers, n, tables[0] if tables else None))


def _examine_chain(chain: Path | None, loaded: list[Model]) -> Iterator[dict[str, Any]]:
    """The checks of the chain alone; it is put into `loaded` where it can be used."""

    def read_chain() -> str:
        if chain is None:
            return "none: every request is private"
        model = load_model(chain)
        loaded.append(model)
        if isinstance(model, MarkovChain):
            return f"{model.n} sources, every row sums to 1"
        return f"{model.n} sources, {model.types} types, {len(model.contexts)} contexts of order {model.order}"

    yield _checked("chain", read_chain)
    if loaded and chain is not None:
        yield _checked("smallest probability", lambda: _smallest(loaded[0]))
        yield _checked("advice", lambda: _advice(loaded[0]))


def _examine_sites(
    web: Web, chain: Path | None, files: tuple[Path, Path], scheme: str, work: Work
) -> Iterator[dict[str, Any]]:
    """The checks of a list of ordinary sites."""
    journal, copies = files
    loaded: list[Model] = []
    tables: list[QuerySource] = []
    sources = WebSources(web, copies)
    yield from _examine_chain(chain, loaded)
    yield _checked("list", lambda: _listed(web.sources))
    if loaded:
        yield _checked("names", lambda: _in_list(loaded[0].names, web))
    yield _checked("journal", lambda: _sound(journal))
    with closing(sources):
        work.now(f"asking {web.address}")
        yield _checked("sites", lambda: _tried(sources))
        sizes: list[int] = []
        with suppress(MirrorError):  # in use, as was said above
            sizes = [state.size for state in sources.sources()]
    yield _checked("ON", lambda: _everything(web.sources, sizes))
    if loaded:
        work.now(f"building the table for {loaded[0].n} sources")
        yield _checked("expected cost", lambda: _cost(loaded[0], scheme, tables, 1))
    if tables:
        yield _checked("OFF", lambda: _open_set(web.sources, loaded[0].names, tables[0], sizes))


def _listed(sources: SourceList) -> str:
    lists = "" if sources.join is None else f"; up to {sources.join.most} in one request"
    hosts = f"{len(sources.hosts)} host{'s' if len(sources.hosts) > 1 else ''}"
    return f"{len(sources.sources)} sources at {hosts}; budget: {sources.budget}{lists}"


def _in_list(chain: tuple[str, ...], web: Web) -> str:
    web.require(chain)
    more = len(web.names) - len(chain)
    return "all sources of the chain" + (f"; {more} more, which are asked for while ON" if more else "")


def _tried(sources: WebSources) -> str:
    """Ask for everything, as while ON, whatever will be wanted."""
    try:
        done = sources.refresh()
    except MirrorBusy as error:
        return f"not tried: {error.message}"
    failed = [f"{name} ({outcome.reason})" for name, outcome in done.outcomes.items() if outcome.state == "failed"]
    if failed:
        more = ", ..." if len(failed) > 5 else ""
        raise ServerUnreachable(
            f"{len(failed)} of {len(done.outcomes)} sources failed: {', '.join(failed[:5])}{more}",
            hint="mend their addresses, or take them out of the list: who wants one of them gets an error",
        )
    return (
        f"all {len(done.outcomes)} answered: {done.requests} requests, {size_text(done.received)}, {done.seconds:.1f} s"
    )


def _everything(sources: SourceList, sizes: list[int]) -> str:
    """What asking for everything takes. Raises OverBudget where the budget never allows it within the patience."""
    requests = sources.requests_for(len(sources.sources))
    seconds = _seconds(sources, requests, check=True)
    told = f"everything: {requests} requests, {_at_most(sum(sizes))}, {seconds}"
    if sources.every is None:
        return told
    rounds = 86400 / sources.every
    exceeded = [limit for limit in sources.budget.limits if requests * limit.seconds / sources.every > limit.count]
    last = min((limit.count / requests * sources.every for limit in exceeded), default=math.inf)
    day = f"every {sources.every:g} s: {requests * rounds:.0f} requests a day, {_at_most(sum(sizes) * rounds)}"
    return f"{told}; {day}" + (f"; the budget lasts for {last / 3600:.1f} h of it" if exceeded else "")


def _open_set(sources: SourceList, names: tuple[str, ...], table: QuerySource, sizes: list[int]) -> str:
    requests = float(sources.requests_for(round(table.cost)))
    if isinstance(table, QueryTable):
        each = np.array([sources.requests_for(int(size)) for size in np.diff(table.offsets)])
        requests = float(each @ table.mean_masses)
    place = {name: at for at, name in enumerate(sources.names)}
    known = [sizes[place[name]] for name in names if name in place and sizes]
    asked = table_bytes(table, known) if len(known) == len(names) else 0.0
    seconds = _seconds(sources, math.ceil(requests), check=False)
    return f"an open request after a private one: {requests:.3g} requests, {_at_most(asked)}, {seconds}"


def _at_most(count: float) -> str:
    return "bytes not known yet" if not count else f"{size_text(count)} where all has changed, uncompressed"


def _seconds(sources: SourceList, requests: int, *, check: bool) -> str:
    """How long the budget makes so many requests take, where none was made before."""
    patience = sources.patience if check else math.inf
    times = sources.budget.check(requests, 0.0, (), patience)
    return f"{times[-1] / 60:.1f} min by the budget" if times and times[-1] else "at once"


def _checked(name: str, work: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"check": name, "ok": True, "detail": work(), "hint": None, "exit_code": 0}
    except OnOffError as error:
        return {"check": name, "ok": False, "detail": error.message, "hint": error.hint, "exit_code": error.exit_code}


def _advice(model: Model) -> str:
    """Whether to switch OFF; with a history too, where sessions can know one."""
    advice = advice_of(model.about)
    if constants_of(model) is None:
        return f"{advice.word}. {advice.says}"
    known = advice_of(model.about, "open")
    return f"{advice.word}. {advice.says} Where open requests are remembered: {known.word}. {known.says}"


def _smallest(chain: Model) -> str:
    """The smallest transition probability. Zero is possible, and is said."""
    if isinstance(chain, MarkovChain):
        smallest = 0.0 if chain.is_sparse else float(np.min(np.asarray(chain.transition)))
    else:  # a sparse model leaves a share to () in every context
        smallest = min(float(chain.law(z, 0).min()) for z in range(chain.types))
        if isinstance(chain.laws, np.ndarray):
            smallest = float(chain.laws.min())
    if smallest == 0.0:
        return "some requests are impossible under this chain; if they occur, everything is asked"
    if smallest < TINY:
        raise InvalidChain(
            f"the smallest transition probability is {smallest:.3g}", hint="smooth the chain: such a request costs much"
        )
    return f"{smallest:.3g}"


def _compare(chain: tuple[str, ...], catalogue: Catalogue) -> str:
    require_sources(chain, catalogue)
    more = catalogue.n - len(chain)
    return "all sources of the chain" + (f"; {more} more, which cannot be asked for" if more else "")


def _sound(path: Path) -> str:
    if not path.exists():
        return "none yet: the first request asks for everything"
    try:
        journal = Journal(path, repair=False)
    except JournalBusy:
        return _in_use(path)
    journal.close()
    if journal.doubt is not None:
        raise JournalUnusable(f"{path}: {journal.doubt}", hint="the next request will ask for everything, once")
    return f"{path}: sound"


def _foretold(model: MarkovChain, path: Path) -> str:
    """What the last query tells of the next private request, and after how much waiting that is a tenth."""
    try:
        journal = Journal(path, repair=False)
    except JournalBusy:
        return _in_use(path)
    journal.close()
    if journal.found is None or journal.doubt is not None or journal.found.chain != model.digest():
        return "not known: the next request asks for everything"
    told = foretell(model, decode_bitmap(journal.found.asked, model.n), MOST_WAITING)
    now = told[0]
    enough = next((one.wait for one in told if one.bits <= now.bits / 10), None)
    after = "fades slowly" if enough is None else f"a tenth of that after {enough} more requests"
    return (
        f"the last query tells {now.bits:.2f} of {now.unknown:.2f} bits of it: a guess is right {now.guess:.0%} of the "
        f"time instead of {now.base:.0%}; {after}. Wait, or announce it"
    )


def _in_use(path: Path) -> str:
    """Where a gateway runs, it has its files open: that is how they should be."""
    return f"{path}: in use, by a gateway or another client, which checked it when it was opened"


def _editions(servers: list[str]) -> str:
    """Whether the servers hold the same messages."""
    found = [fetch_edition_of(server) for server in servers]
    if len({(edition.epoch, edition.life) for edition in found}) > 1:
        raise CatalogueMismatch(
            "the servers do not hold the same messages", hint="one must follow the other: `onoff serve --follow URL`"
        )
    numbers = sorted(edition.number for edition in found)
    return f"edition {numbers[0]}" + (f", and up to {numbers[-1]} at others" if numbers[-1] > numbers[0] else "")


def _operators(servers: list[str]) -> str:
    shared = shared_infrastructure(servers)
    if shared:
        raise PrivacyBreach(
            "the servers look like one operator: " + "; ".join(shared),
            hint="servers that tell each other what they were asked learn every request",
        )
    return "different addresses and certificates; whether they tell each other what they were asked cannot be seen"


def _mirrored(path: Path) -> str:
    if not path.exists():
        return "none yet: the first private request fetches everything"
    try:
        mirror = Mirror(path, repair=False)
    except MirrorBusy:
        return _in_use(path)
    mirror.close()
    return f"{path}: sound, {size_text(mirror.size)}"


def _bytes(server: str, path: Path, chain: Model, table: QuerySource) -> str:
    in_use = _mirrored(path) == _in_use(path)
    with MirrorClient(server, path if path.exists() and not in_use else None) as client:
        try:
            hour = f"an hour of ON: {size_text(client.newest().changed_per_hour)}"
        except NoChanges:
            hour = "an hour of ON: everything at every request, because the server does not tell what changed"
        if in_use:
            return hour
        sizes = frame_sizes(client.mirror, chain.names)
        request = None if sizes is None else table_bytes(table, sizes)
        return f"{hour}; an open request: {size_text(request)}; received today: {size_text(client.used_today)}"


def _sum_bytes(servers: list[str], n: int, table: QuerySource | None) -> str:
    with MirrorClient(servers[0]) as client:
        longest = client.newest().longest
    count = len(servers)
    private = f"a private request: {size_text(sum_bytes(cost_of_set(n, count), longest, count))}"
    if table is None:
        return private
    opened = sum_bytes(table_messages(table, count), longest, count)
    return f"{private}; an open request after it: {size_text(opened)}"


def _cost(chain: Model, scheme: str, tables: list[QuerySource], servers: int) -> str:
    memory = start(None, chain).afresh(0)  # a session that has just asked for everything
    table = design(memory.rows, scheme)
    tables.append(table)
    if servers > 1:
        open_request, private = table_messages(table, servers), cost_of_set(chain.n, servers)
        return f"{open_request:.4g} messages for an open request after a private one, {private:.4g} for a private one"
    return f"{table.cost:.4g} messages for an open request after a private one, at most {chain.n} for a private one"


def _show(console: Console, checks: list[dict[str, Any]]) -> None:
    for check in checks:
        mark = "[green]ok[/]" if check["ok"] else "[red]no[/]"
        console.print(f"{mark}  {check['check']}: ", end="")
        console.print(check["detail"], markup=False)
        if check["hint"]:
            console.print(f"    {check['hint']}", markup=False)
