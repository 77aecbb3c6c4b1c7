"""The pages that are generated are fresh. That all build without a warning: tests/browser/test_docs.py."""

import importlib.util
import sys
from pathlib import Path

import pytest
from tests.support.typed import present

pytestmark = pytest.mark.slow(reason="the help of every command is written out")

ROOT = Path(__file__).parents[2]


def test_the_page_of_commands_is_fresh(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["onoff"])  # the usage lines name the program that runs
    location = importlib.util.spec_from_file_location("generate_cli", ROOT / "docs" / "generate_cli.py")
    generator = importlib.util.module_from_spec(present(location))
    present(present(location).loader).exec_module(generator)
    assert generator.TARGET.read_text() == generator.page(), "run `python docs/generate_cli.py`"
