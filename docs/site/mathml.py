"""Formulas as MathML, which browsers draw themselves: no script and no font is fetched."""

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

__all__ = ["setup"]


def _inline(self: Any, node: nodes.Element) -> None:
    self.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.Element) -> None:
    self.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Draw inline and block formulas."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config["html_math_renderer"] = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
