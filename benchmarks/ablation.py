"""What each strategy of the search is worth: the whole portfolio, and without each of its strategies in turn.

    python benchmarks/ablation.py [--budgets 2 20] [--seed 1] [--only NAME ...] [--without NAME ...] [--out FILE.json]

Fifty instances of 25 kinds of rows: the families of the laboratory, and sparse rows with a uniform background (as
PageRank has), mixtures of few topics (low rank), block structure, trees, bands, geometric and lognormal rows, k-uniform
supports. Cost over the best bound that is known, the bound, and processor time.
A strategy that did not run on an instance changes nothing there, so that instance is not measured without it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onoff.lab import families
from onoff.model.checker import check_certificate
from onoff.model.rows import Floats, Rows
from onoff.schemes import design
from onoff.schemes.optimal import default_portfolio
from onoff.schemes.search.portfolio import Strategy

Make = Callable[[np.random.Generator], Floats]


def normalised(weights: Floats) -> Floats:
    """Rows that sum to 1."""
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def pagerank(n: int, rng: np.random.Generator, degree: int = 6, jump: float = 0.15) -> Floats:
    """Sparse rows with a uniform background."""
    return np.asarray((1 - jump) * families.out_degree(n, degree, rng) + jump / n)


def low_rank(n: int, rng: np.random.Generator, topics: int = 5) -> Floats:
    """Mixtures of few topics."""
    return np.asarray(rng.dirichlet(np.ones(topics), size=n) @ rng.dirichlet(np.full(n, 0.3), size=topics))


def blocks(n: int, rng: np.random.Generator, count: int = 6, inside: float = 0.9) -> Floats:
    """Most of the mass within blocks of sources."""
    same = (np.arange(n) % count)[:, None] == np.arange(n) % count
    weights = rng.exponential(size=(n, n))
    return np.asarray(inside * normalised(weights * same) + (1 - inside) * normalised(weights * ~same))


def tree(n: int, rng: np.random.Generator) -> Floats:
    """A walk on a random tree that stays now and then."""
    weights = np.eye(n) * 0.5
    for x in range(1, n):
        parent = int(rng.integers(x))
        weights[x, parent] = weights[parent, x] = 1
    return normalised(weights * rng.uniform(0.5, 1.5, size=(n, n)))


def band(n: int, rng: np.random.Generator, width: int = 4) -> Floats:
    """Random masses near the diagonal."""
    near = np.abs(np.arange(n)[:, None] - np.arange(n)) <= width
    return normalised(np.where(near, rng.exponential(size=(n, n)), 0.0))


def geometric(n: int, rng: np.random.Generator, reach: float = 0.1) -> Floats:
    """Random points on a square: the nearer, the likelier."""
    points = rng.random((n, 2))
    return normalised(np.exp(-np.linalg.norm(points[:, None] - points, axis=2) / reach))


def lognormal(n: int, rng: np.random.Generator, spread: float = 2.0) -> Floats:
    """Full rows of masses over many orders of magnitude."""
    return normalised(rng.lognormal(0, spread, size=(n, n)))


def erdos_renyi(n: int, rng: np.random.Generator, degree: int = 6) -> Floats:
    """A random graph with random masses, and a ring so that every source leads somewhere."""
    weights = (rng.random((n, n)) < degree / n) * rng.exponential(size=(n, n))
    weights[np.arange(n), (np.arange(n) + 1) % n] += 0.2
    return normalised(weights)


def power_law(n: int, rng: np.random.Generator, degree: int = 5) -> Floats:
    """Few successors each, popular ones more often."""
    weights, popular = np.zeros((n, n)), 1 / np.arange(1, n + 1)
    for line in weights:
        line[rng.choice(n, size=degree, replace=False, p=popular / popular.sum())] = rng.exponential(size=degree)
    return normalised(weights)


SUITE: dict[str, Make] = {
    **{f"PageRank-like, {n}": lambda rng, n=n: pagerank(n, rng) for n in (60, 150, 400)},
    **{f"low rank, {n}": lambda rng, n=n: low_rank(n, rng) for n in (60, 150, 400)},
    **{f"5-uniform, {n}": lambda rng, n=n: families.equal_masses(n, 5, rng) for n in (60, 150, 400)},
    **{f"blocks, {n}": lambda rng, n=n: blocks(n, rng) for n in (60, 150)},
    "tree, 150": lambda rng: tree(150, rng),
    **{f"band, {n}": lambda rng, n=n: band(n, rng) for n in (150, 400)},
    "geometric, 150": lambda rng: geometric(150, rng),
    **{f"lognormal, {n}": lambda rng, n=n: lognormal(n, rng) for n in (150, 400)},
    "Erdős–Rényi, 150": lambda rng: erdos_renyi(150, rng),
    "power law, 150": lambda rng: power_law(150, rng),
    **{f"Dirichlet 1, {n}": lambda rng, n=n: families.dirichlet(n, 1.0, rng) for n in (60, 150, 400)},
    "Dirichlet 0.1, 100": lambda rng: families.dirichlet(100, 0.1, rng),
    "Dirichlet 10, 100": lambda rng: families.dirichlet(100, 10.0, rng),
    "sticky, 100": lambda rng: families.sticky(100, rng),
    "Zipf, 100": lambda rng: families.zipf(100, rng),
    "browsing, 100": lambda rng: families.browsing(100, rng),
    "small diagonal, 100": lambda rng: families.small_diagonal(100, rng),
    "ring, 60": lambda rng: families.ring(60),
    **{f"grid, {n} x {n}": lambda rng, n=n: families.grid(n, n) for n in (10, 15)},
    **{f"torus, {n} x {n}": lambda rng, n=n: families.torus(n) for n in (10, 15)},
    "hypercube, 64": lambda rng: families.hypercube(6),
    "Paley, 61": lambda rng: families.paley(61),
    "Paley with noise, 31": lambda rng: families.paley(31, 0.3, rng),
    "plane of order 7": lambda rng: families.plane(7),
    "6 equal successors, 225": lambda rng: families.equal_masses(225, 6, rng),
    **{f"6 nearest, {n}": lambda rng, n=n: families.nearest_points(n, 6, rng) for n in (100, 225)},
    **{f"6 random successors, {n}": lambda rng, n=n: families.out_degree(n, 6, rng) for n in (225, 800)},
    "3 random successors, 40": lambda rng: families.out_degree(40, 3, rng),
    "14 of sticky, 100": lambda rng: families.sticky(100, rng)[:14],
    "12 of Dirichlet 0.1, 300": lambda rng: families.dirichlet(300, 0.1, rng, rows=12),
    "20 of Dirichlet 0.1, 100": lambda rng: families.dirichlet(100, 0.1, rng, rows=20),
    "20 of Dirichlet 50, 60": lambda rng: families.dirichlet(60, 50.0, rng, rows=20),
    "14 of Dirichlet 1, 300": lambda rng: families.dirichlet(300, 1.0, rng, rows=14),
    "20 of 6 nearest, 225": lambda rng: families.nearest_points(225, 6, rng)[:20],
    "6 of Dirichlet 1, 300": lambda rng: families.dirichlet(300, 1.0, rng, rows=6),
}
"""Instances by name."""


class Noted:
    """A strategy that notes that it ran."""

    def __init__(self, strategy: Strategy, ran: set[str]) -> None:
        self.strategy, self.ran, self.share = strategy, ran, strategy.share

    def applies(self, problem: Any) -> bool:
        """As the strategy."""
        return self.strategy.applies(problem)

    def run(self, problem: Any, board: Any, is_over: Any) -> Iterator[None]:
        """As the strategy."""
        self.ran.add(name_of(self.strategy))
        yield from self.strategy.run(problem, board, is_over)


def name_of(strategy: Strategy) -> str:
    """By which strategies are left out: one of each kind, but for the program from the middle."""
    return type(strategy).__name__ + (" from the middle" if getattr(strategy, "central", False) else "")


def measured(rows: Rows, budget: float, without: str | None = None) -> dict[str, Any]:
    """Cost, bound and processor seconds of one design, and the strategies that ran."""
    ran: set[str] = set()
    portfolio = [Noted(one, ran) for one in default_portfolio() if name_of(one) != without]
    started = time.thread_time()
    table = design(rows, "optimal", budget=budget, portfolio=portfolio)
    seconds = time.thread_time() - started
    table.verify()
    if check_certificate(rows, table.certificate) != table.proven_bound:
        raise RuntimeError("a bound is quoted that the checker does not accept")
    return {"cost": table.cost, "bound": table.lower_bound, "seconds": seconds, "ran": sorted(ran)}


def run(
    budget: float, seed: int = 1, names: Sequence[str] | None = None, without: Sequence[str] | None = None
) -> dict[str, Any]:
    """The whole portfolio on each instance, and without each strategy that ran there.

    Parameters
    ----------
    budget
        Seconds of processor time for each design.
    seed
        Of the rows.
    names
        Instances; all of the suite unless given.
    without
        Strategies to leave out in turn; all unless given.
    """
    design(SUITE["Dirichlet 1, 60"](np.random.default_rng(0)), "optimal", budget=1.0)  # loads and compiles
    design(SUITE["3 random successors, 40"](np.random.default_rng(0)), "optimal", budget=1.0)
    chosen = list(dict.fromkeys(name_of(one) for one in default_portfolio())) if without is None else list(without)
    cases = []
    for name in SUITE if names is None else names:
        rows = Rows.of(SUITE[name](np.random.default_rng(seed)))
        whole = measured(rows, budget)
        left_out = {one: measured(rows, budget, one) for one in chosen if one in whole["ran"]}
        cases.append({"rows": name, "whole": whole, "without": left_out, "race": design(rows, "race").cost})
        print(line(cases[-1], budget), file=sys.stderr, flush=True)
    return {"budget": budget, "seed": seed, "cases": cases, "worth": worth(cases, chosen)}


def line(case: dict[str, Any], budget: float) -> str:
    """A line of progress."""
    whole = case["whole"]
    bound = best_bound(case)
    parts = ", ".join(f"without {name} {one['cost'] / bound:.4f}" for name, one in case["without"].items())
    return (
        f"{case['rows']}, {budget:g} s: {whole['cost'] / bound:.4f} of the bound in {whole['seconds']:.2f} s, "
        f"race {case['race'] / bound:.4f}; {parts}"
    )


def best_bound(case: dict[str, Any]) -> float:
    """The best bound of all runs of a case."""
    return float(max(one["bound"] for one in (case["whole"], *case["without"].values())))


def worth(cases: list[dict[str, Any]], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each strategy: by how much the cost rises and the bound falls without it, on average and at worst."""
    found = {}
    for name in names:
        dearer = [
            one["cost"] / case["whole"]["cost"] - 1
            for case in cases
            for one in [case["without"].get(name, case["whole"])]
        ]
        lower = [
            one["bound"] / case["whole"]["bound"] - 1
            for case in cases
            for one in [case["without"].get(name, case["whole"])]
        ]
        ran = [case["rows"] for case in cases if name in case["without"]]
        found[name] = {
            "ran": len(ran),
            "cost": float(np.mean(dearer)),
            "worst_cost": float(max(dearer)),
            "where": cases[int(np.argmax(dearer))]["rows"] if max(dearer) > 0 else "",
            "bound": float(np.mean(lower)),
            "worst_bound": float(min(lower)),
        }
    return found


def show(results: Sequence[dict[str, Any]]) -> str:
    """Markdown: what each strategy is worth, by budget; then each instance."""
    lines = []
    for result in results:
        cases = result["cases"]
        mean = np.mean([case["whole"]["cost"] / best_bound(case) for case in cases])
        lines += [
            f"{len(cases)} instances, {result['budget']:g} s: mean cost over bound {mean:.4f}.",
            "",
            "| without | ran on | mean cost | worst | where | mean bound | worst |",
            "|---|---:|---:|---:|---|---:|---:|",
        ]
        for name, one in result["worth"].items():
            lines.append(
                f"| {name} | {one['ran']} | {100 * one['cost']:+.2f} % | {100 * one['worst_cost']:+.1f} % | "
                f"{one['where']} | {100 * one['bound']:+.2f} % | {100 * one['worst_bound']:+.1f} % |"
            )
        lines += ["", "| rows | cost / bound | race / bound | processor s |", "|---|---:|---:|---:|"]
        for case in cases:
            whole, bound = case["whole"], best_bound(case)
            ratios = f"{whole['cost'] / bound:.4f} | {case['race'] / bound:.4f}"
            lines.append(f"| {case['rows']} | {ratios} | {whole['seconds']:.2f} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Run, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--budgets", type=float, nargs="+", default=[2.0, 20.0], help="seconds of processor time")
    parser.add_argument("--seed", type=int, default=1, help="of the rows")
    parser.add_argument("--only", nargs="+", choices=SUITE, metavar="ROWS", help="some instances")
    parser.add_argument("--without", nargs="*", metavar="STRATEGY", help="strategies to leave out in turn")
    parser.add_argument("--out", type=Path, help="write the JSON to this file")
    options = parser.parse_args()
    results = [run(budget, options.seed, options.only, options.without) for budget in options.budgets]
    print(show(results), file=sys.stderr)
    document = json.dumps({"benchmark": "ablation", "results": results}, indent=2)
    print(document)
    if options.out is not None:
        options.out.write_text(document + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
