"""The documentation is true: every command and code block runs, links resolve, versions agree."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from tests.support.pages import ROOT, blocks, script

import onoff
from onoff.cli import app

pytestmark = pytest.mark.slow(reason="all pages are built, and their examples run")

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PAGES = [page for page in PAGES if "_build" not in page.parts]
RUNNABLE = [page for page in PAGES if any(language in {"sh", "python"} for language, _ in blocks(page))]
SHOWN_ONLY = ("make ", "docker ", "systemctl ", "sudo ", "git ", "source .venv/bin/activate", "pip install ")


def short(page):
    return str(page.relative_to(ROOT))


@pytest.mark.slow(reason="runs every block of a page, servers and all")
@pytest.mark.parametrize("page", RUNNABLE, ids=short)
def test_every_block_runs(page, tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ours = {"PATH": path, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    fonts = {"MPLCONFIGDIR": mpl.get_cachedir()}  # or each page makes the list of all fonts again
    environment = {**os.environ, **ours, **fonts}
    with script(page) as text:
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_blocks_that_are_only_shown_are_of_known_kinds(page):
    for language, body in blocks(page):
        assert language in {"sh", "python", "console", "json", "text", "toml"}, language
        if language == "console" and page.name != "cli.md":  # tests/cli/test_help.py parses the examples of commands
            for line in filter(None, body.splitlines()):
                if line.startswith("onoff "):
                    app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)
                else:
                    assert line.startswith(SHOWN_ONLY), line


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_links_between_pages_resolve(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{short(page)} links to {target}"


def test_make_commands_that_the_pages_name_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {
        found
        for page in PAGES
        for language, body in blocks(page)
        if language in {"console", "sh"}
        for found in re.findall(r"^make ([a-z-]+)", body, re.M)
    }
    assert named
    assert named <= targets


def test_versions_agree():
    assert f"## {onoff.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {onoff.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_the_costs_in_the_readme_are_those_of_the_results_page():
    def rows(text, columns):
        for line in text.splitlines():
            cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
            if len(cells) == columns and re.fullmatch(r"[\d.]+", cells[-1]):
                yield cells

    readme = (ROOT / "README.md").read_text().split("## What it costs")[1].split("##")[0]
    families = (ROOT / "docs" / "results.md").read_text().split("<!-- section families -->")[1].split("![")[0]
    measured = {tuple(f"{float(cell):.2f}" for cell in (c[2], c[3], c[5], c[6])) for c in rows(families, 7)}
    shown = [tuple(cells[1:]) for cells in rows(readme, 5)]
    assert len(shown) >= 8
    assert [row for row in shown if row not in measured] == []
