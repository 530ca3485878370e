"""ONNX models from elsewhere, made trainable or differentiated."""

from typing import TYPE_CHECKING

from flow2onnx_runtime.on_demand import import_on_demand

if TYPE_CHECKING:
    from flow2onnx.imported.differentiated import save_model, signature_of
    from flow2onnx.imported.gradient import grad, hvp, jacobian, jvp, vjp
    from flow2onnx.imported.trainable import ModelSource, TrainableModel, make_trainable
    from flow2onnx.imported.training_info import from_training_info
else:
    __getattr__ = import_on_demand(
        __name__,
        {
            "differentiated": ("save_model", "signature_of"),
            "gradient": ("grad", "hvp", "jacobian", "jvp", "vjp"),
            "trainable": ("ModelSource", "TrainableModel", "make_trainable"),
            "training_info": ("from_training_info",),
        },
    )

__all__ = [
    "ModelSource",
    "TrainableModel",
    "from_training_info",
    "grad",
    "hvp",
    "jacobian",
    "jvp",
    "make_trainable",
    "save_model",
    "signature_of",
    "vjp",
]
