"""The pages build without a warning and load nothing from elsewhere; on a phone every formula fits.

One build serves both: the first test needs no browser.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
FORMULAS = """() => {
  const wrong = [];
  for (const box of document.querySelectorAll("div.math")) {
    const number = box.querySelector(".eqno")?.getBoundingClientRect();
    for (const math of box.querySelectorAll("math")) {
      const at = math.getBoundingClientRect();
      const apart = !number || at.right <= number.left || at.bottom <= number.top + 1;
      if (at.left < 0 || at.right > innerWidth || !apart) wrong.push(math.textContent);
    }
  }
  return wrong;
}"""
SUBSCRIPTS = """() => [...document.querySelectorAll("msub")].map((sub) => {
  const [base, below] = [...sub.children].map((part) => part.getBoundingClientRect());
  return [sub.textContent, below.bottom - base.bottom, below.height / base.height];
})"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The folder of the pages, and what was said while they were built."""
    folder = tmp_path_factory.mktemp("html")
    build = ["-W", "--keep-going", "-q", "-b", "html", str(ROOT / "docs"), str(folder)]
    return folder, subprocess.run([sys.executable, "-m", "sphinx", *build], capture_output=True, text=True, check=False)


@pytest.mark.slow(reason="builds all pages")
def test_the_pages_build_without_a_warning_and_load_nothing_from_elsewhere(built):
    folder, done = built
    assert done.returncode == 0, done.stderr[-3000:]
    pages = sorted(folder.rglob("*.html"))
    assert len(pages) > 20
    loads = re.compile(
        r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"'](?:https?:)?//|<link[^>]*\shref=[\"'](?:https?:)?//"
    )
    assert [page.name for page in pages if loads.search(page.read_text())] == []
    assert "<math" in (folder / "explanation" / "bounds.html").read_text()


@pytest.mark.browser
def test_formulas_fit_and_subscripts_are_below_the_line(chromium, built):
    pages = sorted(path for path in built[0].rglob("*.html") if 'div class="math"' in path.read_text())
    assert len(pages) >= 5
    page = chromium.new_page(viewport={"width": 390, "height": 844})
    page.set_default_timeout(1000 * PATIENCE)
    seen = 0
    for path in pages:
        page.goto(path.as_uri())
        assert page.evaluate(FORMULAS) == [], path.name
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path.name
        capitals = [found for found in page.evaluate(SUBSCRIPTS) if found[0][0].isupper()]
        assert [name for name, lower, _ in capitals if lower <= 0] == [], path.name
        seen += len(capitals)
        assert "\\" not in "".join(page.eval_on_selector_all("math", "all => all.map((one) => one.textContent)"))
    assert seen > 10
    page.close()
