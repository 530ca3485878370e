"""The predict job that a bundle of adapters answers with: its model as it is served."""

from collections.abc import Mapping, Sequence

from flow2onnx_runtime import PredictJob, TensorSpec
from flow2onnx_runtime.dtypes import Array

from flow2onnx.imported.low_rank.folder import LanguageModel
from flow2onnx.onnx_io.adapter_factors import compute_factors
from flow2onnx.onnx_io.adapter_inputs import read_adapters, signatures
from flow2onnx.onnx_io.adapter_slots import Slot, add_slots, choose_products, products, slots_of

__all__ = ["ANSWER", "answer_job"]

ANSWER = "answer"
_FILE = f"{ANSWER}.onnx"


def answer_job(
    language: LanguageModel,
    slots: Sequence[Slot],
    shapes: Mapping[str, Sequence[int]],
    scales: Mapping[str, float],
    squares: Mapping[str, Array] | None = None,
) -> tuple[PredictJob, bytes]:
    """A predict job, and its model: a folder's own, whose adapters are the present state.

    It reads and returns keys and values of what went before, and its frozen tensors lie in the
    folder's file. `shapes` are those of the matrices by name. With DoRA's `squares`, ‖W‖² by
    module, factors are computed, too.
    """
    proto = language.copy()
    chosen = choose_products(products(proto), [s.module for s in slots])
    if not slots_of(proto):
        add_slots(proto, chosen, factors=squares is not None)
    if squares is not None:
        compute_factors(proto, chosen, squares)
    read_adapters(proto, slots, shapes, scales)
    feeds = [TensorSpec(s.name, s.shape, s.dtype) for s in signatures(proto.graph.input)]
    results = [TensorSpec(s.name, s.shape, s.dtype) for s in signatures(proto.graph.output)]
    job = PredictJob(
        ANSWER,
        _FILE,
        tuple(f for f in feeds if f.name not in shapes),
        tuple(results),
        reads=tuple(f.name for f in feeds if f.name in shapes),
    )
    content: bytes = proto.SerializeToString(deterministic=True)
    return job, content
