"""ONNX models from elsewhere, made trainable or differentiated."""

from flow2onnx.imported.gradient import grad
from flow2onnx.imported.trainable import TrainableModel, make_trainable
from flow2onnx.imported.training_info import from_training_info

__all__ = ["TrainableModel", "from_training_info", "grad", "make_trainable"]
