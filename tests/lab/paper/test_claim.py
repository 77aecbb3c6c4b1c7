"""How expected and computed are compared: numbers to a tolerance, everything else exactly, errata both ways."""

import pytest

from onoff.lab.paper.claim import Claim, Claims, same, wrong_and_right


@pytest.mark.parametrize(
    ("expected", "got", "ok"),
    [
        (1.6, 1.6 + 1e-13, True),
        (1.6, 1.6 + 1e-11, False),
        (0, False, False),
        (True, 1, False),
        ([1, [2, 3]], [1, [2, 3.0]], True),
        ([1, 2], [1, 2, 3], False),
        ({"a": 1}, {"a": 1, "b": 0}, False),
        ({"a": [0.1]}, {"a": [0.2]}, False),
        ("x", "x", True),
        (1.0, "1.0", False),
        (None, 0, False),
        (0.0, float("nan"), False),
    ],
)
def test_same(expected, got, ok):
    assert same(expected, got) == (expected, got, ok) or got != got
    assert same(expected, got)[2] is ok


def test_an_erratum_must_be_wrong_as_printed_and_right_as_corrected():
    assert wrong_and_right(1.0, 2.0, 2.0)[2]
    assert not wrong_and_right(2.0, 2.0, 2.0)[2]
    assert not wrong_and_right(1.0, 3.0, 2.0)[2]


def test_claims_keep_their_order_and_their_arguments():
    claims = Claims()

    @claims.add("second", 2)
    @claims.add("first", 1)
    def check(number):
        return same(number, number)

    assert [(claim.item, claim.run().got) for claim in claims.listed] == [("first", 1), ("second", 2)]
    assert Claim("x", lambda: same(1, 2)).run().as_dict() == {"item": "x", "expected": 1, "got": 2, "ok": False}
