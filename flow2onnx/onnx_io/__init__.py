"""ONNX files: read with distrust, appended to a graph, serialized."""
