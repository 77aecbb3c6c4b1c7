"""People whose open history is known: to the server, to attackers and, where they can, to sessions.

A session without constants for the own law (`onoff.model.people`) knows other people only, and starts afresh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onoff.audit.cases import Case
from onoff.audit.observer import Observer
from onoff.model.contexts import Model, RequestModel
from onoff.model.origin import about_of
from onoff.model.people import FEWEST_KNOWN, MOST_OPEN, OpenHistory, own_law, types_given
from onoff.session import Session
from onoff.session.seeded import SeededEntropy
from onoff.session.session import Entropy

USUAL_CONSTANTS = {"cap": 30.0, "weight": 0.88, "trust": 15.0}
"""Of an attacker who has nobody to choose them by."""


def choose_known_cases(
    visits: Iterable[tuple[int, Sequence[int]]], after: int, rng: np.random.Generator, enough: int
) -> list[Case]:
    """Cases of people of whom FEWEST_KNOWN open requests or more are known: all before X, up to as many as are kept.

    visits: The person and the requests of each, those of one person in order. From each person one case at a random
    place, then another, until there are enough; X and what follows do not overlap.
    """
    whole: dict[int, list[int]] = {}
    for person, visit in visits:
        whole.setdefault(person, []).extend(int(x) for x in visit)
    free = {
        person: rng.permutation(np.arange(FEWEST_KNOWN, len(past) - after, after + 1)).tolist()
        for person, past in whole.items()
    }
    cases: list[Case] = []
    while len(cases) < enough and any(free.values()):
        for person, places in free.items():
            if places:
                at, past = places.pop(), whole[person]
                cases.append(
                    Case(tuple(past[at : at + after + 1]), 0, person, tuple(past[max(0, at - MOST_OPEN) : at]))
                )
    return cases


def own_constants(path: Path) -> tuple[dict[str, float] | None, bool]:
    """The constants of the own law that the file of a model holds, and whether the law is the person's alone."""
    found = about_of(path).get("own_law")
    if not found:
        return None, False
    return {key: float(found[key]) for key in ("cap", "weight", "trust")}, found.get("alone") is True


def starts_of(
    model: Model, constants: Mapping[str, float], rng: np.random.Generator, scheme: str, **options: Any
) -> Callable[[Case], Session]:
    """Sessions that know what their person openly asked."""

    def begin(case: Case) -> Session:
        law = _person_law(model, case, constants, SeededEntropy(rng))
        return Session(law, scheme, history=_history(model, case), **options)

    return begin


def knows_the_person(model: Model, constants: Mapping[str, float], seed: int) -> Callable[[Case], Observer]:
    """An attacker who believes that each reader follows an own law; its particles are not the session's."""

    def watch(case: Case) -> Observer:
        own = SeededEntropy(np.random.default_rng([seed, 1, case.person, *case.requests]))
        law = _person_law(model, case, constants, own)
        return Observer(law, law.context_of(case.history))

    return watch


def knows_the_type(model: RequestModel) -> Callable[[Case], Observer]:
    """An attacker who has told the type of each reader by the history."""
    observer = Observer(model)

    def watch(case: Case) -> Observer:
        return observer.knowing(types_given(model, _history(model, case)), model.context_of(case.history))

    return watch


def _person_law(model: Model, case: Case, constants: Mapping[str, float], entropy: Entropy) -> RequestModel:
    cap, weight, trust = (constants[key] for key in ("cap", "weight", "trust"))
    return own_law(model, _history(model, case), cap=cap, weight=weight, trust=trust, entropy=entropy)


def _history(model: Model, case: Case) -> OpenHistory:
    return OpenHistory("audit", model.n, case.history)
