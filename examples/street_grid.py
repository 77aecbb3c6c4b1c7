"""A location service on a street grid: a walker asks for news of the corner where they are.

    python examples/street_grid.py

The corner asked for is where the walker is. One visit is private. Afterwards plain requests would give it away, since
a walker moves one block at a time: the example shows what the server could infer from them, and what it costs to
ask so that it cannot.
"""

from __future__ import annotations

import numpy as np

from onoff.lab.families import grid
from onoff.lab.simulate import compare
from onoff.lab.walk import Pattern
from onoff.model.chain import MarkovChain
from onoff.session import Session

HEIGHT, WIDTH = 3, 3


def picture(query: tuple[int, ...], here: int) -> list[str]:
    """The grid with the corners of a query as +, the walker's own as @."""
    cells = ["@" if x == here else "+" if x in query else "." for x in range(HEIGHT * WIDTH)]
    return [" ".join(cells[row * WIDTH : (row + 1) * WIDTH]) for row in range(HEIGHT)]


def main() -> None:
    corners = [f"{'ABC'[row]}{column + 1}" for row in range(HEIGHT) for column in range(WIDTH)]
    chain = MarkovChain(grid(HEIGHT, WIDTH), corners)
    walk = chain.sample(5, np.random.default_rng(4))
    session = Session(chain)
    for t, here in enumerate(walk.tolist()):
        query = session.request(here, private=t == 1)
        print(f"{'ON ' if t == 1 else 'OFF'} at {corners[here]}: the server sends {len(query)} messages")
        print("\n".join(f"      {line}" for line in picture(query.sources, here)))

    found = compare(chain, "auto", Pattern.parse("ON OFF*4"), users=1000, seed=1).as_dict()
    naive = found["baselines"]["naive"]
    print(f"\nplain requests after a private visit would tell {naive['leak']:.2f} bits of where it was")
    print(f"messages over 5 requests: everything {5 * chain.n}, ours {found['total']:.1f}, naive {naive['total']:.0f}")
    for step in found["steps"]:
        print(f"  request {step['t']}: {step['cost']:5.2f} messages, at least {step['lower']:5.2f}")


if __name__ == "__main__":
    main()
