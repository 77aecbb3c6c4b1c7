"""Every public name is documented with an example, and every example in a docstring runs."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import onoff

MODULES = sorted(
    found.name for found in pkgutil.walk_packages(onoff.__path__, "onoff.") if not found.name.endswith("__main__")
)
REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text()


def modules_with_examples():
    for name in MODULES:
        module = importlib.import_module(name)
        if ">>>" in inspect.getsource(module):
            yield name


@pytest.mark.parametrize("name", list(modules_with_examples()))
def test_examples_run(name):
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 0
    assert failed == 0


def is_error(name):
    found = getattr(onoff, name)
    return isinstance(found, type) and issubclass(found, onoff.OnOffError) and found is not onoff.OnOffError


@pytest.mark.parametrize(
    "name", [name for name in onoff.__all__ if callable(getattr(onoff, name)) and not is_error(name)]
)
def test_every_public_name_shows_an_example(name):
    found = getattr(onoff, name)
    found = getattr(found, name, found)  # `onoff.model.bounds` is a module that stands for its function
    assert ">>>" in (inspect.getdoc(found) or ""), f"onoff.{name} has no example"


@pytest.mark.parametrize("name", onoff.__all__)
def test_every_public_name_is_in_the_reference(name):
    assert re.search(rf"^\.\. auto\w+:: onoff\.[a-z.]+\.{name}$|^\.\. automodule:: {home(name)}$", REFERENCE, re.M)


def home(name):
    return f"onoff.{onoff._HOME.get(name, 'errors')}"
