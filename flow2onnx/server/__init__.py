"""A server of the Open Inference Protocol v2 for models on the stock ONNX Runtime."""

from flow2onnx.server.settings import Settings

__all__ = ["Settings"]
