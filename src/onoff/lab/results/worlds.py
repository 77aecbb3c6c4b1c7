"""Worlds for the results page: what OFF costs and leaves to real readers of different kinds, own split by person.

People are dealt out by turns: half of them teach the session's model, a quarter the attackers, a quarter is judged; so
nobody is in two parts (`audit_visits`). Every world is judged by the same attackers, who know what the server knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onoff.audit.cases import Before, parts_by_person
from onoff.audit.traces import KnownBefore, TraceAudit, audit_visits, summary, with_measured
from onoff.lab.results.page import SEED, Section, markdown_table
from onoff.lab.results.readers import AFTER
from onoff.model.anchors import fit_anchors
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model, RequestModel
from onoff.model.fitting import RequestTokens
from onoff.model.origin import advice_of
from onoff.model.people import choose_constants
from onoff.model.traces import Trace

PEOPLE_AS_TYPES = 0.3
"""The weight of people who were seen as types, beside all anchors."""
Named = list[list[str]]


@dataclass(frozen=True)
class RealWorld:
    """Real readers, a family of models for them, and what is known of each before."""

    file: str
    model: str
    make: Callable[[Named, tuple[str, ...], Sequence[Sequence[int]]], Model]
    history: KnownBefore = "none"
    before: Before = "private"


def _types(order: int, types: int) -> Callable[[Named, tuple[str, ...], Sequence[Sequence[int]]], Model]:
    def make(named: Named, names: tuple[str, ...], visits: Sequence[Sequence[int]]) -> Model:
        return RequestModel.fit(named, names, order=order, types=min(types, max(1, len(named) // 10)), seed=SEED)

    return make


def _own_law(named: Named, names: tuple[str, ...], visits: Sequence[Sequence[int]]) -> Model:
    """A chain of some people, and the constants of the own law that suit others."""
    chain = MarkovChain.fit(named[::2], names=names)
    return MarkovChain(
        chain.transition, names, chain.initial, about={"own_law": choose_constants(chain, visits[1::2])}
    )  # fmt: skip


def _chain(named: Named, names: tuple[str, ...], visits: Sequence[Sequence[int]]) -> Model:
    return MarkovChain.fit(named, names=names)


def _anchors(named: Named, names: tuple[str, ...], visits: Sequence[Sequence[int]]) -> Model:
    """All pairs of two places, and the people who were seen, as types."""
    tokens = RequestTokens.of([list(visit) for visit in visits], len(names))
    return RequestModel(**fit_anchors(tokens, share=PEOPLE_AS_TYPES).arguments(), names=names)


REAL_WORLDS = {
    "navigation": (
        "Navigation: Wikispeedia, 15 categories",
        (RealWorld("wiki15.txt", "order 2, 24 types", _types(2, 24)), RealWorld("wiki15.txt", "a chain", _chain)),
    ),
    "places": (
        "Places: New York, 50 cells, 20 or more open requests known to the server",
        (
            RealWorld("places50.csv", "own law, started from the same history", _own_law, "open", "nothing"),
            RealWorld("places50.csv", "other people only: a chain", _chain, "open", "nothing"),
        ),
    ),
    "strangers": (
        "Places: New York, 50 cells, nothing known",
        (
            RealWorld("places50.csv", "all anchors, and people as types", _anchors),
            RealWorld("places50.csv", "a chain", _chain),
        ),
    ),
}


@dataclass(frozen=True)
class Judged:
    """A world and its audit."""

    world: RealWorld
    audit: TraceAudit
    advice: str


def judge(world: RealWorld, folder: Path, users: int, say: Callable[[str], None]) -> Judged:
    """Learn, send, attack."""
    trace = Trace(folder / world.file)
    visits = list(trace.visits(1 if world.history != "none" else AFTER + 2))
    half = parts_by_person([person for person, _ in visits], 2)
    learnt = [visit for part, (_, visit) in zip(half, visits, strict=True) if part == 0]
    others = [visit for part, visit in zip(half, visits, strict=True) if part == 1]
    names = tuple(trace.names)
    say(f"{world.file}, {world.model}: {len(learnt)} visits to learn from")
    model = world.make([[names[x] for x in visit] for visit in learnt], names, learnt)
    how: dict[str, Any] = {"before": world.before, "history": world.history, "users": users, "seed": SEED}
    audit = audit_visits(model, others, after=AFTER, **how)
    about = with_measured({}, summary(audit, world.file))
    say(f"{world.file}, {world.model}: {audit.in_words()}")
    return Judged(world, audit, advice_of(about, "open" if world.history == "open" else "none").word)


def world_section(name: str, folder: Path, users: int, say: Callable[[str], None]) -> Section | None:
    """One world's part of the results page; None where its data is not there."""
    title, worlds = REAL_WORLDS[name]
    if not all((folder / world.file).is_file() for world in worlds):
        return None
    return Section(_text(name, title, [judge(world, folder, users, say) for world in worlds]))


def _text(name: str, title: str, found: Sequence[Judged]) -> str:
    some = found[0].audit
    last = some.steps[-1]
    columns = (
        "what sessions believe",
        f"messages of {AFTER} OFF requests",
        "bits given away",
        "less what naive switching gives away, paired",
        "another person's queries",
        "advice",
    )
    lines = [
        (
            one.world.model,
            f"{one.audit.cost:.1f} of {one.audit.everything}",
            f"{step.bits:z.3f} ± {step.stderr:.3f}",
            f"{step.difference:+z.3f} ± {step.difference_stderr:.3f}",
            f"{step.control_bits:z.3f} ± {step.control_stderr:.3f}",
            one.advice,
        )
        for one in found
        for step in one.audit.steps[-1:]
    ]
    least = "" if some.bound is None else f" No scheme can ask for less than {some.bound:.1f} messages."
    return (
        f"## {title}\n\n"
        "Real requests of people went through real sessions, of a model that was learnt from other people; attackers "
        f"taught by others again guessed the last private request from {AFTER} OFF requests after it. Half of the "
        "people teach the session's model, a quarter the attackers, a quarter is guessed. Attackers know the session's "
        "model and what the server knows of a person before; naive switching is judged by the same attackers on the "
        f"same requests, and gives away {last.naive_bits:z.2f} ± {last.naive_stderr:.2f} bits. Before any of it, the "
        f"server lacks {some.prior_bits:.2f} bits to know the private request; what went before had told it "
        f"{some.before_bits:z.2f} ± {some.before_stderr:.2f} over how often each source is wanted, which no scheme can "
        f"take back.{least}\n\n"
        + markdown_table(columns, lines)
        + f"\n{some.cases} private requests of {some.users} people; "
        f"`python -m onoff.lab.results.build --only {name}`, seed {SEED}, tables by `greedy`. Errors are standard "
        "errors, by person.\n"
    )
