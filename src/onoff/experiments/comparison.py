"""One run that sets a scheme beside its bounds and its baselines.

everything   all N messages, always: private without any switch
naive        everything while ON, the plain request while OFF: cheap, and tells about private requests (bits)
paper        Algorithm 1 with the paper's Bayes filter
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onoff.experiments.expected import ExpectedCost, expected_costs, lower_bounds, naive_leaks, sampled_costs
from onoff.experiments.simulate import Simulation, shares, simulate
from onoff.experiments.states import States
from onoff.experiments.switching import Switching
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model

PAPER = {"scheme": "greedy", "memory": "bayes-filter"}
PAPER_DESCENTS = 60
"""Random descents for the paper's scheme, whose states rarely recur: each needs a table of its own."""
PAPER_STATES = 200
"""States of the paper's scheme up to which its expected costs are exact."""
LARGEST_FOR_PAPER = 60
"""Sources up to which the paper's scheme is run as a baseline."""


@dataclass(frozen=True)
class Comparison:
    """What `onoff simulate` reports."""

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
    hide: int = 1,
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
    if not isinstance(chain, MarkovChain) or shares(chain, scheme, users):
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
    states = States(chain, **PAPER, everything=everything)
    exact = expected_costs(states, switching, most_states=PAPER_STATES)
    return exact or sampled_costs(states, switching, descents, np.random.default_rng(seed))


def _status(on: int, users: int) -> bool | float:
    """ON or OFF where all users agree, else the share of those who are ON."""
    return on == users if on in (0, users) else on / users


def _costs(costs: Sequence[float]) -> dict[str, Any]:
    return {"cost": list(costs), "total": float(sum(costs))}
