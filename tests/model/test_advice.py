"""Advice: one word for a model, from what its file says of its origin and of audits."""

import pytest

from onoff.model.origin import OWN, advice_of

AUDIT = {
    "users": 300,
    "after": 10,
    "bits": 0.03,
    "stderr": 0.01,
    "naive_bits": 2.0,
    "difference": -1.97,
    "difference_stderr": 0.05,
    "cost": 80.0,
    "everything": 170,
    "history": "none",
}


def audited(**figures):
    return {"measured": {**AUDIT, **figures}}


@pytest.mark.parametrize(
    ("about", "word"),
    [
        (audited(), "off"),
        (audited(bits=0.15, naive_bits=2.7), "off"),  # below a tenth of naive
        (audited(bits=0.095), "off"),
        (audited(bits=0.095, naive_bits=0.5), "warn"),  # within an error of a tenth of a bit
        (audited(bits=0.3), "warn"),
        (audited(bits=0.3, cost=100.0), "stay-on"),  # dear and leaky
        (audited(cost=110.0), "stay-on"),  # saves next to nothing: people who stay where they are
        (audited(cost=100.0), "off"),
        (audited(bits=0.02, naive_bits=0.03, difference=-0.01, difference_stderr=0.02), "warn"),  # hardly below naive
        (audited(bits=0.01, naive_bits=0.01, difference=0.0), "stay-on"),
        (audited(bits=1.19, naive_bits=0.16, difference=1.03), "stay-on"),
        ({}, "warn"),
        ({"trace": {"users": 3, "requests": 50}}, "stay-on"),  # learnt, and no audit
        ({"trace": {"users": 3000, "requests": 50000}, **audited()}, "off"),
        ({"guess": "sticky"}, "stay-on"),
        ({"guess": "sticky", **audited()}, "stay-on"),
        ({"trace": {"whose": OWN, "requests": 50}}, "stay-on"),
        ({"measured": {"bits": 0.0}}, "warn"),  # an audit of an earlier version, without what naive switching tells
        ({"measured": "much"}, "warn"),
    ],
)
def test_the_word(about, word):
    assert advice_of(about).word == word


def test_what_was_not_measured_is_said_not_to_be_and_never_called_zero():
    for about in ({}, {"guess": "sticky"}, audited(history="open")):
        advice = advice_of(about)
        assert not advice.measured
        assert "0 bits" not in advice.says
    assert "Not measured" in advice_of({}).says
    assert "0.030 ± 0.010 bits" in advice_of(audited()).says


def test_sessions_that_know_the_history_have_an_audit_of_their_own():
    about = {"audits": {"none": {**AUDIT, "bits": 2.0, "difference": -0.6, "cost": 90.0}, "open": {**AUDIT}}}
    assert (advice_of(about).word, advice_of(about, "open").word) == ("stay-on", "off")
    assert advice_of({"audits": {"none": AUDIT}}, "open").word == "warn"
