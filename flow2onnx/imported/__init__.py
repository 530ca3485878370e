"""ONNX models from elsewhere, made trainable or differentiated."""

from typing import TYPE_CHECKING

from flow2onnx_runtime.on_demand import import_on_demand

if TYPE_CHECKING:
    from flow2onnx.imported.differentiated import save_model, signature_of
    from flow2onnx.imported.gradient import grad, hvp, jacobian, jvp, vjp
    from flow2onnx.imported.low_rank.adapters import TrainableAdapter, adapter_of, lora
    from flow2onnx.imported.low_rank.merge import keep_adapter, merge_adapter
    from flow2onnx.imported.low_rank.network import lora_network
    from flow2onnx.imported.low_rank.slots import write_slots
    from flow2onnx.imported.low_rank.texts import text_batches
    from flow2onnx.imported.trainable import ModelSource, TrainableModel, make_trainable
    from flow2onnx.imported.training_info import from_training_info
else:
    __getattr__ = import_on_demand(
        __name__,
        {
            "differentiated": ("save_model", "signature_of"),
            "gradient": ("grad", "hvp", "jacobian", "jvp", "vjp"),
            "low_rank.adapters": ("TrainableAdapter", "adapter_of", "lora"),
            "low_rank.merge": ("keep_adapter", "merge_adapter"),
            "low_rank.network": ("lora_network",),
            "low_rank.slots": ("write_slots",),
            "low_rank.texts": ("text_batches",),
            "trainable": ("ModelSource", "TrainableModel", "make_trainable"),
            "training_info": ("from_training_info",),
        },
    )

__all__ = [
    "ModelSource",
    "TrainableAdapter",
    "TrainableModel",
    "adapter_of",
    "from_training_info",
    "grad",
    "hvp",
    "jacobian",
    "jvp",
    "keep_adapter",
    "lora",
    "lora_network",
    "make_trainable",
    "merge_adapter",
    "save_model",
    "signature_of",
    "text_batches",
    "vjp",
    "write_slots",
]
