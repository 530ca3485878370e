"""Jobs as files: exporting, verifying and describing models and bundles."""

from typing import TYPE_CHECKING

from flow2onnx_runtime.on_demand import import_on_demand

if TYPE_CHECKING:
    from flow2onnx.export.description import describe
    from flow2onnx.export.difference import GraphDifference, compare_models
    from flow2onnx.export.graph_view import graph_of_job, graph_of_path
    from flow2onnx.export.job import MisplacedOptionError, export
    from flow2onnx.export.options import BundleExport, ModelExport
    from flow2onnx.export.preprocess import Preprocess
    from flow2onnx.export.report import Check, Comparison, Output, Report
    from flow2onnx.export.saved_model import (
        OLDEST_OPSET,
        open_saved_model,
        operators_of,
        with_results,
        write_saved_model,
        write_with_checkpoint,
    )
    from flow2onnx.export.session_view import find_job
    from flow2onnx.export.triton import export_triton
    from flow2onnx.export.verification import verify_model
else:
    __getattr__ = import_on_demand(
        __name__,
        {
            "description": ("describe",),
            "difference": ("GraphDifference", "compare_models"),
            "graph_view": ("graph_of_job", "graph_of_path"),
            "job": ("MisplacedOptionError", "export"),
            "options": ("BundleExport", "ModelExport"),
            "preprocess": ("Preprocess",),
            "report": ("Check", "Comparison", "Output", "Report"),
            "saved_model": (
                "OLDEST_OPSET",
                "open_saved_model",
                "operators_of",
                "with_results",
                "write_saved_model",
                "write_with_checkpoint",
            ),
            "session_view": ("find_job",),
            "triton": ("export_triton",),
            "verification": ("verify_model",),
        },
    )

__all__ = [
    "OLDEST_OPSET",
    "BundleExport",
    "Check",
    "Comparison",
    "GraphDifference",
    "MisplacedOptionError",
    "ModelExport",
    "Output",
    "Preprocess",
    "Report",
    "compare_models",
    "describe",
    "export",
    "export_triton",
    "find_job",
    "graph_of_job",
    "graph_of_path",
    "open_saved_model",
    "operators_of",
    "verify_model",
    "with_results",
    "write_saved_model",
    "write_with_checkpoint",
]
