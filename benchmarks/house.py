"""The size and shape of the code: what a reader of this project has to hold in the head.

    python benchmarks/house.py                            figures beside those of house-before.json
    python benchmarks/house.py --json                     the same for programs
    python benchmarks/house.py --root OTHER --json        of another version, counted alike
    python benchmarks/house.py --no-walks                 without the walks, which take half a minute

Counted are, from the syntax tree and never by running it but for the walks:

lines       of each room (a folder of the package): docstrings (any text that stands alone), imports, comments that have
            a line of their own, and the rest but for blank lines, which is code
files       how many, and the lines of the median and of the largest
walks       hops and files of `walks.py`, and the threads of the gateway
names       public functions and classes that are defined in two rooms, and files of one name in two rooms
tests       test functions; properties: tests that hypothesis draws for (`@given`) and state machines; uses of what
            begins with an underscore, but of `self`; constants (names in capitals) that are patched
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KINDS = ("code", "imports", "docstrings", "comments")
Figures = dict[str, dict[str, Any]]


def lines(path: Path, tree: ast.Module) -> Counter[str]:
    """How many lines of the file are of each kind; each line is of one."""
    text = path.read_text()
    kind = {number: "code" for number, line in enumerate(text.splitlines(), 1) if line.strip()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            name = "imports"
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            name = "docstrings"
        else:
            continue
        kind.update({number: name for number in range(node.lineno, (node.end_lineno or 0) + 1) if number in kind})
    with open(path, "rb") as opened:
        for token in tokenize.tokenize(opened.readline):
            if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
                kind[token.start[0]] = "comments"
    return Counter(kind.values())


def twice(places: dict[str, set[str]]) -> list[str]:
    return sorted(name for name, rooms in places.items() if len(rooms) > 1)


def measure_source(package: Path) -> Figures:
    """The figures of the package in this folder."""
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    sizes: list[int] = []
    names: dict[str, set[str]] = defaultdict(set)
    files: dict[str, set[str]] = defaultdict(set)
    parameters = 0
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text())
        inside = path.relative_to(package).parts
        room = inside[0] if len(inside) > 1 else "(top)"
        rooms[room] += lines(path, tree)
        sizes.append(len(path.read_text().splitlines()))
        if path.name != "__init__.py":
            files[path.name].add(room)
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                names[node.name].add(room)
            if isinstance(node, ast.ClassDef) and (room, node.name) == ("client", "Client"):
                made = next(f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__")
                parameters = len(made.args.posonlyargs + made.args.args + made.args.kwonlyargs) - 1
    figures: Figures = {f"lines of {room}": {kind: rooms[room][kind] for kind in KINDS} for room in sorted(rooms)}
    total = sum(rooms.values(), Counter())
    figures["lines"] = {kind: total[kind] for kind in KINDS} | {"all, with blank ones": sum(sizes)}
    figures["files"] = {"files": len(sizes), "median lines": statistics.median(sizes), "most lines": max(sizes)}
    figures["names"] = {
        "parameters of Client": parameters,
        "public names in two rooms": len(twice(names)),
        "file names in two rooms": len(twice(files)),
    }
    return figures


def noted(tree: ast.Module) -> Iterator[str]:
    """What counts in a file of tests, once for each time."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test_"):
                    yield "tests"
                if any("given" in ast.unparse(mark).partition("(")[0].split(".") for mark in node.decorator_list):
                    yield "properties"
            case ast.ClassDef(bases=bases) if any("RuleBasedStateMachine" in ast.unparse(base) for base in bases):
                yield "properties"
            case ast.Attribute(value=value, attr=attr) if attr[0] == "_" and not attr.endswith("__"):
                if not (isinstance(value, ast.Name) and value.id in {"self", "cls"}):
                    yield "private attributes used"
            case ast.ImportFrom(names=imported):
                yield from ("private attributes used" for name in imported if name.name[0] == "_")
            case ast.Call(func=ast.Attribute(attr="setattr"), args=arguments):
                words = [word.value for word in arguments if isinstance(word, ast.Constant)]
                if any(isinstance(word, str) and word.rpartition(".")[2].isupper() for word in words):
                    yield "constants patched"


def measure_tests(folder: Path) -> Figures:
    counted = Counter(dict.fromkeys(("tests", "properties", "private attributes used", "constants patched"), 0))
    for path in folder.rglob("*.py"):
        counted.update(noted(ast.parse(path.read_text())))
    return {"tests": dict(counted)}


def measure_walks(source: Path) -> Figures:
    """What `walks.py` counts, in processes of its own."""
    command = [sys.executable, str(HERE / "walks.py"), "--source", str(source)]
    counted = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {
        f"walk {name}": {key: figure[key] for key in figure if key != "functions"} for name, figure in counted.items()
    }


def measure(root: Path, walks: bool) -> Figures:
    figures = measure_source(root / "src" / "onoff") | measure_tests(root / "tests")
    return figures | (measure_walks((root / "src").absolute()) if walks else {})


def show(before: Figures, now: Figures) -> str:
    """Both side by side, a line for each figure."""
    rows = [f"{'':48}{'before':>10}{'now':>10}"]
    for group in sorted({*before, *now}, key=lambda group: (group.startswith("lines of"), group)):
        for name in {**before.get(group, {}), **now.get(group, {})}:
            then, today = (str(figures.get(group, {}).get(name, "-")) for figures in (before, now))
            rows.append(f"{group + ': ' + name:48}{then:>10}{today:>10}")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count lines, files, names, walks and tests.")
    parser.add_argument("--root", type=Path, default=HERE.parent, help="the folder of the project")
    parser.add_argument("--against", type=Path, default=HERE / "house-before.json", help="earlier figures, from --json")
    parser.add_argument("--no-walks", action="store_true", help="leave out what has to be run")
    parser.add_argument("--json", action="store_true", help="figures only")
    given = parser.parse_args()
    now = measure(given.root, walks=not given.no_walks)
    print(json.dumps(now, indent=1) if given.json else show(json.loads(given.against.read_text()), now))


if __name__ == "__main__":
    main()
