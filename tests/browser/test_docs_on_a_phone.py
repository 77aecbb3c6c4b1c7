"""The documentation on a phone: every formula fits or can be scrolled to, and subscripts are below the line."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.browser

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
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("html")
    subprocess.run([sys.executable, "-m", "sphinx", "-q", "-b", "html", str(ROOT / "docs"), str(folder)], check=True)
    return sorted(path for path in folder.rglob("*.html") if 'div class="math"' in path.read_text())


def test_formulas_fit_and_subscripts_are_below_the_line(chromium, pages):
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
