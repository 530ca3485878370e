"""A model by layer as an SVG picture of its own: no script, no style from elsewhere."""

import itertools
from collections.abc import Iterator

from flow2onnx_runtime.view.graph import Graph
from flow2onnx_runtime.view.layout import Rows, place_rows, rows_of
from flow2onnx_runtime.view.tables import escape
from flow2onnx_runtime.view.tree import Box, Edge, box_tree

__all__ = ["svg_of", "zoomable"]

_COLOURS = {
    "product": "#2f5f9e", "activation": "#8c2f39", "pool": "#2f6b4f", "normalization": "#3f6b2a",
    "shape": "#6b5546", "control": "#5b3f8c", "random": "#7a4b78", "quantization": "#2d6a73",
    "other": "#454d59", "input": "#e9ecef", "output": "#e9ecef",
}  # fmt: skip
_HEIGHT, _ROW_GAP, _GAP, _BEND, _MARGIN = 40.0, 34.0, 20.0, 10.0, 12.0
_LETTER, _LONGEST = 7.0, 30
_FLAT = 80  # layers, up to which each is a box, whatever it lies in


def svg_of(graph: Graph) -> str:
    """The picture of the forward pass from top to bottom, each layer a box in its colour.

    A model of many layers is drawn by its outermost ones.
    """
    layers = {node.path for node in graph.nodes if node.role == "forward"}
    root = box_tree(graph, is_flat=len(layers) <= _FLAT, with_gradients=False)
    edges = [(e.start, e.end) for e in root.edges]
    rows = rows_of(len(root.members), edges, [m.first for m in root.members])
    widths = {i: _width(m) for i, m in enumerate(root.members)}
    widths |= {item: _BEND for row in rows.rows for item in row if item < 0}
    x = place_rows(rows.rows, widths, _links(rows, root.edges), _GAP)
    left = min((x[i] - widths[i] / 2 for i in x), default=0.0)
    right = max((x[i] + widths[i] / 2 for i in x), default=0.0)
    y = {item: n * (_HEIGHT + _ROW_GAP) for n, row in enumerate(rows.rows) for item in row}
    width = right - left + 2 * _MARGIN
    height = max(len(rows.rows), 1) * (_HEIGHT + _ROW_GAP) - _ROW_GAP + 2 * _MARGIN
    places = {i: (x[i] - left + _MARGIN, y[i] + _MARGIN) for i in x}
    body = [*_lines(root, rows, places), *_boxes(root, places, widths)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(graph.title)} by layer" '
        f'font-family="system-ui, sans-serif" text-anchor="middle">{"".join(body)}</svg>'
    )


def zoomable(svg: str, name: str) -> str:
    """The picture in a frame with three sizes, which need no script; `name` is the page's own."""
    sizes = (("fit", "max-width:100%"), ("100 %", "max-width:none"), ("200 %", "zoom:2"))
    rules, switches = [], []
    for n, (label, rule) in enumerate(sizes):
        rules.append(f"#{name}-{n}:checked~div svg{{{rule}}}")
        checked = " checked" if not n else ""
        switches.append(
            f'<input type="radio" name="{name}" id="{name}-{n}"{checked}>'
            f'<label for="{name}-{n}" style="margin-right:12px"> {label}</label>'
        )
    return (
        f"<style>#{name}-0:checked~div svg{{height:auto}}{''.join(rules)}</style>"
        f'<div>{"".join(switches)}<div style="overflow:auto;resize:vertical;max-height:520px;'
        'border:1px solid #8884;border-radius:6px;background:#fbfbfa;text-align:center">'
        f"{svg}</div></div>"
    )


def _shown(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _width(box: Box) -> float:
    return max(84.0, _LETTER * max(len(_shown(box.label)), 0.85 * len(_shown(box.detail))) + 20)


def _ways(rows: Rows, edges: list[Edge]) -> Iterator[tuple[Edge, list[int]]]:
    for edge in edges:
        bends = rows.bends.get((edge.start, edge.end), [])
        yield edge, [edge.start, *bends, edge.end]


def _links(rows: Rows, edges: list[Edge]) -> list[tuple[int, int]]:
    ways = (way for _, way in _ways(rows, edges))
    return [pair for way in ways for pair in itertools.pairwise(way)]


def _lines(root: Box, rows: Rows, places: dict[int, tuple[float, float]]) -> Iterator[str]:
    """Edges with their arrows."""
    for edge, way in _ways(rows, root.edges):
        points = [(places[i][0], places[i][1] + _HEIGHT / 2) for i in way]
        points[0] = (points[0][0], points[0][1] + _HEIGHT / 2)
        end_x, end_y = points[-1][0], points[-1][1] - _HEIGHT / 2 - 4
        points[-1] = (end_x, end_y)
        path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
        for (ax, ay), (bx, by) in itertools.pairwise(points):
            half = max(abs(by - ay) / 2, 14)
            path += f"C{ax:.1f} {ay + half:.1f} {bx:.1f} {by - half:.1f} {bx:.1f} {by:.1f}"
        name = edge.pairs[0][2] if edge.pairs else ""
        yield (
            f'<path d="{path}" fill="none" stroke="#8a94a3" stroke-width="1.3"><title>'
            f"{escape(name)}</title></path>"
            f'<path d="M{end_x - 3.5:.1f} {end_y:.1f}h7l-3.5 5z" fill="#8a94a3"/>'
        )


def _boxes(
    root: Box, places: dict[int, tuple[float, float]], widths: dict[int, float]
) -> Iterator[str]:
    """Boxes with their two lines."""
    for index, box in enumerate(root.members):
        x, y = places[index]
        is_end = box.kind in ("input", "output")
        ink, line = ("#20242a", "#c4cad1") if is_end else ("#ffffff", "none")
        width = widths[index]
        yield (
            f'<g><title>{escape(box.label)} {escape(box.detail)}</title><rect x="'
            f'{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_HEIGHT:.0f}" '
            f'rx="{18 if is_end else 5}" fill="{_COLOURS[box.family]}" stroke="{line}"/>'
            f'<text x="{x:.1f}" y="{y + 17:.1f}" fill="{ink}" font-size="12" font-weight="600">'
            f'{escape(_shown(box.label))}</text><text x="{x:.1f}" y="{y + 31:.1f}" fill="{ink}" '
            f'font-size="10" opacity=".85">{escape(_shown(box.detail))}</text></g>'
        )
