"""The loss of an imported model by name: which outputs it reads, which labels it takes.

Those by name are one table for jobs, imported models and the command line: `ops.named_losses`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flow2onnx.errors import DTypeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of
from flow2onnx.ops.loss_parts import mean
from flow2onnx.ops.named_losses import LOSSES, Loss, Type
from flow2onnx.trace.call_text import find_entry

__all__ = ["LOSSES", "NamedLoss", "mean", "named_loss"]


@dataclass(frozen=True)
class NamedLoss:
    """A loss with its settings."""

    name: str
    loss: Loss
    settings: dict[str, Any]

    def labels(self, outputs: Sequence[Value]) -> dict[str, Type]:
        """The labels that it takes for outputs of the model: shapes and element types.

        A size of None is what the user says.
        """
        for output in outputs:
            if not dtype_of(output).is_floating_point:
                raise DTypeError(
                    f"the loss {self.name} is of real numbers, output {output.name} is "
                    f"{dtype_of(output).name}",
                    hint="name another output with output=",
                )
        return {n: made(outputs[0], self.settings) for n, made in self.loss.labels.items()}

    def apply(self, b: Builder, outputs: Sequence[Value], labels: Sequence[Value]) -> Value:
        """The loss, a scalar."""
        return self.loss.function(b, *outputs, *labels, **self.settings)


def named_loss(text: str) -> NamedLoss:
    """The loss that a text such as ``cross_entropy(axis=-1)`` names."""
    operands = {n for loss in LOSSES.values() for n in loss.operands}
    functions = {name: loss.function for name, loss in LOSSES.items()}
    function, settings = find_entry(functions, text, "loss", hidden=operands)
    name = next(n for n, f in functions.items() if f is function)
    return NamedLoss(name, LOSSES[name], settings)
