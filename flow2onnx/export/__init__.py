"""Jobs as files: exporting, verifying and describing models and bundles."""

from flow2onnx.export.bundle import BundleExport
from flow2onnx.export.info import describe
from flow2onnx.export.job import export
from flow2onnx.export.model import ModelExport
from flow2onnx.export.preprocess import Preprocess
from flow2onnx.export.report import Check, Comparison, Output, Report
from flow2onnx.export.triton import export_triton
from flow2onnx.export.verification import verify_model

__all__ = [
    "BundleExport",
    "Check",
    "Comparison",
    "ModelExport",
    "Output",
    "Preprocess",
    "Report",
    "describe",
    "export",
    "export_triton",
    "verify_model",
]
