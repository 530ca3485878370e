"""Optimizers, learning-rate schedules, clipping: from gradients to the next value of a variable."""

from flow2onnx.optim.adam import Adam
from flow2onnx.optim.base import Optimizer, Step
from flow2onnx.optim.clipping import by_global_norm
from flow2onnx.optim.legacy import from_conf
from flow2onnx.optim.schedules import PiecewiseConstantScheduler, Scheduler
from flow2onnx.optim.sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "Optimizer",
    "PiecewiseConstantScheduler",
    "Scheduler",
    "Step",
    "by_global_norm",
    "from_conf",
]
