"""A news reader: some pages are read with privacy ON, the rest plainly, and the server learns nothing of the former.

    python examples/news_reader.py

Learns how a reader moves between the pages from a small trace (private requests are marked in it and left out), reads
along for a while with the switch ON and OFF, shows what the server saw, and proves by enumeration that it told nothing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from onoff import Session
from onoff.audit.exact import audit_exact
from onoff.model.chain import MarkovChain
from onoff.model.learn import learn
from onoff.model.patterns import parse
from onoff.model.traces import Trace

PAGES = ("front", "health", "sports", "weather")
HABITS = [[0.4, 0.1, 0.3, 0.2], [0.3, 0.5, 0.1, 0.1], [0.4, 0.1, 0.4, 0.1], [0.6, 0.1, 0.1, 0.2]]
READING = [("front", False), ("health", True), ("health", True), ("front", False), ("sports", False), ("front", False)]


def made_up_trace(path: Path, readers: int, seed: int) -> None:
    """Requests of some readers as CSV: user, source, time in seconds, and whether privacy was ON."""
    rng = np.random.default_rng(seed)
    habits = MarkovChain(
        [[0.4, 0.1, 0.3, 0.2], [0.3, 0.5, 0.1, 0.1], [0.4, 0.1, 0.4, 0.1], [0.6, 0.1, 0.1, 0.2]], PAGES
    )
    lines = ["user,source,time,private"]
    for user in range(readers):
        for at, page in enumerate(habits.sample(20, rng)):
            private = "on" if PAGES[page] == "health" and user % 5 == 0 else "off"
            lines.append(f"{user},{PAGES[page]},{60 * at},{private}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "clicks.csv"
        made_up_trace(trace, readers=200, seed=1)
        learnt = learn(Trace(trace))
    chain, seen = learnt.chain, learnt.report["trace"]
    print(f"learnt from {seen['requests']} requests; {seen['private_left_out']} private ones were left out")

    session = Session(chain)
    fetched = 0
    for page, private in READING:
        query = session.request(page, private=private)
        fetched += len(query)
        asked = ", ".join(chain.names[x] for x in query.sources)
        print(f"{'ON ' if private else 'OFF'} wants {page:<8} the server sees: {asked}")
    print(f"{fetched} messages for {len(READING)} requests; everything always would be {chain.n * len(READING)}")

    audit = audit_exact(chain, "greedy", parse("OFF ON ON OFF OFF"))
    print(f"told about the private requests: {audit.leak} bits; naive switching: {sum(audit.naive):.3f} bits")


if __name__ == "__main__":
    main()
