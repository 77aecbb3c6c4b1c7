"""Models for users without a trace: guesses, which are labelled as such.

    uniform   every source is as likely as any other, whatever was read before
    popular   the k-th source of the catalogue is wanted 1/k as often as the first, whatever was read before
    sticky    half of the time the same source again, else any

With `uniform` and `popular` requests are independent, so a plain request after a private one costs one message and
tells nothing, *if the guess is right*. A wrong guess leaks in proportion to how wrong it is (`onoff audit chain`);
`sticky` hides more, and costs more. Learn a model from real requests as soon as there are some.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onoff.errors import InvalidInput, nearest
from onoff.model.chain import MarkovChain
from onoff.model.rows import Floats

MOST_TEMPLATE_SOURCES = 2000
"""A model is a matrix, and its file grows with the square of the sources."""
STAY = 0.5


def _uniform(n: int) -> Floats:
    return np.full((n, n), 1 / n)


def _popular(n: int) -> Floats:
    share = 1 / np.arange(1, n + 1)
    return np.tile(share / share.sum(), (n, 1))


def _sticky(n: int) -> Floats:
    return STAY * np.eye(n) + (1 - STAY) * _uniform(n)


TEMPLATES: dict[str, Callable[[int], Floats]] = {"uniform": _uniform, "popular": _popular, "sticky": _sticky}


def from_template(template: str, names: Sequence[str]) -> MarkovChain:
    """A guessed chain over these sources. Raises InvalidInput.

    >>> from_template("sticky", ["left", "right"]).transition.tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    if template not in TEMPLATES:
        raise InvalidInput(f"no template {template!r}", hint=nearest(template, TEMPLATES))
    if not 2 <= len(names) <= MOST_TEMPLATE_SOURCES:
        raise InvalidInput(
            f"a model of {len(names)} sources",
            hint=f"templates are for 2 to {MOST_TEMPLATE_SOURCES}; without a model the gateway keeps a mirror",
        )
    P = TEMPLATES[template](len(names))
    return MarkovChain(P, names=tuple(names), initial=P.mean(axis=0))
