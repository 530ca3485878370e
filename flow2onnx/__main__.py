"""`python -m flow2onnx`."""

from flow2onnx.cli import main

main()
