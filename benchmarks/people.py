"""The own law in time: processor milliseconds to make the model of a person, and for each OFF request.

    python benchmarks/people.py [--sources 50] [--particles 60] [--people 20] [--types 1] [--out FILE.json]

People are drawn: each goes to a few places of their own, by a law around that of the population. 100 open requests are
known, then come a private one and ten while OFF. Tables are those of `greedy`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from onoff.model.contexts import RequestModel
from onoff.model.people import OpenHistory, own_law
from onoff.session import Session
from onoff.session.seeded import SeededEntropy

KNOWN, AFTER = 100, 10
CONSTANTS = {"cap": 30.0, "weight": 0.88, "trust": 15.0}


def run(sources: int = 50, particles: int = 60, people: int = 20, types: int = 1, seed: int = 1) -> dict[str, Any]:
    """Medians over all people, and the mean number of messages of the ten OFF requests."""
    rng = np.random.default_rng(seed)
    contexts = [(), *((x,) for x in range(sources))]
    laws = 0.9 * rng.dirichlet(np.full(sources, 0.5), size=(types, sources + 1)) + 0.1 / sources
    population = RequestModel(laws, contexts)
    making, stepping, messages = [], [], []
    for _ in range(people):
        places = rng.dirichlet(np.full(sources, 0.1))
        asked = [int(rng.choice(sources, p=0.8 * places + 0.2 / sources)) for _ in range(KNOWN + 1 + AFTER)]
        history = OpenHistory("here", sources, tuple(asked[:KNOWN]))
        entropy = SeededEntropy(rng)
        began = time.process_time()
        model = own_law(population, history, **CONSTANTS, particles=particles, entropy=entropy)
        making.append(time.process_time() - began)
        session = Session(model, "greedy", history=history, entropy=entropy)
        session.request(asked[KNOWN], private=True)
        count = 0
        for x in asked[KNOWN + 1 :]:
            began = time.process_time()
            count += len(session.request(x, private=False))
            stepping.append(time.process_time() - began)
        messages.append(count)
    return {
        "sources": sources,
        "particles": particles,
        "types": types,
        "people": people,
        "make_ms": 1000 * float(np.median(making)),
        "step_ms": 1000 * float(np.median(stepping)),
        "step_ms_p95": 1000 * float(np.percentile(stepping, 95)),
        "messages": float(np.mean(messages)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, usual in (("sources", 50), ("particles", 60), ("people", 20), ("types", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--out", type=Path)
    options = vars(parser.parse_args())
    out = options.pop("out")
    found = json.dumps(run(**options), indent=1)
    print(found)
    if out is not None:
        out.write_text(found + "\n")


if __name__ == "__main__":
    main()
