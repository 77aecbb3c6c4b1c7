"""Choosing a family of models on people who were held out: by what they would give away, where that can be audited.

Some people are held out: every tenth, or every fourth where there are few. Models of all families are fitted to the
others, each is scored by the bits per request that the people held out take, and the most promising are audited on
them. What is chosen is then fitted to everyone, or to the first 40,000.

    chain, types         1, 2 or 3 requests back, and several numbers of types of people (`fitting`)
    anchors              all pairs of a home and a work, alone and with people as types (`anchors`)

The whole ladder is tried: of few types none may gain where many do. Fewest bits is not least leak, so with an audit the
choice is the cheapest whose leak is not above the least by more than its error. Without one it is the simplest whose
bits are not above the fewest by more than LEAST_GAIN.

Of few people laws are shrunk more where that takes fewer bits, and the error of every score is told. Where enough
people made TELLING_REQUESTS requests or more, the others are left out: the type of a person shows only over several
requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from onoff.errors import InvalidModel
from onoff.model.anchors import Anchored, fit_anchors
from onoff.model.fitting import Fitted, RequestTokens, bits_per_request, fit, numbered
from onoff.model.rows import Floats

HELD_OUT, HELD_OUT_OF_FEW = 10, 4
"""Every so manieth person is held out."""
LEAST_PEOPLE, FEWEST_PEOPLE = 500, 12
"""People below which they are few, and below which nobody can be held out."""
SHRUNK_FOR_FEW = (1.0, 4.0)
PEOPLE_A_TYPE = 4
"""People that a type needs at least."""
TELLING_REQUESTS = 8
ENOUGH_LONG = 20_000
"""People with TELLING_REQUESTS requests from which the others are left out."""
LEAST_GAIN = 0.002
"""Bits per request that a larger model must gain."""
LADDER = ((1, 1), (2, 1), (3, 1), (1, 2), (1, 6), (1, 24), (1, 48), (2, 6), (2, 24), (2, 48), (3, 24))
"""Orders and numbers of types that are tried."""
ANCHOR_SHARES = (0.0, 0.5)
"""Weights of people as types beside anchors."""
FEWEST_ANCHORED = 8
"""Requests a person from which anchors are tried: where somebody lives shows over several."""
MOST_ANCHORED_AS_JSON = 32
"""Sources up to which all anchors are written out as JSON; of more, a file of them ends in .npz."""
MOST_AUDITED, FAR_BEHIND = 4, 0.15
"""Candidates that are audited: the best of each family, if it takes at most so many bits more than the best of all, the
chain, and then those with the fewest bits."""
MOST_TRIED, MOST_FITTED = 8_000, 40_000
"""People that candidates are fitted to, and the chosen one."""
MOST_SCORED, MOST_ANCHORED = 2_000, 2_000
"""People held out that score candidates, and people that anchors are tried on."""
MOST_ORDER = 4
Auto = Literal["auto"]
Visits = Sequence[tuple[int, Sequence[int]]]
"""People by number, and successive requests of each."""


class SmallAudit(Protocol):
    """What real readers, who are held out, give away through sessions of models."""

    def compare(
        self, models: Sequence[Mapping[str, Any]], knows: Sequence[Mapping[str, Any]], visits: Visits
    ) -> list[dict[str, Any] | None]:
        """For each model what was measured, as a model's file holds it; None where there are too few readers.

        models: The arguments of each. knows: What the attackers know.
        """
        ...

    def knowing(
        self,
        model: Mapping[str, Any],
        constants: Mapping[str, Any],
        knows: Sequence[Mapping[str, Any]],
        visits: Visits,
    ) -> dict[str, Any] | None:
        """The same of sessions that know what each person openly asked, by the own law with these constants."""
        ...


@dataclass
class Candidate:
    """A model that was tried. error: of `bits`, by person. audit: what was measured; None where it was not audited."""

    family: str
    order: int
    types: int
    fitted: Fitted | Anchored
    bits: float
    error: float
    shrink: float = 1.0
    audit: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """For people."""
        return "chain" if self.family == "chain" else f"{self.types} {self.family} of order {self.order}"

    def as_dict(self) -> dict[str, Any]:
        found = {"family": self.family, "order": self.order, "types": self.types}
        found |= {"held_out_bits": self.bits, "held_out_stderr": self.error}
        told = {"cost": "cost", "leak": "bits", "leak_stderr": "stderr", "naive_bits": "naive_bits"}
        return {**found, **{key: None if self.audit is None else self.audit[at] for key, at in told.items()}}


@dataclass(frozen=True)
class Chosen:
    """The model that was chosen, and what was tried."""

    fitted: Fitted | Anchored
    family: str
    order: int
    types: int
    tried: tuple[Candidate, ...]
    people: int
    left_out: int
    reason: str
    audit: dict[str, Any] | None = None
    held: Visits = field(default=(), repr=False)
    others: Candidate | None = None
    """The same kind of model, learnt without the people of `held`."""


def choose(
    tokens: RequestTokens,
    order: int | Auto = "auto",
    types: int | Auto = "auto",
    *,
    audit: SmallAudit | None = None,
    dense: bool = False,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Chosen:
    """Fit a model, choosing what is "auto" on people held out.

    order, types: How many requests back, and how many types of people; "auto" tries several, and anchors where both
    are. audit: Judges candidates by what they give away. dense: Whether only what can be written
    out as JSON is tried. progress: Called with one line about each model that is tried,
    and about the last fit.

    Raises
    ------
    InvalidModel
        Where no request follows another, where there are fewer people than types, or more contexts than fit.
    """
    _check(tokens, order, types)
    say = progress or (lambda line: None)
    enough = tokens.requests >= TELLING_REQUESTS
    wanted = enough if enough.sum() >= ENOUGH_LONG else tokens.requests >= min(2, int(tokens.requests.max()))
    mine = tokens.of_people(wanted)
    people, left_out = int(wanted.sum()), int(((tokens.requests > 0) & ~wanted).sum())
    if people < FEWEST_PEOPLE:
        order, types = 1 if order == "auto" else order, 1 if types == "auto" else types
        say(f"fitting order {order}, {types} types to {people} people")
        alone = fit(mine, order, types, seed=seed)
        reason = f"too few to hold anybody out: {people} people, and {FEWEST_PEOPLE} are needed"
        return Chosen(alone, _family(order, types), order, len(alone.weights), (), people, left_out, reason)
    held = np.arange(people) % (HELD_OUT if people >= LEAST_PEOPLE else HELD_OUT_OF_FEW) == 0
    some = ~held & (np.cumsum(~held) <= MOST_TRIED)
    scored = held & (np.cumsum(held) <= MOST_SCORED)
    trial = _Trial(mine.of_people(some), mine.of_people(scored), dense, seed, say)
    tried = trial.ladder(order, types)
    visits = _visits(mine.of_people(scored))
    if audit is not None:
        _audited(tried, audit, visits, say)
    best = _best(tried)
    reason = "as asked" if "auto" not in (order, types) else _reason(best, int(scored.sum()))
    say(f"fitting {best.name} to {min(people, MOST_FITTED)} people")
    final = _refitted(best, mine.of_people(np.arange(people) < MOST_FITTED), seed)
    size = len(final.weights) if isinstance(final, Fitted) else final.types
    return Chosen(
        final, best.family, best.order, size, tuple(tried), people, left_out, reason, best.audit, visits, best
    )


def fit_sequences(sequences: Iterable[Iterable[Any]], names: Sequence[str] | None, **how: Any) -> dict[str, Any]:
    """The arguments of a RequestModel for observed sequences; see `RequestModel.fit`."""
    listed, labels, n = numbered(sequences, names)
    found = choose(RequestTokens.of(listed, n), **how)
    return {**found.fitted.arguments(), "names": labels, "about": about(found)}


def about(found: Chosen) -> dict[str, Any]:
    """What a model file says of how it was learnt."""
    return {
        "family": found.family,
        "order": found.order,
        "types": found.types,
        "chosen": found.reason,
        "tried": [one.as_dict() for one in found.tried],
        "people": found.people,
        "people_left_out": found.left_out,
    }


# -- parts -----------------------------------------------------------------------------------------------------


class _Trial:
    """Models fitted to some people and scored on others, each once."""

    def __init__(
        self, fitted_to: RequestTokens, held: RequestTokens, dense: bool, seed: int, say: Callable[[str], None]
    ) -> None:
        self.fitted_to, self.held, self.dense, self.seed, self.say = fitted_to, held, dense, seed, say
        self.people = int((fitted_to.requests > 0).sum())
        self.refused: InvalidModel | None = None

    def ladder(self, order: int | Auto, types: int | Auto) -> list[Candidate]:
        """Every candidate that fits. Raises InvalidModel where none does."""
        fixed_order, fixed_types = (order,) if order != "auto" else None, (types,) if types != "auto" else None
        rungs = [
            (k, z)
            for k in fixed_order or sorted({k for k, _ in LADDER})
            for z in fixed_types or sorted({z for _, z in LADDER})
            if (fixed_order or fixed_types or (k, z) in LADDER) and (z == 1 or fixed_types or self._enough_for(z))
        ]
        shrinks = SHRUNK_FOR_FEW if self.people < LEAST_PEOPLE * (1 - 1 / HELD_OUT) else (1.0,)
        found = [one for k, z in rungs if (one := self._types(k, z, shrinks)) is not None]
        if fixed_order is None and fixed_types is None and self._shows_anchors():
            found += [one for share in ANCHOR_SHARES if (one := self._anchors(share)) is not None]
        if not found:
            raise self.refused or InvalidModel(
                f"{types} types of only {self.people} people, while others are held out",
                hint="ask for fewer types, or give more people",
            )
        return found

    def _enough_for(self, types: int) -> bool:
        return self.people >= PEOPLE_A_TYPE * types

    def _shows_anchors(self) -> bool:
        if self.fitted_to.n < 3 or (self.dense and self.fitted_to.n > MOST_ANCHORED_AS_JSON):
            return False
        return int(self.fitted_to.requests.sum()) >= FEWEST_ANCHORED * max(1, self.people)

    def _types(self, order: int, types: int, shrinks: Sequence[float]) -> Candidate | None:
        if self.people < types:
            return None
        self.say(f"trying order {order}, {types} types")
        found: list[Candidate] = []
        for shrink in shrinks:
            try:
                fitted = fit(self.fitted_to, order, types, seed=self.seed, shrink=shrink)
            except InvalidModel as error:
                self.refused = error
                return None
            bits, error_of_it = bits_per_request(fitted.logs(self.held), self.held)
            found.append(Candidate(_family(order, types), order, types, fitted, bits, error_of_it, shrink))
        return min(found, key=lambda one: one.bits)

    def _anchors(self, share: float) -> Candidate | None:
        self.say("trying all anchors" + (" and people as types" if share else ""))
        people = np.cumsum(self.fitted_to.requests > 0) <= MOST_ANCHORED
        try:
            fitted = fit_anchors(self.fitted_to.of_people(people), share=share)
        except InvalidModel as error:
            self.refused = self.refused or error
            return None
        if share and not len(fitted.people):
            return None
        bits, error_of_it = bits_per_request(fitted.logs(self.held), self.held)
        return Candidate("anchors", 1, fitted.types, fitted, bits, error_of_it)


def _family(order: int, types: int) -> str:
    return "chain" if (order, types) == (1, 1) else "types"


def _audited(tried: list[Candidate], audit: SmallAudit, visits: Visits, say: Callable[[str], None]) -> None:
    """Audit the chain, the best of each family that is not far behind, and then those with the fewest bits."""
    ranked = sorted(tried, key=lambda one: one.bits)
    firsts = [next(one for one in ranked if one.family == family) for family in dict.fromkeys(o.family for o in ranked)]
    firsts = [one for one in firsts if one.family == "chain" or one.bits <= ranked[0].bits + FAR_BEHIND]
    near = [one for one in ranked if one.bits <= ranked[0].bits + FAR_BEHIND and one not in firsts]
    chosen = [*firsts, *near][: max(MOST_AUDITED, len(firsts))]
    knows = [ranked[0].fitted.arguments()]
    say(f"auditing {', '.join(one.name for one in chosen)}")
    for one, found in zip(
        chosen, audit.compare([one.fitted.arguments() for one in chosen], knows, visits), strict=True
    ):
        one.audit = found


def _best(tried: Sequence[Candidate]) -> Candidate:
    judged = [(one, one.audit) for one in tried if one.audit is not None]
    if judged:
        least = min(float(audit["bits"]) for _, audit in judged)
        good = [(float(audit["cost"]), one) for one, audit in judged if audit["bits"] - least <= audit["stderr"]]
        return min(good, key=lambda pair: pair[0])[1]
    floor = min(one.bits for one in tried) + LEAST_GAIN
    return min((one for one in tried if one.bits <= floor), key=lambda one: (one.order, one.types))


def _reason(best: Candidate, people: int) -> str:
    if best.audit is None:
        return f"fewest bits per request of {people} people held out"
    return f"the cheapest whose audited leak is not above the least by more than its error, {people} people held out"


def _refitted(best: Candidate, everyone: RequestTokens, seed: int) -> Fitted | Anchored:
    """The same model of everyone; types start from what they were found to be."""
    tried = best.fitted
    if isinstance(tried, Anchored):
        return fit_anchors(everyone, share=tried.share)
    start: Floats | None = None
    if best.types > 1 and len(tried.weights) == best.types:
        start = tried.shares(everyone)
    return fit(everyone, best.order, best.types, seed=seed, shrink=best.shrink, start=start)


def _visits(tokens: RequestTokens) -> list[tuple[int, list[int]]]:
    """The requests of each person, in runs that nothing interrupts."""
    order = np.argsort(tokens.people, kind="stable")
    order = order[tokens.told[order]]
    people, first = tokens.people[order], tokens.place[order] == 0
    starts = np.flatnonzero(first | (np.diff(people, prepend=-1) != 0))
    runs = np.split(tokens.sources[order], starts[1:])
    return [(int(people[at]), run.tolist()) for at, run in zip(starts.tolist(), runs, strict=True)]


def _check(tokens: RequestTokens, order: int | Auto, types: int | Auto) -> None:
    if order != "auto" and not 0 <= order <= MOST_ORDER:
        raise InvalidModel(f"order {order}", hint=f"give 0 to {MOST_ORDER}, or auto")
    if types != "auto" and types < 1:
        raise InvalidModel(f"{types} types", hint="give a number from 1 up, or auto")
    people = int((tokens.requests > 0).sum())
    if types != "auto" and people < types:
        raise InvalidModel(f"{types} types of only {people} people", hint="ask for fewer types, or give more people")
    if not (tokens.place > 0).any():
        raise InvalidModel(
            "no request follows another: every person made only one", hint="a trace needs people with several requests"
        )
