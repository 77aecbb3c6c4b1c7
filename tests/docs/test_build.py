"""The pages build without a warning, load nothing from elsewhere, and the generated ones are fresh."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.typed import present

pytestmark = pytest.mark.slow(reason="all pages are built, and their examples run")

ROOT = Path(__file__).parents[2]


@pytest.mark.slow(reason="builds all pages")
def test_the_pages_build_without_a_warning_and_load_nothing_from_elsewhere(tmp_path):
    build = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(ROOT / "docs"), str(tmp_path)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 20
    loads = re.compile(
        r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"'](?:https?:)?//|<link[^>]*\shref=[\"'](?:https?:)?//"
    )
    assert [page.name for page in pages if loads.search(page.read_text())] == []
    assert "<math" in (tmp_path / "explanation" / "bounds.html").read_text()


def test_the_page_of_commands_is_fresh(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["onoff"])  # the usage lines name the program that runs
    location = importlib.util.spec_from_file_location("generate_cli", ROOT / "docs" / "generate_cli.py")
    generator = importlib.util.module_from_spec(present(location))
    present(present(location).loader).exec_module(generator)
    assert generator.TARGET.read_text() == generator.page(), "run `python docs/generate_cli.py`"
