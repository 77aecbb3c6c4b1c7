"""The examples run as they are, and say what they are about."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "departures.py": ("ON   ", "the site was asked for all 11 stops", "always private would have taken 55"),
    "weather.py": ("all 12 places", "OFF  Turin: the site was asked for", "4 requests for 4 sets"),
    "encyclopedia.py": ("all 12 articles", "OFF  Fugue: the site was asked for", "would have taken 48"),
    "packages.py": ("ON   vault 7.19: the index was asked for 12 packages", "OFF  charts 5.19", "/simple/charts/"),
    "news_reader.py": ("private ones were left out", "the server sees: front", "told about the private requests: 0"),
    "street_grid.py": ("ON  at", "would tell", "request 4:"),
    "notebook.py": ("small diagonal", "leak 0", "naive switching"),
}


def test_every_example_is_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*SAYS, "local_site.py"}  # what the others share


@pytest.mark.slow(reason="programs are started and waited for")
@pytest.mark.parametrize("name", SAYS)
def test_it_runs(name):
    command = [sys.executable, "-W", "error", str(EXAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in SAYS[name]:
        assert words in done.stdout
