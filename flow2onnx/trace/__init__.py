"""Tracing: a job function is run once on blobs, and every operator call emits ONNX nodes."""
