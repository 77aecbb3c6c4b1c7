"""A small audit of many models, by which `onoff learn` chooses: held-out readers, ten OFF requests, two attackers.

The same readers and private requests for every model, and naive switching judged once. Attackers: by Bayes' rule with
the best model that is known, and the conditional logit, stacked as in `guesses`; boosted trees, which take longest, are
left to `onoff audit traces`. A posterior is followed in the arrays of the session's own filter (`Beliefs`), so that
thousands of types take milliseconds a query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from onoff.audit.cases import Case, Sightings, choose_cases, choose_known_cases, naive_channels, send_cases
from onoff.audit.guesses import (
    Clues,
    Judgement,
    attackers_of,
    bits_of,
    difference,
    known_before,
    stack,
)
from onoff.audit.observer import Channel
from onoff.errors import InvalidInput
from onoff.model.contexts import Model, RequestModel
from onoff.model.people import MOST_OPEN, OpenHistory, average_chain, own_law, types_given
from onoff.model.rows import Floats
from onoff.session import Session
from onoff.session.filter import ModelFilter
from onoff.session.seeded import SeededEntropy

JUDGED_AFTER = 10
CASES, KNOWN_CASES = 120, 80
"""Private requests that are judged; where open requests are known, which takes longer."""
FEWEST_JUDGED, FEWEST_READERS = 40, 10
LEAST = 1e-12


@dataclass
class Small:
    """An audit of models on the same readers. trace: the name of their file. say: called with a line about each."""

    trace: str = ""
    seed: int = 0
    say: Callable[[str], None] = field(default=lambda line: None)

    def compare(
        self,
        models: Sequence[Mapping[str, Any]],
        knows: Sequence[Mapping[str, Any]],
        visits: Iterable[tuple[int, Sequence[int]]],
    ) -> list[dict[str, Any] | None]:
        """For each model what was measured, as a model's file holds it; None where there are too few readers.

        models: The arguments of each. knows: What the attackers know.
        """
        rng = np.random.default_rng(self.seed)
        cases = choose_cases(visits, JUDGED_AFTER, "private", rng, CASES)
        cases = sorted((cases[i] for i in rng.permutation(len(cases))[:CASES]), key=lambda case: case.asked)
        if _too_few(cases):
            return [None] * len(models)
        known = [RequestModel(**parts) for parts in knows]
        attackers = {f"bayes {i}": _after_private(model) for i, model in enumerate(known)}
        naive = _judged(_naive(cases, known[0].n), attackers, known[0].n)
        found: list[dict[str, Any] | None] = []
        for parts in models:
            model = RequestModel(**parts)
            self.say(f"auditing {model.types} types of order {model.order}")
            start = Session(model.as_chain() or model, "greedy")
            seen = send_cases(start, cases, lambda: SeededEntropy(rng), lambda done: None)
            found.append(self._summary(seen, attackers, naive, model.n, "private", "none"))
        return found

    def knowing(
        self,
        model: Mapping[str, Any],
        constants: Mapping[str, Any],
        knows: Sequence[Mapping[str, Any]],
        visits: Iterable[tuple[int, Sequence[int]]],
    ) -> dict[str, Any] | None:
        """The same of sessions that know what each person openly asked, by the own law with these constants."""
        rng = np.random.default_rng(self.seed)
        cases = choose_known_cases(visits, JUDGED_AFTER, rng, KNOWN_CASES)[:KNOWN_CASES]
        if _too_few(cases):
            return None
        population: Model = RequestModel(**model)
        if constants["alone"]:
            population = average_chain(RequestModel(**model))
        n, drawn = population.n, {**constants, "alone": False}
        self.say(f"auditing the own law, {len(cases)} private requests of people whose open requests are known")

        def law(case: Case) -> RequestModel:
            return own_law(population, _history(case, n), **drawn, entropy=SeededEntropy(rng))

        def begin(case: Case) -> Session:
            return Session(law(case), "greedy", history=_history(case, n))

        attackers: dict[str, Callable[[Case], ModelFilter]] = {"own law": lambda case: _knowing(law(case), case, None)}
        for i, one in enumerate(RequestModel(**parts) for parts in knows):
            attackers[f"types {i}"] = partial(_knowing_types, one)
        naive = _judged(_naive(cases, n), attackers, n)
        seen = send_cases(Session(population), cases, lambda: SeededEntropy(rng), lambda done: None, begin)
        return self._summary(seen, attackers, naive, n, "nothing", "open")

    def _summary(
        self,
        seen: Sightings,
        attackers: Mapping[str, Callable[[Case], ModelFilter]],
        naive: Judgement,
        n: int,
        before: str,
        history: str,
    ) -> dict[str, Any] | None:
        if len(seen) < len(naive.person):  # requests that the model calls impossible: it cannot be compared
            return None
        ours = _judged(seen, attackers, n)
        (bits, stderr), (theirs, _) = ours.gain(1), naive.gain(1)
        less, spread = difference(ours, naive, 1)
        return {
            "trace": self.trace,
            "users": len(np.unique(ours.person)),
            "cases": len(ours.person),
            "small": True,
            "before": before,
            "after": JUDGED_AFTER,
            "bits": bits,
            "stderr": stderr,
            "top1": ours.top1(1),
            "prior_top1": float(ours.right[:, 0].mean()),
            "naive_bits": theirs,
            "naive_top1": naive.top1(1),
            "history": history,
            "difference": less,
            "difference_stderr": spread,
            "cost": float(np.mean([sum(len(c.query) for c in channels[case.asked + 1 :]) for case, channels in seen])),
            "everything": n * JUDGED_AFTER,
        }


# -- parts -----------------------------------------------------------------------------------------------------


def _too_few(cases: Sequence[Case]) -> bool:
    return len(cases) < FEWEST_JUDGED or len({case.person for case in cases}) < FEWEST_READERS


def _history(case: Case, n: int) -> OpenHistory:
    return OpenHistory("audit", n, case.history[-MOST_OPEN:])


def _naive(cases: Sequence[Case], n: int) -> list[tuple[Case, Sequence[Channel]]]:
    everything = Channel(tuple(range(n)))
    return [(case, naive_channels(case, [everything] * (case.asked + 1), n)) for case in cases]


def _after_private(model: RequestModel) -> Callable[[Case], ModelFilter]:
    """What an attacker believes of X right after it, when everything was asked from the first request on."""
    every = tuple(range(model.n))
    states = [ModelFilter.start(model)]

    def believe(case: Case) -> ModelFilter:
        while len(states) <= case.asked + 1:
            likely = int(states[-1].belief.mixed(model).sum(axis=0).argmax())
            states.append(states[-1].after(every, likely, private=True, table=None))
        return states[case.asked + 1]

    return believe


def _knowing_types(model: RequestModel, case: Case) -> ModelFilter:
    return _knowing(model, case, types_given(model, _history(case, model.n)))


def _knowing(model: RequestModel, case: Case, chances: Floats | None) -> ModelFilter:
    """The same where X is the first request after an open history."""
    start = ModelFilter.start(model, context=model.context_of(case.history))
    if chances is not None:
        start = replace(start, belief=replace(start.belief, mass=chances[None]))
    likely = int(start.belief.mixed(model)[0].argmax())
    return start.after(tuple(range(model.n)), likely, private=True, table=None)


def _posteriors(state: ModelFilter, channels: Sequence[Channel], n: int) -> Floats:
    """log p(x) of X before any query, and after all of them; shape (2, n)."""
    belief, model = state.belief, state.model
    values, law = state.us[:, -1], np.array(state.weights)
    logs = [np.bincount(values, law, minlength=n)]
    for channel in channels:
        columns = np.array(channel.query)
        chance = np.ones((len(belief.row), len(columns)))
        if channel.chances is not None and channel.rows is not None:
            if channel.of_private:
                rows = np.array([channel.rows.get((u,), 0) for u in values.tolist()])[belief.row]
            else:
                last = [model.contexts[c][-channel.depth :] for c in belief.context.tolist()]
                rows = np.array([channel.rows.get(tuple(one), 0) for one in last])
            chance = channel.chances[rows]
        belief = belief.stepped(model, columns, chance, belief.row[:, None], belief.height)
        totals = belief.totals()
        if not totals.any():
            raise InvalidInput("the attacker's model calls a query impossible", hint="smooth it: learn from more data")
        belief = replace(belief, mass=belief.mass / totals.max())
    logs.append(np.bincount(values, law * belief.totals(), minlength=n))
    return np.log(np.maximum([one / one.sum() for one in logs], LEAST))


def _judged(seen: Sightings, attackers: Mapping[str, Callable[[Case], ModelFilter]], n: int) -> Judgement:
    """What is gained after all queries, as if they were one."""
    asked = np.zeros((len(seen), JUDGED_AFTER, n), dtype=bool)
    for i, (case, channels) in enumerate(seen):
        for j, channel in enumerate(channels[case.asked + 1 :]):
            asked[i, j, list(channel.query)] = True
    bayes: dict[str, Floats] = {}
    for name, believe in attackers.items():
        ends = np.array([_posteriors(believe(case), channels[case.asked + 1 :], n) for case, channels in seen])
        bayes[name] = np.concatenate([ends[:, :1], np.repeat(ends[:, 1:], JUDGED_AFTER, axis=1)], axis=1)
    clues = Clues(
        np.array([case.person for case, _ in seen]), np.array([case.wanted for case, _ in seen]), bayes, asked
    )
    guessers = {name: one for name, one in attackers_of(bayes)[0].items() if name != "boosted"}
    prior = known_before(clues, guessers)
    laws = {name: one(clues, JUDGED_AFTER, prior) for name, one in guessers.items()}
    together, told = stack(clues, list(laws.values()), prior), bits_of(prior, clues.wanted)
    right = np.stack([law.argmax(axis=1) == clues.wanted for law in (prior, together)], axis=1)
    alone = {name: float((bits_of(law, clues.wanted) - told).mean()) for name, law in laws.items()}
    return Judgement(clues.person, (bits_of(together, clues.wanted) - told)[:, None], [alone], right, together)
