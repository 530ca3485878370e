"""Losses by name: one table, from which jobs, imported models and the command line choose.

A loss reads outputs of a model, and labels of shapes that these decide; it gives a scalar. In a job
it is `flow.losses.NAME`, of shape (1,).
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from flow2onnx.dtypes import DType, int64
from flow2onnx.errors import ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of, rank_of, sizes_of
from flow2onnx.ops import class_losses, element_losses, embedding_losses
from flow2onnx.ops.ctc import ctc
from flow2onnx.ops.loss_parts import class_axis
from flow2onnx.trace.op import op

__all__ = ["LOSSES", "Loss", "Type"]

Type = tuple[tuple[int | str | None, ...], DType]
LabelType = Callable[[Value, Mapping[str, Any]], Type]


@dataclass(frozen=True)
class Loss:
    """A loss: `function(b, outputs..., labels..., settings...)` gives a scalar.

    `labels` says of each of its labels the shape and the element type that they have for the first
    output and the settings; None stands for a size that the user says.
    """

    function: Callable[..., Value]
    labels: Mapping[str, LabelType] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def operands(self) -> tuple[str, ...]:
        """The parameters that are no settings: the builder, outputs and labels."""
        parameters = inspect.signature(self.function).parameters
        return tuple(n for n, p in parameters.items() if p.annotation in (Builder, Value))

    @property
    def outputs(self) -> int:
        """How many outputs of a model it reads."""
        return len(self.operands) - 1 - len(self.labels)


def _same(output: Value, settings: Mapping[str, Any]) -> Type:
    """Labels like the output."""
    return sizes_of(output), dtype_of(output)


def _classes(output: Value, settings: Mapping[str, Any]) -> Type:
    """Class numbers, in the shape of the output without the axis of classes."""
    if settings.get("probabilities"):
        return _same(output, settings)
    axis = class_axis(output, settings.get("axis"))
    return tuple(d for i, d in enumerate(sizes_of(output)) if i != axis), int64


def _rows(output: Value, settings: Mapping[str, Any]) -> Type:
    """A number for each vector of the output."""
    return sizes_of(output)[:-1], dtype_of(output)


def _batch_axis(output: Value, settings: Mapping[str, Any]) -> int:
    if rank_of(output) != 3:
        raise ShapeError(
            f"output {output.name} is {sizes_of(output)}, and ctc takes (time, batch, classes)",
            hint="or (batch, time, classes) with ctc(batch_first=True)",
        )
    return 0 if settings.get("batch_first") else 1


def _texts(output: Value, settings: Mapping[str, Any]) -> Type:
    """Rows of class numbers, of a length that the user says."""
    return (sizes_of(output)[_batch_axis(output, settings)], None), int64


def _lengths(output: Value, settings: Mapping[str, Any]) -> Type:
    """A length for each row."""
    return (sizes_of(output)[_batch_axis(output, settings)],), int64


_SAME, _BY_CLASS, _BY_ROW = {"labels": _same}, {"labels": _classes}, {"labels": _rows}
_OF_TEXTS = {"labels": _texts, "input_lengths": _lengths, "target_lengths": _lengths}

LOSSES: dict[str, Loss] = {
    "cross_entropy": Loss(class_losses.cross_entropy, _BY_CLASS),
    "nll": Loss(class_losses.nll, _BY_CLASS),
    "softmax_focal": Loss(class_losses.softmax_focal, _BY_CLASS),
    "multi_margin": Loss(class_losses.multi_margin, _BY_CLASS),
    "mse": Loss(element_losses.mse, _SAME),
    "l1": Loss(element_losses.l1, _SAME),
    "huber": Loss(element_losses.huber, _SAME),
    "smooth_l1": Loss(element_losses.smooth_l1, _SAME),
    "bce": Loss(element_losses.bce, _SAME),
    "bce_with_logits": Loss(element_losses.bce_with_logits, _SAME),
    "focal": Loss(element_losses.focal, _SAME),
    "dice": Loss(element_losses.dice, _SAME),
    "kl": Loss(element_losses.kl, _SAME),
    "hinge": Loss(element_losses.hinge, _SAME),
    "hinge_embedding": Loss(element_losses.hinge_embedding, _SAME),
    "soft_margin": Loss(element_losses.soft_margin, _SAME),
    "poisson_nll": Loss(element_losses.poisson_nll, _SAME),
    "gaussian_nll": Loss(embedding_losses.gaussian_nll, _SAME),
    "cosine": Loss(embedding_losses.cosine, _SAME),
    "cosine_embedding": Loss(embedding_losses.cosine_embedding, _BY_ROW),
    "triplet": Loss(embedding_losses.triplet),
    "margin_ranking": Loss(embedding_losses.margin_ranking, _SAME),
    "info_nce": Loss(embedding_losses.info_nce),
    "ctc": Loss(ctc, _OF_TEXTS),
}


def _of_jobs(function: Callable[..., Value]) -> Callable[..., Value]:
    """The loss in shape (1,): blobs of rank 0 are none of OneFlow's."""

    @functools.wraps(function)
    def lower(b: Builder, *values: Value, **settings: Any) -> Value:
        return b.Reshape(function(b, *values, **settings), [1])

    return lower


for _name, _loss in LOSSES.items():
    op(f"losses.{_name}")(_of_jobs(_loss.function))
