"""`onoff audit traces`: what real readers give away through sessions of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators
from rich.console import Console

from onoff.audit.cases import SETS_KNOWN, Before
from onoff.audit.traces import KnownBefore, TraceAudit, audit_visits, save_measured, summary
from onoff.cli.options import Html, LeakOption
from onoff.cli.output import Json, check_writable, emit, progress, table
from onoff.errors import InvalidInput, PrivacyBreach
from onoff.model.contexts import RequestModel, load_model
from onoff.model.patterns import parse
from onoff.model.people import FEWEST_KNOWN
from onoff.model.traces import Options, Trace, size_of

STEP_COLUMNS = (
    "OFF requests",
    "messages",
    "at least",
    "bits",
    "±",
    "attacker's gain in accuracy",
    "naive bits",
    "naive right",
    "less naive",
    "control",
)
READERS = (
    "The requests of real readers went through real sessions; attackers learnt from other people. 'bits' is what all "
    "attackers together gained about the last private request, 'at least' what any scheme that hides it must ask. "
    "'control' is what the same attackers seem to gain from another person's queries: 0, but for the error."
)


def traces_command(
    model: Path,
    trace: Path,
    /,
    *,
    after: Annotated[
        int, Parameter(validator=validators.Number(gte=1), help="OFF requests after the private one.")
    ] = 10,
    before: Annotated[
        Literal["private", "open", "nothing"] | None,
        Parameter(help="What the visit was before the private request; private unless a history is known."),
    ] = None,
    history: Annotated[
        KnownBefore,
        Parameter(
            help=f"What is known of each person before. open: {FEWEST_KNOWN} or more open requests. sets: the sets "
            f"that the session asked for {SETS_KNOWN} earlier ones, the first of them private."
        ),
    ] = "none",
    users: Annotated[
        int,
        Parameter(
            validator=validators.Number(gte=1),
            help="Private requests that are judged: one of each reader, more where there are fewer readers.",
        ),
    ] = 2000,
    pattern: Annotated[
        str | None, Parameter(help="Judge every private request of this pattern too, such as 'ON OFF*3 ON OFF*3'.")
    ] = None,
    sensitive: Annotated[
        list[str] | None, Parameter(help='A source of which is asked "was it this one?"; may be repeated.')
    ] = None,
    learnt_from: Annotated[
        Path | None, Parameter(help="The trace that MODEL was learnt from: can its people be told from others?")
    ] = None,
    types: Annotated[int, Parameter(help="Types of people that the attacker tells apart.")] = 24,
    attacker: Annotated[
        list[Path] | None, Parameter(help="A model that an attacker knows, instead of learning one; may be repeated.")
    ] = None,
    scheme: Annotated[str, Parameter(help="With tables: greedy is quickest; auto and optimal cost less.")] = "greedy",
    memory: Annotated[str | None, Parameter(help="last-query or bayes-filter; by default as sessions have it.")] = None,
    hide: Annotated[int, Parameter(help="With the filter: private requests that stay hidden.")] = 1,
    leak: LeakOption = 0.0,
    allow: Annotated[float | None, Parameter(help="Exit with 5 where more bits than this are given away.")] = None,
    format: Annotated[str | None, Parameter(help="text, csv, jsonl or msnbc; by default from the name.")] = None,
    gap: Annotated[float | None, Parameter(help="Seconds without a request that end a visit.")] = None,
    seed: int = 0,
    save: Annotated[bool, Parameter(negative="", help="Write what was measured into the file of the model.")] = False,
    html: Html = None,
    json: Json = False,
) -> int:
    """Send the real requests of TRACE through sessions of MODEL, and let attackers guess the private ones.

    ```console
    onoff audit traces model.npz held-out.csv --after 10
    onoff audit traces chain.json held-out.csv --before open --allow 0.1 --json
    onoff audit traces model.npz held-out.csv --history open
    onoff audit traces model.npz held-out.csv --pattern 'ON ON OFF*9' --sensitive health
    ```

    Give readers that the model was not learnt from. Half of them teach an attacker how people behave; the private
    requests of the other half are guessed, those of each person by what others taught.
    Tables are quick ones (with `--scheme auto` searched for half a second at most, and not chosen for what follows
    them), so that messages may be a few per cent more than those of a client.

    With `--history open` server and attackers know what each person openly asked before. Sessions know it too where the
    model's file says how to make a person's own law of it (`onoff learn` chooses that); others know other people only.
    A model that gives away no less than naive switching, judged by the same attackers, fails with 5 whatever `--allow`
    says.

    `--pattern` judges every private request of a pattern, by all that follows it, not the last alone. `--sensitive`
    gives the area under the curve of the question whether X was this source. `--learnt-from` gives that of the question
    whether a person was among those that MODEL was learnt from.
    """
    before = _checked_before(before, history)
    check_writable(html, inputs=[model, trace, *(attacker or [])])
    check_writable(model if save else None)
    switch = () if pattern is None else parse(pattern)
    with progress(f"reading {model.name}") as done:
        loaded = load_model(model)
        for name in sensitive or []:
            loaded.index(name)
        options = Options(format=format, gap=gap, sources=loaded.names)
        done.now("bytes", size_of(trace) if trace.exists() else None)
        least = 1 if history != "none" else after + (1 if before == "nothing" else 2)
        visits = list(Trace(trace, options).visits(least, done))
        members = [] if learnt_from is None else [visit for _, visit in Trace(learnt_from, options).visits(least)]
    with progress("learning attackers" if attacker is None else "reading the attackers") as done:
        audit = audit_visits(
            loaded,
            visits,
            after=after,
            before=before,
            history=history,
            users=users,
            types=types,
            attackers=None if attacker is None else {path.name: RequestModel.load(path) for path in attacker},
            scheme=scheme,
            memory=memory,
            hide=hide,
            leak=leak,
            seed=seed,
            pattern=switch,
            sensitive=sensitive or (),
            members=members,
            progress=done,
        )
        if save:
            done.now(f"writing {model.name}")
            save_measured(model, summary(audit, trace.name))
        if html is not None:
            done.now(f"writing {html.name}")
            _write(html, audit, f"{model.name}, {trace.name}, {after} OFF requests")
    emit(audit.as_dict(), json, lambda console: _show(console, audit))
    allowed = allow is None or audit.leak <= allow
    return 0 if allowed and audit.below_naive else PrivacyBreach.exit_code


def _checked_before(before: Before | None, history: str) -> Before:
    if history == "none":
        return before or "private"
    if before not in (None, "nothing"):
        raise InvalidInput(f"--before {before} with a history", hint="what is known ends right before the private one")
    return "nothing"


def _lines(audit: TraceAudit) -> list[tuple[object, ...]]:
    return [
        (
            step.k,
            step.cost,
            "" if step.empirical_bound is None else f"{step.empirical_bound:.2f}",
            f"{step.bits:z.4f}",
            f"{step.stderr:.4f}",
            f"{step.top1:+.2%}",
            f"{step.naive_bits:z.3f}",
            f"{step.naive_top1:+.1%}",
            f"{step.difference:+z.3f} ± {step.difference_stderr:.3f}",
            f"{step.control_bits:z.4f} ± {step.control_stderr:.4f}",
        )
        for step in audit.steps
    ]


def _remarks(audit: TraceAudit) -> list[str]:
    found = [
        f"{audit.cases} private requests of {audit.users} readers; {audit.impossible} were left out with requests that "
        "the model calls impossible."
    ]
    if audit.missing:
        found.append(
            f"Attackers that are not installed: {', '.join(audit.missing)} (pip install 'onoff-privacy[audit]')."
        )
    if audit.before == "open":
        found.append(
            f"The open requests before the private one had told {audit.before_bits:z.2f} ± {audit.before_stderr:.2f} "
            f"of {audit.prior_bits + audit.before_bits:z.2f} bits already; no scheme can take that back."
        )
    if audit.history == "open":
        found.append(
            f"What each person openly asked before had told {audit.before_bits:z.2f} ± {audit.before_stderr:.2f} of "
            f"{audit.prior_bits + audit.before_bits:z.2f} bits already; attackers of naive switching know it too."
        )
    if not audit.below_naive:
        found.append("This gives away no less than naive switching: do not switch OFF with this model.")
    exact = [(step.k, step.exact_bits) for step in audit.steps if step.exact_bits is not None]
    if exact:
        told = ", ".join(f"{bits:z.4f} bits after {k}" for k, bits in exact)
        found.append(f"Counted without any model, near the start of a visit: {told}.")
    if audit.history == "sets":
        found.append(
            f"Server and session know the sets that were asked for before; they had told {audit.before_bits:z.2f} ± "
            f"{audit.before_stderr:.2f} bits of this request already."
        )
    found += [
        f"Private request {step.request} of the pattern: {step.bits:z.3f} ± {step.stderr:.3f} bits by all that follows "
        f"it (naive: {step.naive_bits:z.2f}; control: {step.control_bits:z.3f} ± {step.control_stderr:.3f})."
        for step in audit.pattern
    ]
    if audit.pattern:
        found.append("A filter hides as many private requests as --hide says.")
    found += [
        f"Was it {one.source}? {one.after:.2f} ± {one.stderr:.2f} (naive: {one.naive:.2f}; before: {one.before:.2f}; "
        f"0.5 is a blind guess): the chance that one of {one.cases} such cases looks more like it than another."
        for one in audit.sensitive
    ]
    if audit.membership is not None:
        found.append(
            f"Was a person among those that the model was learnt from? {audit.membership.area:.2f} ± "
            f"{audit.membership.stderr:.2f}, of {audit.membership.people} people (0.5 is a blind guess)."
        )
    return found


def _show(console: Console, audit: TraceAudit) -> None:
    console.print(table(STEP_COLUMNS, _lines(audit)))
    for remark in _remarks(audit):
        console.print(remark)
    console.print(audit.in_words())


def _write(path: Path, audit: TraceAudit, what: str) -> None:
    from onoff.audit.report import Part, page, plot_traces, write

    part = Part(what, [READERS, *_remarks(audit)], STEP_COLUMNS, _lines(audit), plot_traces(audit))
    write(path, page("Audit of real readers", audit.in_words(), True, [part]))
