"""Own law: a model of one person, made of what everybody does and of what this person has openly asked for.

A server that has seen a person's open requests for weeks knows where that person goes. Decoys made by a model of other
people alone then give the hidden request away, so the session must believe what the server believes. The person's law
is not known, though: `own_law` is a mixture of particles, each a law that this person may have,

    p(x | c) = (1 - k) P(x | c) + k (C[last, x] + b f(x)) / (C[last] + b)

    P      the population, a chain or a model with types; c a context of it, `last` its last request
    C      the person's own open transitions, scaled by min(1, cap / h) for h open requests
    f      where the person goes at all: Dirichlet(own requests, scaled likewise, plus the population), one f a particle
    k      weight * h / (h + 3): the more was seen, the more it counts
    b      trust: how many transitions f is worth

Types of the population keep their laws and are weighted by the open requests; each has a particle at least. Or the
law is the person's alone: then P is the one chain that the population is in the mean (`average_chain`). Particles are
drawn once, from nothing private, and are an ordinary `RequestModel`: its file and its digest hold them.

What may enter (`OpenHistory`): an open request as a value only where it was plain *whatever its value*; see
`Session(model, history=...)`. A model is made of a history only while nothing is hidden: afterwards sets tell about the
person too, and only the memory of the session that sent them knows what. It is carried on instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, Protocol, Self

import numpy as np

from onoff.errors import InvalidInput, InvalidModel
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model, RequestModel, check_model
from onoff.model.rows import Floats

FEWEST_KNOWN = 20
"""Open requests of a person from which an audit counts them as known."""
MOST_OPEN = 200
"""Open requests that a history keeps."""
PARTICLES = 60
HALF_KNOWN = 3.0
"""Open requests after which the person's own law counts for half of its weight."""
LIKE_EVERYBODY = 1.0
"""Requests that the population is worth where it is guessed where a person goes."""
LEAST_TYPE = 1e-12
"""The probability below which a type of the population is left out."""
SETTLING = 64
"""Steps after which people are where they usually are."""
MOST_LAW_BYTES = 2 * 2**30
"""Memory that the particles may take."""


class Uniforms(Protocol):
    """Where particles are drawn from; the entropy of a session is one."""

    def uniforms(self, count: int) -> Floats:
        """`count` floats, uniform on the open interval (0, 1)."""
        ...


@dataclass(frozen=True)
class Expanded:
    """Uniform draws out of a seed, always the same: particles that are not kept can be drawn again."""

    seed: bytes

    def uniforms(self, count: int) -> Floats:
        """See `Uniforms`."""
        bits = np.frombuffer(hashlib.shake_256(self.seed).digest(8 * count), dtype="<u8") >> np.uint64(11)
        return np.asarray(np.minimum((bits + 0.5) * 2.0**-53, 1 - 2.0**-53), dtype=np.float64)


@dataclass(frozen=True)
class OpenHistory:
    """What one person has openly asked one server for, as far as it may enter a model. Public: the server knows it.

    Parameters
    ----------
    server
        Whose history it is: what another server saw must not enter.
    n
        How many sources it has.
    asked
        Source numbers, the oldest first, at most MOST_OPEN; None where something else was asked in between.
    hidden
        Whether a request was private since: then no model is made of the history, and the session is carried on.

    Raises
    ------
    InvalidInput
        For source numbers that are none.

    >>> history = OpenHistory("example.org", 3).after(2).after(2).after(None, private=True)
    >>> history.asked, history.open, history.hidden
    ((2, 2, None), 2, True)
    """

    server: str
    n: int
    asked: tuple[int | None, ...] = ()
    hidden: bool = False

    def __post_init__(self) -> None:
        wrong = [x for x in self.asked if x is not None and (type(x) is not int or not 0 <= x < self.n)]
        if wrong or self.open > MOST_OPEN:
            fault = f"source {wrong[0]!r}" if wrong else f"{self.open} open requests"
            raise InvalidInput(
                f"{fault} in the history of {self.n} sources", hint=f"numbers from 0 to {self.n - 1}, {MOST_OPEN} kept"
            )

    @property
    def open(self) -> int:
        """How many requests are kept: h."""
        return sum(x is not None for x in self.asked)

    @property
    def last(self) -> tuple[int, ...]:
        """The requests since something else was asked, oldest first."""
        gap = max((at for at, x in enumerate(self.asked) if x is None), default=-1)
        return tuple(x for x in self.asked[gap + 1 :] if x is not None)

    def after(self, value: int | None, *, private: bool = False) -> OpenHistory:
        """The history after a request: its value where it was plain whatever its value, else None.

        Parameters
        ----------
        value
            The source asked for, or None.
        private
            Whether something is hidden from now on.
        """
        asked = self.asked if value is None and self.asked[-1:] in ((), (None,)) else (*self.asked, value)
        while sum(x is not None for x in asked) > MOST_OPEN:
            asked = asked[1:]
        return replace(self, asked=asked, hidden=self.hidden or private)

    def counts(self) -> tuple[Floats, Floats]:
        """How often each source was asked for, and each right after each: shapes (n,) and (n, n)."""
        single, pairs = np.zeros(self.n), np.zeros((self.n, self.n))
        for x in self.asked:
            if x is not None:
                single[x] += 1
        for a, x in pairwise(self.asked):
            if a is not None and x is not None:
                pairs[a, x] += 1
        return single, pairs

    def digest(self) -> str:
        """SHA-256 of the server and of what was asked."""
        return hashlib.sha256(json.dumps([self.server, self.n, self.asked]).encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """What `from_dict` makes the same of; JSON can hold it."""
        return {"server": self.server, "n": self.n, "asked": list(self.asked), "hidden": self.hidden}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """The history that `as_dict` wrote. Raises InvalidInput."""
        try:
            made = cls(str(found["server"]), int(found["n"]), tuple(found["asked"]), found["hidden"])
            if type(made.hidden) is bool:
                return made
        except (KeyError, TypeError, ValueError):
            pass
        raise InvalidInput("not an open history", hint="server, n, asked and hidden, as `as_dict` writes them")


def own_law(
    population: Model,
    history: OpenHistory,
    *,
    cap: float,
    weight: float,
    trust: float,
    entropy: Uniforms,
    alone: bool = False,
    particles: int = PARTICLES,
) -> RequestModel:
    """The model of one person: the population, and what this person has openly asked for.

    Parameters
    ----------
    population
        How people behave; learnt from others.
    history
        What this person has openly asked the server for.
    cap
        Open requests that count at most: more are scaled down to so many.
    weight
        How much of the law is the person's own once much is known, from 0 to 1.
    trust
        b: transitions that "where the person goes at all" is worth.
    entropy
        Draws the particles: `onoff.session.session.SystemEntropy()`.
    alone
        Whether the population is taken as one chain, without its types.
    particles
        Laws that are drawn.

    Raises
    ------
    InvalidInput
        Where something is hidden already, or a constant is out of its range.
    InvalidModel
        Where the particles would not fit in memory.

    >>> from onoff.session.session import SystemEntropy
    >>> others, mine = MarkovChain([[0.5, 0.5], [0.5, 0.5]]), OpenHistory("example.org", 2, (0, 0, 0, 0))
    >>> model = own_law(others, mine, cap=30, weight=0.9, trust=15, entropy=SystemEntropy())
    >>> model.types, bool((model.weights @ model.laws[:, 1])[0] > 0.6)
    (60, True)
    """
    check_model(population)
    _check(population, history, cap, weight, trust, particles)
    base = RequestModel.of(population) if isinstance(population, MarkovChain) else population
    base = RequestModel.of(average_chain(base)) if alone and base.types > 1 else base
    chances = types_given(base, history)
    types = np.flatnonzero(chances > LEAST_TYPE)
    chances = chances[types] / chances[types].sum()
    of_each = np.maximum(1, np.rint(particles * chances).astype(np.int64))
    total, contexts = int(of_each.sum()), len(base.contexts)
    size = 8 * total * contexts * base.n
    if size > MOST_LAW_BYTES:
        raise InvalidModel(
            f"{total} particles of {contexts} contexts and {base.n} sources take {size / 2**30:.1f} GB",
            hint="fewer particles, a shorter order, or fewer sources",
        )
    single, pairs = history.counts()
    h = history.open
    scale = min(1.0, cap / h) if h else 0.0
    goes = _dirichlet(single * scale + LIKE_EVERYBODY * _usual(base), total, entropy)
    last = np.array([context[-1] if context else -1 for context in base.contexts])
    own = np.where(last[:, None] >= 0, pairs[last] * scale, 0.0)
    known = weight * h / (h + HALF_KNOWN)
    laws = np.repeat(base.dense()[types], of_each, axis=0)
    laws *= 1 - known
    laws += known * (own + trust * goes[:, None, :]) / (own.sum(axis=1, keepdims=True) + trust)
    laws /= laws.sum(axis=2, keepdims=True)
    constants = {"cap": cap, "weight": weight, "trust": trust, "alone": alone, "particles": particles}
    about = {**base.about, "own_law": {**constants, "server": history.server, "history": history.digest()}}
    weights = np.repeat(chances / of_each, of_each)
    return RequestModel(laws, base.contexts, base.names, weights / weights.sum(), order=base.order, about=about)


def own_law_of(population: Model, history: OpenHistory, seed: bytes) -> RequestModel:
    """The model of one person by the constants that the population's file holds, the same for the same seed."""
    constants = constants_of(population)
    if constants is None:
        raise InvalidInput("a model without constants of the own law", hint="`onoff learn` chooses them")
    return own_law(population, history, **constants, entropy=Expanded(seed))


def best_guess(model: RequestModel, history: OpenHistory) -> float:
    """How likely the likeliest next request is, by a model of the person and what was asked last."""
    context = model.context_of(history.last)
    laws = np.stack([model.law(z, context) for z in range(model.types)])
    return float((model.weights @ laws).max())


def constants_of(model: Model) -> dict[str, Any] | None:
    """The constants of the own law that a model's file holds; None where it holds none, or is a person's already."""
    found = model.about.get("own_law")
    if not isinstance(found, Mapping) or "server" in found:
        return None
    try:
        constants: dict[str, Any] = {key: float(found[key]) for key in ("cap", "weight", "trust")}
        constants["alone"] = found.get("alone", False) is True
        return {**constants, "particles": int(found.get("particles", PARTICLES))}
    except (KeyError, TypeError, ValueError):
        return None


# -- constants -----------------------------------------------------------------------------------------------

CAPS, WEIGHTS, TRUSTS = (10.0, 30.0, 100.0), (0.15, 0.5, 0.75, 0.88, 0.95), (2.0, 5.0, 15.0, 40.0)
KNOWN, SCORED = (20, 50, 120), 10
"""Open requests that are known of a person, and how many after them are scored."""


def choose_constants(population: Model, people: Iterable[Sequence[int]]) -> dict[str, float] | None:
    """The constants of `own_law` with which people, who are not of the population, take the fewest bits.

    people: The requests of each, in order. Each is scored after 20, 50 and 120 requests, by the mean of the law.

    Returns
    -------
    dict
        cap, weight and trust; "held_out_bits" per request with them, and "population_bits" without the own law. None
        where nobody made enough requests.
    """
    base = RequestModel.of(population) if isinstance(population, MarkovChain) else population
    usual = _usual(base)
    found: list[tuple[float, ...]] = []
    for requests in people:
        for known in KNOWN:
            if len(requests) >= known + SCORED:
                found += _scored(base, [int(x) for x in requests[: known + SCORED]], known, usual)
    if not found:
        return None
    p, pair, left, single, usually, h = np.array(found).T
    tried = {(0.0, 0.0, 0.0): p}
    for cap, weight, trust in product(CAPS, WEIGHTS, TRUSTS):
        scale, k = np.minimum(1, cap / h), weight * h / (h + HALF_KNOWN)
        goes = (single * scale + LIKE_EVERYBODY * usually) / (h * scale + LIKE_EVERYBODY)
        tried[cap, weight, trust] = (1 - k) * p + k * (pair * scale + trust * goes) / (left * scale + trust)
    bits = {key: -float(np.log2(np.maximum(law, 1e-300)).mean()) for key, law in tried.items()}
    alone = bits.pop((0.0, 0.0, 0.0))
    best = min(bits, key=bits.__getitem__)
    constants = dict(zip(("cap", "weight", "trust"), best, strict=True))
    return {**constants, "held_out_bits": bits[best], "population_bits": alone}


def _scored(model: RequestModel, requests: list[int], known: int, usual: Floats) -> list[tuple[float, ...]]:
    """For each request after the known ones: what the population says of it, and the person's own counts."""
    history = OpenHistory("", model.n, tuple(requests[:known]))
    single, pairs = history.counts()
    chances = types_given(model, history)
    found: list[tuple[float, ...]] = []
    for t in range(known, len(requests)):
        last, x, context = requests[t - 1], requests[t], model.context_of(requests[:t])
        p = model.block(context)[x] @ chances
        found.append((float(p), pairs[last, x], pairs[last].sum(), single[x], usual[x], known))
    return found


# -- parts ---------------------------------------------------------------------------------------------------


def _check(population: Model, history: OpenHistory, cap: float, weight: float, trust: float, particles: int) -> None:
    if history.n != population.n:
        raise InvalidInput(
            f"a history of {history.n} sources for a model of {population.n}", hint="each server has its own of both"
        )
    if history.hidden:
        raise InvalidInput(
            "something private was asked since this history began: a model made of it now would tell about that",
            hint="carry on the model and the memory of the session that asked it",
        )
    if not (cap > 0 and 0 <= weight < 1 and trust > 0 and particles >= 1):
        raise InvalidInput(
            f"cap {cap}, weight {weight}, trust {trust}, {particles} particles",
            hint="cap and trust above 0, weight from 0 to below 1, at least one particle",
        )


def average_chain(model: RequestModel) -> MarkovChain:
    """The chain that people of all types follow in the mean: each type counts at a source as often as it is there."""
    after = model.next(np.zeros(model.n, dtype=np.int64), np.arange(model.n))
    laws = np.stack([model.block(c) for c in after.tolist()])
    there = np.full((model.n, model.types), 1 / model.n)
    for _ in range(SETTLING):
        there = (there + np.einsum("lxz,lz->xz", laws, there)) / 2
    there *= model.weights
    transition = np.einsum("lxz,lz->lx", laws, there)
    transition /= transition.sum(axis=1, keepdims=True)
    return MarkovChain(transition, model.names, model.block(0) @ model.weights, about=model.about)


def _usual(model: RequestModel) -> Floats:
    """How often people ask for each source, in the long run."""
    after = model.next(np.zeros(model.n, dtype=np.int64), np.arange(model.n))
    mean = np.stack([model.block(c) @ model.weights for c in after.tolist()])
    law = np.full(model.n, 1 / model.n)
    for _ in range(SETTLING):
        law = (law + law @ mean) / 2  # half a step: so that it settles where the chain goes round in a circle
    return np.asarray(law / law.sum())


def types_given(model: RequestModel, history: OpenHistory) -> Floats:
    """p(type | open requests)."""
    if model.types == 1:
        return np.ones(1)
    logs, context = np.log(model.weights), 0
    for x in history.asked:
        if x is not None:
            with np.errstate(divide="ignore"):
                logs = logs + np.log(model.block(context)[x])
            context = model.next(context, x)
        else:
            context = 0
    if not np.isfinite(logs).any():  # requests that the population calls impossible tell nothing about the type
        return np.asarray(model.weights)
    chances = np.exp(logs - logs.max())
    return np.asarray(chances / chances.sum())


def _dirichlet(counts: Floats, many: int, entropy: Uniforms) -> Floats:
    """`many` laws, by quantiles of the gamma distribution."""
    from scipy.special import gammaincinv

    drawn = gammaincinv(np.maximum(counts, 1e-9), entropy.uniforms(many * len(counts)).reshape(many, -1))
    total = drawn.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, drawn / np.where(total > 0, total, 1), counts / counts.sum()))
