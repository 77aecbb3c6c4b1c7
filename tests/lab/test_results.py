"""The results page: made from little work, section by section, with and without the data set."""

import re
import zipfile

import numpy as np
import pytest

from onoff.audit import traces
from onoff.lab.families import browsing
from onoff.lab.results import build, msnbc
from onoff.lab.results.build import write_results
from onoff.lab.results.page import markdown_table
from onoff.model.chain import MarkovChain

pytestmark = pytest.mark.slow(reason="whole experiments are run")

SPEC = 'schemes = ["greedy", "race", "optimal"]\n[[chain]]\nfamily = "ring"\nn = [3, 4]\n'


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A made-up data set in the MSNBC format, a short sweep, and where the page goes."""
    rng = np.random.default_rng(0)
    chain = MarkovChain(browsing(5, rng))
    head = "% Different categories found in input file:\n\nfront news tech local travel\n\n\n% Sequences:\n\n"
    lines = "\n".join(" ".join(str(x + 1) for x in chain.sample(14, rng)) for _ in range(300))
    with zipfile.ZipFile(tmp_path / build.DATA_FILE, "w") as packed:
        packed.writestr("x.seq", head + lines)
    (tmp_path / "families.toml").write_text(SPEC)
    monkeypatch.setenv("ONOFF_DATA", str(tmp_path))
    monkeypatch.setattr(traces, "FEWEST_CASES", 50)  # what is found here is not judged
    places = [
        "--docs",
        str(tmp_path / "docs"),
        "--work",
        str(tmp_path / "w"),
        "--spec",
        str(tmp_path / "families.toml"),
    ]
    return tmp_path, ["--quick", *places]


@pytest.mark.slow(reason="makes the whole page of results, small")
def test_the_page_has_every_section_and_figure(small):
    folder, options = small
    write_results(options)
    page = (folder / "docs" / "results.md").read_text()
    assert re.findall(r"<!-- section (\w+) -->", page) == list(build.SECTIONS)
    shown = set(re.findall(r"\(figures/([\w-]+\.png)\)", page))
    assert shown == {path.name for path in (folder / "docs" / "figures").iterdir()}
    assert len(shown) == 10
    assert page.count("* Made by `") == len(shown)
    assert "| ring | 4 |" in page
    assert "300 users" in page


def test_one_section_is_made_again_and_missing_data_is_said(small, monkeypatch, capsys):
    folder, options = small
    write_results([*options, "--only", "location"])
    page = folder / "docs" / "results.md"
    first = page.read_text()
    assert "Not made yet" in first
    monkeypatch.setenv("ONOFF_DATA", str(folder / "nowhere"))
    page.write_text(first.replace("Not made yet", "Kept from before", 1))
    write_results([*options, "--only", "msnbc"])
    assert "no data set at" in capsys.readouterr().err
    second = page.read_text()
    assert "Kept from before" in second
    assert "Location on a street grid" in second
    write_results([*options, "--only", "location"])
    assert page.read_text() == second


def test_real_requests_are_those_of_users_with_enough(small):
    folder, _ = small
    found = msnbc._requests(folder / build.DATA_FILE, users=7, steps=11)
    assert found.shape == (7, 11)
    assert msnbc._requests(folder / build.DATA_FILE, users=7, steps=15).shape == (0, 15)


def test_tables():
    assert (
        markdown_table(("a", "b"), [("x", 1.23456), ("y", 2)])
        == "| a | b |\n| --- | ---: |\n| x | 1.235 |\n| y | 2 |\n"
    )
