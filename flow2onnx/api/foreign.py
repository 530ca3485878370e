"""Models from elsewhere below `flow`; the runtime is not loaded before one is asked for."""

import os
from typing import TYPE_CHECKING, Any, Literal

from flow2onnx import engine, imported

if TYPE_CHECKING:
    from flow2onnx_runtime import Options

    from flow2onnx.imported import TrainableModel

__all__ = ["accelerate", "from_training_info", "grad", "make_trainable"]


def make_trainable(
    model: Any, loss: Any, optimizer: Any = "adam", **options: Any
) -> "TrainableModel":
    """An ONNX model with a training step: see `flow2onnx.imported.make_trainable`."""
    return imported.make_trainable(model, loss, optimizer, **options)


def accelerate(
    model: str | os.PathLike[str] | bytes,
    options: "Options | None" = None,
    *,
    native: bool | Literal["auto"] = "auto",
) -> "tuple[str | os.PathLike[str] | bytes, Options]":
    """A model with native operators in memory: see `flow2onnx.engine.acceleration`."""
    return engine.accelerate(model, options, native=native)


def grad(model: Any, wrt: Any = None, **options: Any) -> Any:
    """The gradients of an ONNX model as a model: see `flow2onnx.imported.grad`."""
    return imported.grad(model, wrt, **options)


def from_training_info(model: Any, **options: Any) -> "TrainableModel":
    """The training step in an ONNX file: see `flow2onnx.imported.from_training_info`."""
    return imported.from_training_info(model, **options)
