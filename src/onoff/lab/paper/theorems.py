"""The bounds, theorems, propositions and observations of the paper, each against what the real schemes do.

"The tree" is the tree of queries of Algorithm 1 with the paper's own memory, walked in full (`querytree`).
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff import figures
from onoff.audit.exact import audit_exact
from onoff.figures import BLACK, BLUE, GREEN, ORANGE, PURPLE
from onoff.lab.families import symmetric
from onoff.lab.paper import claim
from onoff.lab.paper.claim import PROGRAM, Claims, same
from onoff.lab.paper.tables import EXAMPLE, SECTION_V_CHAIN, two_source_chain
from onoff.lab.querytree import bounds_along, query_law
from onoff.model.bounds import bounds, lambda_units, outer_bound_2, symmetric_cost, theta_units, two_source_cost
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse
from onoff.model.rows import Rows
from onoff.schemes import design
from onoff.schemes.greedy import atoms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


claims = Claims()

ALPHAS = [k / 20 for k in range(21)]
"""Where the symmetric chain is looked at."""
TWO_SOURCES = ((0.2, 0.2), (0.1, 0.6), (0.9, 0.6), (0.35, 0.65), (0.0, 0.0), (1.0, 1.0))
"""Where two sources are looked at: all cases of Table 3, independence, and both chains that are not ergodic."""
PATTERNS = ("ON OFF OFF OFF", "ON OFF ON OFF OFF", "ON ON OFF OFF")
DIGITS = 2e-15
"""Figure 4 prints 15 digits."""


def symmetric_chain(n: int, alpha: float) -> MarkovChain:
    """The chain of Example 1: stay with probability alpha, go anywhere else alike."""
    return MarkovChain(symmetric(n, alpha))


def random_rows(count: int) -> list[Rows]:
    """Rows from nearly deterministic to nearly equal, 2 to 9 of them over 2 to 9 sources."""
    rng = np.random.default_rng(20_21)
    found = []
    for _ in range(count):
        m, n = rng.integers(2, 10, size=2)
        found.append(Rows.of(rng.dirichlet(np.full(n, rng.choice([0.1, 1.0, 10.0])), size=m)))
    return found


# -- the bounds -----------------------------------------------------------------------------------------------


@claims.add("Theorem 1 (outer bound 1): smallest cost minus bound along the tree is 0, for every scheme and memory")
def theorem_1() -> tuple[Any, Any, bool]:
    spare = [
        step.cost - step.outer
        for scheme in ("full", "single", "greedy", "enumerated")
        for memory in ("last-query", "bayes-filter")
        for step in bounds_along(SECTION_V_CHAIN, parse("ON OFF*3"), scheme, memory)
    ]
    return same(0.0, min(spare))


@claims.add("Corollary (outer bound 2): smallest outer bound 1 minus outer bound 2 along the tree is 0")
def corollary() -> tuple[Any, Any, bool]:
    spare = [
        step.outer - step.outer2
        for chain in (
            SECTION_V_CHAIN,
            symmetric_chain(3, 0.1),
            MarkovChain([[0.7, 0.3, 0], [0, 0.2, 0.8], [0.5, 0, 0.5]]),
        )
        for step in bounds_along(chain, parse("ON OFF*3"), "greedy")
    ]
    return same(0.0, min(spare))


@claims.add("Theorem 2 (inner bound): smallest bound minus cost of Algorithm 1 along the tree is 0")
def theorem_2() -> tuple[Any, Any, bool]:
    spare = [
        step.inner - step.cost
        for chain in (
            SECTION_V_CHAIN,
            symmetric_chain(4, 0.1),
            MarkovChain([[0.7, 0.3, 0], [0, 0.2, 0.8], [0.5, 0, 0.5]]),
        )
        for step in bounds_along(chain, parse("ON OFF*3"), "greedy")
    ]
    return same(0.0, min(spare))


@claims.add("Lemma 2: E|Y| >= sum of max p(x|u): tables of 60 random rows that cost less")
def lemma_lower() -> tuple[Any, Any, bool]:
    cheaper = 0
    for rows in random_rows(60):
        cheaper += sum(design(rows, scheme).cost < bounds(rows).outer - 1e-12 for scheme in ("greedy", "single"))
    return same(0, cheaper)


@claims.add("Lemma 3: P(|Y| <= i) >= theta_1 + ... + theta_i in integers: failures on 60 random rows")
def lemma_algorithm() -> tuple[Any, Any, bool]:
    failures = 0
    for rows in random_rows(60):
        table = design(rows, "greedy")
        table.verify()
        sizes = np.diff(table.offsets)
        reached = needed = 0
        for i, theta in enumerate(theta_units(lambda_units(rows, distinct=True)), start=1):
            reached += sum(int(mass) for mass, size in zip(table.mass, sizes, strict=True) if size == i)
            needed += theta
            failures += reached < needed
    return same(0, failures)


@claims.add("Algorithm 1: P(|Z| = i) = theta_i in integers, for the 3x3 example and 60 random rows")
def algorithm_1_sizes() -> tuple[Any, Any, bool]:
    wrong = 0
    for rows in (SECTION_V_CHAIN.rows(), *random_rows(60)):
        found = atoms(rows)
        thetas = theta_units(lambda_units(rows, distinct=True))
        for i, theta in enumerate(thetas, start=1):
            wrong += sum(int(mass) for mass in found.mass[found.size == i]) != theta
    return same(0, wrong)


@claims.add("Appendix D: the budget matrix Q is all zero at the end, for the 3x3 example and 60 random rows")
def algorithm_1_budget() -> tuple[Any, Any, bool]:
    left = sum(int(np.abs(atoms(rows).budget).max()) for rows in (SECTION_V_CHAIN.rows(), *random_rows(60)))
    return same(0, left)


# -- Example 1, Figure 3 --------------------------------------------------------------------------------------


@claims.add("Example 1: alpha >= 1/N, both bounds are N alpha (N = 2..6, 21 alphas): largest deviation")
def example_1_high() -> tuple[Any, Any, bool]:
    apart = [
        abs(value - n * alpha)
        for n in range(2, 7)
        for alpha in ALPHAS
        if alpha >= 1 / n
        for value in (bounds(symmetric_chain(n, alpha)).inner, bounds(symmetric_chain(n, alpha)).outer)
    ]
    return same(0.0, max(apart))


@claims.add("Example 1: alpha < 1/N, outer N(1-alpha)/(N-1), inner 2 - N alpha (N = 2..6): largest deviation")
def example_1_low() -> tuple[Any, Any, bool]:
    apart = []
    for n in range(2, 7):
        for alpha in ALPHAS:
            if alpha < 1 / n:
                b = bounds(symmetric_chain(n, alpha))
                apart += [abs(b.outer - n * (1 - alpha) / (n - 1)), abs(b.inner - (2 - n * alpha))]
    return same(0.0, max(apart))


@claims.add("Figure 3(b): R^I and R^O for three sources, at 21 alphas")
def figure_3() -> tuple[Any, Any, bool]:
    inner = [1 / (2 - 3 * a) if a < 1 / 3 else 1 / (3 * a) for a in ALPHAS]
    outer = [2 / (3 - 3 * a) if a < 1 / 3 else 1 / (3 * a) for a in ALPHAS]
    found = [bounds(symmetric_chain(3, a)) for a in ALPHAS]
    return same([inner, outer], [[1 / b.inner for b in found], [1 / b.outer for b in found]])


@claims.add("Example 1 beyond the paper: alpha >= 1/N, cost 1 + (N-1)|rho|^(t-tau) for t - tau = 1..5", (0.4, 0.5, 0.9))
@claims.add("Example 1 beyond the paper: alpha < 1/N, cost 1 + (N-1)|rho|^(t-tau) for t - tau = 1..5", (0.0, 0.1, 0.2))
def symmetric_at_every_step(alphas: tuple[float, ...]) -> tuple[Any, Any, bool]:
    """What Algorithm 1 costs, and the lower bound that no scheme passes: equal, so both are the optimum."""
    expected, got = [], []
    for n in (3, 4):
        for alpha in alphas:
            steps = bounds_along(symmetric_chain(n, alpha), parse("ON OFF*5"), "greedy", "last-query")[1:]
            expected.append([symmetric_cost(n, alpha, step.t) for step in steps] * 2)
            got.append([step.cost for step in steps] + [step.lower for step in steps])
    return same(expected, got)


# -- two sources ----------------------------------------------------------------------------------------------


@claims.add("Theorem 3: cost, inner and outer bounds are 1 + |1-alpha-beta|^(t-tau) (6 chains, ON OFF*4 ON OFF)")
def theorem_3() -> tuple[Any, Any, bool]:
    expected, got = [], []
    for alpha, beta in TWO_SOURCES:
        steps = bounds_along(two_source_chain(alpha, beta), parse("ON OFF*4 ON OFF"), "greedy")
        expected.append([two_source_cost(alpha, beta, k) for k in (0, 1, 2, 3, 4, 0, 1)] * 3)
        got.append([s.cost for s in steps] + [s.inner for s in steps] + [s.outer for s in steps])
    return same(expected, got)


@claims.add("Figure 4: the rates for alpha + beta = 0.2, t - tau = 0..20", "0.2")
@claims.add("Figure 4: the rates for alpha + beta = 0.4, t - tau = 0..20", "0.4")
@claims.add("Figure 4: the rates for alpha + beta = 0.7, t - tau = 0..20", "0.7")
@claims.add("Figure 4: the rates for alpha + beta = 1, t - tau = 0..20", "1")
def figure_4(total: str) -> tuple[Any, Any, bool]:
    """The rates that the real scheme reaches, not only the formula."""
    alpha = float(total) / 2
    steps = bounds_along(two_source_chain(alpha, float(total) - alpha), parse("ON OFF*20"), "greedy", "last-query")
    return same(list(claim.RATE_CURVES[total]), [1 / step.cost for step in steps], tolerance=DIGITS)


@claims.add("Section VII-A: the closed form of P^(t-tau) for two sources, t - tau = 1..6: largest deviation")
def power_of_two_sources() -> tuple[Any, Any, bool]:
    apart = []
    for alpha, beta in TWO_SOURCES:
        if alpha + beta:
            for k in range(1, 7):
                decay = (1 - alpha - beta) ** k
                closed = np.array(
                    [[beta + alpha * decay, alpha - alpha * decay], [beta - beta * decay, alpha + beta * decay]]
                )
                power = np.asarray(two_source_chain(alpha, beta).power(k))
                apart.append(float(np.abs(closed / (alpha + beta) - power).max()))
    return same(0.0, max(apart))


@claims.add("Section VII-A: outer bound 2 is 1 + |1-alpha-beta|^(t-tau), t - tau = 1..6: largest deviation")
def converse_for_two() -> tuple[Any, Any, bool]:
    apart = [
        abs(outer_bound_2(two_source_chain(alpha, beta), k) - two_source_cost(alpha, beta, k))
        for alpha, beta in TWO_SOURCES
        for k in range(1, 7)
    ]
    return same(0.0, max(apart))


@claims.add("Proposition 2: |Q_i| is a Markov chain with rows (1, 0) and (s, 1-s), exactly")
def proposition_2() -> tuple[Any, Any, bool]:
    """P(|Q_3| | |Q_1|, |Q_2|) must not depend on |Q_1|: all conditional probabilities, from the exact law."""
    expected, got = [], []
    for alpha, beta in ((0.1, 0.3), (0.9, 0.6)):
        law: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        for queries, weight in query_law(
            two_source_chain(alpha, beta), parse("ON OFF*3"), "greedy", "last-query"
        ).items():
            law[tuple(len(q) for q in queries)] += weight
        s = 1 - abs(1 - alpha - beta)
        for history in sorted({sizes[:-1] for sizes in law}):
            total = law[(*history, 1)] + law[(*history, 2)]
            expected.append([1.0, 0.0] if history[-1] == 1 else [s, 1 - s])
            got.append([float(law[(*history, size)] / total) for size in (1, 2)])
    return same(expected, got)


@claims.add("Section VII: F_t = ON costs 2; independent requests cost 1; chains that are not ergodic cost 2")
def observations_on_cost() -> tuple[Any, Any, bool]:
    got = []
    for alpha, beta in ((0.2, 0.2), (0.5, 0.5), (0.0, 0.0), (1.0, 1.0)):
        got.append([step.cost for step in bounds_along(two_source_chain(alpha, beta), parse("ON OFF"), "greedy")])
    return same([[2, 1.6], [2, 1], [2, 2], [2, 2]], got)


@claims.add("Section VII: the rate is symmetric around alpha + beta = 1, and tends to 1 for ergodic chains")
def observations_on_rate() -> tuple[Any, Any, bool]:
    steps = parse("ON OFF*32")
    ends = [bounds_along(two_source_chain(a, b), steps, "greedy", "last-query") for a, b in ((0.3, 0.3), (0.7, 0.7))]
    mirrored = max(abs(low.cost - high.cost) for low, high in zip(*ends, strict=True))
    return same([0.0, 1.0], [mirrored, 1 / ends[0][-1].cost])


# -- Section VI -----------------------------------------------------------------------------------------------


@claims.add("Section VI: the linear program over all subsets gives 1.6 for the 3x3 example")
def program_optimum() -> tuple[Any, Any, bool]:
    table = design(SECTION_V_CHAIN.rows(), "enumerated")
    table.verify()
    return same(claim.EXAMPLE_COST, table.cost, tolerance=PROGRAM)


@claims.add("Section VI: with c = 1 the optimum is theta_1 + N (1 - theta_1): the program, the formula, the scheme")
def program_c_1() -> tuple[Any, Any, bool]:
    expected, got = [], []
    for rows in (SECTION_V_CHAIN.rows(), EXAMPLE.rows(), symmetric_chain(4, 0.4).rows()):
        theta = bounds(rows).thetas[0]
        expected.append([theta + rows.n * (1 - theta)] * 2)
        got.append([design(rows, "enumerated", c=1).cost, design(rows, "single").cost])
    return same(expected, got, tolerance=PROGRAM)


@claims.add("Section VI: Algorithm 1's bound is at most the optimum for c = 1: failures on 60 random rows")
def feasible_beats_extreme() -> tuple[Any, Any, bool]:
    return same(0, sum(bounds(rows).inner > design(rows, "single").cost + 1e-12 for rows in random_rows(60)))


# -- privacy --------------------------------------------------------------------------------------------------


@claims.add("Privacy by enumeration, ON ON OFF OFF: bits leaked by 4 schemes x 2 memories x N = 2 and 3", PATTERNS[2])
@claims.add(
    "Privacy by enumeration, ON OFF ON OFF OFF: bits leaked by 4 schemes x 2 memories x N = 2 and 3", PATTERNS[1]
)
@claims.add("Privacy by enumeration, ON OFF OFF OFF: bits leaked by 4 schemes x 2 memories x N = 2 and 3", PATTERNS[0])
def privacy(pattern: str) -> tuple[Any, Any, bool]:
    """Zero is decided by equality of rationals; only the paper's filter is allowed its rounding of rows."""
    audits = [
        audit_exact(chain, scheme, parse(pattern), memory)
        for chain in (EXAMPLE, SECTION_V_CHAIN)
        for scheme in ("full", "single", "greedy", "enumerated")
        for memory in ("last-query", "bayes-filter")
    ]
    decodable = not any(step.undecodable for audit in audits for step in audit.steps)
    return same(
        {"bits": 0.0, "private": True, "decodable": True},
        {"bits": sum(a.leak for a in audits), "private": all(a.private for a in audits), "decodable": decodable},
        tolerance=0,
    )


@claims.add("Proposition 1: hiding X_tau hides every private request (3x3 example, ON ON OFF OFF, the paper's memory)")
def proposition_1() -> tuple[Any, Any, bool]:
    audit = audit_exact(SECTION_V_CHAIN, "greedy", parse(PATTERNS[2]), "bayes-filter")
    return same([0.0, 0.0, 0.0, 0.0], [step.bits if step.deviation > audit.tolerance else 0.0 for step in audit.steps])


@claims.add("Privacy without conditioning on earlier queries: lost once an ON follows an OFF, and not before")
def joint_privacy() -> tuple[Any, Any, bool]:
    audit = audit_exact(SECTION_V_CHAIN, "greedy", parse("ON OFF OFF ON OFF"))
    return same([False, False, False, True, True], [step.joint > 0 for step in audit.steps])


def save_figures(directory: Path) -> list[Path]:
    """Draw both figures into `directory`, which is made if need be; the files, in order."""
    drawn = {"figure-3b-symmetric-chain": symmetric_figure(), "figure-4-rate": rate_figure()}
    directory.mkdir(parents=True, exist_ok=True)
    return [
        figures.save(figure, directory / f"{name}.{kind}") for name, figure in drawn.items() for kind in ("svg", "png")
    ]


def symmetric_figure() -> Figure:
    """Figure 3(b): the paper's bounds on the rate, and where between them the optimum is."""
    figure, axes = _axes("Symmetric chain of 3 sources, one request after a private one")
    alphas = [k / 300 for k in range(301)]
    found = [bounds(symmetric_chain(3, alpha)) for alpha in alphas]
    axes.plot(alphas, [1 / b.inner for b in found], color=BLUE, linewidth=3, label=r"paper: reached $R_t^I$")
    axes.plot(alphas, [1 / b.outer for b in found], color=ORANGE, linestyle="--", label=r"paper: at most $R_t^O$")
    marked = [k / 20 for k in range(21)]
    optimum = [1 / symmetric_cost(3, alpha, 1) for alpha in marked]
    axes.plot(marked, optimum, color=BLACK, linestyle="", marker="o", markersize=3.5, label="optimum")
    axes.axvline(1 / 3, color="0.6", linewidth=0.8)
    axes.annotate(r"$\alpha = 1/N$", (1 / 3, 0.31), xytext=(5, 0), textcoords="offset points", color="0.35")
    axes.set(xlabel=r"$\alpha$, probability of asking for the same source again", ylabel=r"rate $R_t$ (1 / messages)")
    axes.set(xlim=(0, 1), ylim=(0.3, 1.03))
    axes.legend(loc="upper right", frameon=False)
    return figure


def rate_figure() -> Figure:
    """Figure 4: how the rate recovers after a private request."""
    figure, axes = _axes("Two sources: the best rate after a private request")
    styles = ((BLUE, "<"), (ORANGE, "x"), (GREEN, "o"), (PURPLE, "D"))
    since = range(21)
    for total, (color, marker) in zip(claim.RATE_CURVES, styles, strict=True):
        rates = [1 / two_source_cost(float(total) / 2, float(total) / 2, k) for k in since]
        axes.plot(since, rates, color=color, marker=marker, markersize=5, label=total)
    axes.set(xlabel=r"$t - \tau$, requests since the last private one", ylabel=r"rate $R_t$ (1 / messages)")
    axes.set(xlim=(-0.4, 20.4), ylim=(0.48, 1.02), xticks=range(0, 21, 2))
    axes.legend(title=r"$\alpha + \beta$", loc="lower right", frameon=False)
    return figure


def _axes(title: str) -> tuple[Figure, Axes]:
    figure, (axes,) = figures.new_figure()
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(axis="x", color="0.9", linewidth=0.8)
    return figure, axes
