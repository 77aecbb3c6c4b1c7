"""The architecture page is true: its picture has every room, and its walks name what is there."""

import ast
import re
from pathlib import Path

import pytest
from tests.test_imports import LAYERS, SOURCE

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
PICTURE = (Path(__file__).parents[2] / "docs" / "figures" / "architecture.svg").read_text()
PLACES = re.findall(r"`([\w/]+\.(?:py|js))` `([\w.]+)`", PAGE)
WALKS = re.findall(r"^\*\*(.+)\*\*\n\n((?:\d+\. .+\n)+)", PAGE, re.M)


def names_in(path: Path) -> set[str]:
    """Functions, classes and methods of a file."""
    if path.suffix == ".js":
        return set(re.findall(r"function (\w+)\(", path.read_text()))
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{item.name}" for item in inner}
    return found


@pytest.mark.parametrize(("file", "name"), sorted(set(PLACES)))
def test_every_place_that_the_page_names_exists(file: str, name: str) -> None:
    assert (SOURCE / file).exists(), file
    assert name in names_in(SOURCE / file)


def test_there_are_four_walks_of_ten_lines() -> None:
    assert [title for title, _ in WALKS] == [
        "A request while OFF",
        "`onoff design`",
        "A query at the server",
        "A click on the page",
    ]
    for title, lines in WALKS:
        assert lines.count("\n") == 10, title
        assert all(re.match(r"\d+\. `[\w/]+\.(py|js)` `", line) for line in lines.splitlines()), title


def test_picture_and_table_have_every_room() -> None:
    adapters = {"adapters", "httpx", "httpx2", "requests"}  # small files beside the rooms
    for room in (room for room in LAYERS if room not in adapters):
        assert f">{room}</text>" in PICTURE
        assert re.search(rf"^\| .*`{room}`", PAGE, re.M)
