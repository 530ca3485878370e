"""Adapters for a model: modules under its names, matrices of its sizes."""

from collections.abc import Iterable

from flow2onnx_runtime.adapters import Adapter

from flow2onnx.errors import StateError
from flow2onnx.imported.low_rank.folder import LanguageModel
from flow2onnx.onnx_io.adapter_slots import Slot, module_slots

__all__ = ["fit_adapter", "fit_to_model"]


def fit_to_model(adapter: Adapter, language: LanguageModel) -> Adapter:
    """`fit_adapter` to all modules of a model that have a weight."""
    return fit_adapter(adapter, module_slots(language.proto))


def fit_adapter(adapter: Adapter, slots: Iterable[Slot]) -> Adapter:
    """The adapter with its modules named as those of the slots.

    Raises StateError for one of another model, which has other modules or widths.
    """
    known = {slot.module: slot for slot in slots}
    named = adapter.named_for({module: slot.rows for module, slot in known.items()})
    for module, (a, b) in named.pairs.items():
        wanted = known[module].shapes(named.ranks[module])
        if (a.shape, b.shape) != wanted:
            raise StateError(
                f"the adapter is for another model: {module} is {a.shape}, {b.shape}, the model "
                f"takes {wanted[0]}, {wanted[1]}",
                hint="train one for this model",
            )
    return named
