"""Makes the drawings of the article and the article itself: `make paper`. It takes pandoc and chromium.

python paper/build.py [FOLDER]      FOLDER/onoff.pdf; paper/_build unless given
"""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from onoff import MarkovChain
from onoff.cli import run
from onoff.lab.families import dirichlet

HERE = Path(__file__).parent
STYLE = (
    "<style>@page{size:A4;margin:22mm}body{font:10.5pt/1.45 serif;max-width:none;padding:0;color:#000}"
    "h1.title{font-size:17pt}h2{font-size:13pt}img{max-width:82%;display:block;margin:auto}figcaption{font-size:9pt}"
    "table{font-size:9.5pt;margin:1em auto}code{font-size:9pt}</style>"
)


def draw(folder: Path, *, n: int = 10, bits: str = "0:1.5:0.25", budget: str = "10") -> None:
    """The drawings, by the commands under them."""
    folder.mkdir(parents=True, exist_ok=True)
    chain = folder / "chain.json"
    MarkovChain(dirichlet(n, 0.3, np.random.default_rng(1))).save(chain)
    schemes = [word for name in ("single", "greedy", "race", "optimal") for word in ("--scheme", name)]
    for words in (
        ["compare", str(chain), *schemes, "--budget", budget, "--picture", str(folder / "schemes.svg")],
        ["design", str(chain), "--leak", bits, "--budget", budget, "--plot", "--picture", str(folder / "leak.svg")],
    ):
        if code := run(words):
            sys.exit(code)


def write(folder: Path) -> Path:
    """The article as PDF."""
    for program in ("pandoc", "chromium"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed; on Debian: apt-get install {program}")
    folder.mkdir(parents=True, exist_ok=True)
    style, page, pdf = folder / "style.html", folder / "onoff.html", folder / "onoff.pdf"
    style.write_text(STYLE)
    pandoc = ["pandoc", "onoff.md", "--standalone", "--self-contained", "--mathml", "--include-in-header", str(style)]
    subprocess.run([*pandoc, "--output", str(page)], cwd=HERE, check=True)
    chromium = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    subprocess.run([*chromium, f"--print-to-pdf={pdf}", page.as_uri()], check=True, capture_output=True)
    return pdf


if __name__ == "__main__":
    draw(HERE / "figures")
    print(write(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE / "_build"))
