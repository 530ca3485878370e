"""grad, vjp, jvp, hvp and jacobian: derivatives of a model as a model, for who only wants those."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flow2onnx.autodiff import gradients, hessian_products, jacobians, tangents
from flow2onnx.errors import ArgumentError, GradientError
from flow2onnx.graph import Value
from flow2onnx.graph.types import dtype_of, is_static, size_of, sizes_of
from flow2onnx.imported.differentiated import Differentiated, read_model
from flow2onnx.onnx_io.foreign import Source

__all__ = ["grad", "hvp", "jacobian", "jvp", "vjp"]

_MOST_DERIVATIVES = 1 << 28  # elements of a Jacobian whose size is known


def grad(
    model: Source,
    wrt: str | Sequence[str] | None = None,
    *,
    outputs: str | Sequence[str] | None = None,
    seeds: bool = False,
    inputs: Mapping[str, Any] | None = None,
    keep_outputs: bool = True,
    opset: int | None = None,
) -> Any:
    """An `onnx.ModelProto` that computes the gradients of a model.

    `wrt` are names of, or shell patterns for, inputs and initializers of a real type; without it,
    all such inputs. The gradient of ``x`` is the output ``grad/x``. It is that of the sum of all
    elements of `outputs` (without it, of all real outputs) or, with `seeds`, of the sum weighted by
    inputs ``seed/y``, one of the shape of each output ``y``. Axes that the model leaves free stay
    free; `inputs` fixes sizes, as in `make_trainable`. The model's own outputs come first unless
    `keep_outputs` is false.
    """
    read = read_model(model, wrt, outputs, inputs, opset)
    weights = read.inputs_like("seed", read.outputs) if seeds else read.ones()
    return _gradient_model(read, weights, "grad", keep_outputs)


def vjp(
    model: Source,
    wrt: str | Sequence[str] | None = None,
    *,
    outputs: str | Sequence[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    keep_outputs: bool = True,
    opset: int | None = None,
) -> Any:
    """An `onnx.ModelProto` of the products of cotangents with the Jacobian of a model: uᵀ J.

    Inputs ``cotangent/y`` stand beside the model's own, one for each of `outputs` and of its shape;
    the product for ``x`` is the output ``vjp/x``. Everything else is as in `grad`.
    """
    read = read_model(model, wrt, outputs, inputs, opset)
    return _gradient_model(read, read.inputs_like("cotangent", read.outputs), "vjp", keep_outputs)


def jvp(
    model: Source,
    wrt: str | Sequence[str] | None = None,
    *,
    outputs: str | Sequence[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    keep_outputs: bool = True,
    opset: int | None = None,
) -> Any:
    """An `onnx.ModelProto` of the derivatives of a model along tangents: J v, forward mode.

    Inputs ``tangent/x`` stand beside the model's own, one for each of `wrt` and of its shape; the
    derivative of output ``y`` is ``jvp/y``, zeros where it depends on none of them. Everything
    else is as in `grad`.
    """
    read = read_model(model, wrt, outputs, inputs, opset)
    directions = read.inputs_like("tangent", read.wrt)
    along = {x: directions[n] for n, x in read.wrt.items()}
    found = tangents(read.b, along, list(dict.fromkeys(read.outputs.values())))
    if not found:
        raise GradientError(
            f"{', '.join(read.wanted)} depends on none of {', '.join(read.wrt)}, or only by "
            "operators without a gradient",
            hint="name others with wrt= or outputs=",
        )
    results = {f"jvp/{n}": _found_or_zeros(read, found, y) for n, y in read.outputs.items()}
    return read.finish(results, "jvp", keep_outputs=keep_outputs)


def hvp(
    model: Source,
    wrt: str | Sequence[str] | None = None,
    *,
    outputs: str | Sequence[str] | None = None,
    seeds: bool = False,
    inputs: Mapping[str, Any] | None = None,
    keep_outputs: bool = True,
    opset: int | None = None,
) -> Any:
    """An `onnx.ModelProto` of the products of a Hessian with tangents: H v.

    The Hessian is that of what `grad` differentiates, in all of `wrt` at once. Inputs
    ``tangent/x`` are the direction; outputs are the gradient, ``grad/x``, and the product,
    ``hvp/x``, zeros where the gradient is constant. Everything else is as in `grad`.
    """
    read = read_model(model, wrt, outputs, inputs, opset)
    weights = read.inputs_like("seed", read.outputs) if seeds else read.ones()
    directions = read.inputs_like("tangent", read.wrt)
    along = {x: directions[n] for n, x in read.wrt.items()}
    first, second = hessian_products(read.b, _by_value(read, weights), along)
    read.check_reached(first)
    results = {f"grad/{n}": first[x] for n, x in read.wrt.items()}
    results |= {f"hvp/{n}": _found_or_zeros(read, second, x) for n, x in read.wrt.items()}
    return read.finish(results, "hvp", keep_outputs=keep_outputs)


def jacobian(
    model: Source,
    wrt: str | Sequence[str] | None = None,
    *,
    outputs: str | Sequence[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    keep_outputs: bool = True,
    opset: int | None = None,
) -> Any:
    """An `onnx.ModelProto` of the derivatives of all elements of outputs in all elements of `wrt`.

    That of ``y`` in ``x`` is the output ``jacobian/y/x``, of the shape of y followed by that of x.
    A Scan computes one row at a time, so that memory holds one walk back and the result; of known
    size, that has at most 2²⁸ elements. Everything else is as in `grad`.
    """
    read = read_model(model, wrt, outputs, inputs, opset)
    for y, value in read.outputs.items():
        _check_size(y, value, read.wrt)
    rows = {y: jacobians(read.b, v, list(read.wrt.values())) for y, v in read.outputs.items()}
    read.check_reached({x: x for found in rows.values() for x in found})
    results = {
        f"jacobian/{y}/{n}": rows[y][x]
        if x in rows[y]
        else _zeros(read, (*sizes_of(read.outputs[y]), *sizes_of(x)), x)
        for y in rows
        for n, x in read.wrt.items()
    }
    return read.finish(results, "jacobian", keep_outputs=keep_outputs)


def _gradient_model(
    read: Differentiated, weights: Mapping[str, Value], kind: str, keep_outputs: bool
) -> Any:
    found = gradients(read.b, _by_value(read, weights), read.wrt.values())
    read.check_reached(found)
    results = {f"{kind}/{n}": found[x] for n, x in read.wrt.items()}
    return read.finish(results, kind, keep_outputs=keep_outputs)


def _by_value(read: Differentiated, weights: Mapping[str, Value]) -> dict[Value, Value]:
    """The weights of outputs by their values; two outputs may be one value."""
    found: dict[Value, Value] = {}
    for name, value in read.outputs.items():
        weight = weights[name]
        found[value] = read.b.Add(found[value], weight) if value in found else weight
    return found


def _found_or_zeros(read: Differentiated, found: Mapping[Value, Value], value: Value) -> Value:
    return found[value] if value in found else _zeros(read, sizes_of(value), value)


def _zeros(read: Differentiated, sizes: Sequence[int | str], like: Value) -> Value:
    """Zeros of the element type of a value."""
    zero = np.zeros(1, dtype_of(like).numpy)
    made: Value = read.b.ConstantOfShape(list(sizes), value=zero)
    return made


def _check_size(name: str, y: Value, wrt: Mapping[str, Value]) -> None:
    """Raise for a Jacobian that is known to be too large."""
    for x, value in wrt.items():
        if not (is_static(y) and is_static(value)):
            continue
        if size_of(y) * size_of(value) > _MOST_DERIVATIVES:
            raise ArgumentError(
                f"the Jacobian of {name} in {x} has {size_of(y)} × {size_of(value)} elements; "
                f"{_MOST_DERIVATIVES} are the most",
                hint="ask for products with it: vjp or jvp, or name smaller parts with wrt=",
            )
