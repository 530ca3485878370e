"""Models that are made when somebody looks inside; what goes in and out is known before."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

__all__ = ["DeferredModel", "inputs_of", "new_value", "outputs_of"]


class DeferredModel(ir.Model):
    """A model with the inputs and outputs of the one that `make` returns, which is called once.

    All else of a model is that one's, from the first look at any of it on.
    """

    def __init__(
        self,
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        make: Callable[[], ir.Model],
    ) -> None:
        self.inputs, self.outputs = inputs, outputs
        self._make: Callable[[], ir.Model] | None = make
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:  # of a slot that is empty, whatever it holds
        if name not in ir.Model.__slots__:
            raise AttributeError(name)
        with self._lock:
            if self._make is not None:
                made = self._make()
                for slot in ir.Model.__slots__:
                    setattr(self, slot, getattr(made, slot))
                self._make = None
        return getattr(self, name)

    @property
    def is_made(self) -> bool:
        """True once somebody has looked."""
        return self._make is None


def inputs_of(model: ir.Model) -> Sequence[ir.Value]:
    """The inputs of a model, which is not made for it."""
    if isinstance(model, DeferredModel) and not model.is_made:
        return model.inputs
    return model.graph.inputs


def outputs_of(model: ir.Model) -> Sequence[ir.Value]:
    """The outputs of a model, which is not made for it."""
    if isinstance(model, DeferredModel) and not model.is_made:
        return model.outputs
    return model.graph.outputs


def new_value(name: str, shape: Sequence[int | str | None], code: int) -> ir.Value:
    """A tensor's value of no graph; `code` is the standard's number of its element type."""
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType(code)))
