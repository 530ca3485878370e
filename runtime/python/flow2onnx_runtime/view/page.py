"""The page of a model: one HTML file with its graph, which opens without a network.

Names in a model may be anybody's, so they are data of the page and no part of its text: the script
writes them as text nodes, and the page's policy lets no other script run.
"""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from flow2onnx_runtime.view.costs import macs
from flow2onnx_runtime.view.graph import Graph
from flow2onnx_runtime.view.layout import rows_of
from flow2onnx_runtime.view.tables import escape
from flow2onnx_runtime.view.texts import clean
from flow2onnx_runtime.view.tree import Box, box_tree

__all__ = ["page_of"]

_FOLDER = Path(__file__).parent
_KEYS = (
    ("/", "search"), ("arrows", "go to what is above, below, beside"),
    ("Enter", "open or close a layer"), ("Esc", "to the layer around, or to none"),
    ("+ −", "closer, further"), ("0", "the whole model"), ("c", "close all layers"),
    ("g", "with gradients"), ("t", "light or dark"),
)  # fmt: skip
_BODY = """<header>
<h1>{title}</h1>
<span class="space"></span>
<label class="switch"><input type="checkbox" id="gradients"> gradients<span class="more">
 and update</span></label>
<div class="finder"><input id="search" type="search" placeholder="Search ( / )" autocomplete="off"
 aria-label="Search nodes, layers and parameters"><ul id="found" hidden></ul></div>
<button id="further" type="button" aria-label="further">−</button>
<button id="closer" type="button" aria-label="closer">+</button>
<button id="fit" type="button">Fit</button>
<button id="collapse" type="button" aria-label="close all layers">Close all</button>
<button id="theme" type="button" aria-label="light or dark">◐</button>
<button id="keys" type="button" aria-label="keys">?</button>
</header>
<svg id="graph" tabindex="0" role="application" aria-label="graph of the model">
<defs><marker id="arrow" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7"
 orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs><g id="scene"></g></svg>
<aside><button id="close" type="button" aria-label="close" hidden>×</button>
<div id="about" aria-live="polite"></div></aside>
<dialog id="help"><table>{keys}</table>
<form method="dialog"><button>Close</button></form></dialog>"""


def page_of(graph: Graph) -> str:
    """The whole page: a graph by layer, closed at first, with a switch for gradients."""
    script, style = ((_FOLDER / name).read_text("utf-8") for name in ("page.js", "page.css"))
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}"
    keys = "".join(f"<tr><td><kbd>{k}</kbd></td><td>{text}</td></tr>" for k, text in _KEYS)
    title = escape(graph.title)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>",
            _BODY.format(title=title, keys=keys),
            f'<script type="application/json" id="data">{_json(_data(graph))}</script>',
            f"<script>{script}</script>\n</body>\n</html>\n",
        ]
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _json(data: object) -> str:
    """JSON that no text in it can end the element that it stands in."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data(graph: Graph) -> dict[str, Any]:
    """All that the script draws and tells."""
    left = set(graph.parameters)
    nodes = []
    for node in graph.nodes:
        read = list(dict.fromkeys(name for name in node.inputs if name in left))
        left -= set(read)
        nodes.append(
            {
                "n": clean(node.name),
                "o": clean(node.operator),
                "i": node.inputs,
                "u": node.outputs,
                "a": [[clean(k), clean(str(v))[:300]] for k, v in node.attributes.items()],
                "p": read,
                "m": macs(graph, node),
                "b": sum(graph.value(name).bytes or 0 for name in node.outputs),
            }
        )
    used = {n for node in graph.nodes for n in (*node.inputs, *node.outputs)}
    used |= {*graph.inputs, *graph.outputs, *graph.parameters}
    is_free = any(graph.value(name).is_free for name in graph.inputs)
    return {
        "facts": [[k, clean(v)] for k, v in graph.facts.items() if v],
        "note": "sizes known at a call only count as 1" if is_free else "",
        "nodes": nodes,
        "values": [[n, str(v)] for n, v in graph.values.items() if n in used],
        "parameters": [[n, _parameter(graph, n)] for n in graph.parameters],
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "forward": _box(box_tree(graph, with_gradients=False)),
        "full": _box(box_tree(graph)) if graph.is_step else None,
    }


def _parameter(graph: Graph, name: str) -> dict[str, Any]:
    trained = None if graph.trained is None else name in graph.trained
    return {"count": graph.value(name).count or 0, "trained": trained}


def _box(box: Box) -> dict[str, Any]:
    edges = [(e.start, e.end) for e in box.edges]
    quiet = {pair for pair, e in zip(edges, box.edges, strict=True) if e.is_quiet}
    rows = rows_of(len(box.members), edges, [m.first for m in box.members], quiet)
    return {
        "k": box.kind,
        "l": clean(box.label),
        "d": clean(box.detail),
        "f": box.family,
        "r": box.role,
        "n": box.node,
        "m": [_box(member) for member in box.members],
        "rows": rows.rows,
        "e": [
            {
                "a": e.start,
                "b": e.end,
                "p": e.pairs,
                "w": rows.bends.get((e.start, e.end), []),
                "quiet": e.is_quiet,
            }
            for e in box.edges
        ],
    }
