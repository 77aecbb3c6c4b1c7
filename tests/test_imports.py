"""The import graph: no cycle, nothing imports what stands above it, and light parts stay light."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import onoff
from onoff import errors

SOURCE = Path(onoff.__file__).parent

# From the bottom up: a part may import parts that stand before it, and itself.
LAYERS = [
    "errors",
    "names",
    "system",
    "figures",
    "model",
    "tables",
    "schemes",
    "session",
    "information",
    "wire",
    "upstream",
    "server",
    "client",
    "adapters",
    "httpx",
    "httpx2",
    "requests",
    "audit",
    "lab",
    "gateway",
    "cli",
]


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(("onoff", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        yield name, path


def imports(path, *, at_run_time_only):
    """Our own modules that a file imports, by full name; `TYPE_CHECKING` blocks are for readers, not for Python."""
    tree = ast.parse(path.read_text())
    if at_run_time_only:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING":
                node.body = [ast.Pass()]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "onoff")
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "onoff":
            for alias in node.names:
                deeper = SOURCE.joinpath(*node.module.split(".")[1:], f"{alias.name}.py")
                yield f"{node.module}.{alias.name}" if deeper.exists() else node.module


def part(module):
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else None


def test_every_part_has_its_layer():
    assert {part(name) for name, _ in modules()} - {None, "__main__"} <= set(LAYERS)


def test_imports_point_downwards():
    wrong = []
    for name, path in modules():
        if part(name) is None:
            continue  # the package itself names everything, and loads it on demand
        for target in imports(path, at_run_time_only=True):
            if part(target) is not None and LAYERS.index(part(target)) > LAYERS.index(part(name)):
                wrong.append(f"{name} imports {target}")
    assert wrong == []


def test_there_is_no_cycle_of_modules():
    graph = {name: set(imports(path, at_run_time_only=True)) - {name} for name, path in modules() if part(name)}
    open_: list[Any] = []
    done = set()

    def visit(name):
        assert name not in open_, f"cycle: {' -> '.join([*open_[open_.index(name) :], name])}"
        if name in done or name not in graph:
            return
        open_.append(name)
        for target in sorted(graph[name]):
            # a package's own __init__ may be named by its parts through the package
            visit(target)
        open_.pop()
        done.add(name)

    for name in sorted(graph):
        visit(name)


def test_the_walk_sees_an_upward_import(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from onoff.session import Session\n    import onoff.cli\n")
    assert sorted(imports(bad, at_run_time_only=True)) == ["onoff.cli", "onoff.session"]


def loaded_by(statement):
    program = f"import sys\n{statement}\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


HEAVY = {"scipy", "highspy", "numba", "starlette", "uvicorn", "matplotlib", "dask", "distributed", "pyarrow"}


@pytest.mark.parametrize(
    "statement",
    ["import onoff", "from onoff import Session, MarkovChain, design, bounds", "from onoff import Client"],
)
def test_importing_the_library_loads_numpy_at_most(statement):
    assert not loaded_by(statement) & HEAVY


def test_the_server_does_not_load_chains_or_schemes():
    """Of the parts that know them it loads none; of `upstream` what opens connections, and no more."""
    every = ", ".join(name for name, _ in modules() if part(name) == "server")
    loaded = {name for name in loaded_by(f"import {every}") if name.startswith("onoff.")}
    assert {part(name) for name in loaded} == {"errors", "names", "system", "wire", "upstream", "server"}
    assert {name for name in loaded if part(name) == "upstream"} == {"onoff.upstream", "onoff.upstream.transport"}


def test_bounds_is_a_function_whatever_was_imported_before():
    program = "import onoff.model.bounds, onoff; assert onoff.bounds([[0.5, 0.5]]).lower == 1"
    subprocess.run([sys.executable, "-c", program], check=True)
    subprocess.run([sys.executable, "-c", "import onoff; assert onoff.bounds([[1.0]]).lower == 1"], check=True)


def test_every_error_of_the_tree_is_at_the_top() -> None:
    tree = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert tree <= set(onoff.__all__)
    assert all(getattr(onoff, name) is getattr(errors, name) for name in tree)


# Names that several modules may define, and why.
SHARED_NAMES = {
    "Transport": "of each HTTP library that is adapted, and of our own: the word that the field has for it",
    "Board": "of a search, what its strategies share; and of a page of the gateway",
    "MessageServer": "the server itself, and the upstream by which a client asks one",
    "NAME": "of a scheme: every module of `schemes` has one, and its Scheme record names it",
    "Problem": "that a search solves; and of an answer, in the words of HTTP",
    "build": "of a scheme: likewise",
    "claims": "of a part of the paper: what it states, collected by `lab.paper`",
    "log": "the logger of its module",
}


def public_names(tree):
    """The public classes, functions and values that a module defines at its top level."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found = [node.name]
        elif isinstance(node, ast.Assign):
            found = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found = [node.target.id]
        else:
            found = []
        yield from (name for name in found if not name.startswith("_"))


def homes_of_names(sources):
    """The modules that define each public name, from (module, source) pairs."""
    homes: dict[Any, Any] = {}
    for module, source in sources:
        for name in public_names(ast.parse(source)):
            homes.setdefault(name, set()).add(module)
    return homes


def test_a_public_name_has_one_home():
    homes = homes_of_names((name, path.read_text()) for name, path in modules())
    shared = {name: sorted(where) for name, where in homes.items() if len(where) > 1}
    assert {name: where for name, where in shared.items() if name not in SHARED_NAMES} == {}
    assert set(SHARED_NAMES) <= set(shared)  # the list holds nothing else


def test_the_test_of_names_sees_classes_functions_and_values():
    first = "class A: ...\ndef f(): ...\nasync def g(): ...\nx = 1\ny: int = 2\n_hidden = 3\n"
    homes = homes_of_names([("one", first), ("two", first), ("three", "def h():\n    x = 1\n")])
    assert homes == {name: {"one", "two"} for name in ("A", "f", "g", "x", "y")} | {"h": {"three"}}
