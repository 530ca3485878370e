"""Models, bundles and trainings as notebooks show them: tables, pictures, in HTML alone."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flow2onnx_runtime.errors import FlowError
from flow2onnx_runtime.manifest import Manifest
from flow2onnx_runtime.on_demand import import_on_demand
from flow2onnx_runtime.view.graph import Graph
from flow2onnx_runtime.view.layers import Summary, summary_of
from flow2onnx_runtime.view.picture import svg_of, zoomable
from flow2onnx_runtime.view.tables import facts_table, folded, html_block, table
from flow2onnx_runtime.view.texts import shape_text, size_text

__all__ = ["bundle_block", "file_block", "graph_block", "signature_table", "state_table"]

_LARGEST = 64 * 2**20  # bytes of a file that is read to be drawn
_reader = import_on_demand("flow2onnx_runtime", {"onnx_messages": ("read_graph",)})


def graph_block(graph: Graph, facts: Mapping[str, object] = {}, title: str = "") -> str:
    """A model: facts, its layers in a table, and the picture of them."""
    return html_block(title or graph.title, facts_table(facts), _layers_and_picture(graph))


def bundle_block(
    title: str, folder: Path, manifest: Manifest, facts: Mapping[str, object] = {}
) -> str:
    """A bundle: facts, feeds and results, its state, and the layers of its step."""
    variables = [s for s in manifest.state if s.role == "variable"]
    known = {
        **facts,
        "opset": manifest.opset,
        "files": size_text(sum(entry.size for entry in manifest.files.values())),
        "predicts": ", ".join(entry.job for entry in manifest.predict),
    }
    rows = [("feed", f) for f in manifest.feeds] + [("result", r) for r in manifest.results]
    return html_block(
        title,
        facts_table(known),
        signature_table(rows),
        folded(f"{len(manifest.state)} tensors of state", state_table(manifest.state)),
        _drawn(
            folder / manifest.step,
            manifest.job,
            state=[s.name for s in manifest.state],
            variables=[s.name for s in variables],
            trained=[s.name for s in variables if s.trainable],
        ),
    )


def file_block(title: str, path: Path | None, rows: Iterable[tuple[str, Any]], **facts: Any) -> str:
    """A model that is open: its signature, facts, and its layers if it came from a file."""
    drawn = "" if path is None else _drawn(path, path.name)
    return html_block(title, facts_table(facts), signature_table(rows), drawn)


def signature_table(rows: Iterable[tuple[str, Any]]) -> str:
    """Tensors by what they are: name, element type, shape."""
    cells = [
        (kind, t.name, getattr(t, "element", None) or t.dtype, shape_text(t.shape))
        for kind, t in rows
    ]
    return table(("", "name", "type", "shape"), cells)


def state_table(state: Sequence[Any]) -> str:
    """Tensors of state with their roles."""
    rows = [(s.name, s.dtype, shape_text(s.shape), s.role, _yes(s.trainable)) for s in state]
    return table(("name", "type", "shape", "role", "changes"), rows)


def layers_table(found: Summary) -> str:
    """The layers of a model, as `flow2onnx summary` has them."""
    rows = [
        (la.name, la.operators, shape_text(la.output.shape), la.parameters or "", la.macs or "",
         size_text(la.bytes))
        for la in found.layers
    ]  # fmt: skip
    columns = ("layer", "operators", "output shape", "parameters", "MACs", "memory")
    return table(columns, rows, right=("parameters", "MACs", "memory"))


def _layers_and_picture(graph: Graph) -> str:
    found = summary_of(graph)
    kinds = [f"{found.parameters:,} parameters"]
    if found.trained is not None:
        kinds.append(f"{found.trained:,} trained")
    if found.macs:
        kinds.append(f"{found.macs:,} MACs")
    free = ", free sizes taken for 1" if found.is_free else ""
    layers = folded(f"{len(found.layers)} layers: {', '.join(kinds)}{free}", layers_table(found))
    picture = zoomable(svg_of(graph), f"f2o-{secrets.token_hex(4)}")
    return layers + folded("picture", picture, is_open=True)


def _drawn(path: Path, title: str, **roles: Any) -> str:
    """The layers of a file, or why they are not shown: a picture must not end a cell."""
    try:
        if path.stat().st_size > _LARGEST:
            return facts_table({"picture": f"not drawn: {path.name} is larger than 64 MiB"})
        return _layers_and_picture(_reader("read_graph")(path, title, **roles))
    except (FlowError, OSError) as error:
        return facts_table({"picture": f"not drawn: {error}"})


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"
