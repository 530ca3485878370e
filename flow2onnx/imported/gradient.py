"""grad: a model's gradients as a model, for people who only want those."""

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flow2onnx.autodiff import gradients
from flow2onnx.errors import ArgumentError, DTypeError, GradientError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.model import model_of, to_proto
from flow2onnx.graph.types import dims, dtype_of, size_of
from flow2onnx.graph.verify import verify
from flow2onnx.imported.call_text import known_names
from flow2onnx.imported.feeds import read_feeds
from flow2onnx.imported.initial_state import tensor_type
from flow2onnx.imported.preview_training import PREVIEW_OPERATORS, preview_handlers
from flow2onnx.onnx_io.append import add_output, append_model
from flow2onnx.onnx_io.foreign import ForeignModel, Source, foreign_model
from flow2onnx.onnx_io.serialize import embed_values
from flow2onnx.passes import run_passes

__all__ = ["grad"]

_MOST_SEEDS = 1 << 24  # elements of a constant of ones


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
    inputs ``seed/y``, one of the shape of each output ``y``. Sizes are fixed by `inputs`, as in
    `make_trainable`. The model's own outputs come first unless `keep_outputs` is false.
    """
    foreign = foreign_model(model, None, opset, allowed=PREVIEW_OPERATORS)
    feeds = read_feeds(foreign, inputs)
    if feeds.is_free or feeds.extra:
        free = next((f for f in feeds.model if set(f.shape) & feeds.symbols), None)
        name = free.name if free else feeds.extra[0].name
        shown = free.shape if free else "no input of the model"
        raise ArgumentError(
            f"grad needs fixed shapes: {name} is {shown}",
            hint=f"inputs={{{name!r}: (8, …)}}" if free else "leave it out of inputs=",
        )
    b = Builder(foreign.opset)
    values: dict[str, Value] = {
        f.name: b.input(f.name, feeds.shape(f, 1), f.dtype) for f in feeds.model
    }
    given = list(values)
    tensors = _tensors_to_differentiate(foreign, values, wrt)
    for name in tensors:
        if name not in values:
            # an initializer again at the end, as constants have no gradient
            values[name] = b.input(name, *tensor_type(foreign, name))
    made = append_model(b, foreign, values, preview_handlers(foreign))
    wanted = _outputs_to_differentiate(foreign, made, outputs)
    weights = {y: _seed(b, y, made[y], seeds) for y in wanted}
    found = gradients(b, {made[y]: weights[y] for y in wanted}, [values[n] for n in tensors])
    if keep_outputs:
        for name in foreign.outputs:
            add_output(b, made[name], name)
    for name in tensors:
        _add_gradient(b, found, values[name], name, wanted)
    result = model_of(b.graph)
    embed_values(result, {n: foreign.tensors[n].numpy() for n in tensors if n not in given})
    run_passes(b.graph)
    b.graph.name = f"grad_{foreign.name or 'model'}"
    verify(result)
    return to_proto(result)


def _tensors_to_differentiate(
    foreign: ForeignModel, values: Mapping[str, Value], wrt: Any
) -> list[str]:
    real = [n for n, v in values.items() if dtype_of(v).is_floating_point]
    if wrt is None:
        if not real:
            raise DTypeError(
                "the model has no input of a real type", hint="name initializers with wrt="
            )
        return real
    known = [*values, *(n for n in foreign.tensors if n not in values)]
    found: dict[str, None] = {}
    for pattern in [wrt] if isinstance(wrt, str) else list(wrt):
        names = fnmatch.filter(known, pattern) if isinstance(pattern, str) else []
        names = [pattern] if pattern in known else names
        if not names:
            raise ArgumentError(
                f"wrt={pattern!r} is no input or tensor", hint=known_names(str(pattern), known)
            )
        for name in names:
            dtype = dtype_of(values[name]) if name in values else tensor_type(foreign, name)[1]
            if not dtype.is_floating_point:
                raise DTypeError(
                    f"wrt: {name} is {dtype.name}, which has no gradient", hint="leave it out"
                )
            found[name] = None
    return list(found)


def _outputs_to_differentiate(
    foreign: ForeignModel, made: Mapping[str, Value], outputs: Any
) -> list[str]:
    if outputs is None:
        wanted = [n for n in foreign.outputs if dtype_of(made[n]).is_floating_point]
    else:
        wanted = [outputs] if isinstance(outputs, str) else list(outputs)
    for name in wanted:
        if name not in foreign.outputs:
            raise ArgumentError(
                f"the model has no output {name!r}", hint=known_names(str(name), foreign.outputs)
            )
        if not dtype_of(made[name]).is_floating_point:
            raise DTypeError(
                f"output {name} is {dtype_of(made[name]).name}, which has no gradient",
                hint="name another with outputs=",
            )
    if not wanted:
        raise DTypeError("the model has no output of a real type", hint="there is no gradient")
    return wanted


def _seed(b: Builder, name: str, value: Value, is_input: bool) -> Value:
    if is_input:
        return b.input(f"seed/{name}", dims(value), dtype_of(value))
    if size_of(value) > _MOST_SEEDS:
        raise ArgumentError(
            f"output {name} has {size_of(value)} elements; {_MOST_SEEDS} are the most",
            hint="give smaller shapes with inputs=, or pass seeds=True",
        )
    return b.const(np.ones(dims(value)), dtype_of(value))


def _add_gradient(
    b: Builder, found: Mapping[Value, Value], x: Value, name: str, outputs: Sequence[str]
) -> None:
    if x not in found:
        raise GradientError(
            f"no gradient reaches {name}: {', '.join(outputs)} does not depend on it, or only by "
            "operators without one",
            hint="leave it out of wrt=",
        )
    b.output(found[x], f"grad/{name}")
