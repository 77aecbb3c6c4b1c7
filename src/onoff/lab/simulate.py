"""Many users at once: requests drawn from the chain (or given), queries drawn exactly as `Session` draws them.

Users are grouped by public state (see `walk`). A group shares one table, whose cells (row, source, query) are laid
out once as cumulative integer weights; then the query of every user of the group is one uniform integer below
p(x | u) and one binary search. The draws follow the same integers as `Session`, so the two agree in law exactly; a
plain loop over `Session` is the executable specification that the tests compare with.

Only sums are kept (sizes by step, totals by user), and users go through in blocks, so memory does not grow with
their number.

Models, and chains of more than SHARED_FROM sources under a scheme that searches, hardly ever meet a public state twice.
The law of a query is the same whatever is hidden, so users are shared out over batches there: a batch is one path
through the public states, and its users download the same. Costs keep their law, and standard errors are those between
batches. Real requests of people cannot share, and go through one by one.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from onoff.errors import InvalidInput
from onoff.lab.walk import (
    NOWHERE,
    PATH_BUDGETS,
    Booleans,
    ExpectedCost,
    State,
    States,
    Switching,
    draw_statuses,
    expected_costs,
    lower_bounds,
    naive_leaks,
    sampled_costs,
    sampled_paths,
    standard_error,
)
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model, RequestModel
from onoff.model.rows import UNIT, Floats, Integers, exact_sum
from onoff.schemes import find_scheme
from onoff.session import Session
from onoff.session.seeded import SeededEntropy
from onoff.session.session import Hide, TableCache
from onoff.tables.table import QueryTable

BLOCK = 100_000
"""Users that go through together."""
ROWS_PER_SEARCH = 15
"""Rows whose cumulative weights fit one array of 64-bit keys: row number times UNIT plus weight."""
MOST_USERS = 10**9
SHARED_FROM = 24
"""Sources of a chain above which users share queries in batches, where a table takes a search."""
BATCHES = 40
"""Paths that users are shared out over."""
SAMPLER_BYTES = 256 * 2**20
"""Memory for the tables laid out for drawing."""


DIALS = {"topics", "leak"}
"""Options of a session that the walk over public states does not know: every user has a session then."""


@dataclass(frozen=True)
class Simulation:
    """What `users` users downloaded.

    sizes: how many queries of each size there were at each step; shape (steps, N + 1).
    private: how many of the requests of each step were made with privacy ON.
    impossible: requests that the chain calls impossible, sent as everything.
    total_stderr: the standard error of the mean total per user. batches: how many paths the users shared, 0 where each
    went its own way; between: the standard error of each step between batches; expected: the mean expected size.
    """

    users: int
    sizes: Integers
    private: Integers
    impossible: int
    total_stderr: float | None
    states: int = field(compare=False)
    batches: int = 0
    between: tuple[float, ...] | None = None
    expected: tuple[float, ...] | None = None

    @property
    def cost(self) -> Floats:
        """The mean number of messages of each step."""
        return np.asarray(self.sizes @ np.arange(self.sizes.shape[1]) / self.users, dtype=np.float64)

    @property
    def stderr(self) -> list[float | None]:
        """The standard error of each mean; None for a single user."""
        if self.between is not None:
            return list(self.between)
        if self.users < 2:
            return [None] * len(self.sizes)
        apart = (np.arange(self.sizes.shape[1]) - self.cost[:, None]) ** 2
        variance = (self.sizes * apart).sum(axis=1) / (self.users - 1)
        return [math.sqrt(value / self.users) for value in variance.tolist()]

    @property
    def total(self) -> float:
        """The mean number of messages per user."""
        return float(self.cost.sum())


def simulate(
    chain: Model,
    scheme: str,
    switching: Switching,
    users: int,
    seed: int,
    *,
    memory: str | None = None,
    hide: Hide = 1,
    everything: bool = False,
    requests: Integers | None = None,
    progress: Callable[[int], None] | None = None,
    states: States | None = None,
    observe: Callable[[int, Integers, Integers, Integers], None] | None = None,
    **options: Any,
) -> Simulation:
    """Simulate `users` users under `switching`; the same seed gives the same numbers, as far as tables are the same.

    switching, users, seed: When privacy is ON, how many users, and of what they draw from.
    requests: The sources wanted, shape (users, steps), instead of draws from the chain or model.
    progress: Called with how many users are through so far; a user who is half through counts as half.
    states: Public states of an earlier run with the same chain, scheme and memory, whose tables are used again.
    observe: Called at every step of a block with t and, for every user, the number of the state after it, what was
    wanted, and how many were asked. Only where users go their own ways.

    Raises
    ------
    InvalidInput
        For numbers of users, seeds and requests that do not fit.
    """
    if not 1 <= users <= MOST_USERS:
        raise InvalidInput(f"{users} users cannot be simulated", hint=f"give 1 to {MOST_USERS}")
    if seed < 0:
        raise InvalidInput(f"{seed} is not a seed", hint="give an integer from 0 up")
    if requests is not None and requests.shape != (users, switching.steps):
        raise InvalidInput(
            f"requests of shape {requests.shape} for {users} users and {switching.steps} steps",
            hint="one row for each user, one column for each step",
        )
    dialled = DIALS & options.keys()
    if dialled and requests is None:
        requests = _requests_of(chain, users, switching.steps, np.random.default_rng(seed))
    if dialled or (not isinstance(chain, MarkovChain) and requests is not None):
        assert requests is not None
        return _one_by_one(chain, scheme, switching, requests, seed, memory, hide, everything, progress, options)
    if not isinstance(chain, MarkovChain) or (observe is None and requests is None and shares(chain, scheme, users)):
        settings = {"hide": hide, "everything": everything, "budgets": PATH_BUDGETS, **options}
        return _in_batches(States(chain, scheme, memory, **settings), switching, users, seed, progress)
    if states is None:
        states = States(chain, scheme, memory, everything=everything, **options)
    crowd = _Crowd(chain, states, switching, np.random.default_rng(seed), observe, progress)
    total = squares = 0
    for first in range(0, users, BLOCK):
        count = min(BLOCK, users - first)
        totals = crowd.run(count, None if requests is None else requests[first : first + count])
        total += int(totals.sum())
        squares += sum(exact_sum(totals**2, axis=0))
    spread = None
    if users > 1:
        # The sums are whole numbers, however large: their difference is exact, and not negative.
        spread = math.sqrt((users * squares - total * total) / (users * users * (users - 1)))
    return Simulation(users, crowd.sizes, crowd.private, crowd.impossible, spread, len(states))


def shares(chain: Model, scheme: str, users: int) -> bool:
    """Whether users share queries in batches: where tables are expensive, or rarely needed by two users."""
    return not isinstance(chain, MarkovChain) or (
        chain.n > SHARED_FROM and users > BATCHES and find_scheme(scheme).budget is not None
    )


def _in_batches(
    states: States, switching: Switching, users: int, seed: int, progress: Callable[[int], None] | None
) -> Simulation:
    batches = min(users, BATCHES)
    tell = progress or (lambda done: None)
    steps = batches * switching.steps
    rng = np.random.default_rng(seed)
    paths = sampled_paths(states, switching, batches, rng, lambda made: tell(users * made // steps))
    crowd = np.full(batches, users // batches) + (np.arange(batches) < users % batches)
    sizes = np.zeros((switching.steps, states.model.n + 1), dtype=np.int64)
    for t in range(switching.steps):
        np.add.at(sizes[t], paths.sizes[:, t], crowd)
    downloaded = paths.sizes.astype(np.float64)
    between = standard_error(downloaded) if batches > 1 else None
    return Simulation(
        users,
        sizes,
        crowd @ paths.private,
        0,
        None if between is None else float(standard_error(downloaded.sum(axis=1))),
        paths.tables,
        batches,
        None if between is None else tuple(between.tolist()),
        tuple((crowd @ paths.expected / users).tolist()),
    )


def _one_by_one(
    model: Model,
    scheme: str,
    switching: Switching,
    requests: Integers,
    seed: int,
    memory: str | None,
    hide: Hide,
    everything: bool,
    progress: Callable[[int], None] | None,
    options: dict[str, Any],
) -> Simulation:
    """Real requests through sessions of a model, one user after the other."""
    rng = np.random.default_rng(seed)
    entropy = SeededEntropy(rng)
    dials: dict[str, Any] = {name: options.pop(name) for name in DIALS & options.keys()}
    tables = TableCache(model, scheme, **{"look_ahead": False, **options})
    person = 0 if isinstance(hide, str) and not isinstance(model, MarkovChain) else None
    asked = np.zeros(requests.shape, dtype=np.int64)
    private = np.zeros(requests.shape, dtype=np.int64)
    impossible = 0
    for user, wanted in enumerate(requests.tolist()):
        if person is not None and isinstance(model, RequestModel):
            person = model.likeliest_type(wanted)
        how: dict[str, Any] = {"memory": memory, "hide": hide, "person": person, "everything": everything, **dials}
        session = Session(model, entropy=entropy, tables=tables, **how)
        status: bool | None = None
        for t, x in enumerate(wanted):
            status = bool(rng.random() < switching.chance(t, status))
            query = session.request(x, private=status)
            asked[user, t], private[user, t] = len(query), status
            impossible += query.note is not None
        if progress is not None:
            progress(user + 1)
    sizes = np.stack([np.bincount(step, minlength=model.n + 1) for step in asked.T])
    spread = float(standard_error(asked.sum(axis=1).astype(np.float64))) if len(asked) > 1 else None
    return Simulation(len(requests), sizes, private.sum(axis=0), impossible, spread, len(tables))


def _requests_of(model: Model, users: int, steps: int, rng: np.random.Generator) -> Integers:
    """Requests of users of the model, shape (users, steps)."""
    known = RequestModel.of(model) if isinstance(model, MarkovChain) else model
    first = model.initial if isinstance(model, MarkovChain) else None
    found = np.zeros((users, steps), dtype=np.int64)
    for user in range(users):
        z, context = int(rng.choice(known.types, p=known.weights)), 0
        for t in range(steps):
            law = first if t == 0 and first is not None else known.law(z, context)
            found[user, t] = rng.choice(known.n, p=law)
            context = int(known.next(np.array([context]), found[user, t : t + 1])[0])
    return found


class _Crowd:
    """Users on their way through the steps, block by block, and the sums of what they downloaded."""

    def __init__(
        self,
        chain: MarkovChain,
        states: States,
        switching: Switching,
        rng: np.random.Generator,
        observe: Callable[[int, Integers, Integers, Integers], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.chain = chain
        self.states = states
        self.switching = switching
        self.rng = rng
        self.observe = observe
        self.progress = progress or (lambda done: None)
        self.sizes = np.zeros((switching.steps, chain.n + 1), dtype=np.int64)
        self.private = np.zeros(switching.steps, dtype=np.int64)
        self.impossible = 0
        self._made = 0
        self._samplers: OrderedDict[int, _Sampler] = OrderedDict()
        self._held = 0

    def run(self, count: int, given: Integers | None) -> Integers:
        """Take `count` users through every step, adding to the sums; the total of each user is returned."""
        state = np.zeros(count, dtype=np.int64)
        secret = np.zeros(count, dtype=np.int64)
        wanted = secret
        status: Booleans | None = None
        totals = np.zeros(count, dtype=np.int64)
        for t in range(self.switching.steps):
            status = draw_statuses(self.switching, t, status, count, self.rng)
            wanted = self._requests(wanted if t else None, count) if given is None else given[:, t]
            state, asked, anew = self._step(state, secret, wanted, status)
            secret = np.where(anew, wanted, secret)
            self.sizes[t] += np.bincount(asked, minlength=self.sizes.shape[1])
            self.private[t] += int(status.sum())
            totals += asked
            if self.observe is not None:
                self.observe(t, state, wanted, asked)
        return totals

    def _requests(self, before: Integers | None, count: int) -> Integers:
        """The next request of every user, by the chain's own integers."""
        if before is None:
            rows = self.chain.initial_rows()
            return _inverse(rows.columns, rows.weights[0], self.rng.integers(UNIT, size=count))
        wanted = np.empty_like(before)
        uniform = self.rng.integers(UNIT, size=count)
        for x, members in _groups(before):
            wanted[members] = _inverse(*self.chain.row_units(x), uniform[members])
        return wanted

    def _step(
        self, state: Integers, secret: Integers, wanted: Integers, status: Booleans
    ) -> tuple[Integers, Integers, Booleans]:
        """The state after this request, the size of its query, and whether the request is the new secret."""
        after = np.empty_like(state)
        asked = np.empty_like(state)
        anew = status | self.states.keeps_query
        for number, members in _groups(state):
            here = self.states[number]
            row = here.row_of[secret[members]]
            column = here.column_of[wanted[members]]
            on = status[members]
            fine = column != NOWHERE
            fine[~on & fine] = here.rows.reaches(row[~on & fine], column[~on & fine])
            if self.states.force:
                fine |= on
            lost, on, off = members[~fine], members[on & fine], (~on & fine)
            if len(lost):
                self.impossible += len(lost)
                after[lost], asked[lost], anew[lost] = here.after_everything, self.chain.n, True
            if len(on):
                after[on], asked[on] = here.after_private, len(here.possible)
            if off.any():
                at = members[off]
                after[at], asked[at] = self._draw(number, here, row[off], column[off], wanted[at])
            self._made += len(members)
            self.progress(self._made // self.switching.steps)  # a user who is half through counts as half
        return after, asked, anew

    def _draw(
        self, number: int, here: State, row: Integers, column: Integers, wanted: Integers
    ) -> tuple[Integers, Integers | int]:
        if here.plain:
            return here.following[2][column], 1
        if not here.has_table:
            return self._draw_one_by_one(here, row, wanted)
        drawn = self._sampler(number, here).draw(row, column, self.rng)
        _, sizes, following = here.following
        return following[drawn], sizes[drawn]

    def _sampler(self, number: int, here: State) -> _Sampler:
        """The sampler of a state, cached; the least recently used ones are evicted."""
        if number in self._samplers:
            self._samplers.move_to_end(number)
            return self._samplers[number]
        sampler = self._samplers[number] = _Sampler(cast("QueryTable", here.source))
        self._held += sampler.nbytes
        while self._held > SAMPLER_BYTES and len(self._samplers) > 1:
            self._held -= self._samplers.popitem(last=False)[1].nbytes
        return sampler

    def _draw_one_by_one(self, here: State, row: Integers, wanted: Integers) -> tuple[Integers, Integers]:
        """For schemes without a table."""
        entropy, source = SeededEntropy(self.rng), here.source
        first = {r: u for u, r in reversed(list(enumerate(here.rows.group.tolist())))}
        queries = [source.draw(first[r], x, entropy) for r, x in zip(row.tolist(), wanted.tolist(), strict=True)]
        after = [self.states.number(here.then(query, private=False, drawn=source)) for query in queries]
        return np.array(after, dtype=np.int64), np.array([len(query) for query in queries], dtype=np.int64)


class _Sampler:
    """The cells of a table by (row, source), as cumulative weights: a query in one search.

    Within row r the cells of source x fill the interval [base[r, x], base[r, x] + p(x|r)) of 0, ..., UNIT - 1. A
    uniform integer of that interval therefore falls on query q with probability p(q | x, r), exactly.
    """

    def __init__(self, table: QueryTable) -> None:
        self.weights = table.rows.weights
        self.base = np.cumsum(self.weights, axis=1) - self.weights
        owner = np.searchsorted(table.offsets, table.slots, side="right") - 1
        self.edges: list[tuple[np.ndarray[Any, np.dtype[np.uint64]], Integers]] = []
        for first in range(0, table.rows.distinct, ROWS_PER_SEARCH):
            keys, queries = [], []
            for r in range(first, min(first + ROWS_PER_SEARCH, table.rows.distinct)):
                cells = slice(int(table.starts[r]), int(table.starts[r + 1]))
                order = np.argsort(table.items[table.slots[cells]], kind="stable")
                queries.append(owner[cells][order])
                keys.append(np.cumsum(table.weights[cells][order]).astype(np.uint64) + np.uint64((r - first) * UNIT))
            self.edges.append((np.concatenate(keys), np.concatenate(queries).astype(np.int64)))

    @property
    def nbytes(self) -> int:
        """Memory held."""
        cells = sum(keys.nbytes + queries.nbytes for keys, queries in self.edges)
        return self.weights.nbytes + self.base.nbytes + cells

    def draw(self, row: Integers, column: Integers, rng: np.random.Generator) -> Integers:
        """The number of the query for each (row, column)."""
        place = self.base[row, column] + rng.integers(self.weights[row, column])
        drawn = np.empty_like(row)
        for block, (keys, queries) in enumerate(self.edges):
            mine = row // ROWS_PER_SEARCH == block if len(self.edges) > 1 else slice(None)
            key = (row[mine] % ROWS_PER_SEARCH).astype(np.uint64) * np.uint64(UNIT) + place[mine].astype(np.uint64)
            drawn[mine] = queries[np.searchsorted(keys, key, side="right")]
        return drawn


def _inverse(sources: Integers, weights: Integers, uniform: Integers) -> Integers:
    """The source on whose interval of units each uniform integer falls."""
    return sources[np.searchsorted(np.cumsum(weights), uniform, side="right")]


def _groups(values: Integers) -> list[tuple[int, Integers]]:
    """Each value that occurs, with the places where it does."""
    order = np.argsort(values, kind="stable")
    listed = values[order]
    cuts = np.flatnonzero(np.diff(listed)) + 1
    firsts = np.concatenate([[0], cuts])
    return list(zip(listed[firsts].tolist(), np.split(order, cuts), strict=True))


PAPER_DESCENTS = 60
"""Random descents for the paper's scheme, whose states rarely recur: each needs a table of its own."""
PAPER_STATES = 200
"""States of the paper's scheme up to which its expected costs are exact."""
LARGEST_FOR_PAPER = 60
"""Sources up to which the paper's scheme is run as a baseline."""


@dataclass(frozen=True)
class Comparison:
    """What `onoff simulate` reports: a scheme beside its bounds and its baselines.

    Baselines: all N messages, always; naive switching (everything while ON, the plain request while OFF), which tells
    about private requests; and the paper's Algorithm 1 with its Bayes filter.
    """

    simulation: Simulation
    expected: list[ExpectedCost] | None
    lower: list[float | None]
    naive_bits: list[float] | None
    naive_cost: list[float]
    paper: list[ExpectedCost] | None
    n: int

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `onoff simulate`: the contract's keys first, then what else is known."""
        run = self.simulation
        steps = [
            {
                "t": t,
                "private": _status(int(run.private[t]), run.users),
                "cost": float(run.cost[t]),
                "stderr": run.stderr[t],
                "lower": self.lower[t],
                "expected": None if self.expected is None else self.expected[t].cost,
                "sizes": {str(size): int(c) for size, c in enumerate(run.sizes[t].tolist()) if c},
            }
            for t in range(len(run.sizes))
        ]
        return {
            "steps": steps,
            "total": run.total,
            "total_stderr": run.total_stderr,
            "expected_total": None if self.expected is None else sum(step.cost for step in self.expected),
            "users": run.users,
            "batches": run.batches,
            "n": self.n,
            "impossible": run.impossible,
            "baselines": {
                "everything": _costs([float(self.n)] * len(steps)),
                "naive": {
                    **_costs(self.naive_cost),
                    "bits": self.naive_bits,
                    "leak": None if self.naive_bits is None else sum(self.naive_bits),
                },
                "paper": None
                if self.paper is None
                else {**_costs([step.cost for step in self.paper]), "stderr": [step.stderr for step in self.paper]},
            },
        }


def compare(
    chain: Model,
    scheme: str,
    switching: Switching,
    users: int,
    seed: int,
    *,
    memory: str | None = None,
    hide: Hide = 1,
    everything: bool = False,
    paper: bool = True,
    progress: Callable[[int], None] | None = None,
    phase: Callable[[str], None] | None = None,
    **options: Any,
) -> Comparison:
    """Simulate `scheme`, compute its expected costs, and those of the baselines.

    paper: Whether to run the paper's scheme as well, for a chain that is not too large for it.
    progress, phase: Called with how many users are through so far; with what is worked out after them.
    """
    tell = phase or (lambda label: None)
    if not isinstance(chain, MarkovChain) or shares(chain, scheme, users) or DIALS & options.keys():
        how = {"memory": memory, "hide": hide, "everything": everything, **options}
        run = simulate(chain, scheme, switching, users, seed, progress=progress, **how)
        expected = None if run.expected is None else [ExpectedCost(cost, 0.0) for cost in run.expected]
    else:
        states = States(chain, scheme, memory, everything=everything, **options)
        run = simulate(chain, scheme, switching, users, seed, states=states, progress=progress)
        tell("working out expected costs")
        expected = expected_costs(states, switching)
    first_order = chain if isinstance(chain, MarkovChain) else None
    tell("working out bounds and baselines")
    return Comparison(
        simulation=run,
        expected=expected,
        lower=[None] * switching.steps if first_order is None else lower_bounds(first_order, switching),
        naive_bits=None if first_order is None else naive_leaks(first_order, switching),
        naive_cost=[(chain.n * on + users - on) / users for on in run.private.tolist()],
        paper=paper_costs(first_order, switching, seed, everything=everything) if paper and first_order else None,
        n=chain.n,
    )


def paper_costs(
    chain: MarkovChain, switching: Switching, seed: int, *, everything: bool = False, descents: int = PAPER_DESCENTS
) -> list[ExpectedCost] | None:
    """The cost of the paper's scheme at every step: exact where its states are few, else by random descents.

    None where the chain is too large for it.
    """
    if chain.n > LARGEST_FOR_PAPER:
        return None
    states = States(chain, "greedy", "bayes-filter", everything=everything)
    exact = expected_costs(states, switching, most_states=PAPER_STATES)
    return exact or sampled_costs(states, switching, descents, np.random.default_rng(seed))


def _status(on: int, users: int) -> bool | float:
    """ON or OFF where all users agree, else the share of those who are ON."""
    return on == users if on in (0, users) else on / users


def _costs(costs: Sequence[float]) -> dict[str, Any]:
    return {"cost": list(costs), "total": float(sum(costs))}
