"""Distributions that add to flow2onnx where they are installed, found by entry point.

Whoever asks knows that there may be one, and not which: a distribution names what it offers in the
group `GROUP` of its entry points, `name = "package.module"` for a module with the functions of
`Accelerator`.
"""

import functools
import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from flow2onnx_runtime.errors import UnsupportedError

if TYPE_CHECKING:
    from onnx_ir import Attr, Graph, Model, Node, Value

    from flow2onnx_runtime.dtypes import Array
    from flow2onnx_runtime.options import Options

__all__ = [
    "GRADIENT_OF",
    "GRADIENT_OF_EXPANDED",
    "GROUP",
    "REPLACED_BY",
    "Accelerator",
    "GradientOf",
    "GraphAnalysis",
    "OperatorTraits",
    "Rewriting",
    "Wish",
    "accelerator",
]

GROUP = "flow2onnx.accelerators"
GRADIENT_OF = "flow2onnx.gradient_of"  # in `Node.meta`, a `GradientOf`
GRADIENT_OF_EXPANDED = "flow2onnx.gradient_of_expanded"
REPLACED_BY = "flow2onnx.replaced_by"  # in `Value.meta`, the value that is read in its place

Wish = bool | Literal["auto"]
ModelSource = str | os.PathLike[str] | bytes


class GradientOf(NamedTuple):
    """A compiler's note on the node that makes a gradient, in its `meta` under `GRADIENT_OF`.

    The gradient is that for input `position` of an operator with these attributes, inputs and
    outputs, made of the `gradients` of the outputs, None where none flows. A copy of the graph has
    the note of the original: its values are those of the original. One that is no longer in the
    graph has in its own `meta`, under `REPLACED_BY`, the equal one that is read in its place. Of a
    node for which others stand in the graph, the notes are under `GRADIENT_OF_EXPANDED`, and the
    outputs those of the others.
    """

    op_type: str
    attributes: "Mapping[str, Attr]"
    inputs: "tuple[Value | None, ...]"
    outputs: "tuple[Value, ...]"
    gradients: "tuple[Value | None, ...]"
    position: int


class GraphAnalysis(NamedTuple):
    """A compiler's knowledge of graphs, for a rewrite that asks.

    `late_readers`: for each node that makes the next value of a large state, the nodes that may
    read the present one after it. `index_origin`: the value whose elements some indices are, and
    the extents that were added to negative ones.
    """

    late_readers: "Callable[[Graph], Iterable[tuple[Node, Sequence[Node]]]]"
    index_origin: "Callable[[Value], tuple[Value, tuple[int, ...]]]"


class Rewriting(NamedTuple):
    """A model that is to be opened in the place of another, with its options.

    `used` counts the operators of the accelerator by name. Without any, model and options are those
    that were given; `why_not` then says what is missing, if something is.
    """

    model: "Model"
    options: "Options"
    used: "Mapping[str, int]" = MappingProxyType({})
    why_not: str = ""


class OperatorTraits(Protocol):
    """Facts for an analysis of operators that are not standard."""

    DOMAIN: str

    def overwrites_safely(self, node: "Node", places: Sequence[int], output: str) -> bool:
        """True if an output may lie in the memory of the inputs at `places`."""

    def index_operands(self, node: "Node") -> Sequence[tuple[int, int, int]]:
        """Return each input with indices, which one they point into, and along which axis."""


class Accelerator(OperatorTraits, Protocol):
    """Operators that take the place of standard ones in a model that is about to run."""

    def require_library(self) -> None:
        """Raise `UnsupportedError`, with what to do, where the CPU's operators cannot be used."""

    def fingerprint(self) -> str:
        """Return a hash of what decides on a rewriting besides its arguments."""

    def with_library(self, options: "Options") -> "Options":
        """Return how a model is opened that was rewritten for the CPU."""

    def rewrite(
        self, model: "Model", options: "Options", analysis: GraphAnalysis, *, winograd: bool
    ) -> Rewriting:
        """Return a copy of a training step that uses the operators, and how to open it.

        `winograd`: whether convolutions may be computed so, where it is faster.
        """

    def accelerate(
        self,
        model: ModelSource,
        options: "Options",
        tensors: "MutableMapping[str, Array] | None" = None,
    ) -> "tuple[ModelSource, Options]":
        """Return a model that uses the operators, and how to open it.

        One with an output ``next/v`` for an input ``v`` is a step that trains, others predict.
        Where nothing is gained, both are those that were given. Large tensors of a prediction go
        to `tensors`, if given, in whose places the model has references to external data.
        """


def accelerator(wish: Wish = "auto", *, needs_library: bool = True) -> Accelerator | None:
    """The accelerator, if it is wished for and installed; "auto" does without a missing one.

    Its library for the CPU is looked at unless it is not needed, as on another device.

    Raises `UnsupportedError` for one that is wished for and missing, and for one that is installed
    and cannot be used.
    """
    found = None if wish is False else _installed()
    if found is None and wish is True:
        raise UnsupportedError(
            "native operators are asked for, and the package flow2onnx-native is not installed",
            hint="pip install flow2onnx-native, or do not ask for them",
        )
    if found is not None and needs_library:
        found.require_library()
    return found


@functools.cache
def _installed() -> Accelerator | None:
    first = min(entry_points(group=GROUP), key=lambda point: point.name, default=None)
    found: Accelerator | None = None if first is None else first.load()
    return found
