"""Patterns of ON and OFF."""

import pytest

from onoff.errors import InvalidPattern
from onoff.pattern import parse, show


def test_patterns_are_read_and_written_back():
    assert parse("ON OFF*3 on off") == (True, False, False, False, True, False)
    assert show(parse("ON OFF OFF OFF ON OFF")) == "ON OFF*3 ON OFF"


@pytest.mark.parametrize(
    "text", ["", "  ", "ON OF", "ON*0", "ON*-1", "OFF*x", "ON*9999999999", "OFF*100001", "1", "ON,OFF"]
)
def test_anything_else_is_refused_by_place(text):
    with pytest.raises(InvalidPattern):
        parse(text)
