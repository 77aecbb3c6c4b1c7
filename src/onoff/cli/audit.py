"""`onoff audit`: whether queries leak private requests."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import numpy as np
from cyclopts import App, Parameter, validators
from rich.console import Console

from onoff.audit.client import Fault
from onoff.audit.exact import ExactAudit, audit_budget, audit_exact, users_of
from onoff.audit.identities import IdentitiesAudit, audit_identities
from onoff.audit.live import LIVE_FAULTS, LiveUsers
from onoff.audit.logs import LogAudit, audit_log, read_log
from onoff.audit.report import Part, page, plot_error, plot_exact, plot_explanation, write
from onoff.audit.sampled import ALPHA, FEWEST_SESSIONS, SampledAudit, collect, judge_trials
from onoff.cli.options import (
    EverythingOption,
    HideOption,
    Html,
    LeakOption,
    MemoryOption,
    PatternOption,
    TopicsFile,
    UpstreamFile,
    hide_of,
    read_topics,
)
from onoff.cli.output import Json, Work, check_writable, emit, progress, table
from onoff.errors import InvalidInput, PrivacyBreach, nearest
from onoff.lab import mismatch
from onoff.lab.explain import Explanation, explain
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model, RequestModel, load_model
from onoff.model.patterns import parse
from onoff.model.rows import Integers
from onoff.schemes import find_scheme
from onoff.upstream.budget import OverBudget
from onoff.upstream.sources import SourceList

audit_app = App(name="audit", help="Check that what the server sees tells nothing about private requests.")
audit_app.command("onoff.cli.audit:chain_command", name="chain")
audit_app.command("onoff.cli.audit:explain_command", name="explain")
audit_app.command("onoff.cli.audit:log_command", name="log")
audit_app.command("onoff.cli.audit:run_command", name="run")
audit_app.command("onoff.cli.audit_traces:traces_command", name="traces")


@audit_app.command(name="exact")
def exact_command(
    chain: Path,
    /,
    *,
    scheme: str = "auto",
    pattern: PatternOption = "ON OFF OFF ON OFF",
    memory: MemoryOption = None,
    hide: HideOption = "1",
    topics: TopicsFile = None,
    leak: LeakOption = 0.0,
    everything: EverythingOption = False,
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

    With --topics the topics of private requests are judged. With --leak it is decided, by whole numbers too, that no
    private request is told about more than its odometer says, nor more than the budget.

    With --sessions the integer identities of every table met in simulated sessions are checked instead. With --client
    the whole client is enumerated, bytes for bytes: without faults, and with each kind of fault at every step. That is
    for two or three sources of a chain, and for two of a model with types or longer contexts.
    """
    check_writable(html, inputs=[chain])
    statuses, what = parse(pattern), f"{chain.name}, {scheme}, {pattern}"
    with progress(f"reading {chain.name}"):
        loaded = load_model(chain)
        lists = read_topics(topics)
    if sessions is not None and (lists is not None or leak):
        raise InvalidInput("--sessions checks sessions without --topics and --leak", hint="leave it out")
    if client or sessions is not None:
        if client and (sessions is not None or everything):
            raise InvalidInput("--client goes without --sessions and --everything", hint="audit one after the other")
        if memory not in (None, "last-query"):
            raise InvalidInput(f"only all of a session is audited with memory {memory!r}", hint="leave --memory out")
        if sessions is None:
            if hide != "1" or topics is not None or leak:
                raise InvalidInput(
                    "--client audits clients as they are by default", hint="leave out --hide, --topics and --leak"
                )
            return _client(loaded, scheme, statuses, json, html, what)
        if not isinstance(loaded, MarkovChain):
            raise InvalidInput(
                "--sessions takes a chain: the tables of a model hardly ever recur",
                hint="audit a model without it, or by `onoff audit run` and `onoff audit traces`",
            )
        with progress("sessions", sessions) as done:
            told = partial(_tell_time, done, sessions, _foretell(scheme, statuses, sessions))
            met = audit_identities(loaded, scheme, statuses, sessions, progress=told, everything=everything)
            _write(done, html, EXACT, _met(met), met.private, Part(what))
        emit(met.as_dict(), json, lambda console: console.print(_met(met)))
        return 0 if met.private else PrivacyBreach.exit_code
    with progress("following every path of requests") as work:
        how: dict[str, Any] = {"hide": hide_of(hide), "everything": everything}
        how |= ({"topics": lists} if lists is not None else {}) | ({"leak": leak} if leak else {})
        audit = audit_exact(loaded, scheme, statuses, memory, progress=work.now, **how)
        kept = audit_budget(loaded, users_of(loaded, scheme, memory, **how), statuses, leak) if leak else None
        if kept is not None:  # what is told is no breach as long as it is within the budget
            audit = replace(audit, breach=kept.breach, budget=kept)
        part = Part(what, [EXPLAINED], EXACT_COLUMNS, _lines(audit), plot_exact(audit) if html else "")
        _write(work, html, EXACT, _verdict(audit), audit.private, part)
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
EXACT = "Exact audit"
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


def _write(work: Work, path: Path | None, title: str, verdict: str, good: bool, *parts: Part) -> None:
    """The report of an audit as a page, where one was asked for."""
    if path is not None:
        work.now(f"writing {path.name}")
        write(path, page(title, verdict, good, parts))


def _client(model: Model, scheme: str, pattern: tuple[bool, ...], json: bool, html: Path | None, what: str) -> int:
    from onoff.audit.client import EVERY_FAULT, Fault, audit_client

    audits: dict[Fault, ExactAudit] = {}
    with progress("faults", len(EVERY_FAULT) + 1) as done:
        for fault in (Fault.NONE, *EVERY_FAULT):
            audits[fault] = audit_client(model, scheme, pattern, () if fault is Fault.NONE else (fault,))
            done(len(audits))
        leaking = next((audit for audit in audits.values() if not audit.private), audits[Fault.NONE])
        part = Part(what, [BROKEN], FAULT_COLUMNS, _fault_lines(audits))
        _write(done, html, EXACT, _verdict(leaking), leaking.private, part)
    faults = [
        {"fault": str(fault), "leak": audit.leak or 0, "worlds": audit.steps[-1].worlds, "breach": audit.breach}
        for fault, audit in audits.items()
    ]

    def show(console: Console) -> None:
        console.print(table(FAULT_COLUMNS, _fault_lines(audits)))
        console.print(_verdict(leaking))

    emit({**audits[Fault.NONE].as_dict(), "faults": faults, "breach": leaking.breach}, json, show)
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


WHAT_IS_PROVED = (
    "The bounds on guessing and on telling apart are proved; the one in bits is the continuity of equivocation "
    "(Alhejji and Smith, 1909.00787), cited and held against exact values in our tests. They hold at every step, for "
    "all past requests. Exact values are for the first open request after a private one, and with --pattern for each "
    "step; 'the worst found' is over the directions tried, so the true worst case lies between it and the bound."
)
ONLY_THE_ESTIMATE = (
    "This is about the estimate of a first-order chain only. People remember more than their last request, and what "
    "that gives away can be a bit and more: `onoff audit traces` measures it on their real requests."
)
POINTS = 21


def chain_command(
    chain: Path,
    /,
    *,
    against: Annotated[Path | None, Parameter(help="The chain that requests really follow.")] = None,
    error: Annotated[float | None, Parameter(help="Largest total variation of a row, from 0 to 1.")] = None,
    traces: Annotated[Path | None, Parameter(help="What the chain was learnt from: its sampling error.")] = None,
    pattern: PatternOption | None = None,
    scheme: str = "auto",
    html: Html = None,
    plot: Annotated[Path | None, Parameter(help="Write the picture over the error as SVG here.")] = None,
    json: Json = False,
) -> None:
    """Tell what leaks when the true chain is another one, or is off by an error, or is known only from traces.

    ```console
    onoff audit chain chain.json --against measured.json
    onoff audit chain chain.json --error 0.05 --html report.html
    onoff audit chain chain.json --traces clicks.csv --json
    ```

    All of this presumes that requests follow some first-order chain. What real readers give away, who do not, is
    measured by `onoff audit traces`.
    """
    if (against is None) + (error is None) + (traces is None) != 2:
        raise InvalidInput("give one of --against, --error and --traces", hint="e.g. --error 0.05")
    check_writable(html, plot, inputs=[chain, against, traces])
    with progress(f"reading {chain.name}") as work:
        designed = MarkovChain.load(chain)
        if against is not None:
            truth = MarkovChain.load(against)
            work.now(f"comparing {designed.n} sources")
            data = against_chain(designed, truth, scheme, pattern)
            size = max(data["error"], 1e-3)
        elif error is not None:
            work.now(f"moving the rows of {designed.n} sources")
            data, size = {"error": error, **_at(designed, error, scheme)}, max(error, 1e-3)
        else:
            assert traces is not None
            work.now(f"reading {traces.name}")
            counts = count_traces(traces, designed)
            work.now("resampling the chain")
            found = mismatch.sampling_error(designed, counts, scheme)
            data = {"error": found.typical, "sampling": found.as_dict(), "note": ONLY_THE_ESTIMATE}
            size = max(found.high, 1e-3)
        if html is not None or plot is not None:
            work.now("drawing the picture")
            errors = np.linspace(0, min(1.0, 2 * size), POINTS).tolist()
            picture = plot_error(mismatch.error_curve(designed, errors, scheme))
            if plot is not None:
                write(plot, picture)
            part = Part("What leaks when the chain is wrong", [WHAT_IS_PROVED], *_table(data), picture)
            _write(work, html, "Audit of a chain", _chain_verdict(data), True, part)
    emit(data, json, lambda console: _show(console, data))


def against_chain(designed: MarkovChain, truth: MarkovChain, scheme: str, pattern: str | None) -> dict[str, Any]:
    """The errors of the rows, the bounds they give, and the exact values."""
    errors = mismatch.row_errors(designed, truth)
    data: dict[str, Any] = {
        "error": float(errors.max()),
        "rows": errors.tolist(),
        "upper": mismatch.bounds_for(float(errors.max()), designed.n).as_dict(),
        "exact": mismatch.first_step(designed, truth, scheme).as_dict(),
    }
    if pattern is None and designed.n <= mismatch.SMALL:
        pattern = "ON OFF OFF"
    if pattern is not None:
        steps = mismatch.enumerated(designed, truth, parse(pattern), scheme).steps
        data["steps"] = [
            {"t": s.t, "private": s.private, "bits": s.bits, "advantage": s.advantage, "cost": s.cost} for s in steps
        ]
    return data


def _at(designed: MarkovChain, error: float, scheme: str) -> dict[str, Any]:
    curve = mismatch.error_curve(designed, [error], scheme)
    return {
        "upper": curve.upper[0].as_dict(),
        "exact": curve.worst[0].as_dict(),
        "directions": {name: found[0].as_dict() for name, found in curve.by_direction.items()},
    }


def count_traces(path: Path, designed: MarkovChain) -> Integers:
    """Transitions of a trace between the sources of the chain."""
    from onoff.model.traces import Options, Trace

    trace, counts = Trace(path, Options(sources=designed.names)), np.zeros((designed.n, designed.n), dtype=np.int64)
    for run in trace.runs():
        path_taken = np.asarray(run.sources[max(run.known - 1, 0) :], dtype=np.int64)
        np.add.at(counts, (path_taken[:-1], path_taken[1:]), 1)
    return counts


def _chain_verdict(data: dict[str, Any]) -> str:
    if "sampling" in data:
        found = data["sampling"]
        return (
            f"{found['transitions']} transitions, at least {found['fewest']} from each source: a row is typically off "
            f"by {found['typical']:.3g} and, at {found['confidence']:.0%} confidence, by no more than "
            f"{found['high']:.3g}. If requests followed a first-order chain, that error of the estimate would leak "
            f"about {found['bits']:.2g} bits at the first open request, {found['bits_high']:.2g} at the same "
            f"confidence (resampled, an estimate). {ONLY_THE_ESTIMATE}"
        )
    exact, upper = data["exact"], data["upper"]
    worst = "the worst found is" if "directions" in data else "exactly"
    return (
        f"Rows off by up to {data['error']:.4g}: {worst} {exact['bits']:.4g} bits at the first open request (guess "
        f"right {exact['advantage']:.2%} more often); never more than {upper['bits']:.4g} bits "
        f"and {upper['advantage']:.2%}."
    )


def _table(data: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    if "sampling" in data:
        return ("measure", "value"), list(data["sampling"].items())
    found = "the worst found" if "directions" in data else "first open request"
    lines = [("upper bound", *data["upper"].values()), (found, *data["exact"].values())]
    lines += [(name, *found.values()) for name, found in data.get("directions", {}).items()]
    lines += [
        (f"step {s['t']} {'ON' if s['private'] else 'OFF'}", s["bits"], s["advantage"], "")
        for s in data.get("steps", [])
    ]
    return ("", "bits", "advantage of a guess", "told apart"), lines


def _show(console: Console, data: dict[str, Any]) -> None:
    console.print(table(*_table(data)))
    console.print(_chain_verdict(data))
    console.print(WHAT_IS_PROVED)


SHOWN = 20
FAULTS = ("line", "step", "what is wrong")
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
        part = Part(file.name, _remarks(audit), FAULTS if audit.faults else (), _log_lines(audit))
        _write(work, html, "Audit of a log", _log_verdict(audit), audit.sound, part)
    emit(audit.as_dict(), json, lambda console: _show_log(console, audit))
    return 0 if audit.sound else PrivacyBreach.exit_code


def _log_verdict(audit: LogAudit) -> str:
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


def _log_lines(audit: LogAudit) -> list[tuple[int, int, str]]:
    return [(fault.line, fault.step, fault.reason) for fault in audit.faults[:SHOWN]]


def _counts(audit: LogAudit) -> str:
    return (
        f"{audit.sessions} sessions, {audit.queries} queries, {audit.retries} retries, {audit.messages} messages; "
        f"everything was asked {audit.everything} times where less might have done."
    )


def _remarks(audit: LogAudit) -> list[str]:
    return [remark for remark in (_counts(audit), _unchecked(audit), _fit(audit)) if remark is not None]


def _show_log(console: Console, audit: LogAudit) -> None:
    if audit.faults:
        console.print(table(FAULTS, _log_lines(audit)))
    for remark in _remarks(audit):
        console.print(remark)
    console.print(_log_verdict(audit))


BAR = 40
GUESSES = ("request", "habits alone", "and open requests before", "after onoff", "after naive switching")
LEAKING = "Queries after a private request tell about it"
JOINT = (
    "What is promised: from a private request on, no query of yours makes any guess about it better. What cannot be "
    "promised: open requests made before it are already known, and habits make them hint at what comes next. If that "
    "matters, switch privacy on earlier."
)


def explain_command(
    chain: Path,
    /,
    *,
    pattern: PatternOption = "ON OFF OFF ON OFF",
    scheme: str = "auto",
    seed: Annotated[int, Parameter(help="Of the sampled sessions, where not all histories can be followed.")] = 0,
    html: Html = None,
    json: Json = False,
) -> None:
    """Show what the server could guess of each private request: before, after ours, after naive switching.

    ```console
    onoff audit explain chain.json --pattern 'ON OFF OFF ON OFF'
    onoff audit explain chain.json --pattern 'OFF ON OFF' --html report.html
    ```
    """
    check_writable(html, inputs=[chain])
    with progress(f"reading {chain.name}") as work:
        loaded, statuses = MarkovChain.load(chain), parse(pattern)
        work.now("following sessions")
        found = explain(loaded, statuses, scheme, seed)
        if html is not None:
            same = all(abs(guess.ours - guess.earlier) < 1e-9 for guess in found.guesses)
            verdict = f"{'After a private request, queries add nothing' if same else LEAKING}."
            words = [*(guess.in_words() for guess in found.guesses), JOINT, _how(found)]
            lines = [(g.t, g.prior, g.earlier, g.ours, g.naive) for g in found.guesses]
            part = Part(f"{chain.name}, {pattern}", words, GUESSES, lines, plot_explanation(found))
            _write(work, html, "What the server could guess", verdict, same, part)
    emit(found.as_dict(), json, lambda console: _show_explained(console, found))


def _show_explained(console: Console, found: Explanation) -> None:
    labels = (("prior", "habits alone"), ("earlier", "+ open before"), ("ours", "+ all of onoff"), ("naive", "naive"))
    for guess in found.guesses:
        console.print(f"[bold]Request {guess.t}[/bold] (private)")
        for name, label in labels:
            value = getattr(guess, name)
            console.print(f"  {label:<14} {'█' * round(BAR * value):<{BAR}} {value:6.1%}")
        console.print(guess.in_words())
        console.print()
    console.print(JOINT)
    console.print(_how(found))


def _how(found: Explanation) -> str:
    if found.exact:
        return f"Exact: all {found.sessions} histories of queries were followed."
    return f"Mean over {found.sessions} sampled sessions."


LOOKS = ("step", "about", "p", "trials used", "would have found (bits)")
TESTED = "Tests of independence of what was seen at a step, within what was seen before."
ATTACKS = ("private request", "right before", "right after", "advantage", "at most")


def run_command(
    url: str | None = None,
    /,
    *,
    chain: Annotated[Path, Parameter(help="The chain or model of the client; its names must be the server's.")],
    upstream: UpstreamFile = None,
    pattern: PatternOption = "ON OFF OFF",
    scheme: str = "auto",
    sessions: Annotated[
        int, Parameter(validator=validators.Number(gte=FEWEST_SESSIONS), help="How many, decided before the first.")
    ] = 2000,
    fault: Annotated[str, Parameter(help=f"Made in every session: {', '.join(LIVE_FAULTS)}.")] = "none",
    at: Annotated[int, Parameter(help="The step at which the fault happens.")] = 1,
    html: Html = None,
    json: Json = False,
) -> int:
    """Run many sessions of the real client against the server at URL, and test whether what it sees depends on X.

    ```console
    onoff audit run http://127.0.0.1:8470 --chain chain.json
    onoff audit run --upstream city.toml --chain chain.json --sessions 200
    onoff audit run http://127.0.0.1:8470 --chain chain.json --fault 'lost answer' --at 1 --sessions 5000
    ```

    A pass is not a proof: the smallest leak that would have been found is part of the answer. With --upstream ordinary
    sites are asked, and often: audit a site of your own.
    """
    if (url is None) == (upstream is None):
        raise InvalidInput("give the address of a server, or --upstream FILE", hint="one of the two")
    if fault not in ("none", *LIVE_FAULTS):
        raise InvalidInput(f"no fault called {fault!r}", hint=nearest(fault, LIVE_FAULTS))
    check_writable(html, inputs=[chain])
    statuses = parse(pattern)
    with progress(f"reading {chain.name}"):
        loaded = load_model(chain)
    if True not in statuses:
        raise InvalidInput("the pattern has no private request", hint="e.g. ON OFF OFF")
    if isinstance(loaded, RequestModel) and statuses.count(True) > 1:
        raise InvalidInput(
            f"a model hides the last private request, and the pattern has {statuses.count(True)}",
            hint="give a pattern with one ON; `onoff audit exact --hide` and `onoff audit traces` judge older ones",
        )
    if fault != "none" and not 0 <= at < len(statuses):
        raise InvalidInput(f"no step {at} to make a fault at", hint=f"the pattern has steps 0 to {len(statuses) - 1}")
    where = _audited(upstream, sessions * len(statuses)) if upstream is not None else str(url)
    users = LiveUsers(where, loaded, scheme, Fault(fault), at)
    with progress("sessions", sessions) as done:
        trials = collect(loaded, statuses, users.user, sessions, done)
        done.now("testing what the server saw")
        audit = judge_trials(trials, statuses, times=users.times)
        tests = Part(f"{url or upstream}, {pattern}, {sessions} sessions", [TESTED], LOOKS, _looks(audit))
        attacker = Part("A trained attacker", ["'At most' holds with 99.9 % confidence."], ATTACKS, _attacks(audit))
        _write(done, html, "Statistical audit", _run_verdict(audit), audit.passed, tests, attacker)
    emit(audit.as_dict(), json, lambda console: _show_run(console, audit))
    return 0 if audit.passed else PrivacyBreach.exit_code


def _audited(upstream: Path, requests: int) -> SourceList:
    """The list of sites that an audit asks. Raises OverBudget where that many requests for everything are too many."""
    listed = SourceList.load(upstream)
    most = requests * listed.requests_for(len(listed.sources))
    if any(most > limit.count for limit in listed.budget.limits):
        raise OverBudget(
            f"an audit of up to {most} requests exceeds the budget {listed.budget}",
            hint="audit a copy of the site on your own machine, without a budget, or fewer sessions",
            seconds=math.inf,
        )
    return listed


def _run_verdict(audit: SampledAudit) -> str:
    if audit.breach is not None:
        return f"LEAK. {audit.breach}"
    if math.isinf(audit.smallest):
        could = "At some step they are too few, or too much alike, to have found a leak of any size: run more."
    else:
        could = (
            f"A leak of {audit.smallest:.2g} bits at one step would have been found; a smaller one may be there. A "
            f"private client fails this audit once in {1 / ALPHA:,.0f}."
        )
    return f"No dependence was found in {audit.sessions} sessions. {could}"


def _looks(audit: SampledAudit) -> list[tuple[int, str, float, float, str]]:
    return [
        (look.t, "all" if look.about is None else str(look.about), look.p, look.used, _smallest(look.smallest))
        for look in audit.looks
    ]


def _smallest(bits: float | None) -> str:
    if bits is None:
        return "never varied"
    return "too few sessions" if math.isinf(bits) else f"{bits:.2g}"


def _attacks(audit: SampledAudit) -> list[tuple[int, float, float, float, float]]:
    return [(one.about, one.before, one.after, one.advantage, one.upper) for one in audit.attacks]


def _show_run(console: Console, audit: SampledAudit) -> None:
    console.print(table(LOOKS, _looks(audit), title="Tests of independence"))
    console.print(table(ATTACKS, _attacks(audit), title="A trained attacker"))
    console.print(_run_verdict(audit))
