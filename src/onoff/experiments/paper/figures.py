"""The paper's two plots, drawn from computed numbers, as SVG and PNG.

Figure 3(b): rates of the symmetric chain of three sources one step after a private request, against alpha.
Figure 4: the best rate of two sources against t - tau, for four values of alpha + beta.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onoff import figures
from onoff.experiments.paper import printed
from onoff.experiments.paper.theorems import symmetric_chain
from onoff.figures import BLACK, BLUE, GREEN, ORANGE, PURPLE
from onoff.model.bounds import bounds, symmetric_cost, two_source_cost

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def save_figures(directory: Path) -> list[Path]:
    """Draw both figures into `directory`, which is made if need be; the files, in order."""
    drawn = {"figure-3b-symmetric-chain": symmetric_figure(), "figure-4-rate": rate_figure()}
    directory.mkdir(parents=True, exist_ok=True)
    return [
        figures.save(figure, directory / f"{name}.{kind}") for name, figure in drawn.items() for kind in ("svg", "png")
    ]


def symmetric_figure() -> Figure:
    """Figure 3(b): the paper's bounds on the rate, and where between them the optimum is."""
    figure, axes = _axes("Symmetric chain of 3 sources, one request after a private one")
    alphas = [k / 300 for k in range(301)]
    found = [bounds(symmetric_chain(3, alpha)) for alpha in alphas]
    axes.plot(alphas, [1 / b.inner for b in found], color=BLUE, linewidth=3, label=r"paper: reached $R_t^I$")
    axes.plot(alphas, [1 / b.outer for b in found], color=ORANGE, linestyle="--", label=r"paper: at most $R_t^O$")
    marked = [k / 20 for k in range(21)]
    optimum = [1 / symmetric_cost(3, alpha, 1) for alpha in marked]
    axes.plot(marked, optimum, color=BLACK, linestyle="", marker="o", markersize=3.5, label="optimum")
    axes.axvline(1 / 3, color="0.6", linewidth=0.8)
    axes.annotate(r"$\alpha = 1/N$", (1 / 3, 0.31), xytext=(5, 0), textcoords="offset points", color="0.35")
    axes.set(xlabel=r"$\alpha$, probability of asking for the same source again", ylabel=r"rate $R_t$ (1 / messages)")
    axes.set(xlim=(0, 1), ylim=(0.3, 1.03))
    axes.legend(loc="upper right", frameon=False)
    return figure


def rate_figure() -> Figure:
    """Figure 4: how the rate recovers after a private request."""
    figure, axes = _axes("Two sources: the best rate after a private request")
    styles = ((BLUE, "<"), (ORANGE, "x"), (GREEN, "o"), (PURPLE, "D"))
    since = range(21)
    for total, (color, marker) in zip(printed.RATE_CURVES, styles, strict=True):
        rates = [1 / two_source_cost(float(total) / 2, float(total) / 2, k) for k in since]
        axes.plot(since, rates, color=color, marker=marker, markersize=5, label=total)
    axes.set(xlabel=r"$t - \tau$, requests since the last private one", ylabel=r"rate $R_t$ (1 / messages)")
    axes.set(xlim=(-0.4, 20.4), ylim=(0.48, 1.02), xticks=range(0, 21, 2))
    axes.legend(title=r"$\alpha + \beta$", loc="lower right", frameon=False)
    return figure


def _axes(title: str) -> tuple[Figure, Axes]:
    figure, (axes,) = figures.new_figure()
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(axis="x", color="0.9", linewidth=0.8)
    return figure, axes
