"""What several servers that do not tell each other would have cost the readers of msnbc.com.

The query set is drawn as with one server; inside it one message is fetched privately from K servers, which costs
1 + 1/K + ... + 1/K**(k - 1) messages for a set of k sources (`wire.sums`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from onoff.experiments.learn import learn
from onoff.experiments.page import SEED, Section, markdown_table
from onoff.experiments.simulate import simulate
from onoff.experiments.switching import Pattern
from onoff.experiments.traces import Trace
from onoff.model.chain import MarkovChain
from onoff.wire.sums import expected_cost

OPEN_STEPS = 10
SERVERS = (1, 2, 3)
SERVERS_COMMAND = "python -m onoff.experiments.results --only servers"


def servers_section(data: Path, users: int) -> Section:
    """Messages with one, two and three servers: a private request, and ten OFF requests after it."""
    learnt = learn(Trace(data)).chain
    chain = MarkovChain(learnt.transition, learnt.names, learnt.stationary())
    run = simulate(chain, "greedy", Pattern((True, *[False] * OPEN_STEPS)), users, SEED)
    lines: list[tuple[Any, ...]] = []
    for servers in SERVERS:
        price = [0.0] + [_price(size, servers) for size in range(1, chain.n + 1)]
        costs = run.sizes @ np.array(price) / run.users
        lines.append((servers, float(costs[0]), float(costs[1:].sum()), (OPEN_STEPS + 1) * price[-1]))
    columns = (
        "servers",
        "a private request",
        f"{OPEN_STEPS} OFF requests after it",
        f"always ON, {OPEN_STEPS + 1} requests",
    )
    text = (
        "## Several servers\n\n"
        "Servers of different operators that hold the same edition and do not tell each other what they are asked. "
        "Messages per request for readers who follow the chain of MSNBC, sets drawn by `greedy`:\n\n"
        + markdown_table(columns, lines)
        + f"\n`{SERVERS_COMMAND}`, seed {SEED}, {users:,} simulated readers. Always ON needs no model of the reader.\n"
    )
    return Section(text)


def _price(size: int, servers: int) -> float:
    return float(size) if servers == 1 else float(expected_cost(size, servers))
