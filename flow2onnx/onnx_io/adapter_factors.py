"""Factors of DoRA computed in a model: of magnitudes, of adapters, and of the weights themselves.

A module's result becomes y = c (x W + x A B) with c = m / ‖W + A B‖, a norm for each column, where
m is trained (Liu et al., DoRA: Weight-Decomposed Low-Rank Adaptation, 2024, eq. 5). The norms need
no weight in real numbers: ‖W + A B‖² = ‖W‖² + 2 Σ (Aᵀ W) B + Σ (AᵀA B) B, in which ‖W‖² is known
and Aᵀ W is the module's own product of few rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from flow2onnx.errors import UnsupportedError
from flow2onnx.onnx_io.adapter_slots import Product, Slot

__all__ = ["MAGNITUDE", "NORM", "compute_factors", "factors_alone", "magnitude_of"]

MAGNITUDE = ".lora_magnitude.weight"
NORM = "lora_norm"  # the last part of the names of nodes whose results are taken for constants
_PLACE = "lora_factors"
_OPERANDS = {"MatMul": 2, "Gemm": 2, "MatMulNBits": 4}  # without the bias

Chosen = Sequence[tuple[Product, tuple[Slot, ...]]]
Array = np.ndarray[Any, Any]


def magnitude_of(module: str) -> str:
    """The name of the magnitudes of a module, (rows)."""
    return module + MAGNITUDE


def compute_factors(model: onnx.ModelProto, chosen: Chosen, squares: Mapping[str, Array]) -> None:
    """Compute the factors of a model with slots, in place.

    Inputs called ``M.lora_magnitude.weight``, in float32, take their place. `squares` are ‖W‖² by
    module, (rows).
    """
    graph = model.graph
    nodes, made = list[onnx.NodeProto](), set[str]()
    for product, slots in chosen:
        node = next(n for n in graph.node if n.name == product.node)
        _check(node)
        for slot in slots:
            name = f"{_PLACE}/{slot.module}/squares"
            known = np.ascontiguousarray(squares[slot.module], np.float32)
            graph.initializer.append(numpy_helper.from_array(known, name))
            nodes += _factor(node, product, slot, name)
            made.add(slot.factor)
            graph.input.append(
                helper.make_tensor_value_info(
                    magnitude_of(slot.module), TensorProto.FLOAT, [slot.rows]
                )
            )
    nodes += graph.node
    for field, kept in (
        (graph.node, nodes),
        (graph.input, [v for v in graph.input if v.name not in made]),
        (graph.initializer, [t for t in graph.initializer if t.name not in made]),
    ):
        del field[:]
        field.extend(kept)


def factors_alone(model: onnx.ModelProto, chosen: Chosen) -> None:
    """Leave of a model the nodes that compute its factors, which are the outputs then, in place."""
    graph = model.graph
    nodes = [n for n in graph.node if n.name.startswith(f"{_PLACE}/")]
    read = {name for node in nodes for name in node.input}
    tensors = [t for t in graph.initializer if t.name in read]
    outputs = [
        helper.make_tensor_value_info(slot.factor, TensorProto.FLOAT, [slot.rows])
        for _, slots in chosen
        for slot in slots
    ]
    inputs = [v for v in graph.input if v.name in read]
    for field, kept in ((graph.node, nodes), (graph.initializer, tensors),
                        (graph.input, inputs), (graph.output, outputs)):  # fmt: skip
        del field[:]
        field.extend(kept)


def _check(node: onnx.NodeProto) -> None:
    """Raise for a product that is scaled."""
    scaled = {a.name: a.f for a in node.attribute if a.name in ("alpha", "beta") and a.f != 1.0}
    if scaled or node.op_type not in _OPERANDS:
        what = next(iter(scaled), node.op_type)
        raise UnsupportedError(
            f"{node.name}: DoRA is made for plain products, and this one has {what}",
            hint="leave it out of targets, or dora=True out",
        )


def _factor(
    node: onnx.NodeProto, product: Product, slot: Slot, squares: str
) -> Iterator[onnx.NodeProto]:
    """The nodes that compute the factor of a slot."""
    at = f"{_PLACE}/{slot.module}"

    def op(kind: str, inputs: Sequence[str], name: str, **attrs: Any) -> onnx.NodeProto:
        return helper.make_node(kind, inputs, [f"{at}/{name}"], f"{at}/{name}", **attrs)

    up, down, across = f"{at}/up", f"{at}/down", f"{at}/across"
    yield op("Cast", [slot.down], "down", to=TensorProto.FLOAT)
    yield op("Cast", [slot.up], "up", to=TensorProto.FLOAT)
    yield op("Transpose", [slot.down], "turned", perm=[1, 0])
    yield from _rows_of_weight(node, product, slot, at)
    yield op("Transpose", [down], "across", perm=[1, 0])
    yield op("MatMul", [across, down], "gram")
    yield op("MatMul", [f"{at}/gram", up], "pulled")
    yield op("Add", [f"{at}/rows", f"{at}/rows"], "twice")
    yield op("Add", [f"{at}/twice", f"{at}/pulled"], "both")
    yield op("Mul", [f"{at}/both", up], "terms")
    yield helper.make_node("Constant", [], [f"{at}/axes"], f"{at}/axes", value_ints=[0])
    yield op("ReduceSum", [f"{at}/terms", f"{at}/axes"], "added", keepdims=0)
    yield op("Add", [squares, f"{at}/added"], "square")
    yield op("Sqrt", [f"{at}/square"], "norm")
    yield op("Identity", [f"{at}/norm"], NORM)
    yield op("Div", [magnitude_of(slot.module), f"{at}/{NORM}"], "factor")
    yield helper.make_node(
        "Cast", [f"{at}/factor"], [slot.factor], f"{at}/cast", to=product.element
    )


def _rows_of_weight(
    node: onnx.NodeProto, product: Product, slot: Slot, at: str
) -> Iterator[onnx.NodeProto]:
    """Nodes that make Aᵀ W, (rank, rows), by the product's own operator, in float32."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    operands = list(node.input)[: _OPERANDS[node.op_type]]
    del copy.input[:], copy.output[:]
    copy.input.extend([f"{at}/turned", *operands[1:]])
    copy.output.append(f"{at}/product")
    copy.name = f"{at}/product"
    for attribute in copy.attribute:
        if attribute.name == "accuracy_level":  # how coarsely A may be rounded
            attribute.i = 0
    yield copy
    yield helper.make_node(
        "Cast", [f"{at}/product"], [f"{at}/whole"], f"{at}/whole", to=TensorProto.FLOAT
    )
    start = sum(s.rows for s in product.slots[: product.slots.index(slot)])
    for name, number in (("start", start), ("end", start + slot.rows), ("axis", 1)):
        yield helper.make_node(
            "Constant", [], [f"{at}/{name}"], f"{at}/{name}", value_ints=[number]
        )
    yield helper.make_node(
        "Slice", [f"{at}/{n}" for n in ("whole", "start", "end", "axis")], [f"{at}/rows"],
        f"{at}/rows",
    )  # fmt: skip
