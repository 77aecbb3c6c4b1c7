"""Every item of the paper, one test each: what is computed is what is printed, or what it must be corrected to."""

import pytest

from onoff.lab.paper import CLAIMS, claim, tables, theorems

NUMBERED = [
    *("Introduction:", "Table 1:", "Table 3 (a)", "Table 3 (b)", "Table 3 (c)", "Table 4:", "Table 5:"),
    *(
        "Theorem 1 ",
        "Theorem 2 ",
        "Theorem 3:",
        "Corollary ",
        "Lemma 2:",
        "Lemma 3:",
        "Proposition 1:",
        "Proposition 2:",
    ),
    *(
        "Example 1:",
        "Algorithm 1:",
        "Figure 3(b):",
        "Figure 4:",
        "Section V-A:",
        "Section VI:",
        "Section VII:",
        "Appendix D:",
    ),
    *("Privacy by enumeration, ON OFF OFF OFF", "Privacy by enumeration, ON OFF ON OFF OFF"),
    "Privacy by enumeration, ON ON OFF OFF",
    *(f"E{number}:" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13)),
]


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.item.split(" (")[0])
def test_item(claim):
    item = claim.run()
    assert item.ok, f"{item.item}\nexpected {item.expected}\ngot      {item.got}"


@pytest.mark.parametrize("start", NUMBERED)
def test_nothing_numbered_is_left_out(start):
    assert any(claim.item.startswith(start) for claim in CLAIMS)


def test_no_two_items_have_the_same_name():
    assert len({claim.item for claim in CLAIMS}) == len(CLAIMS) >= 20


def moved(table, key, query, value):
    return {**table, key: {**table[key], query: value}}


@pytest.mark.parametrize(
    ("name", "value", "check"),
    [
        ("TABLE_1", moved(claim.TABLE_1, (0, 0), (0,), 0.26), tables.table_1),
        ("TABLE_4", moved(claim.TABLE_4, (1, 1), (1,), "0.2"), tables.table_4),
        ("TABLE_4", moved(claim.TABLE_4, (1, 1), (1,), "0.2"), tables.table_4_block_sums),
        ("ORDERING", ((0, 0, 1), (2, 2, 2), (1, 1, 0)), tables.table_5_orderings),
        ("LAMBDAS", (0.5, 0.9, 1.61), tables.table_5_lambdas),
        ("THETAS", (0.5, 0.41, 0.09), tables.table_5_thetas),
        ("RATE_1", 0.5, tables.introduction_rates),
        ("RATE_CURVES", {"0.4": (*claim.RATE_CURVES["0.4"][:20], 0.99996344)}, lambda: theorems.figure_4("0.4")),
    ],
)
def test_a_wrong_number_is_noticed(monkeypatch, name, value, check):
    assert check()[2]
    monkeypatch.setattr(claim, name, value)
    assert not check()[2]
