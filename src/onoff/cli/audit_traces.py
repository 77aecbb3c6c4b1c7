"""`onoff audit traces`: what real readers give away through sessions of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter, validators
from rich.console import Console

from onoff.audit.cases import Before, choose_cases, parts_by_person
from onoff.audit.known import (
    USUAL_CONSTANTS,
    choose_known_cases,
    knows_the_person,
    knows_the_type,
    own_constants,
    starts_of,
)
from onoff.audit.measured import save_measured, summary
from onoff.audit.traces import FEWEST_PEOPLE, TraceAudit, audit_traces
from onoff.cli.options import Html, LeakOption
from onoff.cli.output import Json, check_writable, emit, progress, table
from onoff.errors import InvalidInput, PrivacyBreach
from onoff.model.contexts import Model, RequestModel, load_model
from onoff.model.people import FEWEST_KNOWN, average_chain, choose_constants
from onoff.model.traces import Options, Trace, size_of
from onoff.schemes import find_scheme
from onoff.session import Session
from onoff.session.seeded import SeededEntropy

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
MOST_LEARNT = 60_000
"""Readers that attackers learn from at most."""
TABLE_SECONDS = 0.5
"""Processor time for a table at most; sessions of a client may take longer, and look ahead."""


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
        Literal["none", "open"],
        Parameter(help=f"open: {FEWEST_KNOWN} or more open requests of each person are known, and end right before."),
    ] = "none",
    users: Annotated[
        int,
        Parameter(
            validator=validators.Number(gte=1),
            help="Private requests that are judged: one of each reader, more where there are fewer readers.",
        ),
    ] = 2000,
    older: Annotated[int, Parameter(help="Of how many of them the one before is judged too.")] = 0,
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
    ```

    Give readers that the model was not learnt from. Half of them teach an attacker how people behave; the private
    requests of the other half are guessed, those of each person by what others taught.
    Tables are quick ones (with `--scheme auto` searched for half a second at most, and not chosen for what follows
    them), so that messages may be a few per cent more than those of a client.

    With `--history open` server and attackers know what each person openly asked before. Sessions know it too where the
    model's file says how to make a person's own law of it (`onoff learn` chooses that); others know other people only.
    A model that gives away no less than naive switching, judged by the same attackers, fails with 5 whatever `--allow`
    says.
    """
    before = _checked_before(before, history)
    check_writable(html, inputs=[model, trace, *(attacker or [])])
    check_writable(model if save else None)
    with progress(f"reading {model.name}") as done:
        loaded = load_model(model)
        options = Options(format=format, gap=gap, sources=loaded.names)
        done.now("bytes", size_of(trace) if trace.exists() else None)
        least = 1 if history == "open" else after + (1 if before == "nothing" else 2)
        visits = list(Trace(trace, options).visits(least, done))
    people = parts_by_person([person for person, _ in visits], 2)
    judged = [visit for part, visit in zip(people, visits, strict=True) if part == 1 or attacker is not None]
    rng = np.random.default_rng(seed)
    if history == "open":
        cases = choose_known_cases(judged, after, rng, users)
    else:
        cases = choose_cases(judged, after, before, rng, users)
    learnt = [visit for part, (_, visit) in zip(people, visits, strict=True) if part == 0]
    known: dict[str, Any]
    with progress(f"learning an attacker of {types} types" if attacker is None else "reading the attackers") as done:
        if attacker is None:
            known = {f"{types} types": _learnt_from(learnt, loaded, types, seed)}
        else:
            known = {path.name: RequestModel.load(path) for path in attacker}
        begin = None
        if history == "open":
            own, alone = own_constants(model)
            base = average_chain(loaded) if alone and isinstance(loaded, RequestModel) else loaded
            constants = choose_constants(base, learnt) if attacker is None else None
            constants = constants or own or USUAL_CONSTANTS
            known = {
                **{name: knows_the_type(one) for name, one in known.items()},
                "own law": knows_the_person(base, constants, seed),
            }
            begin = (
                None
                if own is None
                else starts_of(base, own, rng, scheme, hide=hide, leak=leak, **table_options(scheme))
            )
        start = Session(loaded, scheme, memory, hide=hide, leak=leak, **table_options(scheme))  # type: ignore[arg-type]
        done.now("readers", min(users, len(cases)))
        audit = audit_traces(
            start,
            cases,
            known,
            before,
            users=users,
            older_users=older,
            begin=begin,
            entropy=lambda: SeededEntropy(rng),
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


def table_options(scheme: str) -> dict[str, Any]:
    """Options for fast tables: as private, and a little more expensive."""
    record = find_scheme(scheme)
    hurried: dict[str, Any] = {"look_ahead": False} if record.looks_ahead else {}
    return {**hurried, "budget": TABLE_SECONDS} if "budget" in record.options else hurried


def _learnt_from(visits: Sequence[Sequence[int]], model: Model, types: int, seed: int) -> RequestModel:
    """The attacker's own model: what the readers who are not judged do, two requests back and by type of person."""
    if len(visits) < FEWEST_PEOPLE:
        raise InvalidInput(
            f"{len(visits)} visits with enough requests are too few for an attacker to learn from",
            hint=f"at least {2 * FEWEST_PEOPLE} in all; fewer --after need shorter visits, --attacker needs none",
        )
    named = [[model.names[x] for x in visit] for visit in visits[:MOST_LEARNT]]
    return RequestModel.fit(named, model.names, order=2, types=min(types, len(visits) // 10), seed=seed)


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
    if audit.older:
        last = audit.older[-1]
        found.append(
            f"The private request before the last one: {last.bits:z.3f} ± {last.stderr:.3f} bits after {last.k} "
            f"(control: {last.control_bits:z.3f} ± {last.control_stderr:.3f}; {audit.older_users} of them). A "
            "filter hides as many private requests as --hide says."
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
