"""A server of the Open Inference Protocol v2 for models on the stock ONNX Runtime."""

__version__ = "0.1.0"
