"""`onoff demo`: a scripted session, and what the server saw of it."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from onoff.audit.step import NaiveObserver, table_leak
from onoff.chain import MarkovChain
from onoff.cli.output import Json, emit, table
from onoff.pattern import parse
from onoff.session import Session
from onoff.table import QueryTable

SOURCES = ("world", "politics", "business", "science", "health", "sport", "culture", "weather")
PATTERN = "OFF*2 ON*3 OFF*6 ON*2 OFF*7"


def demo(
    *,
    scheme: str = "auto",
    seed: Annotated[int, Parameter(help="For the scripted reader; queries draw from the system.")] = 7,
    json: Json = False,
) -> None:
    """Watch a reader of eight news sources switch privacy ON and OFF, and see what the server sees.

    Examples
    --------
    onoff demo

    onoff demo --scheme greedy --json
    """
    chain = news_chain()
    statuses = parse(PATTERN)
    wanted = chain.sample(len(statuses), np.random.default_rng(seed)).tolist()
    session, naive = Session(chain, scheme), NaiveObserver(chain)
    steps = []
    for t, (x, private) in enumerate(zip(wanted, statuses, strict=True)):
        expected = session.expected_cost(private=private)
        drawn = None if private or session.memory.rows.distinct == 1 else session.tables.of(session.memory)
        query = session.request(x, private=private)
        steps.append(
            {
                "t": t,
                "private": private,
                "wanted": chain.names[x],
                "seen": [chain.names[s] for s in query.sources],
                "cost": len(query),
                "expected": expected,
                "bits": table_leak(drawn) if isinstance(drawn, QueryTable) else 0.0,
                "naive": naive.request(x, private=private),
            }
        )
    emit({"steps": steps, "sources": list(chain.names)}, json, lambda console: _show(console, chain, steps))


def news_chain() -> MarkovChain:
    """A reader who stays with a subject for a while and otherwise goes where most people go."""
    favour = np.array([5.0, 4, 3, 2, 2, 4, 2, 1])
    P = 0.55 * np.eye(len(SOURCES)) + 0.45 * favour / favour.sum()
    return MarkovChain(P, names=SOURCES, initial=favour / favour.sum())


def _show(console: Console, chain: MarkovChain, steps: list[dict[str, object]]) -> None:
    lines = [
        (
            step["t"],
            "ON" if step["private"] else "OFF",
            step["wanted"],
            "everything" if step["cost"] == chain.n else ", ".join(step["seen"]),  # type: ignore[arg-type]
            step["cost"],
            step["bits"],
            step["naive"],
        )
        for step in steps
    ]
    columns = ("t", "privacy", "wanted", "the server saw", "messages", "bits leaked", "naive switching leaks")
    console.print(table(columns, lines))
    console.print("What the server saw (█ asked for, ● wanted, known only here):")
    width = max(len(name) for name in chain.names)
    console.print(Text(" " * width + "  " + "".join("▲" if step["private"] else " " for step in steps) + "  ▲ ON"))
    for name in chain.names:
        cells = ["●" if s["wanted"] == name else "█" if name in s["seen"] else "·" for s in steps]  # type: ignore[operator]
        console.print(Text(name.rjust(width) + "  " + "".join(cells)))
    total = sum(int(str(step["cost"])) for step in steps)
    console.print(
        f"{total} messages for {len(steps)} requests; asking for everything would take {chain.n * len(steps)}. "
        f"Naive switching would have told {sum(float(str(s['naive'])) for s in steps):.3f} bits about private requests."
    )
