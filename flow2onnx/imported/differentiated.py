"""A model read to be differentiated: its inputs, tensors and outputs, and what is written."""

import fnmatch
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flow2onnx.dtypes import DType, by_code
from flow2onnx.errors import ArgumentError, BundleError, DTypeError, GradientError
from flow2onnx.export.files import INSIDE_LIMIT, write_bytes
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.model import model_of, to_proto
from flow2onnx.graph.types import dtype_of, is_static, size_of, sizes_of
from flow2onnx.graph.verify import verify
from flow2onnx.imported.feeds import read_feeds
from flow2onnx.imported.initial_state import tensor_type
from flow2onnx.imported.preview_training import PREVIEW_OPERATORS, preview_handlers
from flow2onnx.onnx_io.append import add_output, append_model
from flow2onnx.onnx_io.foreign import ForeignModel, foreign_model
from flow2onnx.onnx_io.serialize import embed_values
from flow2onnx.passes import run_passes
from flow2onnx.trace.call_text import known_names

__all__ = ["Differentiated", "read_model", "save_model", "signature_of"]

_MOST_SEEDS = 1 << 24  # elements of a constant of ones


@dataclass(frozen=True, kw_only=True)
class Differentiated:
    """A model in a builder: `wrt` are the values asked for by name, `wanted` the names of outputs.

    `made` are the model's values by name, `given` the names of its inputs.
    """

    b: Builder
    foreign: ForeignModel
    wrt: Mapping[str, Value]
    made: Mapping[str, Value]
    wanted: tuple[str, ...]
    given: frozenset[str]

    @property
    def outputs(self) -> dict[str, Value]:
        """The outputs to be differentiated, by name."""
        return {y: self.made[y] for y in self.wanted}

    def inputs_like(self, prefix: str, values: Mapping[str, Value]) -> dict[str, Value]:
        """An input ``prefix/name`` for each of `values`, of its shape and element type."""
        return {
            n: self.b.input(f"{prefix}/{n}", sizes_of(v), dtype_of(v)) for n, v in values.items()
        }

    def ones(self) -> dict[str, Value]:
        """Ones in the shape of every output to be differentiated."""
        return {y: _ones(self.b, y, v) for y, v in self.outputs.items()}

    def check_reached(self, found: Mapping[Value, Value]) -> None:
        """Raise for a tensor that has no gradient."""
        for name, x in self.wrt.items():
            if x not in found:
                raise GradientError(
                    f"no gradient reaches {name}: {', '.join(self.wanted)} does not depend on it, "
                    "or only by operators without one",
                    hint="leave it out of wrt=",
                )

    def finish(self, results: Mapping[str, Value], name: str, *, keep_outputs: bool) -> Any:
        """The model as an `onnx.ModelProto`: its own outputs if they are kept, then `results`."""
        b = self.b
        if keep_outputs:
            for output in self.foreign.outputs:
                add_output(b, self.made[output], output)
        for output, value in results.items():
            b.output(value, output)
        result = model_of(b.graph)
        tensors = {n: self.foreign.tensors[n].numpy() for n in self.wrt if n not in self.given}
        embed_values(result, tensors)
        run_passes(b.graph)
        b.graph.name = f"{name}_{self.foreign.name or 'model'}"
        verify(result)
        return to_proto(result)


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model with derivatives, whole or not at all; an earlier file is replaced."""
    if model.ByteSize() > INSIDE_LIMIT:
        raise BundleError(
            f"{model.ByteSize()} bytes are too many for one .onnx file",
            hint="name fewer tensors with wrt=, or write it with onnx.save and external data",
        )
    write_bytes(Path(path), model.SerializeToString(deterministic=True))


def signature_of(model: Any) -> list[tuple[str, str, str, tuple[int | str, ...]]]:
    """For each input and output of an `onnx.ModelProto` its kind, name, element type and shape."""
    return [
        (
            kind,
            value.name,
            by_code(value.type.tensor_type.elem_type).name,
            tuple(d.dim_value or d.dim_param for d in value.type.tensor_type.shape.dim),
        )
        for kind, values in (("input", model.graph.input), ("output", model.graph.output))
        for value in values
    ]


def read_model(
    model: Any, wrt: Any, outputs: Any, inputs: Mapping[str, Any] | None, opset: int | None
) -> Differentiated:
    """A model appended to a new builder, with what is asked of it looked up.

    Axes that the model leaves free stay free unless `inputs` gives their size.
    """
    foreign = foreign_model(model, None, opset, allowed=PREVIEW_OPERATORS)
    feeds = read_feeds(foreign, inputs, any_axis=True)
    if feeds.extra:
        raise ArgumentError(
            f"inputs: the model has no input {feeds.extra[0].name!r}",
            hint="leave it out of inputs=",
        )
    b = Builder(foreign.opset)
    values = {f.name: b.input(f.name, feeds.free_shape(f), f.dtype) for f in feeds.model}
    given = frozenset(values)
    tensors = _tensors_to_differentiate(foreign, values, wrt)
    for name in tensors:
        if name not in values:
            # an initializer again at the end, as constants have no gradient
            values[name] = b.input(name, *tensor_type(foreign, name))
    made = append_model(b, foreign, values, preview_handlers(foreign))
    wanted = _outputs_to_differentiate(foreign, made, outputs)
    return Differentiated(
        b=b,
        foreign=foreign,
        wrt={n: values[n] for n in tensors},
        made=made,
        wanted=tuple(wanted),
        given=given,
    )


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
            _check_real(name, dtype_of(values[name]) if name in values else None, foreign)
            found[name] = None
    return list(found)


def _check_real(name: str, dtype: DType | None, foreign: ForeignModel) -> None:
    kind = dtype or tensor_type(foreign, name)[1]
    if not kind.is_floating_point:
        raise DTypeError(f"wrt: {name} is {kind.name}, which has no gradient", hint="leave it out")


def _outputs_to_differentiate(
    foreign: ForeignModel, made: Mapping[str, Value], outputs: Any
) -> Sequence[str]:
    if outputs is None:
        wanted = [n for n in foreign.outputs if dtype_of(made[n]).is_floating_point]
    else:
        wanted = list(dict.fromkeys([outputs] if isinstance(outputs, str) else outputs))
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


def _ones(b: Builder, name: str, value: Value) -> Value:
    if not is_static(value):
        one = np.ones(1, dtype_of(value).numpy)
        made: Value = b.ConstantOfShape(list(sizes_of(value)), value=one)
        return made
    if size_of(value) > _MOST_SEEDS:
        raise ArgumentError(
            f"output {name} has {size_of(value)} elements; {_MOST_SEEDS} are the most",
            hint="give smaller shapes with inputs=, or pass seeds=True",
        )
    return b.const(np.ones(sizes_of(value)), dtype_of(value))
