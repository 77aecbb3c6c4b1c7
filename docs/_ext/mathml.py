"""Mathematics as MathML, made while the pages are built: no script, nothing loaded from elsewhere."""

from __future__ import annotations

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
    self.body.append(f'<div class="math">{identifiers}{convert(node.astext(), display="block")}{number}</div>\n')
    raise _done()


def _done() -> Exception:
    from docutils import nodes

    return nodes.SkipNode()


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True}
