"""Programs that measure flow2onnx beside its peers: `python -m benchmarks.training`."""
