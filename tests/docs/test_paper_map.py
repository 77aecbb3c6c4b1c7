"""The paper map points at modules and tests that exist, and leaves out nothing that is numbered."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "paper-map.md").read_text()


def test_every_module_and_test_it_names_exists():
    modules = set(re.findall(r"`(onoff(?:\.\w+)+)`", TEXT))
    assert len(modules) > 15
    assert [name for name in sorted(modules) if importlib.util.find_spec(name) is None] == []
    tests = set(re.findall(r"`(tests/[\w/]+\.py)`", TEXT))
    assert len(tests) > 10
    assert [name for name in sorted(tests) if not (ROOT / name).exists()] == []


def test_nothing_numbered_is_left_out():
    numbered = [
        *(f"Definition {k}" for k in (1, 2)),
        *(f"Theorem {k}" for k in (1, 2, 3)),
        *(f"Proposition {k}" for k in (1, 2)),
        *(f"Lemma {k}" for k in (2, 3)),
        "Corollary",
        "Example 1",
        "Algorithm 1",
        *(f"Table {k}" for k in (1, 3)),
        "Tables 4 and 5",
        *(f"Figure {k}" for k in (3, 4)),
        "Appendix D",
    ]
    assert [item for item in numbered if item not in TEXT] == []
