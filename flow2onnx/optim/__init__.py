"""Optimizers, learning-rate schedules, clipping: from gradients to the next value of a variable."""

from flow2onnx.optim import adam, combined, named, sgd  # noqa: F401  # for what they register
from flow2onnx.optim.accumulation import WHOLE, Training, batch_count, learning_rate
from flow2onnx.optim.training import append_training

__all__ = ["WHOLE", "Training", "append_training", "batch_count", "learning_rate"]
