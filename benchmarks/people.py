"""Models of people in time: processor milliseconds to make the own law of a person, and for each OFF request.

    python benchmarks/people.py [--sources 50] [--particles 60] [--people 20] [--types 1] [--out FILE.json]
    python benchmarks/people.py --anchors [--sources 50]       all anchors and people as types, without a history
    python benchmarks/people.py --order2 [--sources 17]        48 types of order 2, without a history

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

from onoff.model.anchors import fit_anchors
from onoff.model.context_tree import all_contexts
from onoff.model.contexts import RequestModel
from onoff.model.fitting import RequestTokens
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


def without_history(model: RequestModel, people: int, seed: int = 1) -> dict[str, Any]:
    """Medians of OFF requests of sessions that begin with a private one; people follow the model."""
    rng = np.random.default_rng(seed)
    paths = model.sample_many(people, 1 + AFTER, rng).tolist()
    stepping, messages = [], []
    for path in paths:
        session = Session(model, "greedy", entropy=SeededEntropy(rng))
        session.request(path[0], private=True)
        count = 0
        for x in path[1:]:
            began = time.process_time()
            count += len(session.request(x, private=False))
            stepping.append(time.process_time() - began)
        messages.append(count)
    return {
        "sources": model.n,
        "types": model.types,
        "order": model.order,
        "step_ms": 1000 * float(np.median(stepping)),
        "step_ms_p95": 1000 * float(np.percentile(stepping, 95)),
        "messages": float(np.mean(messages)),
    }


def anchors_of(sources: int, residents: int = 267, length: int = 150, seed: int = 1) -> RequestModel:
    """All anchors and people as types, fitted to people who go between two places of their own."""
    rng = np.random.default_rng(seed)
    paths = []
    for _ in range(residents):
        own = rng.choice(sources, size=2, replace=False)
        path = rng.choice(own, size=length, p=[0.7, 0.3])
        paths.append(np.where(rng.random(length) < 0.3, rng.integers(sources, size=length), path))
    return RequestModel(**fit_anchors(RequestTokens.of(paths, sources), share=0.5).arguments())


def order_two(sources: int, types: int = 48, seed: int = 1) -> RequestModel:
    """Types of order 2, drawn."""
    contexts = all_contexts(sources, 2)
    laws = np.random.default_rng(seed).dirichlet(np.full(sources, 0.3), size=(types, len(contexts)))
    return RequestModel(0.9 * laws + 0.1 / sources, contexts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, usual in (("sources", 50), ("particles", 60), ("people", 20), ("types", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--anchors", action="store_true")
    parser.add_argument("--order2", action="store_true")
    parser.add_argument("--out", type=Path)
    options = vars(parser.parse_args())
    out, anchors, order2 = (options.pop(name) for name in ("out", "anchors", "order2"))
    if anchors or order2:
        model = anchors_of(options["sources"]) if anchors else order_two(options["sources"])
        measured = without_history(model, options["people"])
    else:
        measured = run(**options)
    found = json.dumps(measured, indent=1)
    print(found)
    if out is not None:
        out.write_text(found + "\n")


if __name__ == "__main__":
    main()
