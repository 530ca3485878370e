"""Schemas of operators, in the form that the builder needs at every node."""

from dataclasses import dataclass
from functools import cache

import onnx
from onnx.defs import OpSchema, SchemaError, get_schema

from flow2onnx.dtypes import DType
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph.contrib import CONTRIB, contrib_definition

__all__ = ["PRODUCTS", "Schema", "schema"]

# Products with a weight, which is the second operand.
PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})

# The element types that ONNX calls otherwise than numpy does.
_NUMPY_NAMES = {"float": "float32", "double": "float64"}

# onnx 1.17 infers nothing of these; their results have the types of those of the others.
_INFERRED_AS = {"GreaterOrEqual": "Greater", "LessOrEqual": "Less"}


@dataclass(frozen=True, kw_only=True)
class Schema:
    """One operator at one opset: its type variables by position, and the schema itself.

    `inference` is the schema that infers the types of its results: mostly the same.
    """

    op_type: str
    domain: str
    type_variables: tuple[str, ...]
    is_variadic: bool
    minimum_outputs: int
    attribute_types: dict[str, OpSchema.AttrType]
    definition: OpSchema
    inference: OpSchema

    def type_variable(self, position: int) -> str:
        """The type variable (``T``) or fixed type (``tensor(int64)``) of an input."""
        return self.type_variables[min(position, len(self.type_variables) - 1)]

    def allows(self, variable: str, dtype: DType) -> bool:
        """True if the standard lets a type variable be `dtype`."""
        allowed = {c.type_param_str: c.allowed_type_strs for c in self.definition.type_constraints}
        return dtype.name in map(element_name, allowed.get(variable, ()))


def element_name(onnx_type: str) -> str:
    """Our name of the element type that ONNX writes ``tensor(float)`` or ``FLOAT``."""
    name = onnx_type.lower().removeprefix("tensor(").removesuffix(")")
    return _NUMPY_NAMES.get(name, name)


@cache
def schema(name: str, opset: int) -> Schema:
    """The operator `name` as of `opset`: of the standard, or ``domain::Operator`` of the runtime.

    An operator of the runtime's own is the same at every opset.
    """
    found = contrib_definition(name) if name in CONTRIB else _standard(name, opset)
    variadic = (
        bool(found.inputs) and found.inputs[-1].option == OpSchema.FormalParameterOption.Variadic
    )
    attributes = {name: a.type for name, a in found.attributes.items()}
    return Schema(
        op_type=found.name,
        domain=found.domain,
        type_variables=tuple(i.type_str for i in found.inputs),
        is_variadic=variadic,
        minimum_outputs=max(found.min_output, 1),
        attribute_types=attributes,
        definition=found,
        inference=_inference(found, opset),
    )


def _standard(op_type: str, opset: int) -> OpSchema:
    try:
        return get_schema(op_type, opset, "")
    except SchemaError:
        raise UnsupportedError(
            f"ONNX has no operator {op_type} at opset {opset}",
            hint="ask for a newer opset; 21 is the usual one",
        ) from None


def _inference(found: OpSchema, opset: int) -> OpSchema:
    if found.has_type_and_shape_inference_function or found.name not in _INFERRED_AS:
        return found
    return _standard(_INFERRED_AS[found.name], opset)


def opset_ids(opset: int) -> list[onnx.OperatorSetIdProto]:
    """The import list of a graph in the standard domain alone."""
    return [onnx.helper.make_opsetid("", opset)]
