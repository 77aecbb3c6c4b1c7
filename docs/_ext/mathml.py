"""Mathematics as MathML, made while the pages are built: no script, nothing loaded from elsewhere."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number


def inline(self: Any, node: Any) -> None:
    self.body.append(convert(node.astext()))
    raise _done()


def displayed(self: Any, node: Any) -> None:
    number = ""
    if node["number"]:
        label = get_node_equation_number(self, node)
        number = f'<span class="eqno">({label})</span>'
    identifiers = "".join(f'<span id="{escape(name)}"></span>' for name in node.get("ids", []))
    formulas = "".join(convert(part, display="block") for part in parts(node.astext()))
    self.body.append(f'<div class="math">{identifiers}<div class="parts">{formulas}</div>{number}</div>\n')
    raise _done()


def parts(text: str) -> list[str]:
    """The formulas between the wide spaces of a displayed line; where there is no room for all, they are put below one
    another. A space inside brackets or braces parts nothing.
    """
    found, depth = [""], 0
    for word in re.split(r"(\\\\|\\[A-Za-z]+|[{}])", text):
        depth += {"{": 1, "}": -1, r"\left": 1, r"\right": -1, r"\begin": 1, r"\end": -1}.get(word, 0)
        if word in {r"\quad", r"\qquad"} and depth == 0:
            found.append("")
        else:
            found[-1] += word
    return [part.strip() for part in found if part.strip()]


def _done() -> Exception:
    from docutils import nodes

    return nodes.SkipNode()


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True}
