"""Choosing order and number of types on people who were held out.

Every tenth person is held out. Orders 1, 2 and 3 are tried with one type, then the better ones with more and more
types, each scored by the bits per request that the people held out take; a larger model must gain LEAST_GAIN bits. What
is chosen is then fitted to everyone.

With fewer than LEAST_PEOPLE people, or LEAST_SCORED held-out requests, there is nothing to choose by: order 1, one
type.
Where enough people made TELLING_REQUESTS requests or more, the others are left out: the type of a person shows only
over several requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from onoff.errors import InvalidModel
from onoff.model.fitting import Fitted, RequestTokens, fit, numbered

HELD_OUT = 10
"""Every tenth person is held out for scoring."""
LEAST_PEOPLE = 500
LEAST_SCORED = 500
TELLING_REQUESTS = 8
ENOUGH_LONG = 20_000
"""People with TELLING_REQUESTS requests from which the others are left out."""
LEAST_GAIN = 0.002
"""Bits per request that a larger model must gain."""
ORDERS = (1, 2, 3)
TYPES = (1, 2, 6, 12, 24, 48)
COMPARED = 12
"""Types with which a longer memory must be better than a shorter one, or it is not tried with more."""
MOST_TRIED = 60_000
"""People that models are tried on; the chosen one is fitted to all."""
MOST_ORDER = 4
Auto = Literal["auto"]


@dataclass(frozen=True)
class Chosen:
    """The model that was chosen, and the bits per held-out request of each one tried."""

    fitted: Fitted
    order: int
    types: int
    tried: tuple[dict[str, Any], ...]
    people: int
    left_out: int
    reason: str


def choose(
    tokens: RequestTokens,
    order: int | Auto = "auto",
    types: int | Auto = "auto",
    *,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Chosen:
    """Fit a model, choosing what is "auto" on people held out.

    order, types: How many requests back, and how many types of people; "auto" tries several.
    progress: Called with one line about each model that is tried, and about the last fit.

    Raises
    ------
    InvalidModel
        Where no request follows another, where there are fewer people than types, or more contexts than fit.
    """
    _check(tokens, order, types)
    enough = tokens.requests >= TELLING_REQUESTS
    wanted = enough if enough.sum() >= ENOUGH_LONG else tokens.requests >= min(2, int(tokens.requests.max()))
    mine = tokens.of_people(wanted)
    people, left_out = int(wanted.sum()), int(((tokens.requests > 0) & ~wanted).sum())
    held = np.arange(people) % HELD_OUT == 0
    scored = int(mine.requests[held].sum())
    tried: list[dict[str, Any]] = []
    reason = "as asked"
    if people < LEAST_PEOPLE or scored < LEAST_SCORED:
        if "auto" in (order, types):
            reason = (
                f"not enough data to choose a model: {people} {'person' if people == 1 else 'people'} and "
                f"{scored} held-out requests; {LEAST_PEOPLE} and {LEAST_SCORED} are needed"
            )
        order, types = 1 if order == "auto" else order, 1 if types == "auto" else types
    else:
        some = ~held & (np.cumsum(~held) <= MOST_TRIED)
        trial = _Trial(mine.of_people(some), mine.of_people(held), seed, progress, tried)
        best = trial.best(order, types)
        if "auto" in (order, types):
            reason = f"fewest bits per request of {int(held.sum())} people held out"
        order, types = best
    if progress is not None:
        progress(f"fitting order {order}, {types} types to {people} people")
    fitted = fit(mine, order, types, seed=seed)
    return Chosen(fitted, order, len(fitted.weights), tuple(tried), people, left_out, reason)


def fit_sequences(sequences: Iterable[Iterable[Any]], names: Sequence[str] | None, **how: Any) -> dict[str, Any]:
    """The arguments of a RequestModel for observed sequences; see `RequestModel.fit`."""
    listed, labels, n = numbered(sequences, names)
    found = choose(RequestTokens.of(listed, n), **how)
    return {**found.fitted.arguments(), "names": labels, "about": about(found)}


def about(found: Chosen) -> dict[str, Any]:
    """What a model file says of how it was learnt."""
    return {
        "order": found.order,
        "types": found.types,
        "chosen": found.reason,
        "tried": list(found.tried),
        "people": found.people,
        "people_left_out": found.left_out,
    }


class _Trial:
    """Models fitted to some people and scored on others, each once."""

    def __init__(
        self,
        fitted_to: RequestTokens,
        held: RequestTokens,
        seed: int,
        progress: Callable[[str], None] | None,
        tried: list[dict[str, Any]],
    ) -> None:
        self.fitted_to, self.held, self.seed, self.progress, self.tried = fitted_to, held, seed, progress, tried
        self.refused: InvalidModel | None = None

    def best(self, order: int | Auto, types: int | Auto) -> tuple[int, int]:
        """The order and number of types with the fewest bits."""
        orders = ORDERS if order == "auto" else (order,)
        one = {k: bits for k in orders if (bits := self._bits(k, 1 if types == "auto" else types)) is not None}
        if not one:
            people = int((self.fitted_to.requests > 0).sum())
            raise self.refused or InvalidModel(
                f"{types} types of only {people} people, while every tenth is held out",
                hint="ask for fewer types, or give more people",
            )
        ranked = sorted(one, key=one.__getitem__)
        if types != "auto":
            return self._smallest({(k, types): one[k] for k in one}), types
        best = {(k, 1): one[k] for k in one}
        least = np.inf  # of any order with more than one type
        for k in sorted(ranked[:2]):
            before = one[k]
            for z in TYPES[1:]:
                bits = self._bits(k, z)
                if bits is None or bits > before - LEAST_GAIN:
                    break
                best[k, z] = before = bits
                if z == COMPARED and bits > least - LEAST_GAIN:
                    break  # a longer memory that gains nothing over a shorter one with as many types
            least = min(least, best.get((k, COMPARED), np.inf))
        floor = min(best.values()) + LEAST_GAIN
        k, z = min((key for key, bits in best.items() if bits <= floor), key=lambda key: (key[0], key[1]))
        return k, z

    def _smallest(self, bits: dict[tuple[int, int], float]) -> int:
        floor = min(bits.values()) + LEAST_GAIN
        return min(k for (k, _), found in bits.items() if found <= floor)

    def _bits(self, order: int, types: int) -> float | None:
        """Bits per held-out request, None where the model does not fit in memory."""
        if int((self.fitted_to.requests > 0).sum()) < types:
            return None
        if self.progress is not None:
            self.progress(f"trying order {order}, {types} types")
        try:
            fitted = fit(self.fitted_to, order, types, seed=self.seed)
        except InvalidModel as error:
            self.refused = error
            return None
        bits = fitted.bits(self.held)
        self.tried.append({"order": order, "types": types, "held_out_bits": bits})
        return bits


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
