"""`onoff audit`: whether queries leak private requests."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter, validators
from rich.console import Console

from onoff.audit.exact import ExactAudit, audit_exact
from onoff.audit.identities import IdentitiesAudit, audit_identities
from onoff.audit.report import Part, page, plot_exact, write
from onoff.cli.output import Json, Work, check_writable, emit, progress, table
from onoff.errors import InvalidInput, PrivacyBreach
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model, load_model
from onoff.model.patterns import parse
from onoff.schemes import find_scheme

if TYPE_CHECKING:
    from onoff.audit.client import Fault

Html = Annotated[Path | None, Parameter(name="--html", help="Write the report as one self-contained page here.")]
PatternOption = Annotated[str, Parameter(help="Privacy over time, such as 'ON OFF*3 ON'.")]

audit_app = App(name="audit", help="Check that what the server sees tells nothing about private requests.")
audit_app.command("onoff.cli.audit_chain:chain_command", name="chain")
audit_app.command("onoff.cli.audit_explain:explain_command", name="explain")
audit_app.command("onoff.cli.audit_log:log_command", name="log")
audit_app.command("onoff.cli.audit_run:run_command", name="run")
audit_app.command("onoff.cli.audit_traces:traces_command", name="traces")


@audit_app.command(name="exact")
def exact_command(
    chain: Path,
    /,
    *,
    scheme: str = "auto",
    pattern: PatternOption = "ON OFF OFF ON OFF",
    memory: Annotated[str | None, Parameter(help="last-query or bayes-filter; by default as sessions have it.")] = None,
    hide: Annotated[int, Parameter(help="With the filter of a model: private requests that stay hidden.")] = 1,
    everything: Annotated[bool, Parameter(help="Ask for all sources while ON, even impossible ones.")] = False,
    sessions: Annotated[
        int | None,
        Parameter(
            validator=validators.Number(gte=1),
            help="For many sources: verify every table met in this many simulated sessions, instead of enumerating.",
        ),
    ] = None,
    client: Annotated[
        bool, Parameter(negative="", help="Drive the shipped client with its journal, and break it at every step.")
    ] = False,
    html: Html = None,
    json: Json = False,
) -> int:
    """Enumerate every request path and every random branch, and decide by equality.

    ```console
    onoff audit exact chain.json --scheme greedy --pattern 'ON OFF OFF OFF'
    onoff audit exact chain.json --scheme naive --json
    onoff audit exact large.json --scheme greedy --sessions 10000 --pattern 'ON OFF*10'
    onoff audit exact chain.json --client --pattern 'ON OFF OFF'
    ```

    With --sessions the integer identities of every table met in simulated sessions are checked instead. With --client
    the whole client is enumerated, bytes for bytes: without faults, and with each kind of fault at every step. That is
    for two or three sources of a chain, and for two of a model with types or longer contexts.
    """
    check_writable(html, inputs=[chain])
    statuses, what = parse(pattern), f"{chain.name}, {scheme}, {pattern}"
    with progress(f"reading {chain.name}"):
        loaded = load_model(chain)
    if client or sessions is not None:
        if client and (sessions is not None or everything):
            raise InvalidInput("--client goes without --sessions and --everything", hint="audit one after the other")
        if memory not in (None, "last-query"):
            raise InvalidInput(f"only all of a session is audited with memory {memory!r}", hint="leave --memory out")
        if sessions is None:
            if hide != 1:
                raise InvalidInput("--client audits what clients hide by default", hint="leave --hide out")
            return _client(loaded, scheme, statuses, json, html, what)
        if not isinstance(loaded, MarkovChain):
            raise InvalidInput(
                "--sessions takes a chain: the tables of a model hardly ever recur",
                hint="audit a model without it, or by `onoff audit run` and `onoff audit traces`",
            )
        with progress("sessions", sessions) as done:
            told = partial(_tell_time, done, sessions, _foretell(scheme, statuses, sessions))
            met = audit_identities(loaded, scheme, statuses, sessions, progress=told, everything=everything)
            if html is not None:
                _write(html, _met(met), met.private, Part(what))
        emit(met.as_dict(), json, lambda console: console.print(_met(met)))
        return 0 if met.private else PrivacyBreach.exit_code
    with progress("following every path of requests") as work:
        audit = audit_exact(loaded, scheme, statuses, memory, hide=hide, everything=everything, progress=work.now)
        if html is not None:
            work.now(f"writing {html.name}")
            plot = plot_exact(audit)
            _write(html, _verdict(audit), audit.private, Part(what, [EXPLAINED], EXACT_COLUMNS, _lines(audit), plot))
    emit(audit.as_dict(), json, lambda console: _show_exact(console, audit))
    return 0 if audit.private else PrivacyBreach.exit_code


def _foretell(scheme: str, pattern: tuple[bool, ...], sessions: int) -> float:
    """Say what simulated sessions will take, as far as it is known before the first. Returns the time."""
    most = sessions * sum(not private for private in pattern[1:])
    record = find_scheme(scheme)
    budget = record.budget if record.session_budget is None else record.session_budget
    if budget is None and not record.gives_table:
        raise InvalidInput(f"scheme {scheme!r} keeps no table to verify", hint="use greedy or optimal")
    each = "" if budget is None else f", each of up to {budget:g} s of processor time"
    print(
        f"onoff: {sessions} sessions of {len(pattern)} requests: at most {most} tables{each}; none is built twice",
        file=sys.stderr,
    )
    return monotonic()


def _tell_time(work: Work, sessions: int, began: float, done: int) -> None:
    """Show how many sessions are done; after the first, say how long the others would take if each took as long."""
    work(done)
    if done == 1 and sessions > 1:
        seconds = (monotonic() - began) * (sessions - 1)
        print(f"onoff: at most about {seconds:.0f} s more, going by the first session", file=sys.stderr)


EXPLAINED = (
    "Every request path and every random choice was followed, with exact probabilities. 'Bits leaked' is what a "
    "step's query adds to what the server knows about private requests; zero is decided by equality. 'Known in "
    "all' counts open requests made before a private one too, which cannot be undone."
)
BROKEN = (
    "The whole client was driven, with its journal and its retries, on every request path and every random choice. "
    "Before every request the fault happened or did not, with the same probability. 'Bits leaked' is what the bytes of "
    "all steps add to what the server knows about private requests; zero is decided by equality."
)
FAULT_COLUMNS = ("fault at every step", "worlds", "bits leaked")
EXACT_COLUMNS = ("t", "privacy", "messages", "bits leaked", "known in all", "naive switching leaks")


def _lines(audit: ExactAudit) -> list[tuple[int, str, float, float, float, float]]:
    return [
        (step["t"], "ON" if step["private"] else "OFF", step["cost"], step["bits"], step["joint"], naive)
        for step, naive in zip(audit.as_dict()["steps"], audit.naive, strict=True)
    ]


def _verdict(audit: ExactAudit) -> str:
    if audit.private:
        note = f" (rounding {audit.rounding:.2g})" if audit.rounding else ""
        older = max(step["all_bits"] for step in audit.as_dict()["steps"])
        if older:
            return (
                f"No step tells anything about the private requests that are hidden: exactly 0 bits{note}. Older ones "
                f"show through the type of person, {older:.2g} bits at one step; --hide 2 hides one more."
            )
        return f"No step tells anything about private requests: exactly 0 bits{note}."
    return f"LEAK of {audit.leak:.6g} bits. {audit.breach}"


def _show_exact(console: Console, audit: ExactAudit) -> None:
    console.print(table(EXACT_COLUMNS, _lines(audit)))
    console.print(_verdict(audit))


def _write(path: Path, verdict: str, private: bool, part: Part) -> None:
    write(path, page("Exact audit", verdict, private, [part]))


def _client(model: Model, scheme: str, pattern: tuple[bool, ...], json: bool, html: Path | None, what: str) -> int:
    from onoff.audit.client import EVERY_FAULT, Fault, audit_client

    audits: dict[Fault, ExactAudit] = {}
    with progress("faults", len(EVERY_FAULT) + 1) as done:
        for fault in (Fault.NONE, *EVERY_FAULT):
            audits[fault] = audit_client(model, scheme, pattern, () if fault is Fault.NONE else (fault,))
            done(len(audits))
    calm = audits[Fault.NONE]
    faults = [
        {"fault": str(fault), "leak": audit.leak or 0, "worlds": audit.steps[-1].worlds, "breach": audit.breach}
        for fault, audit in audits.items()
    ]
    leaking = next((audit for audit in audits.values() if not audit.private), calm)

    def show(console: Console) -> None:
        console.print(table(FAULT_COLUMNS, _fault_lines(audits)))
        console.print(_verdict(leaking))

    if html is not None:
        _write(html, _verdict(leaking), leaking.private, Part(what, [BROKEN], FAULT_COLUMNS, _fault_lines(audits)))
    emit({**calm.as_dict(), "faults": faults, "breach": leaking.breach}, json, show)
    return 0 if leaking.private else PrivacyBreach.exit_code


def _fault_lines(audits: Mapping[Fault, ExactAudit]) -> list[tuple[str, int, float]]:
    return [(str(fault), audit.steps[-1].worlds, audit.leak) for fault, audit in audits.items()]


def _met(met: IdentitiesAudit) -> str:
    if not met.private:
        return f"LEAK. {met.breach}"
    return (
        f"{met.tables} tables ({met.cells} cells, the largest with {met.largest} queries) met in {met.requests} "
        f"requests of {met.sessions} sessions: every identity holds, by equality of integers. Tables that no session "
        "met were not looked at."
    )
