"""Figures of every result file: simulations, sweeps, learnt chains and models, the reproduction of the paper."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.errors import InvalidInput
from onoff.figures import (
    LINES,
    add_legend,
    count_by_ones,
    draw_costs,
    label,
    new_figure,
    shade_private,
    transition_figure,
)
from onoff.lab.sweep import read_rows
from onoff.model.chain import LARGEST_FILE
from onoff.model.contexts import RequestModel, load_model
from onoff.model.notebook import model_figure
from onoff.model.rows import Floats
from onoff.system.files import read_limited

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_DRAWN_LAWS = 200
"""Sources up to which laws are drawn."""
MIXING_STEPS = 50
"""Requests after which a type's law of sources is drawn: by then the first ones hardly show."""


def model_figures(model: RequestModel) -> dict[str, Figure]:
    """Types, transitions after a single known request, and the models that were tried, as far as each can be drawn."""
    found = {}
    if model.n <= MOST_DRAWN_LAWS:
        found["types"] = types_figure(model)
        found["transition"] = model_figure(model)
    tried = model.about.get("model", model.about).get("tried")
    if tried:
        found["tried"] = tried_figure(tried)
    if tried and any(one.get("leak") is not None for one in tried):
        found["leaks"] = leaks_figure(tried)
    return found


def types_figure(model: RequestModel) -> Figure:
    """What each type requests in the long run, the commonest type first."""
    order = np.argsort(-model.weights, kind="stable")
    shares = np.stack([usage(model, int(z)) for z in order])
    figure, (axes,) = new_figure(inches=(6.4, 1.6 + 0.16 * max(model.types, 8)))
    drawn = axes.imshow(shares, cmap="cividis", vmin=0, aspect="auto")
    axes.grid(visible=False)
    if model.n <= 40:
        axes.set_xticks(range(model.n), model.names, rotation=90, fontsize=8)
    labels = [f"{model.weights[z]:.1%}" for z in order]
    axes.set_yticks(range(model.types), labels, fontsize=7)
    axes.set(xlabel="source", ylabel="type, by its share of people")
    figure.colorbar(drawn, ax=axes, label="share of its requests")
    return figure


def usage(model: RequestModel, type_: int) -> Floats:
    """The law of the request that a person of a type makes after STEPS others."""
    laws = np.stack([model.law(type_, c) for c in range(len(model.contexts))])
    after = model.next(np.arange(len(laws))[:, None], np.arange(model.n)[None])
    contexts = np.zeros(len(laws))
    contexts[0] = 1
    for _ in range(MIXING_STEPS):
        contexts = np.asarray(
            np.bincount(after.ravel(), (contexts[:, None] * laws).ravel(), minlength=len(laws)), dtype=np.float64
        )
    return np.asarray(contexts @ laws)


def tried_figure(tried: Sequence[Mapping[str, Any]]) -> Figure:
    """Bits per held-out request against the number of types, one line for each order; anchors are not among them."""
    tried = [one for one in tried if one.get("family") != "anchors"]
    figure, (axes,) = new_figure(inches=(5.6, 3.6))
    styles = [LINES[name] for name in ("optimal", "paper", "lower", "race", "naive")]
    for order, style in zip(sorted({one["order"] for one in tried}), styles, strict=False):
        points = sorted((one["types"], one["held_out_bits"]) for one in tried if one["order"] == order)
        axes.plot(*zip(*points, strict=True), **style.style(), label=f"order {order}")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="types of people", ylabel="bits per request, people held out")
    add_legend(axes, fontsize=8)
    return figure


def leaks_figure(families: Sequence[Mapping[str, Any]]) -> Figure:
    """What each audited candidate gives away against what it costs, and naive switching."""
    figure, (axes,) = new_figure(inches=(5.6, 3.6))
    audited = [one for one in families if one.get("leak") is not None]
    for one, style in zip(audited, LINES.values(), strict=False):
        axes.errorbar(
            one["cost"],
            one["leak"],
            one["leak_stderr"],
            **{**style.style(), "marker": style.marker or "o"},
            label=family_name(one),
        )
    if audited:
        axes.axhline(audited[0]["naive_bits"], color="0.6", linestyle=":", label="naive switching")
        add_legend(axes, fontsize=8)
    axes.set(xlabel="messages of ten OFF requests", ylabel="bits given away", ylim=(0, None), xlim=(0, None))
    return figure


def family_name(one: Mapping[str, Any]) -> str:
    """A candidate for people."""
    return "chain" if one["family"] == "chain" else f"{one['types']} {one['family']}, order {one['order']}"


def figures_of(path: Path, *, message_bytes: int = 1024) -> dict[str, Figure]:
    """The figures of a result file, by name. Raises InvalidInput where it is not one."""
    if path.suffix == ".parquet":
        return sweep_figures(read_rows(path))
    if path.suffix.lower() in {".npz", ".csv", ".npy"}:
        return _figures_of_model(path)
    try:
        document = json.loads(read_limited(path, LARGEST_FILE).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InvalidInput(f"{path}: {error}", hint=RESULTS) from None
    try:
        if isinstance(document, dict) and {"steps", "baselines"} <= document.keys():
            return simulation_figures(document, message_bytes)
        if isinstance(document, dict) and "transition" in document:
            return chain_figures(document)
        if isinstance(document, dict) and "laws" in document:
            return _figures_of_model(path)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        fault = f"{type(error).__name__}: {error}"
        raise InvalidInput(f"{path}: begins like a result, but is not whole ({fault})", hint=RESULTS) from error
    if isinstance(document, list) and document and isinstance(document[0], dict) and "expected" in document[0]:
        from onoff.lab.paper.theorems import rate_figure, symmetric_figure

        return {"paper-symmetric": symmetric_figure(), "paper-rate": rate_figure()}
    raise InvalidInput(f"{path}: not a result", hint=RESULTS)


def _figures_of_model(path: Path) -> dict[str, Figure]:
    model = load_model(path)
    if isinstance(model, RequestModel):
        return model_figures(model)
    return chain_figures({"transition": model.dense(), "names": model.names})


RESULTS = "give a chain or model, or what `onoff simulate --json`, `sweep`, `learn` or `reproduce --json` wrote"


def simulation_figures(data: Mapping[str, Any], message_bytes: int) -> dict[str, Figure]:
    """Cost against time, total bytes, and the distribution of query sizes."""
    return {
        "cost": cost_figure(data),
        "bytes": bytes_figure(data, message_bytes),
        "sizes": sizes_figure(data),
    }


def cost_figure(data: Mapping[str, Any]) -> Figure:
    """Messages per request against time, with the bound and the baselines; shaded while privacy is ON."""
    figure, (axes,) = new_figure()
    steps, base = data["steps"], data["baselines"]
    times = [step["t"] for step in steps]
    curves: dict[str, Sequence[float | None]] = {
        "everything": base["everything"]["cost"],
        "naive": base["naive"]["cost"],
        "lower": [step["lower"] for step in steps],
    }
    if base["paper"] is not None:
        curves["paper"] = base["paper"]["cost"]
    draw_costs(axes, times, curves)
    axes.errorbar(
        times,
        [step["cost"] for step in steps],
        yerr=[2 * (step["stderr"] or 0) for step in steps],
        label=f"{data['scheme']} (bars: 2 standard errors)",
        **LINES.get(data["scheme"], LINES["auto"]).style(),
    )
    shade_private(axes, [step["private"] for step in steps])
    leak = base["naive"]["leak"]
    told = "" if leak is None else f"; naive switching leaks {leak:.2f} bits"
    axes.set_title(f"{data['n']} sources, {data['users']} users, seed {data['seed']}{told}", fontsize=10)
    axes.set(xlabel="request", ylabel="messages per request", ylim=(0, None))
    add_legend(axes, fontsize=8)
    return figure


def bytes_figure(data: Mapping[str, Any], message_bytes: int) -> Figure:
    """What a user downloads in all, beside the alternatives."""
    figure, (axes,) = new_figure()
    base = data["baselines"]
    bars = {"everything": base["everything"]["total"]}
    if base["paper"] is not None:
        bars["paper"] = base["paper"]["total"]
    bars |= {data["scheme"]: data["total"], "naive": base["naive"]["total"]}
    names = list(bars)
    sizes = [bars[name] * message_bytes / 1024 for name in names]
    drawn = axes.barh(range(len(names)), sizes, color=[LINES.get(name, LINES["auto"]).colour for name in names])
    axes.bar_label(drawn, labels=[f"{size:.1f} KiB" for size in sizes], padding=3, fontsize=9)
    axes.set_yticks(range(len(names)), [label(name) for name in names])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(xlabel=f"KiB per user over {len(data['steps'])} requests, messages of {message_bytes} bytes")
    axes.set_xlim(0, 1.2 * max(sizes))
    return figure


def sizes_figure(data: Mapping[str, Any]) -> Figure:
    """How large queries are at every step."""
    figure, (axes,) = new_figure()

    steps, n = data["steps"], data["n"]
    share = [[step["sizes"].get(str(size), 0) / data["users"] for step in steps] for size in range(1, n + 1)]
    drawn = axes.imshow(
        share,
        origin="lower",
        aspect="auto",
        cmap="cividis",
        vmin=0,
        vmax=1,
        extent=(-0.5, len(steps) - 0.5, 0.5, n + 0.5),
    )
    axes.plot([step["t"] for step in steps], [step["cost"] for step in steps], color="w", marker="o", label="mean")
    axes.grid(visible=False)
    add_legend(axes, frameon=True, labelcolor="w", facecolor="0.3", fontsize=8)
    axes.set(xlabel="request", ylabel="messages in the query", title="Distribution of query sizes")
    for axis in (axes.xaxis, axes.yaxis):
        count_by_ones(axis)
    figure.colorbar(drawn, ax=axes, label="share of users")
    return figure


def sweep_figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """Cost over the number of sources for each family, totals where the horizon is longer, and build times."""
    good = [row for row in rows if row["error"] is None]
    if not good:
        raise InvalidInput("the sweep has no row that worked", hint="its column `error` says why")
    found = {"first": families_figure(good), "build": build_figure(good)}
    if max(row["horizon"] for row in good) > 1:
        found["total"] = families_figure(good, of="total")
    return found


def families_figure(rows: Sequence[Mapping[str, Any]], of: str = "first") -> Figure:
    """Mean cost over N for each family: of the first OFF request, or of the whole (longest) horizon."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    longest = max(row["horizon"] for row in rows)
    kept = rows if of == "first" else [row for row in rows if row["horizon"] == longest]
    columns = min(len(families), 3)
    lines = -(-len(families) // columns)
    figure, axes = new_figure(columns, lines, inches=(3.6 * max(columns, 2) + 0.4, 2.7 * lines + 0.8))
    cost, bound = ("first_cost", "first_lower") if of == "first" else ("total", "total_lower")
    for place, family in zip(axes, families, strict=False):
        mine = [row for row in kept if row["family"] == family]
        if of == "first":
            place.plot(*_mean(mine, "inner"), **LINES["inner"].style(linewidth=4), label=label("inner"))
        for scheme in dict.fromkeys(row["scheme"] for row in mine):
            same = [row for row in mine if row["scheme"] == scheme]
            place.plot(*_mean(same, cost), **LINES[scheme].style(), label=scheme)
        place.plot(*_mean(mine, bound), **LINES["lower"].style(), label=label("lower"))
        place.set_title(family, fontsize=10)
        place.set_xscale("log", base=2)
        sizes = sorted({row["n"] for row in mine})
        place.set_xticks(sizes, [str(n) for n in sizes])
        place.minorticks_off()
        place.set_ylim(bottom=0)
    for place in axes[len(families) :]:
        place.set_visible(False)
    figure.supxlabel("number of sources N", fontsize=10)
    counted = "messages of the first OFF request" if of == "first" else f"messages of {longest} OFF requests"
    figure.supylabel(counted, fontsize=10)
    handles, labels = axes[0].get_legend_handles_labels()
    beside = 5 if columns > 2 else 3  # entries that there is room for in a line
    figure.legend(handles, labels, loc="outside upper center", ncols=beside, frameon=False, fontsize=9)
    return figure


def build_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """CPU seconds to build the first table, over N; a point for each chain, a line through the medians."""
    figure, (axes,) = new_figure()
    for scheme in dict.fromkeys(row["scheme"] for row in rows):
        mine = [row for row in rows if row["scheme"] == scheme]
        style = LINES[scheme]
        axes.plot(
            [row["n"] for row in mine],
            [max(row["build_seconds"], 1e-5) for row in mine],
            color=style.colour, marker=style.marker, linestyle="", alpha=0.35, markersize=4,
        )  # fmt: skip
        sizes = sorted({row["n"] for row in mine})
        middle = [sorted(row["build_seconds"] for row in mine if row["n"] == n) for n in sizes]
        axes.plot(sizes, [max(times[len(times) // 2], 1e-5) for times in middle], **style.style(), label=scheme)
    axes.set(xscale="log", yscale="log", xlabel="number of sources N", ylabel="CPU seconds to build (line: median)")
    sizes = sorted({row["n"] for row in rows})
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.minorticks_off()
    add_legend(axes)
    return figure


def _mean(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[list[int], list[float]]:
    sizes = sorted({row["n"] for row in rows})
    groups = [[row[key] for row in rows if row["n"] == n] for n in sizes]
    return sizes, [sum(values) / len(values) for values in groups]


def chain_figures(document: Mapping[str, Any]) -> dict[str, Figure]:
    """The transition matrix and, where the file was learnt, how well the models of order 0, 1 and 2 fit."""
    matrix = document["transition"]
    names = document.get("names") or [str(x + 1) for x in range(len(matrix))]
    found = {"transition": transition_figure(matrix, names)}
    fit = (document.get("about") or {}).get("fit")
    if fit:
        figure, (axes,) = new_figure(inches=(5.6, 3.6))
        orders = [order for order in range(3) if f"order_{order}" in fit]
        bits = [fit[f"order_{order}"]["bits_held_out"] for order in orders]
        bars = axes.bar(range(len(orders)), bits, color=["0.6", "#0072B2", "#56B4E9"][: len(orders)])
        axes.bar_label(bars, labels=[f"{value:.3f}" for value in bits])
        axes.set_xticks(range(len(orders)), [f"order {order}" for order in orders])
        axes.set(ylabel="bits per request, held-out users")
        found["fit"] = figure
    if document.get("tried"):
        found["tried"] = tried_figure(document["tried"])
    return found
