"""Optimizers, learning-rate schedules, clipping: from gradients to the next value of a variable."""

from flow2onnx.optim import adam, combined, sgd  # noqa: F401  # for what they register
from flow2onnx.optim.parts import WHOLE, Training, count_name, rate_name
from flow2onnx.optim.training import append_training

__all__ = ["WHOLE", "Training", "append_training", "count_name", "rate_name"]
