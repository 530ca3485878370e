"""Preprocess: what an exported model does with raw images before the job's input."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from flow2onnx.dtypes import by_name, float32
from flow2onnx.errors import ArgumentError, DTypeError, FlowError
from flow2onnx.graph import Builder, Model, Value
from flow2onnx.onnx_io.serialize import Signature, signature

__all__ = ["Preprocess", "add_preprocessing", "parse_preprocess"]

_LAYOUTS = ("NCHW", "NHWC")
_ORDERS = ("RGB", "BGR")
Shape = tuple[int | str, ...]
_RAW = ("uint8", "int8", "int32", "float16", "float32")


@dataclass(frozen=True)
class Preprocess:
    """Raw images to a job's input: ``(raw * scale - mean) / std``, layout, order of channels.

    `dtype` is what the raw images come in, ``layout="NHWC->NCHW"`` how they lie and how the job
    has them, ``order="BGR->RGB"`` the same of the channels. `mean` and `std` are one number, or one
    for each channel in the job's order. Without `layout` and `order` an input of any rank will do.
    """

    dtype: str = "uint8"
    scale: float = 1.0
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0
    layout: str | None = None
    order: str | None = None

    def __post_init__(self) -> None:
        if self.dtype not in _RAW:
            raise _wrong("dtype", self.dtype, f"one of {', '.join(_RAW)}")
        _check_numbers("scale", self.scale, is_divisor=True)
        _check_numbers("mean", self.mean)
        _check_numbers("std", self.std, is_divisor=True)
        _check_change("layout", self.layout, _LAYOUTS)
        _check_change("order", self.order, _ORDERS)

    @classmethod
    def of(cls, given: object) -> "Preprocess":
        """A preprocessing, or a dict of its fields, as one."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise ArgumentError(
                f"preprocess is {given!r}", hint="give Preprocess(...), or a dict of its fields"
            )
        known = [f.name for f in fields(cls)]
        unknown = [str(k) for k in given if k not in known]
        if unknown:
            raise ArgumentError(
                f"preprocess has no {unknown[0]!r}", hint=f"it has {', '.join(known)}"
            )
        return cls(**given)

    def __str__(self) -> str:
        steps = (("*", self.scale, 1.0), ("-", self.mean, 0.0), ("/", self.std, 1.0))
        done = [f"{sign} {_text(v)}" for sign, v, idle in steps if set(_numbers(v)) != {idle}]
        parts = [self.dtype, self.layout, self.order, " ".join(["x", *done])]
        return ", ".join(part for part in parts if part)

    def check_input(self, shape: Shape) -> None:
        """Raise unless a job's input of this shape can be made so of raw images."""
        has_channels = any(isinstance(v, Sequence) for v in (self.mean, self.std))
        needs_image = self.layout or self.order or has_channels
        if needs_image and len(shape) != 4:
            raise ArgumentError(
                f"the input of shape {list(shape)} is no batch of images, which has four axes",
                hint="without layout, order, and lists for mean and std, any shape will do",
            )
        if needs_image and self.layout is None:
            raise ArgumentError(
                "which axis has the channels is not said",
                hint='give layout="NCHW" or "NHWC->NCHW"',
            )
        if self.channel_axis is not None:
            self._check_channels(shape[self.channel_axis])

    def _check_channels(self, count: int | str) -> None:
        for name, value in (("mean", self.mean), ("std", self.std)):
            if isinstance(value, Sequence) and len(value) not in (1, count):
                raise ArgumentError(
                    f"{name} has {len(value)} numbers, the images have {count} channels",
                    hint="one number, or one for each channel; layout says where the channels are",
                )
        if self.order and count != 3:
            raise ArgumentError(
                f"order={self.order!r} is for 3 channels, the images have {count}",
                hint="leave it out",
            )

    @property
    def channel_axis(self) -> int | None:
        """Where the job's input has its channels."""
        return None if self.layout is None else self.layout[-4:].index("C")

    def raw_shape(self, shape: Shape) -> Shape:
        """The shape of the raw images for a job's input."""
        if self.layout is None or "->" not in self.layout:
            return shape
        raw, job = self.layout.split("->")
        return tuple(shape[job.index(axis)] for axis in raw)

    def apply(self, b: Builder, raw: Value, rank: int) -> Value:
        """The job's input; in its layout, so that numbers by channel lie as the job has them."""
        x = raw if self.dtype == "float32" else b.Cast(raw, to=float32)
        if self.layout and "->" in self.layout and len(set(self.layout.split("->"))) > 1:
            source, job = self.layout.split("->")
            x = b.Transpose(x, perm=[source.index(axis) for axis in job])
        if self.order and len(set(self.order.split("->"))) > 1:
            x = b.Gather(x, b.const([2, 1, 0]), axis=self.channel_axis)
        for operator, value, idle in (("Mul", self.scale, 1.0), ("Sub", self.mean, 0.0),
                                      ("Div", self.std, 1.0)):  # fmt: skip
            if any(v != idle for v in _numbers(value)):
                x = getattr(b, operator)(x, self._operand(value, rank))
        return x

    def _operand(self, value: float | Sequence[float], rank: int) -> Any:
        numbers = np.asarray(_numbers(value), np.float32)
        if numbers.size == 1:
            return numbers.reshape(())
        assert self.channel_axis is not None, "numbers by channel come with a layout"
        return numbers.reshape([-1 if i == self.channel_axis else 1 for i in range(rank)])


def add_preprocessing(model: Model, given: object, feeds: Sequence[str]) -> dict[str, Preprocess]:
    """Put preprocessings before the inputs of a model; returns them by input.

    `given` is one for the only input, or a dict by input.
    """
    wanted = _by_input(given, feeds)
    tensors = {s.name: s for s in signature(model.graph.inputs)}
    for name, preprocess in wanted.items():
        if name not in feeds:
            raise ArgumentError(
                f"preprocess names {name!r}, which is no input", hint=f"inputs: {', '.join(feeds)}"
            )
        try:
            _prepend(model, tensors[name], preprocess)
        except FlowError as error:
            raise error.located(None, f"preprocess of {name}", None) from None
    return wanted


def _prepend(model: Model, tensor: Signature, preprocess: Preprocess) -> None:
    """Make an input of raw images; it keeps its name and its place.

    The nodes that make the old one of it are named ``name/prepared/…``.
    """
    if tensor.dtype != "float32":
        raise DTypeError(
            f"the job's input is {tensor.dtype}: only float32 is made of raw images",
            hint="leave preprocess out for this input",
        )
    preprocess.check_input(tensor.shape)
    graph, prefix = model.graph, f"{tensor.name}/prepared"
    b = Builder(graph.opset_imports[""])
    raw = b.input(tensor.name, preprocess.raw_shape(tensor.shape), by_name(preprocess.dtype))
    with b.under(prefix):
        prepared = preprocess.apply(b, raw, len(tensor.shape))
    if prepared is raw:
        return
    position = next(i for i, v in enumerate(graph.inputs) if v.name == tensor.name)
    old, nodes = graph.inputs[position], list(b.nodes)
    b.graph.remove(nodes)
    b.graph.inputs.remove(raw)
    for value in list(b.graph.initializers.values()):
        del b.graph.initializers[str(value.name)]
        value.name = f"{prefix}/{value.name}"
        graph.initializers[value.name] = value
    old.replace_all_uses_with(prepared)
    graph.inputs[position] = raw
    graph.insert_before(graph[0], nodes)


def _by_input(given: object, feeds: Sequence[str]) -> dict[str, Preprocess]:
    is_one = isinstance(given, Preprocess) or (
        isinstance(given, Mapping)
        and bool(given)
        and set(given) <= {f.name for f in fields(Preprocess)}
    )
    if is_one and len(feeds) == 1:
        return {feeds[0]: Preprocess.of(given)}
    if is_one:
        raise ArgumentError(
            f"one preprocessing for {len(feeds)} inputs",
            hint=f"give a dict by input: {', '.join(feeds)}",
        )
    if not isinstance(given, Mapping) or not given:
        raise ArgumentError(
            f"preprocess is {given!r}", hint="give Preprocess(...), or a dict of them by input"
        )
    return {str(name): Preprocess.of(one) for name, one in given.items()}


def _numbers(value: float | Sequence[float]) -> list[float]:
    return [float(v) for v in value] if isinstance(value, Sequence) else [float(value)]


def _check_numbers(name: str, value: object, *, is_divisor: bool = False) -> None:
    is_list = isinstance(value, list | tuple) and name != "scale"
    values: list[Any] = list(value) if is_list else [value]  # type: ignore[call-overload]  # a list
    are_numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if not values or not are_numbers or not all(math.isfinite(v) for v in values):
        raise _wrong(name, value, "a finite number" + ", or one a channel" * (name != "scale"))
    if is_divisor and not all(values):
        raise _wrong(name, value, "numbers other than 0")


def _check_change(name: str, value: object, known: tuple[str, ...]) -> None:
    if value is None:
        return
    parts = value.split("->") if isinstance(value, str) else []
    if not 1 <= len(parts) <= 2 or any(p not in known for p in parts):
        raise _wrong(name, value, f"{known[1]}->{known[0]}, or one of {' and '.join(known)}")


def _wrong(name: str, value: object, hint: str) -> ArgumentError:
    return ArgumentError(f"preprocess: {name} is {value!r}", hint=hint)


def _text(value: float | Sequence[float]) -> str:
    numbers = [f"{v:g}" for v in _numbers(value)]
    return numbers[0] if len(numbers) == 1 else f"[{', '.join(numbers)}]"


def parse_preprocess(text: str) -> tuple[str | None, Preprocess]:
    """``input:dtype=uint8;scale=1/255;mean=0.5,0.4,0.3;layout=NHWC->NCHW`` as both.

    The input may be left out where there is only one.
    """
    name, colon, rest = text.partition(":")
    settings = dict(_setting(part) for part in (rest if colon else text).split(";") if part)
    return name if colon else None, Preprocess.of(settings)


def _setting(part: str) -> tuple[str, Any]:
    key, equals, value = part.partition("=")
    if not equals:
        raise ArgumentError(f"preprocess: {part!r}", hint="write KEY=VALUE;KEY=VALUE")
    key, value = key.strip(), value.strip()
    if key not in ("scale", "mean", "std"):
        return key, value
    numbers = [_number(v) for v in value.split(",")]
    return key, numbers[0] if len(numbers) == 1 else numbers


def _number(text: str) -> float:
    found = re.fullmatch(r"\s*([-+.\deE]+)\s*(?:/\s*([-+.\deE]+)\s*)?", text)
    try:
        if found is None:
            raise ValueError(text)
        return float(found[1]) / float(found[2] or 1)
    except (ValueError, ZeroDivisionError):
        raise ArgumentError(f"preprocess: {text!r} is no number", hint="as 0.5 or 1/255") from None
