"""Figures of a model: who its types are, how requests follow one another, and what else was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.figures import LINES, add_legend, new_figure
from onoff.model.contexts import RequestModel
from onoff.model.notebook import model_figure
from onoff.model.rows import Floats

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
    """Bits per held-out request against the number of types, one line for each order."""
    figure, (axes,) = new_figure(inches=(5.6, 3.6))
    styles = [LINES[name] for name in ("optimal", "paper", "lower", "race", "naive")]
    for order, style in zip(sorted({one["order"] for one in tried}), styles, strict=False):
        points = sorted((one["types"], one["held_out_bits"]) for one in tried if one["order"] == order)
        axes.plot(*zip(*points, strict=True), **style.style(), label=f"order {order}")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="types of people", ylabel="bits per request, people held out")
    add_legend(axes, fontsize=8)
    return figure
