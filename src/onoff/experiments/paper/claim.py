"""A claim of the paper, and the result of checking it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

PRINTED = 1e-12
"""How far a number may be from a printed decimal: the roundings of the chain to units and of the sums to floats."""

PROGRAM = 1e-9
"""How far the cost of a table proposed by a linear program may be: HiGHS meets its constraints to 1e-10."""


@dataclass(frozen=True)
class Item:
    """One line of the reproduction: what the paper says (or must be corrected to), and what was computed."""

    item: str
    expected: Any
    got: Any
    ok: bool

    def as_dict(self) -> dict[str, Any]:
        """The same as plain numbers, lists and text."""
        return asdict(self)


@dataclass(frozen=True)
class Claim:
    """A named check that has not run yet."""

    item: str
    check: Callable[[], tuple[Any, Any, bool]]

    def run(self) -> Item:
        """Compute, compare, report."""
        expected, got, ok = self.check()
        return Item(self.item, expected, got, ok)


class Claims:
    """The claims of one module, in the order in which they stand there."""

    def __init__(self) -> None:
        self.listed: list[Claim] = []

    def add(
        self, item: str, *arguments: Any
    ) -> Callable[[Callable[..., tuple[Any, Any, bool]]], Callable[..., tuple[Any, Any, bool]]]:
        """Register the decorated check, called with `arguments`, under this name."""

        def register(check: Callable[..., tuple[Any, Any, bool]]) -> Callable[..., tuple[Any, Any, bool]]:
            self.listed.append(Claim(item, lambda: check(*arguments)))
            return check

        return register


def same(expected: Any, got: Any, tolerance: float = PRINTED) -> tuple[Any, Any, bool]:
    """Both, and whether they agree: numbers to `tolerance`, anything else exactly, collections element by element."""
    return expected, got, _agree(expected, got, tolerance)


def wrong_and_right(printed: Any, corrected: Any, measured: Any, tolerance: float = PRINTED) -> tuple[Any, Any, bool]:
    """An erratum: what is printed must differ from what was measured, what it is corrected to must not."""
    ok = _agree(corrected, measured, tolerance) and not _agree(printed, measured, tolerance)
    return {"printed": printed, "corrected": corrected}, measured, ok


def _agree(expected: Any, got: Any, tolerance: float) -> bool:
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and expected.keys() == got.keys()
            and all(_agree(value, got[key], tolerance) for key, value in expected.items())
        )
    if isinstance(expected, list | tuple):
        return (
            isinstance(got, list | tuple)
            and len(expected) == len(got)
            and all(_agree(a, b, tolerance) for a, b in zip(expected, got, strict=True))
        )
    if isinstance(expected, bool | str) or expected is None:
        return type(expected) is type(got) and bool(expected == got)
    return isinstance(got, int | float) and not isinstance(got, bool) and abs(expected - got) <= tolerance
