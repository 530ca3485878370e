"""``python -m flow2onnx_serve``."""

from flow2onnx_serve.cli import main

main()
