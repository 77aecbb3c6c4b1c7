"""`onoff audit run`: many sessions against a real server, judged by statistics."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators
from rich.console import Console

from onoff.audit.client import Fault
from onoff.audit.live import LIVE_FAULTS, LiveUsers
from onoff.audit.sampled import ALPHA, FEWEST_SESSIONS, SampledAudit, collect, judge_trials
from onoff.cli.audit import Html, PatternOption
from onoff.cli.output import Json, check_writable, emit, progress, table
from onoff.errors import InvalidInput, PrivacyBreach, nearest
from onoff.model.contexts import RequestModel, load_model
from onoff.model.patterns import parse

LOOKS = ("step", "about", "p", "trials used", "would have found (bits)")
ATTACKS = ("private request", "right before", "right after", "advantage", "at most")


def run_command(
    url: str,
    /,
    *,
    chain: Annotated[Path, Parameter(help="The chain or model of the client; its names must be the server's.")],
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
    onoff audit run http://127.0.0.1:8470 --chain chain.json --fault 'lost answer' --at 1 --sessions 5000
    ```

    A pass is not a proof: the smallest leak that would have been found is part of the answer.
    """
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
    users = LiveUsers(url, loaded, scheme, Fault(fault), at)
    with progress("sessions", sessions) as done:
        trials = collect(loaded, statuses, users.user, sessions, done)
        done.now("testing what the server saw")
        audit = judge_trials(trials, statuses, times=users.times)
        if html is not None:
            done.now(f"writing {html.name}")
            _write(html, audit, f"{url}, {pattern}, {sessions} sessions")
    emit(audit.as_dict(), json, lambda console: _show(console, audit))
    return 0 if audit.passed else PrivacyBreach.exit_code


def _verdict(audit: SampledAudit) -> str:
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
        (
            look.t,
            "all" if look.about is None else str(look.about),
            look.p,
            look.used,
            _smallest(look.smallest),
        )
        for look in audit.looks
    ]


def _smallest(bits: float | None) -> str:
    if bits is None:
        return "never varied"
    return "too few sessions" if math.isinf(bits) else f"{bits:.2g}"


def _attacks(audit: SampledAudit) -> list[tuple[int, float, float, float, float]]:
    return [(one.about, one.before, one.after, one.advantage, one.upper) for one in audit.attacks]


def _show(console: Console, audit: SampledAudit) -> None:
    console.print(table(LOOKS, _looks(audit), title="Tests of independence"))
    console.print(table(ATTACKS, _attacks(audit), title="A trained attacker"))
    console.print(_verdict(audit))


def _write(path: Path, audit: SampledAudit, what: str) -> None:
    from onoff.audit.report import Part, page, write

    parts = [
        Part(
            what,
            ["Tests of independence of what was seen at a step, within what was seen before."],
            LOOKS,
            _looks(audit),
        ),
        Part("A trained attacker", ["'At most' holds with 99.9 % confidence."], ATTACKS, _attacks(audit)),
    ]
    write(path, page("Statistical audit", _verdict(audit), audit.passed, parts))
