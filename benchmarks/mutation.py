"""Mutation testing: change the code in one small place, run its tests, and see whether any of them notices.

    python benchmarks/mutation.py [--module table ...] [--sample K] [--seed S] [--jobs J] [--json FILE]

Every mutant is one of these changes to one node of a module's syntax tree:

    comparison   == and !=, < and <=, > and >=, `in` and `not in`, `is` and `is not` change places
    logic        `and` and `or` change places; `not` is dropped; the condition of an `if` is turned round
    arithmetic   + and -, * and //, << and >>, & and | change places; whole numbers grow by one; True and False swap
    statements   a call that stands alone, a raise or an augmented assignment is left out; a return returns None

Docstrings, annotations, messages and what is only for reading (repr, str) stay as they are. A mutant is *killed* if a
test fails, errs or does not end in time; survivors are printed with their line. Those listed in SURVIVORS were looked
at and change nothing that can be told; they carry the reason and do not count against the score.

The interpreter with everything heavy is started once and forked for every mutant, which gets the changed module from an
import hook: nothing is written to disk, and the package on disk is never touched.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib.abc
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOAL = 0.9
LONGEST = 120.0
"""Seconds that a mutant may take; or ten times as long as its tests take as they are, if that is more."""

MODULES: dict[str, list[str]] = {
    "onoff.tables.table": [
        "tests/tables/test_table.py",
        "tests/schemes/test_single.py",
        "tests/session/test_session.py",
    ],
    "onoff.session.memory": ["tests/session/test_session.py", "tests/audit/test_exact.py"],
    "onoff.session.session": ["tests/session/test_session.py", "tests/audit/test_exact.py"],
    "onoff.client.core": [
        "tests/client/test_core.py",
        "tests/client/test_client.py",
        "tests/client/test_answers.py",
        "tests/client/test_private.py",
    ],
    "onoff.gateway.guard": ["tests/gateway/test_guard.py"],
}

SURVIVORS: dict[str, dict[tuple[str, str], str]] = {
    "onoff.session.session": {
        ("True/False", "return Query((x,), self.chain.n), memory.after((x,), x, private=False, table=None)"): (
            "with one row only, the memory after it has one row again"
        ),
    },
    "onoff.tables.table": {
        ("plus one", "listed = np.array([cell for cell in cells if cell[3] > 0], dtype=np.int64).reshape(-1, 4)"): (
            "numpy takes any negative size for what is left over"
        ),
        (
            "plus one",
            "if ends != (self.rows.distinct + 1, 0, len(self.slots), len(self.slots)) "
            "or (np.diff(self.starts) < 0).any():",
        ): "a row without cells, which holds less than its budget and is refused for that",
        (
            "Lt to LtE",
            "if ends != (self.rows.distinct + 1, 0, len(self.slots), len(self.slots)) "
            "or (np.diff(self.starts) < 0).any():",
        ): "the same",
        ("plus one", "MOST_SHOWN = 16"): "how many queries are printed, for readers",
        ("plus one", "renamed = np.zeros(max(len(queries), 1), dtype=np.int64)"): "a spare entry that nothing reads",
        ("GtE to Gt", "missing = (slot >= len(keys)) | (keys[np.minimum(slot, len(keys) - 1)] != wanted)"): (
            "a slot beyond the last key is clipped to it, and then differs from it"
        ),
        (
            "plus one",
            "table = cls(rows, offsets, items, np.zeros(0, dtype=np.int64), starts, slots, total, **labels)",
        ): "the array is replaced in the next line",
        (
            "True/False",
            "return Fraction(sum(int(m) * int(s) for m, s in zip(self.mass, self.sizes, strict=True)), UNIT)",
        ): "both sides always have the same length",
        **{
            (
                kind,
                "same_row[inner[(inner > 0) & (inner < len(self.slots))] - 1] = False",
            ): "a row without cells fails its sums anyway"
            for kind in ("Gt to GtE", "Lt to LtE", "BitAnd to BitOr")
        },
        ("LtE to Lt", "return self.gap is not None and self.gap <= OPTIMAL_GAP"): "a gap of exactly 1e-6",
    },
    "onoff.session.memory": {
        ("True/False", line): "both sides always have the same length"
        for line in (
            "for mass, (sources, units) in zip(belief, following, strict=True):",
            "for y, unit in zip(sources.tolist(), units.tolist(), strict=True):",
        )
    },
    "onoff.client.core": {
        ("True/False", "self.checked = False"): "set again when the journal is opened, before it is read",
    },
    "onoff.gateway.guard": {
        ("left out", 'raise RuntimeError("only HTTP is served")'): "no server of ours speaks anything else",
    },
}
"""Module -> {(kind of change, line of code): why no test could tell}."""

COMPARISONS = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
FOR_READERS = {"__repr__", "__str__", "__doc__", "_decimal"}


@dataclass(frozen=True)
class Mutant:
    """One change of a module: its line, what kind it is, what it changes, and the line of code as it was."""

    module: str
    line: int
    kind: str
    changed: str
    code: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.kind}: {self.changed} | {self.code}"

    @property
    def excuse(self) -> str | None:
        return SURVIVORS.get(self.module, {}).get((self.kind, self.code))


# -- making mutants ------------------------------------------------------------------------------------------


def mutants(module: str) -> list[Mutant]:
    """Every mutant of a module."""
    path = (ROOT / "src").joinpath(*module.split(".")).with_suffix(".py")
    text = path.read_text()
    tree, lines = ast.parse(text), text.splitlines()
    found = []
    for index in range(len(list(_places(tree)))):
        changed = copy.deepcopy(tree)
        node, kind = list(_places(changed))[index]
        line, was = node.lineno, ast.unparse(node).splitlines()[0][:90]
        _apply(changed, node)
        found.append(Mutant(module, line, kind, was, lines[line - 1].strip(), ast.fix_missing_locations(changed)))
    return found


def _places(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Each (node, change) in a fixed order."""
    for node in _code(tree):
        match node:
            case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
                yield node, f"{type(operator).__name__} to {COMPARISONS[type(operator)].__name__}"
            case ast.BoolOp():
                yield node, "and/or"
            case ast.UnaryOp(op=ast.Not()):
                yield node, "not dropped"
            case ast.BinOp(op=operator) if type(operator) in OPERATORS and not _texts(node):
                yield node, f"{type(operator).__name__} to {OPERATORS[type(operator)].__name__}"
            case ast.Constant(value=bool()):
                yield node, "True/False"
            case ast.Constant(value=int()):
                yield node, "plus one"
            case ast.If() | ast.IfExp():
                yield node, "condition turned round"
            case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
                yield node, "returns None"
            case ast.Raise() | ast.AugAssign():
                yield node, "left out"
            case ast.Expr(value=ast.Call()):
                yield node, "left out"


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that do something: no annotations, decorators, texts, `TYPE_CHECKING` or functions for readers."""
    for name, value in ast.iter_fields(tree):
        if name in {"annotation", "returns", "type_params", "decorator_list"}:
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr):
                continue
            if isinstance(node, ast.FunctionDef) and node.name in FOR_READERS:
                continue
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
                continue
            yield node
            yield from _code(node)


def _texts(node: ast.BinOp) -> bool:
    return any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in (node.left, node.right))


def _apply(tree: ast.Module, node: ast.AST) -> None:
    match node:
        case ast.Compare():
            node.ops = [COMPARISONS[type(node.ops[0])]()]
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.UnaryOp():
            _replace(tree, node, node.operand)
        case ast.BinOp():
            node.op = OPERATORS[type(node.op)]()
        case ast.Constant():
            node.value = (not node.value) if isinstance(node.value, bool) else node.value + 1
        case ast.If() | ast.IfExp():
            node.test = ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=node.test), node.test)
        case ast.Return():
            node.value = ast.copy_location(ast.Constant(value=None), node)
        case _:
            _replace(tree, node, ast.copy_location(ast.Pass(), node))


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list) and any(entry is old for entry in value):
                setattr(parent, name, [new if entry is old else entry for entry in value])
                return


# -- running them --------------------------------------------------------------------------------------------


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the changed module to whoever imports it."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self.module, self.tree = module, tree

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name == self.module else None

    def exec_module(self, module):
        exec(compile(self.tree, f"<mutant of {self.module}>", "exec"), module.__dict__)  # noqa: S102


def start(module: str, tree: ast.Module | None) -> int:
    """Fork a child that runs the module's tests, changed or as they are; its exit code is pytest's."""
    child = os.fork()
    if child:
        return child
    os.setpgid(0, 0)  # ended as a group; a session of its own would leave the background class
    os.chdir(ROOT)
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    if tree is not None:
        sys.meta_path.insert(0, Changed(module, tree))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # loading plugins takes longer than most mutants live
    import pytest

    for tests in MODULES[module]:  # one by one: most mutants do not live to see the second
        code = int(pytest.main(["-x", "-q", "-p", "pytest_timeout", "-p", "no:cacheprovider", tests]))
        if code:
            break
    os._exit(code)


def run(chosen: list[Mutant], jobs: int, longest: float = LONGEST, report=print) -> tuple[list[Mutant], list[Mutant]]:
    """The mutants that no test noticed, and those that did not end in time."""
    waiting, running, survivors, late = list(chosen), {}, [], []
    done = 0
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop(0)
            running[start(mutant.module, mutant.tree)] = (mutant, time.monotonic())
        time.sleep(0.05)
        for child, (mutant, since) in list(running.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if not ended and time.monotonic() - since > longest:
                late.append(mutant)
                os.killpg(child, signal.SIGKILL)
                ended, status = os.waitpid(child, 0)
            if ended:
                del running[child]
                done += 1
                if os.waitstatus_to_exitcode(status) == 0:
                    survivors.append(mutant)
                    report(f"survived  {mutant}")
                if done % 25 == 0:
                    report(f"{done} of {len(chosen)} mutants, {len(survivors)} survived")
    return survivors, late


def warm_up() -> None:
    """Load what is heavy and not ours, once for all mutants."""
    for name in ("numpy", "scipy.optimize", "scipy.stats", "scipy.sparse", "pytest", "h11", "sqlite3"):
        importlib.import_module(name)
    gc.freeze()


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutation testing of the parts that privacy hangs on.")
    parser.add_argument("--module", nargs="*", default=list(MODULES), help="e.g. onoff.tables.table")
    parser.add_argument("--sample", type=int, help="so many mutants of each module, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    warm_up()
    results, good = {}, True
    for module in given.module:
        since = time.monotonic()
        child = start(module, None)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            print(f"{module}: its tests fail as they are; run {' '.join(MODULES[module])}")
            return 1
        every = mutants(module)
        rng = random.Random(given.seed)
        chosen = every if given.sample is None else rng.sample(every, min(given.sample, len(every)))
        longest = max(LONGEST, 10 * (time.monotonic() - since))
        survivors, late = run(chosen, given.jobs, longest, lambda line: print(line, file=sys.stderr, flush=True))
        open_ = [mutant for mutant in survivors if mutant.excuse is None]
        score = 1 - len(open_) / max(1, len(chosen) - len(survivors) + len(open_))
        good &= score >= GOAL
        results[module] = {
            "mutants": len(every),
            "tried": len(chosen),
            "killed": len(chosen) - len(survivors),
            "late": [str(mutant) for mutant in late],
            "excused": [f"{mutant} ({mutant.excuse})" for mutant in survivors if mutant.excuse is not None],
            "survived": [str(mutant) for mutant in open_],
            "score": score,
        }
        print(
            f"{module}: {len(chosen)} of {len(every)} mutants, {len(survivors)} survived, "
            f"{len(late)} did not end in time, score {score:.1%}",
            flush=True,
        )
        for mutant in open_:
            print(f"    {mutant}")
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
