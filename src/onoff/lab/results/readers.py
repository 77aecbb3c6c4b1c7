"""What real readers give away: sessions of several models on the real requests of MSNBC readers, and attackers.

Visits of AFTER + 2 requests or more are dealt out in turn: one half to learn the sessions' models from, a quarter to
learn the attacker's, a quarter to be sent through sessions (`audit.traces`). The three are disjoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onoff import figures
from onoff.audit.cases import Before, choose_cases, choose_pattern_cases
from onoff.audit.traces import TraceAudit, audit_pattern, audit_traces
from onoff.lab.results.page import SEED, Section, markdown_table, shown
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model, RequestModel
from onoff.model.traces import Trace
from onoff.session import Session
from onoff.session.seeded import SeededEntropy

AFTER = 10
ATTACKER_TYPES = 24
SCHEME = "greedy"
READERS_COMMAND = "python -m onoff.lab.results.build --only readers"
STEPS_SHOWN = (1, 2, 5, 10)
"""After how many OFF requests the table says what is known."""


@dataclass(frozen=True)
class Split:
    """Visits by source number: to learn sessions' models from, to learn the attacker from, and to judge."""

    names: tuple[str, ...]
    learnt: list[list[int]]
    attacked: list[list[int]]
    judged: list[list[int]]

    @classmethod
    def of(cls, trace: Trace) -> Split:
        """One half, one quarter, one quarter of the visits that are long enough, dealt out in turn."""
        visits = [visit for _, visit in trace.visits(AFTER + 2)]  # one of each reader
        return cls(tuple(trace.names), visits[0::2], visits[1::4], visits[3::4])

    def named(self, visits: Sequence[Sequence[int]]) -> list[list[str]]:
        """The same visits by name."""
        return [[self.names[x] for x in visit] for visit in visits]


def readers_section(data: Path, users: int, say: Callable[[str], None] = lambda line: None) -> Section:
    """The part of the results page."""
    split = Split.of(Trace(data))
    models = learn_models(split, say)
    attacker = RequestModel.fit(
        split.named(split.attacked), split.names, order=2, types=_at_most(ATTACKER_TYPES, split.attacked), seed=SEED
    )
    audits = {name: audit_model(model, attacker, split, "private", users, say) for name, model in models.items()}
    chosen = list(models)[-1]
    known = {
        name: audit_model(models[name], attacker, split, "open", max(users // 2, 200), say)
        for name in ("first order", chosen)
    }
    parts = [_intro(split, users), _table(audits, len(split.names)), _in_words(audits, chosen), _open(known)]
    caption = "Bits that real readers give away about their last private request, for sessions of several models."
    parts.append(shown("readers", caption, READERS_COMMAND))
    return Section("\n".join(parts), {"readers": _figure(audits)})


def learn_models(split: Split, say: Callable[[str], None]) -> dict[str, Model]:
    """The models of the sessions that are compared; the last is what `learn` chooses by itself."""
    visits = split.named(split.learnt)
    chosen = RequestModel.fit(visits, split.names, seed=SEED, progress=say)
    few = _at_most(12, split.learnt)
    return {
        "first order": MarkovChain.fit(visits, names=split.names),
        "second order": RequestModel.fit(visits, split.names, order=2, types=1, seed=SEED),
        f"second order, {few} types": RequestModel.fit(visits, split.names, order=2, types=few, seed=SEED),
        f"chosen by `learn`: order {chosen.order}, {chosen.types} types": chosen,
    }


def _at_most(types: int, visits: Sequence[Any]) -> int:
    return max(1, min(types, len(visits) // 10))


def audit_model(
    model: Model, attacker: RequestModel, split: Split, before: Before, users: int, say: Callable[[str], None]
) -> TraceAudit:
    """One audit of sessions of `model`; the same readers and the same places for every model."""
    cases = choose_cases(enumerate(split.judged), AFTER, before, np.random.default_rng(SEED))
    rng = np.random.default_rng(SEED)
    richest = before == "private" and isinstance(model, RequestModel) and model.types > 12
    attackers = {f"{attacker.types} types": attacker}
    say(f"readers: {before}, {model!r}")
    start = Session(model, SCHEME)
    audit = audit_traces(start, cases, attackers, users=users, with_counted=richest, entropy=lambda: SeededEntropy(rng))
    if not richest:
        return audit
    some = choose_pattern_cases(enumerate(split.judged), (True, True, *[False] * AFTER), users // 2)
    return replace(audit, pattern=audit_pattern(start, some, attackers, entropy=lambda: SeededEntropy(rng)))


# -- words ---------------------------------------------------------------------------------------------------


def _intro(split: Split, users: int) -> str:
    return (
        "## What real readers give away\n\n"
        "Zero bits are proved for people who behave like the session's model. Nobody quite does, so here the real "
        f"requests of MSNBC readers go through real sessions. Of {len(split.learnt) * 2:,} visits of {AFTER + 2} "
        f"requests or more, half are what models are learnt from, a quarter is what the attacker learns "
        f"{ATTACKER_TYPES} types of second-order readers from, and {users:,} of the last quarter are sent: "
        f"private up to a random place of the visit, then {AFTER} OFF requests. Three attackers guess the last private "
        "request: that one by Bayes' rule, a conditional logit and boosted trees. A stack that shrinks to what was "
        "known before puts them together; all of this is learnt from other people than those who are guessed. The gain "
        "of the stack is shown, with its standard error. Naive switching is judged by the same attackers, and so is a "
        "control: the queries of another person, from which nothing can be learnt.\n"
    )


def _table(audits: Mapping[str, TraceAudit], sources: int) -> str:
    some = next(iter(audits.values()))
    bound = sum(step.empirical_bound or 0.0 for step in some.steps)
    columns = (
        "what the session believes",
        f"messages of {AFTER} OFF requests",
        *(f"bits after {k}" for k in STEPS_SHOWN),
        f"attacker's gain in accuracy after {AFTER}",
        f"control after {AFTER}",
    )
    naive = {step.k: step for step in some.steps}
    lines: list[tuple[Any, ...]] = [
        (
            "naive switching",
            f"{AFTER}",
            *(f"{naive[k].naive_bits:z.2f} ± {naive[k].naive_stderr:.2f}" for k in STEPS_SHOWN),
            f"{naive[AFTER].naive_top1:+.1%}",
            "",
        )
    ]
    for name, audit in audits.items():
        steps = {step.k: step for step in audit.steps}
        bits = [f"{steps[k].bits:z.3f} ± {steps[k].stderr:.3f}" for k in STEPS_SHOWN]
        control = f"{steps[AFTER].control_bits:z.3f} ± {steps[AFTER].control_stderr:.3f}"
        lines.append(
            (name, f"{audit.cost:.1f} ({audit.cost / bound:.3f})", *bits, f"{steps[AFTER].top1:+.1%}", control)
        )
    everything = float(AFTER * sources)
    lines.append(
        ("everything, always", f"{everything:.0f} ({everything / bound:.3f})", *("0",) * len(STEPS_SHOWN), "0", "")
    )
    lines.append(
        ("lower bound from the counted laws, any scheme", f"{bound:.1f} (1.000)", *("",) * (len(STEPS_SHOWN) + 2))
    )
    return markdown_table(columns, lines)


def _in_words(audits: Mapping[str, TraceAudit], chosen: str) -> str:
    some = audits[chosen]
    exact = [f"{step.exact_bits:z.4f} after {step.k}" for step in some.steps if step.exact_bits is not None]
    text = (
        f"\nWith the model that `onoff learn` chooses by itself: {some.in_words()} With a first-order chain: "
        f"{audits['first order'].in_words()}\n"
    )
    if exact:
        text += (
            f"\nCounted without any model of an attacker, the second request of a visit being private: "
            f"{' and '.join(exact)} OFF requests, in bits.\n"
        )
    if some.pattern:
        first = some.pattern[0]
        text += (
            f"\nThe filter hides the last private request. Of the one before it, {AFTER} OFF requests give away "
            f"{first.bits:z.2f} ± {first.stderr:.2f} bits (control {first.control_bits:z.2f} ± "
            f"{first.control_stderr:.2f}); `hide=2` hides both.\n"
        )
    return text


def _open(audits: Mapping[str, TraceAudit]) -> str:
    lines = []
    for name, audit in audits.items():
        steps = {step.k: step for step in audit.steps}
        bits = [f"{steps[k].bits:z.3f} ± {steps[k].stderr:.3f}" for k in STEPS_SHOWN]
        control = f"{steps[AFTER].control_bits:z.3f} ± {steps[AFTER].control_stderr:.3f}"
        lines.append((name, f"{audit.cost:.1f}", *bits, f"{steps[AFTER].top1:+.1%}", control))
    some = next(iter(audits.values()))
    columns = (
        "all of the visit before was open",
        f"messages of {AFTER}",
        *(f"bits after {k}" for k in STEPS_SHOWN),
        "right",
        f"control after {AFTER}",
    )
    return (
        f"\nThe same where the visit before the private request was open ({some.users} readers). What the open "
        f"requests before it tell is far more than what leaks after it: {some.before_bits:z.2f} ± "
        f"{some.before_stderr:.2f} of {some.prior_bits + some.before_bits:z.2f} bits, which no "
        "scheme can take back; with naive switching another "
        f"{some.steps[-1].naive_bits:z.2f} ± {some.steps[-1].naive_stderr:.2f} bits follow after {AFTER} requests.\n\n"
        + markdown_table(columns, lines)
    )


def _figure(audits: Mapping[str, TraceAudit]) -> Any:
    figure, (axes,) = figures.new_figure()
    some = next(iter(audits.values()))
    times = [step.k for step in some.steps]
    axes.plot(
        times, [step.naive_bits for step in some.steps], label="naive switching", **figures.LINES["naive"].style()
    )
    styles = [figures.LINES[name] for name in ("paper", "greedy", "race", "auto")]
    for (name, audit), line in zip(audits.items(), styles, strict=True):
        error = [2 * step.stderr for step in audit.steps]
        axes.errorbar(
            times, [step.bits for step in audit.steps], yerr=error, label=name.replace("`", ""), **line.style()
        )
    axes.set(xlabel="OFF requests after a private one", ylabel="bits about the private request")
    figures.count_by_ones(axes.xaxis)
    axes.set_title("Real readers of MSNBC; bars: 2 standard errors", fontsize=10)
    figures.add_legend(axes, fontsize=9)
    return figure
