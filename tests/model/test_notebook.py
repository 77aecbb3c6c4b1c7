"""What chains and bounds show of themselves: text, HTML whose names are no markup, and figures."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from tests.support.typed import as_a

import onoff
from onoff.audit.exact import audit_exact
from onoff.model.notebook import MOST_NOTEBOOK_CELLS
from onoff.session.seeded import SeededEntropy

P = [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]
NAMES = ["left", "<centre>", "right"]


def test_a_chain_shows_its_matrix() -> None:
    shown = onoff.MarkovChain(P, NAMES)._repr_html_()
    assert "<tr><th>&lt;centre&gt;</th><td>0.5</td><td>0.4</td><td>0.1</td></tr>" in shown
    assert "<centre>" not in shown
    assert "The first" not in shown


def test_of_a_large_chain_a_corner_is_shown() -> None:
    shown = onoff.MarkovChain(np.full((40, 40), 1 / 40))._repr_html_()
    assert f"The first {MOST_NOTEBOOK_CELLS} of 40 sources." in shown
    assert shown.count("<tr>") == MOST_NOTEBOOK_CELLS + 1


def test_bounds_show_each_with_its_side() -> None:
    found = onoff.bounds(P)
    assert repr(found) == "<Bounds: 3 rows over 3 sources, lower=1.6, inner=1.6>"
    shown = found._repr_html_()
    assert "<tr><th>at most</th><td>the paper&#x27;s inner bound</td><td>1.6</td></tr>" in shown
    assert "<td>everything</td><td>3</td>" in shown


def test_figures_are_drawn() -> None:
    chain = onoff.MarkovChain(P, NAMES)
    drawn = chain.plot().axes[0]
    assert [tick.get_text() for tick in drawn.get_yticklabels()] == NAMES
    assert np.array_equal(drawn.images[0].get_array(), P)
    assert [as_a(Rectangle, bar).get_height() for bar in onoff.bounds(P).plot().axes[0].patches] == [1.6, 1.6, 1.6, 3.0]
    table = onoff.design(chain, "greedy").plot()
    assert [tick.get_text() for tick in table.axes[0].get_yticklabels()] == NAMES
    assert as_a(Rectangle, table.axes[1].patches[2]).get_height() == pytest.approx(1.6)


def test_equal_chains_are_equal() -> None:
    one = onoff.MarkovChain(P, NAMES)
    assert one == onoff.MarkovChain(np.array(P), tuple(NAMES))
    assert hash(one) == hash(onoff.MarkovChain(P, NAMES))
    assert one != onoff.MarkovChain(P)
    assert one != onoff.MarkovChain(P, NAMES, initial=[1, 0, 0])
    assert one != onoff.MarkovChain([*P[:2], [0.2, 0.4, 0.4]], NAMES)
    assert one != P
    assert len({one, onoff.MarkovChain(P, NAMES)}) == 1


def test_a_session_tells_how_much_is_hidden_and_not_what() -> None:
    session = onoff.Session(onoff.MarkovChain(P, NAMES), "greedy", entropy=SeededEntropy(np.random.default_rng(1)))
    assert repr(session) == "<Session: 3 sources, not asked yet, nothing hidden>"
    session.request("left", private=True)
    assert repr(session) == "<Session: 3 sources, ON, 3 hidden>"
    sent = session.request("right", private=False)
    hidden = f"{len(sent)} hidden" if len(sent) > 1 else "nothing hidden"
    assert repr(session) == f"<Session: 3 sources, OFF, {hidden}>"


def test_a_model_shows_what_follows_each_request() -> None:
    """Two types of equal weight: what is shown is the mean of their laws after a single known request."""
    contexts = [(), (0,), (1,), (2,), (0, 1)]
    laws = np.array([[P[0], *P, [0.8, 0.1, 0.1]], [P[1], P[1], P[2], P[0], [0.1, 0.8, 0.1]]])
    model = onoff.RequestModel(laws, contexts, names=NAMES, weights=[0.5, 0.5])
    shown = model._repr_html_()
    assert "<tr><th>&lt;centre&gt;</th><td>0.35</td><td>0.45</td><td>0.2</td></tr>" in shown
    assert "2 types" in shown
    drawn = model.plot().axes[0]
    assert [tick.get_text() for tick in drawn.get_yticklabels()] == NAMES
    assert np.allclose(drawn.images[0].get_array(), laws[:, 1:4].mean(axis=0))


def test_sessions_and_audits_show_what_the_server_may_know() -> None:
    chain = onoff.MarkovChain(P, NAMES)
    pages = []
    for source in (0, 1, 2):
        session = onoff.Session(chain, "greedy")
        session.request(source, private=True)
        pages.append(session._repr_html_())
    assert pages[0] == pages[1] == pages[2]
    assert "one of 3 values" in pages[0]
    assert "Exact audit, private: exactly 0 bits" in audit_exact(chain, "greedy", (True, False))._repr_html_()
    naive = audit_exact(chain, "naive", (True, False))._repr_html_()
    assert "not private: 0.185 bits" in naive
    assert "&lt;centre&gt;" in naive
    assert "<centre>" not in naive
