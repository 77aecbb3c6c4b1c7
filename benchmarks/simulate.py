"""Many users at once: `experiments.simulate` against a plain loop over `Session`, in one run.

A chain of the size of MSNBC's (17 sources, family `browsing`), Algorithm 1, ON and then ten OFF requests. The
simulator starts without any table and builds every one it meets; the loop then finds these tables ready and pays
for its requests only, so the ratio is to the loop's advantage. Costs of the two must agree within 6 standard errors.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np

from onoff.lab.families import browsing
from onoff.lab.simulate import Simulation, simulate
from onoff.lab.walk import Pattern, States
from onoff.model.chain import MarkovChain
from onoff.session import Session
from onoff.session.seeded import SeededEntropy

SOURCES = 17
PATTERN = "ON OFF*10"
USERS, LOOP_USERS = 50_000, 200
WANTED_RATIO = 20
WANTED_PER_MINUTE = 1_000_000
"""User-steps with every table ready."""


def loop(chain: MarkovChain, states: States, pattern: Pattern, users: int, seed: int) -> list[int]:
    """The plain way: one session a user, one request after the other; the total of every user."""
    rng = np.random.default_rng(seed)
    totals = []
    for _ in range(users):
        session = Session(chain, tables=states.tables, entropy=SeededEntropy(rng))
        requests = chain.sample(pattern.steps, rng).tolist()
        queries = [session.request(x, private=on) for x, on in zip(requests, pattern.statuses, strict=True)]
        totals.append(sum(len(query) for query in queries))
    return totals


def run(users: int = USERS, loop_users: int = LOOP_USERS, seed: int = 1) -> dict[str, Any]:
    """User-steps per second of both, and the ratio."""
    chain = MarkovChain(browsing(SOURCES, np.random.default_rng(seed)))
    pattern = Pattern.parse(PATTERN)
    states = States(chain, "greedy")
    print(f"simulate: {users} users, {pattern.steps} steps, tables built on the way", file=sys.stderr)
    cold, first = _timed(chain, states, pattern, users, seed)
    warm, _ = _timed(chain, states, pattern, users, seed)
    print(f"simulate: {loop_users} users in a loop over Session", file=sys.stderr)
    loop(chain, states, pattern, 10, seed)
    begun = time.perf_counter()
    totals = loop(chain, states, pattern, loop_users, seed)
    plain = loop_users * pattern.steps / (time.perf_counter() - begun)
    spread = float(np.std(totals, ddof=1)) / math.sqrt(loop_users)
    if abs(float(np.mean(totals)) - first.total) > 6 * math.hypot(spread, first.total_stderr or 0.0):
        raise AssertionError("the loop and the simulator have different costs")
    return {
        "benchmark": "simulate",
        "users": users,
        "steps": pattern.steps,
        "states": len(states),
        "cold_per_second": cold,
        "warm_per_second": warm,
        "loop_per_second": plain,
        "ratio_cold": cold / plain,
        "ratio": warm / plain,
        "ok": warm / plain >= WANTED_RATIO and warm * 60 >= WANTED_PER_MINUTE,
    }


def show(result: dict[str, Any]) -> str:
    """The result as lines of text."""
    return (
        f"user-steps per second: {result['warm_per_second']:.0f} with tables ready, "
        f"{result['cold_per_second']:.0f} building {result['states']} states' tables on the way, "
        f"{result['loop_per_second']:.0f} in a loop over Session\n"
        f"ratio {result['ratio']:.0f} ({result['ratio_cold']:.0f} with tables built on the way); "
        f"at least {WANTED_RATIO}, and {WANTED_PER_MINUTE} a minute: {'yes' if result['ok'] else 'NO'}"
    )


def _timed(chain: MarkovChain, states: States, pattern: Pattern, users: int, seed: int) -> tuple[float, Simulation]:
    begun = time.perf_counter()
    found = simulate(chain, "greedy", pattern, users, seed, states=states)
    return users * pattern.steps / (time.perf_counter() - begun), found
