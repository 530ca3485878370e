"""Checkpoint files: OneFlow's directory layout and safetensors, written whole or not at all."""

from flow2onnx.checkpoint.store import (
    SavedVariable,
    latest,
    list_checkpoints,
    load,
    new_snapshot_name,
    save,
)

__all__ = [
    "SavedVariable",
    "latest",
    "list_checkpoints",
    "load",
    "new_snapshot_name",
    "save",
]
