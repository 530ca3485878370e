"""Verification: whether what was written is valid, standard, runnable, and computes the right."""

from flow2onnx.export.verification.verify import verify_model

__all__ = ["verify_model"]
