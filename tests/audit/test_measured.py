"""The sentence that stands wherever zero bits are said; files are tested with the command that writes them."""

from tests.support.chains import P2

from onoff.audit.measured import measured_of, zero_in_words


def test_zero_is_never_said_alone():
    assert measured_of(P2) is None
    assert zero_in_words(None).startswith("0 bits if you behave like the model; not measured")
    measured = {"bits": 0.0213, "stderr": 0.0101, "after": 10, "naive_bits": 1.964, "users": 1000}
    assert zero_in_words(measured) == (
        "0 bits if you behave like the model; measured on 1000 real readers: 0.021 ± 0.010 bits after 10 OFF requests "
        "(naive switching: 1.96)."
    )
