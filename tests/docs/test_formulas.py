"""Every displayed formula of the documentation has a test that bears its name: `:label: outer` has `test_outer`."""

import itertools
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.chains import request_model
from tests.support.typed import as_a

import onoff
from onoff import wire
from onoff.audit.exact import audit_exact, enumerate_branches
from onoff.model.anchors import Anchored
from onoff.model.bounds import symmetric_cost, two_source_cost
from onoff.model.chain import MarkovChain
from onoff.model.contexts import RequestModel
from onoff.model.patterns import parse
from onoff.model.rows import UNIT, Rows
from onoff.schemes import design
from onoff.schemes.search.exact import rebuild
from onoff.session import Session
from onoff.session.filter import ModelFilter
from onoff.session.memories import Announced, LastQuery
from onoff.session.topics import Topics
from onoff.tables.table import QueryTable

DOCS = Path(__file__).parents[2] / "docs"
RNG_SEED = 20


def labels():
    return sorted(
        label
        for page in DOCS.rglob("*.md")
        if "_build" not in page.parts
        for label in re.findall(r"^:label: (\S+)$", page.read_text(), re.M)
    )


def test_every_displayed_formula_is_labelled_and_tested():
    displayed = sum(page.read_text().count("```{math}") for page in DOCS.rglob("*.md") if "_build" not in page.parts)
    assert displayed == len(labels()) >= 20
    untested = [label for label in labels() if f"test_{label.replace('-', '_')}" not in globals()]
    assert untested == []


def some_rows(count=40, largest=5):
    rng = np.random.default_rng(RNG_SEED)
    for _ in range(count):
        n, m = rng.integers(2, largest + 1, size=2)
        yield Rows.of(rng.dirichlet(np.full(n, rng.choice([0.3, 1.0, 10.0])), size=m))


def subsets(n):
    return [c for k in range(1, n + 1) for c in itertools.combinations(range(n), k)]


def opt(rows):
    return design(rows, "enumerated").cost


def lambdas(rows):
    return [
        Fraction(int(total)) / UNIT for total in np.sort(rows.weights[rows.group], axis=0).astype(object).sum(axis=1)
    ]


def test_anchors():
    """Row by row, for every pair of places h and w; l and a by whether the last request was h, w or another."""
    n, rng = 4, np.random.default_rng(RNG_SEED)
    population = rng.dirichlet(np.ones(n), size=n + 1)
    mixing, homeward = np.array([0.2, 0.5, 0.4]), np.array([0.6, 0.9, 0.3])
    weights = (1 - np.eye(n)) / (n * (n - 1))
    fitted = Anchored(population, mixing, homeward, weights, np.zeros((0, n + 1, n)))
    model = RequestModel(**fitted.arguments())
    for z, (h, w) in enumerate(np.argwhere(weights > 0)):
        for last in range(n):
            case = 1 if last == h else 2 if last == w else 0
            expected = (1 - mixing[case]) * population[last + 1]
            expected[h] += mixing[case] * homeward[case]
            expected[w] += mixing[case] * (1 - homeward[case])
            assert model.law(z, model.context_of((last,))) == pytest.approx(expected, rel=1e-12)


P3 = MarkovChain([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]])


def test_decodability():
    session = Session(P3, "greedy")
    for x, private in zip([0, 1, 2, 1, 0, 2] * 20, [True, False, False] * 40, strict=True):
        assert x in session.request(x, private=private)


def test_privacy():
    assert all(step.deviation == 0 for step in audit_exact(P3, "greedy", parse("ON OFF OFF ON OFF")).steps)


def test_table_privacy():
    for rows in some_rows():
        table = design(rows, "greedy").as_dict()
        for mass, block in zip(table["mass"], table["joint"], strict=True):
            assert all(sum(cells) == mass for cells in block)


def test_table_rows():
    for rows in some_rows():
        table = design(rows, "greedy").as_dict()
        for u in range(rows.m):
            for x in range(rows.n):
                spent = sum(
                    block[u][query.index(x)]
                    for query, block in zip(table["queries"], table["joint"], strict=True)
                    if x in query
                )
                assert spent == rows.weight(u, x)


def test_hall():
    """A proposal is kept to the unit by the rebuild if and only if it satisfies every inequality."""
    rng = np.random.default_rng(RNG_SEED)
    outcomes = set()
    for rows in some_rows(200, largest=4):
        n = len(rows.columns)
        sets = subsets(n)
        units = np.diff([0, *sorted(rng.integers(0, UNIT, size=len(sets) - 1).tolist()), UNIT])
        if rng.random() < 0.5:  # random masses seldom satisfy Hall: move most of them to everything
            units = [*(int(unit) // 64 for unit in units[:-1]), 0]  # type: ignore[assignment]
            units[-1] = UNIT - sum(units)
        masses = [float(unit) / UNIT for unit in units]
        units = [int(mass * UNIT) for mass in masses]  # type: ignore[assignment]
        units[-1] = UNIT - sum(units[:-1])
        met = all(
            sum(unit for s, unit in zip(sets, units, strict=True) if set(s) & set(c))
            >= max(int(rows.weights[r, list(c)].astype(object).sum()) for r in range(rows.distinct))
            for c in sets
        )
        table = rebuild(rows, [[int(rows.columns[x]) for x in s] for s in sets], masses)
        table.verify()
        got = dict(zip(table.queries, table.mass.tolist(), strict=True))
        proposed = {tuple(int(rows.columns[x]) for x in s): unit for s, unit in zip(sets, units, strict=True) if unit}
        assert (got == proposed) == met
        outcomes.add(met)
    assert outcomes == {True, False}


def test_opt():
    """Never above any table, never below any bound, and the paper's value for the paper's example."""
    assert opt(P3.rows()) == pytest.approx(1.6, abs=1e-9)
    for rows in some_rows(30, largest=4):
        assert onoff.bounds(rows).lower - 1e-9 <= opt(rows) <= design(rows, "greedy").cost + 1e-9


def test_last_query_rows():
    session = Session(P3, "greedy")
    session.request(1, private=True)
    query = session.request(2, private=False)
    assert session.memory.rows.m == len(query)
    for u, state in enumerate(query.sources):
        assert [session.memory.rows.weight(u, x) for x in range(3)] == [P3.rows().weight(state, x) for x in range(3)]


def test_last_query_privacy():
    """Given Q_{t-1} the next query has the table's masses as its law, whatever the past requests were."""
    session = Session(P3, "greedy")
    session.request(0, private=True)
    laws = []
    for past in range(3):
        session = Session(P3, "greedy")
        session.request(past, private=True)
        law: dict[tuple[int, ...], Fraction] = {}
        for x in range(3):
            for p, query in enumerate_branches(lambda e, s=session, x=x: s.fork(e).request(x, private=False).sources):  # type: ignore[misc]
                law[query] = law.get(query, Fraction(0)) + p * Fraction(P3.rows().weight(past, x), UNIT)
        laws.append(law)
    table = design(P3.rows(), "greedy")
    assert (
        laws[0]
        == laws[1]
        == laws[2]
        == {q: Fraction(int(m), UNIT) for q, m in zip(table.queries, table.mass, strict=True)}
    )


def test_lambda():
    found = onoff.bounds(P3)
    assert found.lambdas == pytest.approx((0.5, 0.9, 1.6))
    assert found.thetas == pytest.approx((0.5, 0.4, 0.1))


def test_inner():
    for rows in some_rows():
        ordered = [Fraction(0), *lambdas(rows)]
        thetas = [min(1, b) - min(1, a) for a, b in itertools.pairwise(ordered)]
        inner = sum(min(i, rows.n) * theta for i, theta in enumerate(thetas, start=1))
        assert onoff.bounds(rows).inner == pytest.approx(float(inner), abs=1e-12)
        assert opt(rows) <= inner + Fraction(1, 10**9)


def test_outer():
    for rows in some_rows():
        assert onoff.bounds(rows).outer == pytest.approx(rows.probabilities().max(axis=0).sum(), abs=1e-12)
        assert opt(rows) >= onoff.bounds(rows).outer - 1e-9


def test_doeblin():
    for rows in some_rows():
        assert onoff.bounds(rows).doeblin == pytest.approx(2 - rows.probabilities().min(axis=0).sum(), abs=1e-12)
        assert opt(rows) >= onoff.bounds(rows).doeblin - 1e-9


def test_inner_closed_form():
    for rows in some_rows(80):
        if rows.m <= rows.n:
            ordered = lambdas(rows)
            closed = max(k + 1 - sum(ordered[:k], Fraction(0)) for k in range(rows.m))
            assert onoff.bounds(rows).inner == pytest.approx(float(closed), abs=1e-12)


def test_three():
    checked = 0
    for rows in some_rows(120):
        if rows.n <= 3 or rows.m <= 3:
            ordered = lambdas(rows)
            assert opt(rows) == pytest.approx(float(max(ordered[-1], 2 - ordered[0])), abs=1e-9)
            checked += 1
    assert checked > 40


def test_two_sources():
    for alpha, beta in [(0.2, 0.2), (0.8, 0.7), (0.1, 0.9)]:
        chain = MarkovChain([[1 - alpha, alpha], [beta, 1 - beta]])
        costs = [step.cost for step in audit_exact(chain, "greedy", parse("ON OFF*4")).steps]
        assert costs == pytest.approx([1 + abs(1 - alpha - beta) ** k for k in range(5)], abs=1e-12)
        assert costs == pytest.approx([two_source_cost(alpha, beta, k) for k in range(5)], abs=1e-12)


def test_symmetric():
    for n, alpha in [(3, 0.1), (3, 0.6), (4, 0.0), (4, 0.9)]:
        chain = MarkovChain(np.full((n, n), (1 - alpha) / (n - 1)) + np.eye(n) * (alpha - (1 - alpha) / (n - 1)))
        rho = (n * alpha - 1) / (n - 1)
        costs = [step.cost for step in audit_exact(chain, "greedy", parse("ON OFF*3")).steps]
        assert costs == pytest.approx([1 + (n - 1) * abs(rho) ** k for k in range(4)], abs=1e-9)
        assert costs == pytest.approx([symmetric_cost(n, alpha, k) for k in range(4)], abs=1e-9)


def low(rows, members):
    return min(int(rows.weights[r, list(members)].astype(object).sum()) for r in range(rows.distinct)) / UNIT


def test_pairs():
    for rows in some_rows():
        if len(rows.columns) >= 3:
            value = 3 - sum(low(rows, pair) for pair in itertools.combinations(range(rows.n), 2))
            assert onoff.bounds(rows).pairs == pytest.approx(max(1, value), abs=1e-9)
            assert opt(rows) >= value - 1e-9


def test_pencil():
    for rows in some_rows():
        if len(rows.columns) >= 3:
            largest = rows.probabilities().max(axis=0)
            values = [2 + largest[x] - sum(low(rows, (x, z)) for z in range(rows.n) if z != x) for x in range(rows.n)]
            assert onoff.bounds(rows).pencil == pytest.approx(max(1, *values), abs=1e-9)
            assert opt(rows) >= max(values) - 1e-9


def test_dual():
    """Random y >= 0 with the largest t that they allow: the certified value is never above the optimum."""
    rng = np.random.default_rng(RNG_SEED)
    for rows in some_rows(30, largest=4):
        sets = subsets(rows.n)
        y = rng.exponential(0.3, size=len(sets)) * (rng.random(len(sets)) < 0.4)
        t = min(len(s) + sum(w for a, w in zip(sets, y, strict=True) if set(s) <= set(a)) for s in sets)
        assert t - sum(w * low(rows, a) for a, w in zip(sets, y, strict=True)) <= opt(rows) + 1e-9


def test_many_steps():
    for chain in (P3, MarkovChain(np.random.default_rng(RNG_SEED).dirichlet(np.ones(3), size=3))):
        for scheme in ("greedy", "single"):
            steps = audit_exact(chain, scheme, parse("ON OFF*4")).steps
            for k in range(1, 5):
                assert steps[k].cost >= opt(Rows.of(chain.power(k))) - 1e-9


def test_rebuild_cost():
    rng = np.random.default_rng(RNG_SEED)
    for rows in some_rows(60, largest=4):
        sets = subsets(len(rows.columns))
        masses = rng.dirichlet(np.full(len(sets), 0.3))
        table = rebuild(rows, [[int(rows.columns[x]) for x in s] for s in sets], masses)
        kept = dict(zip(table.queries, (table.mass / UNIT).tolist(), strict=True))
        everything = tuple(rows.columns.tolist())
        lost = sum(
            mass - kept.get(tuple(int(rows.columns[x]) for x in s), 0.0)
            for s, mass in zip(sets, masses, strict=True)
            if tuple(int(rows.columns[x]) for x in s) != everything
        )
        proposed = sum(mass * len(s) for s, mass in zip(sets, masses, strict=True))
        assert table.cost - proposed <= rows.n * lost + 1e-9


def race_rows():
    return np.random.default_rng(RNG_SEED).dirichlet(np.ones(4), size=3)


def winners(times, p):
    return np.argmin(times[:, None, :] / p[None, :, :], axis=2)


def binomial_interval(count, p):
    """Exact interval that fails with probability 2e-9."""
    from scipy.stats import binom

    return binom.ppf(1e-9, count, p), binom.ppf(1 - 1e-9, count, p)


def test_race():
    """Twelve cells at 2e-9 each: the winner of every user has that user's law."""
    p, count = race_rows(), 40_000
    won = winners(np.random.default_rng(1).exponential(size=(count, 4)), p)
    for u in range(3):
        for x in range(4):
            least, most = binomial_interval(count, p[u, x])
            assert least <= np.sum(won[:, u] == x) <= most


def test_race_posterior():
    """Races drawn given that user 0 sees source 2 win have the law of those that did. Chi-square at 1e-9."""
    from scipy.stats import chi2_contingency

    p, count, rng = race_rows(), 60_000, np.random.default_rng(2)
    u, x = 0, 2
    free = winners(rng.exponential(size=(count * 4, 4)), p)
    given = free[free[:, u] == x]
    first = rng.exponential(size=count)
    times = first[:, None] * p[u] + rng.exponential(size=(count, 4))
    times[:, x] = first * p[u, x]
    drawn = winners(times, p)
    assert (drawn[:, u] == x).all()
    cells = [(a, b) for a in range(4) for b in range(4)]
    table = np.array([[np.sum((w[:, 1] == a) & (w[:, 2] == b)) for a, b in cells] for w in (given, drawn)])
    assert chi2_contingency(table[:, table.sum(axis=0) > 20]).pvalue > 1e-9


def test_race_distance():
    """Upper end of an exact interval at 1e-9: users part no more often than 2d / (1 + d)."""
    p, count = race_rows(), 40_000
    won = winners(np.random.default_rng(3).exponential(size=(count, 4)), p)
    for u, v in itertools.combinations(range(3), 2):
        d = np.abs(p[u] - p[v]).sum() / 2
        assert np.sum(won[:, u] != won[:, v]) <= binomial_interval(count, 2 * d / (1 + d))[1]


def test_mismatch():
    rng = np.random.default_rng(RNG_SEED)
    for _ in range(20):
        assumed, true = rng.dirichlet(np.ones(3) * 5, size=(2, 3))
        table = design(assumed, "greedy")
        units = table.rows.weights
        laws = []
        for u in range(3):
            law = np.zeros(len(table))
            for x in range(3):
                queries, weights = table.options(u, x)
                law[queries] += true[u, x] * np.array(weights) / units[table.rows.group[u], x]
            laws.append(law)
        distance = np.abs(assumed - true).sum(axis=1) / 2
        for u, v in itertools.combinations(range(3), 2):
            assert np.abs(laws[u] - laws[v]).sum() / 2 <= distance[u] + distance[v] + 1e-12


def test_tie_break():
    """The cost |S| + eps V(S), V(S) = OPT of the rows of S: cheapest successors among the optima."""
    chain = MarkovChain(np.random.default_rng(5).dirichlet(np.ones(4), size=4))
    plain = design(chain.rows(), "optimal")
    chosen = design(chain.rows(), "optimal", future=chain.rows())
    assert chosen.cost == pytest.approx(plain.cost, rel=1e-6)

    def after(table):
        return math.fsum(
            int(mass) / UNIT * opt(chain.rows(query)) for query, mass in zip(table.queries, table.mass, strict=True)
        )

    assert after(chosen) <= after(plain) + 1e-9


MODEL = request_model([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]], ("a", "b", "c"))


def test_belief():
    """The rows of a session are the mixtures of the model's laws by the beliefs."""
    session = Session(MODEL, "greedy")
    for x, private in ((0, True), (1, False), (2, False)):
        session.request(x, private=private)
    memory = as_a(ModelFilter, session.memory)
    belief = memory.belief.toarray().reshape(3, MODEL.types, -1)
    laws = np.array([[MODEL.law(z, c) for c in range(len(MODEL.contexts))] for z in range(MODEL.types)])
    expected = np.einsum("uzc,zcx->ux", belief, laws)
    np.testing.assert_allclose(memory.rows.weights[memory.rows.group] / UNIT, expected, rtol=1e-12)


def test_belief_update():
    """One step of the filter by hand, from the table that the query was drawn from."""
    session = Session(MODEL, "greedy")
    session.request(0, private=True)
    session.request(1, private=False)
    before = as_a(ModelFilter, session.memory)
    assert before.rows.distinct > 1
    table = as_a(QueryTable, session.tables.of(before))
    query = session.request(2, private=False).sources
    after: dict[Any, Any] = {}
    block = table.block(table.index_of(query))
    for u in range(3):
        for state, mass in enumerate(before.belief.toarray()[u]):
            z, c = divmod(state, len(MODEL.contexts))
            for i, x in enumerate(query):
                kernel = block[before.rows.group[u], i] / max(before.rows.weight(u, x), 1)
                key = u, z * len(MODEL.contexts) + MODEL.next(c, x)
                after[key] = after.get(key, 0) + mass * MODEL.law(z, c)[x] * kernel
    belief = as_a(ModelFilter, session.memory).belief.toarray()
    expected = np.zeros(belief.shape)
    for key, mass in after.items():
        expected[key] = mass
    np.testing.assert_allclose(belief, expected / expected.sum(axis=1, keepdims=True), atol=1e-12)


def test_several_cost():
    """Over every draw: the share of a message that each answer is, added up."""
    for servers, k in itertools.product((2, 3, 4), (1, 2, 3, 4)):
        downloaded = Fraction(0)
        for draws in itertools.product(range(servers), repeat=k - 1):
            entries = iter(draws)
            vectors = wire.draw_vectors(
                range(k),
                0,
                n=k,
                servers=servers,
                randbelow=lambda _, entries=entries: next(entries),  # type: ignore[misc]
            )
            downloaded += Fraction(sum(any(vector) for vector in vectors), servers - 1)
        expected = sum(Fraction(1, servers**i) for i in range(k))
        assert downloaded / servers ** (k - 1) == expected == wire.expected_cost(k, servers)
        assert expected <= Fraction(servers, servers - 1)


def test_topic_rows():
    """The rows within a topic are the quotients, and the parts together tell nothing of u and topic."""
    chain = MarkovChain(np.random.default_rng(0).dirichlet(np.ones(5), size=5))
    topics = Topics.from_lists({"a": [0, 1], "b": [2]}, chain)
    for part in topics.parts(chain.rows([0, 3])):
        given = chain.dense()[[0, 3]][:, part.sources]
        quotient = given / given.sum(axis=1, keepdims=True)
        assert part.rows.weights[part.rows.group] / UNIT == pytest.approx(quotient, abs=1e-15)
    audit = audit_exact(chain_of_two(), "optimal", parse("ON ON OFF"), topics={"a": [0]})
    assert audit.leak == 0


def chain_of_two() -> MarkovChain:
    return MarkovChain([[0.75, 0.25], [0.4, 0.6]])


def test_maximal_leakage():
    """What a table tells at most is what it says, and what any guess can gain."""
    rows = Rows.of([[0.75, 0.25], [0.25, 0.75]])
    table = design(rows, leak=0.3)
    assert isinstance(table, QueryTable)
    chances = np.array([table.block(k).sum(axis=1) for k in range(len(table))]) / UNIT
    found = math.log2(chances.max(axis=1).sum())
    assert found == pytest.approx(0.3, abs=1e-9)
    for prior in np.random.default_rng(0).dirichlet([1, 1], size=20):
        assert (chances * prior).max(axis=1).sum() <= 2**found * prior.max() + 1e-12


def test_announced_rows():
    """Past and future given, the next request has this law."""
    matrix = np.random.default_rng(1).dirichlet(np.ones(3), size=3)
    chain = MarkovChain(matrix)
    memory = Announced.of(LastQuery(chain, (0, 2), 2), 1, 2)
    ahead, later = np.linalg.matrix_power(matrix, 2), np.linalg.matrix_power(matrix, 3)
    expected = [matrix[u] * ahead[:, v] / later[u, v] for u in (0, 2) for v in range(3)]
    assert memory.rows.weights[memory.rows.group] / UNIT == pytest.approx(np.array(expected), abs=1e-12)
    assert memory.secret_row == 4
