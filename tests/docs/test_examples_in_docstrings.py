"""Every public name is documented with an example, and every example in a docstring runs."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import onoff

MODULES = sorted(
    found.name for found in pkgutil.walk_packages(onoff.__path__, "onoff.") if not found.name.endswith("__main__")
)


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


@pytest.mark.parametrize("name", [name for name in onoff.__all__ if callable(getattr(onoff, name))])
def test_every_public_name_shows_an_example(name):
    found = getattr(onoff, name)
    found = getattr(found, name, found)  # `onoff.bounds` is a module that stands for its function
    assert ">>>" in (inspect.getdoc(found) or ""), f"onoff.{name} has no example"
