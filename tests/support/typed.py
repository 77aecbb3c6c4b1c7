"""What a test knows of a value and its declared type does not say."""

from typing import TypeVar

_T = TypeVar("_T")


def present(value: _T | None) -> _T:
    """`value`, which is not None."""
    assert value is not None
    return value


def as_a(kind: type[_T], value: object) -> _T:
    """`value`, which is of this kind."""
    assert isinstance(value, kind), type(value)
    return value
