"""Every notebook runs, from its first cell to its last, and shows a figure and a table."""

import nbformat
import pytest
from nbclient import NotebookClient
from tests.support.pages import ROOT

BOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def kinds(book: nbformat.NotebookNode) -> set[str]:
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    return {kind for output in outputs for kind in output.get("data", {})}


def test_there_are_four() -> None:
    assert [book.stem for book in BOOKS] == ["attacker", "paper", "scheme", "your_trace"]


@pytest.mark.slow(reason="starts a kernel, which compiles and draws")
@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_every_notebook_runs(path, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    book = nbformat.read(path, as_version=4)
    kept = kinds(book)
    assert kept >= {"image/png", "text/html"}  # what is read without running it
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(book, timeout=300, kernel_name="python3", resources=resources).execute()
    assert kinds(book) == kept
    errors = [o for cell in book.cells if cell.cell_type == "code" for o in cell.outputs if o.output_type == "error"]
    assert errors == []
