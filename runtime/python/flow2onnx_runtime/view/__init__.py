"""Pictures, tables and pages of models, for people: nothing here is needed to train or predict."""

from typing import TYPE_CHECKING

from flow2onnx_runtime.on_demand import import_on_demand

if TYPE_CHECKING:
    from flow2onnx_runtime.view.graph import Graph, graph_of
    from flow2onnx_runtime.view.layers import Summary, summary_of
    from flow2onnx_runtime.view.notebook import (
        bundle_block,
        file_block,
        graph_block,
        signature_table,
    )
    from flow2onnx_runtime.view.page import page_of
    from flow2onnx_runtime.view.picture import svg_of
    from flow2onnx_runtime.view.tables import facts_table, html_block, table
else:
    __getattr__ = import_on_demand(
        __name__,
        {
            "graph": ("Graph", "graph_of"),
            "layers": ("Summary", "summary_of"),
            "notebook": ("bundle_block", "file_block", "graph_block", "signature_table"),
            "page": ("page_of",),
            "picture": ("svg_of",),
            "tables": ("facts_table", "html_block", "table"),
        },
    )

__all__ = [
    "Graph",
    "Summary",
    "bundle_block",
    "facts_table",
    "file_block",
    "graph_block",
    "graph_of",
    "html_block",
    "page_of",
    "signature_table",
    "summary_of",
    "svg_of",
    "table",
]
