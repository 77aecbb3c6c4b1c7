"""One look for all figures.

A colour for each line that no other has: Okabe and Ito's, which the colour-blind can tell apart, and three dark ones
where these do not suffice. Besides a marker and a dash of its own, so that nothing hangs on colour. Nothing is drawn on
a screen, and the same numbers give the same file.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onoff.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INCHES = (7.2, 4.4)
DOTS_PER_INCH = 130
MOST_NAMES = 40
"""Names of sources that are written along an axis at most."""


@dataclass(frozen=True)
class LineStyle:
    """How one quantity is drawn, wherever it appears."""

    colour: str
    marker: str
    dash: str

    def style(self, **more: Any) -> dict[str, Any]:
        return {"color": self.colour, "marker": self.marker, "linestyle": self.dash, "markersize": 5, **more}


BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
BLACK, GREY = "#000000", "#999999"
LINES = {
    "everything": LineStyle(BLACK, "", ":"),
    "paper": LineStyle(ORANGE, "s", "--"),
    "greedy": LineStyle("#E69F00", "^", "-."),
    "race": LineStyle(PURPLE, "v", "--"),
    "single": LineStyle("#56B4E9", "<", "-."),
    "optimal": LineStyle(BLUE, "o", "-"),
    "auto": LineStyle("#332288", "h", "-"),
    "enumerated": LineStyle("#882255", "D", "-"),
    "full": LineStyle("#5D4B1E", "x", ":"),
    "naive": LineStyle(GREY, "P", ":"),
    "lower": LineStyle(GREEN, "", "-"),
    "inner": LineStyle("#F0E442", "", "--"),
}
LABELS = {
    "everything": "everything, always",
    "paper": "paper (Algorithm 1, Bayes filter)",
    "naive": "naive switching (leaks)",
    "lower": "lower bound: nobody does better",
    "inner": "paper's inner bound",
}


def label(name: str) -> str:
    """What a line is called in legends."""
    return LABELS.get(name, name)


def new_figure(
    columns: int = 1,
    rows: int = 1,
    inches: tuple[float, float] = INCHES,
    widths: Sequence[float] | None = None,
) -> tuple[Figure, list[Axes]]:
    """An empty figure and its axes, row by row; `widths` are those of the columns beside one another."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("figures need matplotlib", extra="plot") from None
    figure = Figure(figsize=inches, layout="constrained")
    ratios = None if widths is None else list(widths)[:columns]
    axes = figure.subplots(rows, columns, squeeze=False, width_ratios=ratios).ravel().tolist()
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(axis="y", color="0.9", linewidth=0.8)
        one.set_axisbelow(True)
    return figure, axes


def add_legend(axes: Axes, **options: Any) -> None:
    """A legend where it covers the least.

    Matplotlib finds that place by itself, but warns where it took a second and was not asked to: on any busy machine.
    """
    axes.legend(**{"loc": "best", "frameon": False, **options})


def save(figure: Figure, path: Path) -> Path:
    """Write one figure in the format that its name says; the path."""
    from matplotlib import rc_context

    without_times = {".svg": {"Date": None}, ".png": {"Software": None}, ".pdf": {"CreationDate": None}}
    with rc_context({"svg.hashsalt": "onoff"}):  # the same numbers give the same file
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata=without_times[path.suffix.lower()])
    return path


def as_svg(figure: Figure) -> str:
    """One figure as SVG text, its labels as text."""
    from matplotlib import rc_context

    drawn = io.StringIO()
    with rc_context({"svg.hashsalt": "onoff", "svg.fonttype": "none"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()


def save_all(figures: Mapping[str, Figure], folder: Path, kind: str = "png") -> list[Path]:
    """Write every figure as `folder`/NAME.kind; the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [save(figure, folder / f"{name}.{kind}") for name, figure in figures.items()]


def transition_figure(matrix: Any, names: Sequence[str]) -> Figure:
    """A transition matrix as a heat map, with the names of the sources where they can be read."""
    figure, (axes,) = new_figure(inches=(6.4, 5.4))
    drawn = axes.imshow(matrix, cmap="cividis", vmin=0, vmax=1)
    axes.grid(visible=False)
    if len(names) <= MOST_NAMES:
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
        axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set(xlabel="next request", ylabel="this request")
    figure.colorbar(drawn, ax=axes, label="probability")
    return figure


def count_by_ones(axis: Axis) -> None:
    """Ticks at whole numbers only, for what is counted: there is no request 0.5."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def draw_costs(axes: Axes, times: Sequence[int], curves: Mapping[str, Sequence[float | None]]) -> None:
    """One line for each curve over requests, in its own colour, marker and dash; None leaves a hole."""
    count_by_ones(axes.xaxis)
    for name, values in curves.items():
        shown = [float("nan") if value is None else value for value in values]
        axes.plot(times, shown, label=label(name), **LINES[name].style())


def shade_private(axes: Axes, statuses: Sequence[bool | float]) -> None:
    """Grey behind the times at which privacy is ON, deeper where more users have it ON."""
    labelled = False
    for t, status in enumerate(statuses):
        if status:
            text = None if labelled else "privacy ON"
            axes.axvspan(t - 0.5, t + 0.5, color="0.5", alpha=0.25 * float(status), linewidth=0, label=text)
            labelled = True
