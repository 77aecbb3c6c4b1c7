"""Every error that a user can meet says how to mend it: `hint` is given wherever one is raised."""

import ast
from pathlib import Path

import onoff
from onoff import errors

SOURCE = Path(onoff.__file__).parent
WITHOUT = {"InvalidTable", "PrivacyBreach", "MissingExtra"}
"""A wrong table or a breach is nothing that a user mends; MissingExtra writes its own hint."""
OURS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.OnOffError) and name not in WITHOUT
}


def raised(path):
    """Name, line and keywords of every error that a module raises."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            yield node.exc.func.id, node.lineno, {keyword.arg for keyword in node.exc.keywords}


def test_every_error_has_a_hint():
    seen, bare = 0, []
    for path in sorted(SOURCE.rglob("*.py")):
        for name, line, keywords in raised(path):
            if name in OURS:
                seen += 1
                bare += [] if "hint" in keywords else [f"{path.relative_to(SOURCE)}:{line} {name}"]
    assert not bare
    assert seen > 150  # the search finds them at all
