"""House words: what people read says things directly. `make lint` checks the spelling (codespell)."""

import re

import pytest
from tests.support.pages import ROOT

READ = (
    *ROOT.glob("*.md"),
    *(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "src").rglob("*.js"),
    *(ROOT / "src").rglob("*.html"),
)

SAY = {
    "in both positions of the switch": "whether the switch is ON or OFF",
    "right more often": "the attacker's gain in accuracy",
    "the past stays hidden": "the server sees this request, but not what you read while ON",
    "a guess, and it says so": "a starter model, not learnt from data",
    "for all that it may have been": "whatever that request was",
    "however it was turned": "however it was changed",
    "how likely each source is to it": "how likely the server considers each source",
    "is none of theirs": "a file that onoff did not create",
    "called by its title": "named after its title",
    "people give away who are not like": "what people who deviate from the model reveal",
    "too few to choose": "not enough data to choose a model",
    "goes on looking": "is running and keeps trying",
    "publishes not kept": "cannot store messages",
    "what people read now tells": "what you read now is correlated with what you read before",
    "asked openly; what was private": "opening a source is visible to the server",
    "utilize": "use",
    "in order to": "to",
    "please note": "(nothing)",
    "simply put": "(nothing)",
}


@pytest.mark.parametrize("path", READ, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_people_read_is_said_directly(path):
    text = re.sub(r"\s+", " ", path.read_text(encoding="utf-8")).lower()
    assert [f"{phrase!r}: say {better!r}" for phrase, better in SAY.items() if phrase in text] == []
