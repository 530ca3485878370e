"""Checkpoint files: OneFlow's directory layout and safetensors, written whole or not at all.

The public `flow.checkpoint.save` and `get` are put here by `flow2onnx.api`; files are `store`'s.
"""
