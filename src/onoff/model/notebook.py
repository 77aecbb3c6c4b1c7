"""HTML tables and figures of chains, models, bounds and other results, for notebooks.

Nothing is loaded from elsewhere and names are escaped. Of a large table the first rows and columns are shown, and a
note says how many are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff import figures
from onoff.model.rows import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from onoff.model.bounds import Bounds
    from onoff.model.chain import MarkovChain
    from onoff.model.contexts import RequestModel

MOST_NOTEBOOK_CELLS = 12
"""Rows and columns of a table in a notebook at most."""


def html_table(caption: str, head: Sequence[str], lines: Iterable[Sequence[Any]], rest: str = "") -> str:
    """An HTML table: the first cell of each line is its heading, numbers have six digits at most.

    >>> html_table("costs", ["", "messages"], [["<all>", 3.0]])
    '<table><caption>costs</caption><tr><th></th><th>messages</th></tr><tr><th>&lt;all&gt;</th><td>3</td></tr></table>'
    """
    rows = ["".join(f"<th>{_cell(cell)}</th>" for cell in head)]
    rows += [f"<th>{_cell(line[0])}</th>" + "".join(f"<td>{_cell(cell)}</td>" for cell in line[1:]) for line in lines]
    note = f"<p>{escape(rest)}</p>" if rest else ""
    return f"<table><caption>{escape(caption)}</caption>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>{note}"


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else escape(str(value))


def chain_html(chain: MarkovChain) -> str:
    """The transition matrix, or its first sources."""
    shown = chain.names[:MOST_NOTEBOOK_CELLS]
    lines = []
    for x, name in enumerate(shown):
        columns, weights = chain.row(x)
        row = dict(zip(columns.tolist(), weights.tolist(), strict=True))
        lines.append([name, *(round(row.get(y, 0.0), 4) for y in range(len(shown)))])
    rest = f"The first {len(shown)} of {chain.n} sources." if chain.n > len(shown) else ""
    return html_table(f"{chain.n} sources: this request, and the next", ["", *shown], lines, rest)


def bounds_html(found: Bounds) -> str:
    """Each bound, with its side."""
    return html_table(f"Messages to hide one of {found.m} rows over {found.n} sources", ["", "", ""], _sides(found))


def _sides(found: Bounds) -> list[tuple[str, str, float]]:
    return [
        ("at least", "no scheme costs less", found.lower),
        ("at least", "the paper's outer bound", found.outer),
        ("at most", "the paper's inner bound", found.inner),
        ("", "everything", float(found.n)),
    ]


def bounds_figure(found: Bounds) -> Figure:
    """The bounds side by side, and the cost of everything."""
    figure, (axes,) = figures.new_figure(inches=(5.6, 3.6))
    names, values = zip(*((f"{side}\n{name}".strip(), value) for side, name, value in _sides(found)), strict=True)
    colours = [figures.GREEN, figures.GREEN, figures.ORANGE, figures.GREY]
    axes.bar_label(axes.bar(names, values, color=colours), fmt="%.3g")
    axes.tick_params(axis="x", labelsize=8)
    axes.set_ylabel("expected messages")
    return figure


def after_one(model: RequestModel, sources: int) -> Floats:
    """The law of the next request where the last one is all that is known, over all types; for the first `sources`."""
    singles = [model.tree.number((x,)) or 0 for x in range(sources)]
    return np.stack([model.weights @ np.stack([model.law(z, c) for z in range(model.types)]) for c in singles])


def model_html(model: RequestModel) -> str:
    """What follows each request, where only that one is known; or its first sources."""
    shown = model.names[:MOST_NOTEBOOK_CELLS]
    laws = after_one(model, len(shown))[:, : len(shown)].round(4).tolist()
    rest = f"The first {len(shown)} of {model.n} sources. " if model.n > len(shown) else ""
    rest += "Where more than the last request is known, and who asks, the laws are sharper."
    lines = [[name, *law] for name, law in zip(shown, laws, strict=True)]
    return html_table(f"{model!r}: this request, and the next", ["", *shown], lines, rest)


def model_figure(model: RequestModel) -> Figure:
    """What follows each request where only that one is known, as a heat map."""
    return figures.transition_figure(after_one(model, model.n), model.names)


def chain_figure(chain: MarkovChain) -> Figure:
    """The transition matrix as a heat map."""
    return figures.transition_figure(chain.dense(), chain.names)
