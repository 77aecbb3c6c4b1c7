"""Docstrings: a function of the public API with more than two parameters says in a section what each of them is."""

import ast
import inspect
import re
import textwrap

import onoff

MANY = 2
"""Parameters up to which a sentence does."""
SECTION = re.compile(r"^ *Parameters\n *-+\n(.*?)(?=^ *\w+\n *-{3,}$|^ *>>>|\Z)", re.MULTILINE | re.DOTALL)


def functions(tree, inside=()):
    """Every public function of a module and method of its public classes, by its qualified name."""
    for node in tree.body:
        if getattr(node, "name", "_").startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from functions(node, (*inside, node.name))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (*inside, node.name), node


def parameters(node):
    """The names of the parameters without self; what is after ** may be told elsewhere."""
    given = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return given[given[:1] in (["self"], ["cls"]) :]


def told(node):
    """The names that the section of parameters explains; None where there is no section."""
    found = SECTION.search(ast.get_docstring(node) or "")
    if found is None:
        return None
    heads = [line for line in found[1].splitlines() if line and not line.startswith(" ")]
    return {name.strip() for head in heads for name in head.split(",")}


def exempt(name, node):
    """Commands, whose help cyclopts makes; overloads; kernels; claims of the paper, called with its numbers."""
    marks = " ".join(ast.unparse(mark) for mark in node.decorator_list)
    return name[-1].endswith("_command") or any(
        word in marks for word in ("_app.command", "overload", "kernel", "claims")
    )


def untold(sources):
    """What functions with many parameters do not explain, from pairs of a name and its source."""
    found = [(module, name, node) for module, text in sources for name, node in functions(ast.parse(text))]
    contracts = {name[-1] for _, name, node in found if len(name) > 1 and told(node) is not None}
    for module, name, node in found:
        names, section = parameters(node), told(node)
        if len(names) <= MANY or exempt(name, node):
            continue
        if section is None:
            if len(name) == 1 or name[-1] not in contracts:  # a method of an interface is explained there
                yield f"{module} {'.'.join(name)}: no section"
        elif missing := [one for one in names if one not in section]:
            yield f"{module} {'.'.join(name)}: {missing}"


def test_many_parameters_of_the_public_api_are_explained():
    public = [
        value for name in onoff.__all__ if callable(value := getattr(onoff, name)) and name not in dir(onoff.errors)
    ]
    assert len(public) > 8
    assert list(untold((value.__name__, textwrap.dedent(inspect.getsource(value))) for value in public)) == []


def test_the_test_sees_what_is_missing():
    section = "Sum.\n\n    Parameters\n    ----------\n    a, b\n        Numbers.\n"
    lacking = f'def f(a, b, c):\n    """{section}    """\n'
    assert list(untold([("m", lacking)])) == ["m f: ['c']"]
    assert list(untold([("m", lacking.replace("a, b\n", "a, b, c\n"))])) == []
    assert list(untold([("m", "class A:\n    def f(self, a, b, c): ...\n")])) == ["m A.f: no section"]
    assert list(untold([("m", "class A:\n    def f(self, a, b): ...\ndef _g(a, b, c): ...\n")])) == []
