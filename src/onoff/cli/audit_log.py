"""`onoff audit log`: recompute every line of a log of queries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from onoff.audit.transcript import LogAudit, audit_log, read_log
from onoff.cli.audit import Html
from onoff.cli.output import Json, check_writable, emit, progress, table
from onoff.errors import InvalidInput, PrivacyBreach
from onoff.model.chain import MarkovChain

SHOWN = 20
UNLIKELY = 1e-6


def log_command(
    file: Path,
    /,
    *,
    chain: Annotated[Path, Parameter(help="The chain that the queries were drawn for.")],
    scheme: Annotated[str, Parameter(help="The scheme that they were drawn with.")] = "auto",
    html: Html = None,
    json: Json = False,
) -> int:
    """Recompute that every query is canonical and possible, holds what ON requires and follows its table.

    ```console
    onoff audit log queries.jsonl --chain chain.json
    onoff audit log queries.jsonl --chain chain.json --scheme greedy --json
    ```

    FILE is JSON lines: {"step": 4, "private": false, "sources": [0, 2]}, as the gateway writes them; a server's log
    has no "private", and a "session" tells its users apart. What cannot be rebuilt here is reported, and is no fault.
    """
    check_writable(html, inputs=[file, chain])
    with progress(f"reading {chain.name}") as work:
        loaded = MarkovChain.load(chain)
        work.now("queries")
        audit = audit_log(work.counting(read_log(file)), loaded, scheme)
        if not audit.queries:
            raise InvalidInput(f"{file}: no query in it", hint="give a log of JSON lines")
        if html is not None:
            work.now(f"writing {html.name}")
            _write(html, audit, file.name)
    emit(audit.as_dict(), json, lambda console: _show(console, audit))
    return 0 if audit.sound else PrivacyBreach.exit_code


def _verdict(audit: LogAudit) -> str:
    if not audit.sound:
        return f"{len(audit.faults)} of {audit.queries} queries are not what an honest session sends."
    return f"All {audit.queries} queries are what an honest session sends."


def _fit(audit: LogAudit) -> str:
    if audit.fit is None:
        return "Too few open requests to compare how often each query was drawn with its table."
    if audit.fit < UNLIKELY:
        return (
            f"How often queries were drawn does not fit their tables (p = {audit.fit:.2g}): the requests do not follow "
            "this chain, and something leaks; see `onoff audit chain`."
        )
    return f"How often queries were drawn fits their tables (p = {audit.fit:.2g})."


def _unchecked(audit: LogAudit) -> str | None:
    if not audit.without_table:
        return None
    return (
        f"{audit.without_table} of {audit.queries} queries were drawn from what cannot be rebuilt here: a race, or a "
        "table whose search was ended by the clock. Of these it was only checked that they rule out no source of the "
        "query before."
    )


def _lines(audit: LogAudit) -> list[tuple[int, int, str]]:
    return [(fault.line, fault.step, fault.reason) for fault in audit.faults[:SHOWN]]


def _counts(audit: LogAudit) -> str:
    return (
        f"{audit.sessions} sessions, {audit.queries} queries, {audit.retries} retries, {audit.messages} messages; "
        f"everything was asked {audit.everything} times where less might have done."
    )


def _remarks(audit: LogAudit) -> list[str]:
    return [remark for remark in (_counts(audit), _unchecked(audit), _fit(audit)) if remark is not None]


def _show(console: Console, audit: LogAudit) -> None:
    if audit.faults:
        console.print(table(("line", "step", "what is wrong"), _lines(audit)))
    for remark in _remarks(audit):
        console.print(remark)
    console.print(_verdict(audit))


def _write(path: Path, audit: LogAudit, name: str) -> None:
    from onoff.audit.report import Part, page, write

    columns = ("line", "step", "what is wrong") if audit.faults else ()
    part = Part(name, _remarks(audit), columns, _lines(audit))
    write(path, page("Audit of a log", _verdict(audit), audit.sound, [part]))
