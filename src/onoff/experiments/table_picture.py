"""A table of queries as a picture: what is asked how often, and what it costs beside its bounds.

Left, a heat map: a column for each of the likeliest queries, a line for each source, dark where the query asks for the
source, as dark as the query is likely. Right, bars: the cost between the bounds and "everything".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from onoff import figures
from onoff.errors import InvalidInput, MissingExtra
from onoff.model.rows import UNIT
from onoff.tables.table import QueryTable

MOST_QUERIES = 120
MOST_NAMES = 40
"""Sources whose names are written beside the map."""


def draw_table(path: Path, built: Any, report: Mapping[str, Any], names: Sequence[str]) -> None:
    """Write the picture of `built` (a table, or a race, which has bars only) to `path`; its suffix is the format."""
    check_picture(path)
    from matplotlib.figure import Figure

    with_map = isinstance(built, QueryTable)
    figure = Figure(figsize=(11, 5) if with_map else (5, 5), layout="constrained")
    panels = figure.subplots(1, 2, width_ratios=[3, 1]) if with_map else [None, figure.subplots()]
    if with_map:
        _heat_map(panels[0], built, names)
    _bars(panels[1], built, report)
    figures.save(figure, path)


def check_picture(path: Path) -> None:
    """Refuse a picture that cannot be drawn, before the work behind it."""
    if path.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise InvalidInput(f"{path}: not the name of a picture", hint="let it end in .png, .svg or .pdf")
    if find_spec("matplotlib") is None:
        raise MissingExtra("pictures need matplotlib", extra="plot")


def _heat_map(axes: Any, built: QueryTable, names: Sequence[str]) -> None:
    likely = np.argsort(-built.mass, kind="stable")[:MOST_QUERIES]
    columns = built.rows.columns
    asked = np.zeros((len(columns), len(likely)))
    for place, k in enumerate(likely):
        asked[np.searchsorted(columns, built.query(int(k))), place] = built.mass[k] / UNIT
    shown = axes.imshow(asked, aspect="auto", cmap="Blues", interpolation="nearest", vmin=0)
    axes.figure.colorbar(shown, ax=axes, label="probability of the query")
    rest = len(built) - len(likely)
    axes.set_xlabel("queries, likeliest first" + (f" ({rest} more)" if rest else ""))
    if len(columns) <= MOST_NAMES:
        axes.set_yticks(range(len(columns)), [names[x] for x in columns.tolist()])
    else:
        axes.set_ylabel("source")
    axes.set_title(f"{built.scheme}: which sources each query asks for")


def _bars(axes: Any, built: Any, report: Mapping[str, Any]) -> None:
    bars = {
        "outer bound": report["outer"],
        "lower bound": report["lower_bound"],
        "this table": report["cost"],
        "inner bound": report["inner"],
        "everything": float(len(built.rows.columns)),
    }
    colours = [figures.GREEN, figures.GREEN, figures.BLUE, figures.ORANGE, figures.GREY]
    drawn = axes.bar(list(bars), list(bars.values()), color=colours)
    axes.bar_label(drawn, fmt="%.3g")
    axes.tick_params(axis="x", rotation=60)
    axes.set_ylabel("expected messages")
