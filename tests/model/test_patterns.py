"""Patterns of ON and OFF."""

import pytest

from onoff.errors import InvalidPattern
from onoff.model.patterns import LONGEST_PATTERN, parse, pattern_text


def test_patterns_are_read_and_written_back():
    assert parse("ON OFF*3 on off") == (True, False, False, False, True, False)
    assert pattern_text(parse("ON OFF OFF OFF ON OFF")) == "ON OFF*3 ON OFF"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("ON OF", "word 2 of the pattern, 'OF', is not ON or OFF"),
        ("ON*0", "word 1 of the pattern, 'ON\\*0', repeats too often or never"),
        ("ON*-1", "word 1 .* is not ON or OFF"),
        ("ON OFF*x", "word 2 .* is not ON or OFF"),
        ("ON*9999999999", "word 1 .* is not ON or OFF"),
        ("ON OFF*100000", "word 2 .* repeats too often"),
        ("ON,OFF", "word 1 .* is not ON or OFF"),
    ],
)
def test_anything_else_is_refused_by_place(text, complaint):
    with pytest.raises(InvalidPattern, match=complaint):
        parse(text)


def test_the_longest_pattern_is_read():
    assert len(parse(f"ON OFF*{LONGEST_PATTERN - 1}")) == LONGEST_PATTERN
