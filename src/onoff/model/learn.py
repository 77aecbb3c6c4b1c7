"""Learning a chain or a model from a trace, in one pass, with a report on how well it is known.

Counts of single requests, of pairs and (for few sources) of triples are kept apart for every tenth user, who is held
out. So one pass gives the chain, by the counts of all users, and an honest comparison of three models on requests
that were not used to fit them, each scored on the third request of a run and later, where all three apply:

    order 0   requests do not depend on each other: hiding the past costs nothing, and hides nothing
    order 1   the chain
    order 2   the last two requests matter; what it gains over order 1 is what the chain cannot know

Smoothing adds a constant to every count, so that no request is impossible. The report says how far that moves rows.

A richer model (order above 1, types of people, anchors) is fitted to the requests of the same pass, which are kept for
as many people as fit: see `Kept`, and `onoff.model.choosing` for how the family is chosen. The constants of the own law
(`onoff.model.people`) are chosen on people who are left out of the population.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain as chained
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from onoff.errors import InvalidInput, InvalidModel
from onoff.model.bounds import bounds
from onoff.model.chain import DEFAULT_SMOOTHING, MarkovChain
from onoff.model.choosing import HELD_OUT, Auto, Chosen, SmallAudit, about, choose
from onoff.model.contexts import Model, RequestModel
from onoff.model.files import check_json_name, model_document
from onoff.model.fitting import RequestTokens
from onoff.model.origin import advice_of
from onoff.model.people import KNOWN, SCORED, average_chain, choose_constants
from onoff.model.rows import Floats, Integers
from onoff.model.traces import WHOLE_VISITS, Run, Trace
from onoff.system.files import atomic_write

BATCH = 20_000
"""Runs that are counted together."""
MOST_LEARNT_SOURCES = 5_000
"""Sources of a learnt chain at most."""
MOST_FOR_COSTS = 1_000
"""Sources for which the report has all bounds on the cost."""
MOST_FOR_TRIPLES = 64
"""Sources up to which order 2 is fitted."""
MOST_NAMES_FOR_TRIPLES = 512
"""Names in the trace, before rare ones are put together, up to which triples are counted."""
FEW = 30
"""A row with fewer observations than this is named in the report."""
MOST_KEPT = 12_000_000
"""Requests that are kept to fit a model to; beyond, those of every other person are dropped, repeatedly."""
FEWEST_FOR_OWN, FEWEST_LONG, MOST_LONG = KNOWN[0] + SCORED, 10, 200
"""Requests of a person who is held out, and such people, from which constants of the own law are chosen; at most."""
MOST_AS_JSON = 2**21
"""Probabilities that JSON holds at most where laws are sparse."""
LEAST_ALIKE, MOST_ALIKE, ALIKE_ERRORS = 5, 2_000, 5.0
"""Requests of lines that are compared, how many lines, and by how many errors neighbours must be more alike."""
MOST_TYPES_AROUND = 200
"""Types of a population up to which an own law may be around them."""
_SHIFT = 21  # bits for a source in the key of a pair or triple


@dataclass
class Counts:
    """How often each source, pair and triple of successive requests was seen, and each source at a start."""

    single: Counter[int] = field(default_factory=Counter)
    first: Counter[int] = field(default_factory=Counter)
    pairs: Counter[int] = field(default_factory=Counter)
    triples: Counter[int] = field(default_factory=Counter)

    def add(self, sources: Integers, place: Integers, old: Integers, fresh: Integers, triples: bool) -> None:
        """Add requests laid end to end; `place` is each one's place in its run, `old` how many of it are known."""
        new = place >= old
        _tally(self.single, sources[new])
        _tally(self.first, sources[(place == 0) & (fresh > 0) & new])
        at = np.flatnonzero(new & (place >= 1))
        _tally(self.pairs, (sources[at - 1] << _SHIFT) | sources[at])
        if triples:
            at = np.flatnonzero(new & (place >= 2))
            _tally(self.triples, (sources[at - 2] << 2 * _SHIFT) | (sources[at - 1] << _SHIFT) | sources[at])

    def arrays(self, n: int, renamed: Integers) -> tuple[Floats, Floats, Floats, Floats | None]:
        """Single, first, pair and triple counts as arrays over n sources; `renamed` maps old numbers to new."""
        single, first, pairs = np.zeros(n), np.zeros(n), np.zeros((n, n))
        mask = (1 << _SHIFT) - 1
        for x, count in self.single.items():
            single[renamed[x]] += count
        for x, count in self.first.items():
            first[renamed[x]] += count
        for key, count in self.pairs.items():
            pairs[renamed[key >> _SHIFT], renamed[key & mask]] += count
        if n > MOST_FOR_TRIPLES or len(renamed) > MOST_NAMES_FOR_TRIPLES:
            return single, first, pairs, None
        triples = np.zeros((n, n, n))
        for key, count in self.triples.items():
            a, b, c = key >> 2 * _SHIFT, (key >> _SHIFT) & mask, key & mask
            triples[renamed[a], renamed[b], renamed[c]] += count
        return single, first, pairs, triples


class Kept:
    """The requests of as many people as fit in memory, laid end to end.

    Beyond MOST_KEPT requests half of the people are dropped, chosen by a hash of their number; of the others all
    requests are kept.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Integers, ...]] = []
        self._held = 0
        self.share = 1

    def add(self, sources: Integers, people: Integers, place: Integers, told: Any) -> None:
        """Add a batch: for each request its source, person, place in its run, and whether it is new."""
        self._parts.append(self._staying((sources.astype(np.int32), people.astype(np.int32), place, told)))
        self._held += len(self._parts[-1][0])
        while self._held > MOST_KEPT:
            self.share *= 2
            self._parts = [self._staying(part) for part in self._parts]
            self._held = sum(len(part[0]) for part in self._parts)

    def _staying(self, part: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.share == 1:
            return part
        mixed = part[1].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
        stays = mixed % np.uint64(self.share) == 0
        return tuple(column[stays] for column in part)

    def tokens(self, renamed: Integers, n: int) -> RequestTokens:
        """What is kept, with the sources renamed and people numbered from 0."""
        sources, people, place, told = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        _, numbers = np.unique(people, return_inverse=True)
        return RequestTokens(renamed[sources], numbers.reshape(-1), place, told, n)


@dataclass(frozen=True)
class Learnt:
    """A chain, the counts behind it, the report, and the model where a richer one than the chain was learnt."""

    chain: MarkovChain
    counts: Integers
    report: dict[str, Any]
    richer: RequestModel | None = None

    @property
    def model(self) -> Model:
        """What was learnt: the richer model where there is one, else the chain."""
        return self.chain if self.richer is None else self.richer

    def as_dict(self) -> dict[str, Any]:
        """A chain or model file with its counts; the report is under "about", what was tried under "tried"."""
        rest = {"counts": self.counts.tolist(), "about": self.report, "tried": self.report["model"]["tried"]}
        rest |= {key: self.report[key] for key in ("families", "own_history_bits", "advice")}
        if self.richer is not None:
            laws = self.richer.dense() if self._can_be_written_out else None
            return {**model_document({**self.richer.parts(), "laws": laws}), **rest}
        return {
            "transition": np.asarray(self.chain.transition).tolist(),
            "names": list(self.chain.names),
            "initial": self.chain.initial.tolist(),
            **rest,
        }

    @property
    def _can_be_written_out(self) -> bool:
        richer = self.richer
        return richer is None or not richer.is_sparse or richer.types * len(richer.contexts) * richer.n <= MOST_AS_JSON

    def save(self, path: Path) -> None:
        """Write the file atomically. Raises InvalidInput where its suffix is that of another format."""
        if path.suffix.lower() == ".npz":
            found = RequestModel.of(self.chain) if self.richer is None else self.richer
            RequestModel(**{**found.parts(), "about": self.report}).save(path)
            return
        check_json_name(path)
        if not self._can_be_written_out:
            raise InvalidModel(f"{path}: the model is sparse", hint="give a name that ends in .npz")
        try:
            with atomic_write(path) as file:
                file.write(json.dumps(self.as_dict(), ensure_ascii=False).encode() + b"\n")
        except OSError as error:
            raise InvalidInput(f"{path}: {error.strerror}", hint="nothing was written; choose another place") from None


def learn(
    trace: Trace,
    *,
    order: int | Auto = 1,
    types: int | Auto = 1,
    smoothing: float = DEFAULT_SMOOTHING,
    structural_zeros: bool = False,
    merge_rare: int = 0,
    seed: int = 0,
    audit: SmallAudit | None = None,
    dense: bool = False,
    progress: Callable[[int], None] | None = None,
    phase: Callable[[str], None] | None = None,
) -> Learnt:
    """The chain or model of a trace.

    order, types: How many requests back, and how many types of people. 1 and 1 is the chain; "auto" chooses on people
    held out, of all families.
    audit: Judges candidates by what they give away; without one, held-out bits do.
    dense: Whether the model must be one that JSON can hold.
    smoothing, structural_zeros: As for `MarkovChain.from_counts`; a richer model has its own smoothing and no
    structural zeros.
    progress, phase: Called with the bytes read so far; with a line about what is being fitted.

    Raises
    ------
    InvalidInput
        Where there is nothing to learn from, or too much for the order.
    """
    simple = order == 1 and types == 1
    if structural_zeros and not simple:
        if order not in (1, "auto") or types not in (1, "auto"):
            raise InvalidModel("structural zeros in a model with types", hint="give --order 1 --types 1 with them")
        order = types = 1
        simple = True
    kept = None if simple else Kept()
    fitted, held = _count(trace, progress, kept)
    everyone = Counts(
        fitted.single + held.single, fitted.first + held.first, fitted.pairs + held.pairs, fitted.triples + held.triples
    )
    names, renamed = _merged(trace.names, everyone.single, merge_rare)
    if len(names) < 2:
        raise InvalidInput(
            f"{trace.path}: only one source, so there is nothing to hide", hint="name the others with --sources"
        )
    if len(names) > MOST_LEARNT_SOURCES:
        raise InvalidInput(
            f"{trace.path}: {len(names)} sources, more than {MOST_LEARNT_SOURCES}",
            hint="put rare ones together: --merge-rare",
        )
    single, first, pairs, _ = everyone.arrays(len(names), renamed)
    if not pairs.any() and kept is not None:
        raise InvalidModel(
            f"{trace.path}: no request follows another, every person made only one",
            hint="a trace needs people with several requests",
        )
    chain = MarkovChain.from_counts(pairs, first, names, smoothing=smoothing, structural_zeros=structural_zeros)
    chosen = None
    if kept is not None:
        chosen = _chosen(trace, kept.tokens(renamed, len(names)), order, types, seed, audit, dense, phase)
    report = {
        "trace": {
            "file": trace.path.name,
            "format": trace.format,
            "users": trace.users,
            "requests": trace.requests,
            "transitions": int(pairs.sum()),
            "private_left_out": trace.private,
            "private_marked": trace.marked,
            "broken_lines": trace.broken,
            "first_broken": trace.first_broken,
            "lines_alike": _lines_alike(trace, kept.tokens(renamed, len(names))) if kept is not None else False,
            "merged_sources": len(trace.names) - len(names) + 1 if len(names) < len(trace.names) else 0,
        },
        "model": FIRST_ORDER if chosen is None or kept is None else {**about(chosen), "share_kept": 1 / kept.share},
        "smoothing": _smoothing(chain, pairs, smoothing, structural_zeros),
        "fit": _fit(fitted.arrays(len(names), renamed), held.arrays(len(names), renamed), smoothing),
        "rows": _rows(pairs, single, names),
        "cost": _cost(chain),
    }
    report |= _audited(chosen, audit)
    richer = None
    if chosen is not None and chosen.family != "chain":
        richer = RequestModel(**{**chosen.fitted.arguments(), "names": names, "about": report})
    return Learnt(chain, pairs.astype(np.int64), report, richer)


FIRST_ORDER: dict[str, Any] = {"order": 1, "types": 1, "chosen": "as asked", "tried": []}


def _chosen(
    trace: Trace,
    tokens: RequestTokens,
    order: int | Auto,
    types: int | Auto,
    seed: int,
    audit: SmallAudit | None,
    dense: bool,
    phase: Callable[[str], None] | None,
) -> Chosen:
    try:
        return choose(tokens, order, types, audit=audit, dense=dense, seed=seed, progress=phase)
    except InvalidModel as error:
        raise InvalidModel(f"{trace.path}: {error.message}", hint=error.hint) from None


def _audited(chosen: Chosen | None, audit: SmallAudit | None) -> dict[str, Any]:
    """What a report says of families, of the own law, and whether to switch OFF: by models of people not held out."""
    found: dict[str, Any] = {"families": [], "own_history_bits": None}
    if chosen is not None:
        found["families"] = [one.as_dict() for one in chosen.tried]
        audits = {} if chosen.audit is None else {"none": chosen.audit}
        own = _own_law(chosen)
        if own is not None and chosen.others is not None:
            found["own_law"] = own
            found["own_history_bits"] = own["population_bits"] - own["held_out_bits"]
            known = None
            if audit is not None:
                constants = {key: own[key] for key in ("cap", "weight", "trust", "alone")}
                others = chosen.others.fitted.arguments()
                known = audit.knowing(others, constants, [others], chosen.held)
            audits |= {} if known is None else {"open": known}
        if audits:
            found |= {"audits": audits, "measured": next(iter(audits.values()))}
    return {**found, "advice": advice_of(found).word}


def _lines_alike(trace: Trace, tokens: RequestTokens) -> bool:
    """Whether neighbouring lines, each taken for a person, share more than lines that are far apart: one person's."""
    if trace.format not in WHOLE_VISITS:
        return False
    long = tokens.of_people(
        (tokens.requests >= LEAST_ALIKE) & (np.cumsum(tokens.requests >= LEAST_ALIKE) <= MOST_ALIKE)
    )
    lines = len(long.requests)
    if lines < 2 * FEWEST_LONG:
        return False
    counts = np.zeros((lines, long.n))
    np.add.at(counts, (long.people[long.told], long.sources[long.told]), 1)
    shares = counts / counts.sum(axis=1, keepdims=True)
    beside = np.minimum(shares[1:], shares[:-1]).sum(axis=1)
    apart = np.minimum(shares, np.roll(shares, lines // 2, axis=0)).sum(axis=1)[:-1]
    more = beside - apart
    return bool(more.mean() > max(0.05, ALIKE_ERRORS * more.std() / np.sqrt(len(more))))


def _own_law(chosen: Chosen) -> dict[str, Any] | None:
    """Constants of the own law by people held out from the population; None where too few were seen for long.

    The law is around the types of the population, or alone, whichever takes fewer bits.
    """
    whole: dict[int, list[int]] = {}
    for person, visit in chosen.held:
        whole.setdefault(person, []).extend(visit)
    people = [visit for visit in whole.values() if len(visit) >= FEWEST_FOR_OWN][:MOST_LONG]
    if len(people) < FEWEST_LONG or chosen.others is None:
        return None
    others = RequestModel(**chosen.others.fitted.arguments())
    found = []
    if others.types <= MOST_TYPES_AROUND:
        found.append({**(choose_constants(others, people) or {}), "alone": False})
    if others.types > 1:
        found.append({**(choose_constants(average_chain(others), people) or {}), "alone": True})
    best = min(found, key=lambda one: float(one["held_out_bits"]))
    return {**best, "population_bits": min(float(one["population_bits"]) for one in found)}


def _count(trace: Trace, progress: Callable[[int], None] | None, kept: Kept | None) -> tuple[Counts, Counts]:
    """The counts of the users to fit to, and of those held out; `kept` gets the requests themselves."""
    fitted, held = Counts(), Counts()
    stream: Iterator[Run] = trace.runs(progress)
    while batch := list(islice(stream, BATCH)):
        lengths = np.array([len(run.sources) for run in batch])
        sources = np.fromiter(chained.from_iterable(run.sources for run in batch), np.int64, int(lengths.sum()))
        place = np.arange(len(sources)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        old = np.repeat([run.known for run in batch], lengths)
        fresh = np.repeat([run.fresh for run in batch], lengths)
        out = np.repeat([run.user % HELD_OUT == 0 for run in batch], lengths)
        if len(trace.names) > 1 << _SHIFT:
            raise InvalidInput(f"{trace.path}: more than {1 << _SHIFT} sources", hint="are users and sources swapped?")
        triples = len(trace.names) <= MOST_NAMES_FOR_TRIPLES
        if not triples:
            fitted.triples.clear()
            held.triples.clear()
        if kept is not None:
            # A request after a private one is no first request: it is only what came before the next.
            told = (place >= old) & ((place > 0) | (fresh > 0))
            kept.add(sources, np.repeat([run.user for run in batch], lengths), place, told)
        for counts, mine in ((fitted, ~out), (held, out)):
            counts.add(sources[mine], place[mine], old[mine], fresh[mine], triples)
    return fitted, held


def _tally(counter: Counter[int], keys: Integers) -> None:
    values, counts = np.unique(keys, return_counts=True)
    counter.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _merged(names: list[str], single: Counter[int], least: int) -> tuple[list[str], Integers]:
    """The names that stay, and the new number of each old one; the rare ones come last, as one."""
    rare = [x for x in range(len(names)) if single[x] < least]
    kept = [x for x in range(len(names)) if single[x] >= least]
    renamed = np.zeros(len(names), dtype=np.int64)
    renamed[kept] = np.arange(len(kept))
    listed = [names[x] for x in kept]
    if rare:
        renamed[rare] = len(kept)
        listed.append("other" if "other" not in listed else "other sources")
    return listed, renamed


def _smoothing(chain: MarkovChain, pairs: Floats, smoothing: float, structural_zeros: bool) -> dict[str, Any]:
    """What smoothing did: how far it moved rows (total variation), and the smallest probability it left."""
    transition = np.asarray(chain.transition)
    left = pairs.sum(axis=1)
    seen = left > 0
    raw = pairs[seen] / left[seen, None]
    moved = np.abs(transition[seen] - raw).sum(axis=1) / 2
    return {
        "added": smoothing,
        "structural_zeros": structural_zeros,
        "unseen_transitions": int((pairs == 0).sum()),
        "smallest_probability": float(transition[transition > 0].min()),
        "rows_moved_most": float(moved.max()) if len(moved) else 0.0,
        "rows_moved_mean": float(np.average(moved, weights=left[seen])) if len(moved) else 0.0,
    }


def _fit(fitted: tuple[Any, ...], held: tuple[Any, ...], smoothing: float) -> dict[str, Any] | None:
    """Bits per request of the models of order 0, 1 and 2, on the users fitted to and on those held out.

    With many sources order 2 is left out, and requests count from the second of a run on.
    """
    single, _, pairs, triples = fitted
    scored = (pairs, held[2]) if triples is None else (triples, held[3])
    if not all(counts.sum() for counts in scored):
        return None
    n = len(single)
    added = max(smoothing, 1e-9)
    order_0 = (single + added) / (single + added).sum()
    order_1 = (pairs + added) / (pairs + added).sum(axis=1, keepdims=True)
    models = [np.log2(order_0), np.log2(order_1)]
    if triples is not None:
        # Order 2 is shrunk to order 1 where it has seen little: n * added imagined requests that follow order 1.
        order_2 = (triples + n * added * order_1[None]) / (triples.sum(axis=2, keepdims=True) + n * added)
        models.append(np.log2(order_2))
    report: dict[str, Any] = {"held_out_users": f"every {HELD_OUT}th", "scored": int(scored[1].sum())}
    for order, logs in enumerate(models):
        report[f"order_{order}"] = {
            "bits_fitted": float(-(scored[0] * logs).sum() / scored[0].sum()),
            "bits_held_out": float(-(scored[1] * logs).sum() / scored[1].sum()),
            "log_likelihood": float((scored[0] * logs).sum() * np.log(2)),
            "parameters": n**order * (n - 1),
        }
    return report


def _rows(pairs: Floats, single: Floats, names: list[str]) -> dict[str, Any]:
    left = pairs.sum(axis=1)
    few = [{"source": names[x], "observations": int(left[x])} for x in np.argsort(left) if left[x] < FEW]
    return {
        "few_observations": few,
        "unseen": [names[x] for x in np.flatnonzero(single == 0)],
        "fewest": int(left.min()),
        "requests_by_source": {names[x]: int(single[x]) for x in range(len(names))},
    }


def _cost(chain: MarkovChain) -> dict[str, Any]:
    """Messages for the first request after privacy is switched OFF: at least, and at most with Algorithm 1.

    Of many sources only the first, by outer bound 2: the others take minutes.
    """
    if chain.n > MOST_FOR_COSTS:
        return {"everything": chain.n, "at_least": float(chain.dense().max(axis=0).sum()), "paper_at_most": None}
    found = bounds(chain)
    return {"everything": chain.n, "at_least": found.lower, "paper_at_most": found.inner}
