"""Pages: everything from outside is escaped, nothing is loaded, the same data gives the same page."""

import sys
from pathlib import Path

import pytest
from tests.support.chains import P2

from onoff.audit.exact import audit_exact
from onoff.audit.report import Part, page, plot_exact, plot_explanation, write
from onoff.errors import InvalidInput, MissingExtra
from onoff.lab.explain import explain
from onoff.model.patterns import parse


def test_what_comes_from_outside_is_escaped():
    evil = "<script>alert(1)</script>"
    text = page(evil, evil, True, [Part(evil, [evil], [evil], [[evil, 0.5]])])
    assert "<script>" not in text
    assert text.count("&lt;script&gt;") == 7
    assert "<td>0.5</td>" in text


def test_plots_are_repeatable_and_described():
    audit = audit_exact(P2, "naive", parse("ON OFF"))
    assert plot_exact(audit) == plot_exact(audit)
    assert plot_exact(audit).startswith('<svg role="img" aria-label="bits leaked at each step"')
    bars = plot_explanation(explain(P2, parse("ON OFF"), "single"))
    assert "80%" in bars
    assert "naive switching instead" in bars


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match="matplotlib"):
        plot_exact(audit_exact(P2, "single", parse("ON")))


def test_a_disk_that_is_full_when_the_report_is_written_is_named():
    with pytest.raises(InvalidInput, match="/dev/full: No space left"):
        write(Path("/dev/full"), "a report")
