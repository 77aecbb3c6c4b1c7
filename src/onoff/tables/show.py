"""A table for people: as text as the paper prints it, and as HTML in a notebook.

A block for each u, a line for each x, a column for each query. Sources have their names where the table knows them,
else numbers from 1 as in the paper. Of a large table the queries with the most mass are shown, and how many are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff import figures
from onoff.errors import InvalidInput, MissingExtra
from onoff.model.bounds import Bounds, bounds
from onoff.model.notebook import html_table
from onoff.model.rows import UNIT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from onoff.tables.table import QueryTable


MOST_SHOWN = 16
"""Queries, rows and sources that are shown of a table at most."""
LONGEST_WORD = 16
"""Letters of a name that are shown at most."""


def table_text(table: QueryTable) -> str:
    """The table as text."""
    head, *lines = _cells(table)
    width = [max(len(cell) for cell in column) for column in zip(head, *lines, strict=True)]
    blank = "-" * (sum(width) + 2 * (len(width) - 1))
    text = [_line(head, width)]
    for before, line in zip([head, *lines], lines, strict=False):
        text += [blank] * (line[0] != before[0]) + [_line(line, width)]
    return "\n".join([*text, *_rest(table)])


def table_html(table: QueryTable) -> str:
    """The table as HTML."""
    head, *lines = _cells(table)
    return html_table(repr(table), head, lines, " ".join(_rest(table)).strip())


def _line(cells: list[str], width: list[int]) -> str:
    return "  ".join(cell.rjust(size) for cell, size in zip(cells, width, strict=True))


def _cells(table: QueryTable) -> Iterator[list[str]]:
    """The heading, a line for each u and x, and the masses of the queries with the cost."""
    source, hidden = _names(table)
    shown = np.sort(np.argsort(-table.mass, kind="stable")[:MOST_SHOWN]).tolist()
    queries, blocks = [table.query(k) for k in shown], [table.block(k) for k in shown]
    yield ["u", "x", *("{" + ",".join(map(source, q)) + "}" for q in queries), "budget"]
    for u, r in enumerate(table.rows.group[:MOST_SHOWN].tolist()):
        for c, x in enumerate(table.rows.columns[:MOST_SHOWN].tolist()):
            masses = [
                _decimal(int(block[r, q.index(x)])) if x in q else "." for q, block in zip(queries, blocks, strict=True)
            ]
            yield [hidden(u), source(x), *masses, _decimal(int(table.rows.weights[r, c]))]
    yield ["", "mass", *(_decimal(int(table.mass[k])) for k in shown), f"cost {table.cost:.6g}"]


def _names(table: QueryTable) -> tuple[Callable[[int], str], Callable[[int], str]]:
    """How a source is called, and how a hidden value: it is a source where there is a row for each."""
    names = table.names

    def source(x: int) -> str:
        return str(x + 1) if names is None else _short(names[x])

    def number(u: int) -> str:
        return str(u + 1)

    return source, source if table.rows.m == table.rows.n else number


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_WORD else f"{name[: LONGEST_WORD - 1]}…"


def _rest(table: QueryTable) -> Iterator[str]:
    if max(len(table), table.rows.m, len(table.rows.columns)) > MOST_SHOWN:
        sizes = f"{len(table)} queries, {table.rows.m} rows, {len(table.rows.columns)} sources"
        yield f"   ({sizes} in all; at most {MOST_SHOWN} of each are shown)"


def _decimal(units: int) -> str:
    """Six digits; less than 1e-12, which comes from rounding, is written as "~0"."""
    if 0 < units < UNIT // 10**12:
        return "~0"
    return f"{units / UNIT:.6g}"


# Left, a heat map: a column for each of the likeliest queries, a line for each source, as dark as the query is
# likely. Right, bars: the cost between the bounds and "everything".

MOST_QUERIES = 120


def draw_table(path: Path, built: Any, names: Sequence[str]) -> None:
    """Write the picture of `built` (a table, or a race, which has bars only) to `path`; its suffix is the format."""
    check_picture(path)
    figures.save(_figure(built, names), path)


def draw_curve(path: Path, points: Sequence[Mapping[str, Any]]) -> None:
    """Write the picture of costs and lower bounds against the budgets of leakage that they are for."""
    figure, (axes,) = figures.new_figure()
    bits = [point["budget"] for point in points]
    axes.plot(bits, [point["cost"] for point in points], label="this table", **figures.LINES["optimal"].style())
    bounds_drawn = figures.LINES["lower"].style()
    axes.plot(bits, [point["lower_bound"] for point in points], label=figures.label("lower"), **bounds_drawn)
    axes.set_xlabel("bits of maximal leakage")
    axes.set_ylabel("expected messages")
    axes.set_ylim(bottom=0)
    figures.add_legend(axes)
    figures.save(figure, path)


def draw_schemes(path: Path, costs: Mapping[str, float], bound: float | None) -> None:
    """Write the picture of what schemes cost side by side, and what none can go below."""
    figure, (axes,) = figures.new_figure()
    axes.barh(list(costs), list(costs.values()), color=figures.LINES["optimal"].style()["color"])
    axes.invert_yaxis()
    if bound is not None:
        style = {name: value for name, value in figures.LINES["lower"].style().items() if name != "marker"}
        axes.axvline(bound, label=figures.label("lower"), **style)
        figures.add_legend(axes, loc="lower right", frameon=True)
    axes.set_xlabel("expected messages of a request")
    figures.save(figure, path)


def table_figure(table: QueryTable) -> Figure:
    """The picture of a table, with numbers from 1 where it does not know the names of the sources."""
    return _figure(table, table.names or [str(x + 1) for x in range(table.rows.n)])


def _figure(built: Any, names: Sequence[str]) -> Figure:
    with_map = hasattr(built, "queries")
    figure, panels = figures.new_figure(2 if with_map else 1, inches=(11, 5) if with_map else (5, 5), widths=[3, 1])
    if with_map:
        _heat_map(panels[0], built, names)
    _bars(panels[-1], built, bounds(built.rows))
    return figure


def check_picture(path: Path) -> None:
    """Raise InvalidInput where a picture cannot be drawn, before the table is built."""
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
    axes.grid(visible=False)
    shown = axes.imshow(asked, aspect="auto", cmap="Blues", interpolation="nearest", vmin=0)
    axes.figure.colorbar(shown, ax=axes, label="probability of the query")
    rest = len(built) - len(likely)
    axes.set_xlabel("queries, likeliest first" + (f" ({rest} more)" if rest else ""))
    if len(columns) <= figures.MOST_NAMES:
        axes.set_yticks(range(len(columns)), [names[x] for x in columns.tolist()])
    else:
        axes.set_ylabel("source")
    axes.set_title(f"{built.scheme}: which sources each query asks for")


def _bars(axes: Any, built: Any, found: Bounds) -> None:
    bars = {
        "outer bound": found.outer,
        "lower bound": found.lower if built.lower_bound is None else built.lower_bound,
        "this table": built.cost,
        "inner bound": found.inner,
        "everything": float(len(built.rows.columns)),
    }
    colours = [figures.GREEN, figures.GREEN, figures.BLUE, figures.ORANGE, figures.GREY]
    drawn = axes.bar(list(bars), list(bars.values()), color=colours)
    axes.bar_label(drawn, fmt="%.3g")
    axes.tick_params(axis="x", rotation=60)
    axes.set_ylabel("expected messages")
