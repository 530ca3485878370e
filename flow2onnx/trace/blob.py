"""Blob: the user's handle on a traced value."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from flow2onnx_runtime import view
from flow2onnx_runtime.view.texts import shape_text

from flow2onnx.dtypes import DType
from flow2onnx.graph import Value
from flow2onnx.graph.types import bounds_of, dtype_of, is_static
from flow2onnx.trace.blob_operators import BlobOperators
from flow2onnx.trace.context import current_job
from flow2onnx.trace.distribution import (
    Distribute,
    auto,
    broadcast,
    partial,
    redistribute,
    split,
)

__all__ = [
    "Blob",
    "BlobId",
    "Distribute",
    "ParallelConf",
    "Size",
    "auto",
    "broadcast",
    "partial",
    "split",
    "unwrap",
    "wrap",
]


class Size(tuple[int, ...]):
    """A shape as code written for later releases has it: a tuple that counts its elements.

    >>> Size((2, 3)).numel()
    6
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[int] = ()) -> Self:
        """The sizes as a shape."""
        return super().__new__(cls, sizes)

    def numel(self) -> int:
        """The number of elements of such a shape."""
        return math.prod(self)


@dataclass(frozen=True)
class BlobId:
    """The names of an operator and of one of its outputs."""

    op_name: str
    blob_name: str


@dataclass(frozen=True)
class ParallelConf:
    """A device tag and the devices of that kind, as ``machine:device``."""

    device_tag: str
    device_name: tuple[str, ...] = ("0:0",)


class Blob(BlobOperators):
    """A value of the job being traced: a shape and an element type, no data.

    Arithmetic and comparison operators are those of `flow.math`, indexing and short methods are
    numpy's. There is no truth value. `==` builds an operator: compare handles with `is`.
    """

    __slots__ = ("_dynamic", "distribute", "value")

    def __init__(self, value: Value, is_dynamic: bool = False, distribute: Any = None) -> None:
        self.value, self._dynamic, self.distribute = value, is_dynamic, distribute

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions; for a dynamic blob the upper bounds."""
        return bounds_of(self.value)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The dimensions without regard to a call: those of `shape`."""
        return self.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return dtype_of(self.value)

    @property
    def is_dynamic(self) -> bool:
        """True if the shape may be smaller at a call than it is here."""
        return self._dynamic or not is_static(self.value)

    @property
    def op_name(self) -> str:
        """The operator or variable that made it."""
        return (self.value.name or "").split("/")[0]

    @property
    def blob_name(self) -> str:
        """The output of that operator."""
        return (self.value.name or "").partition("/")[2] or "out"

    @property
    def logical_blob_name(self) -> str:
        """``op/blob``."""
        return f"{self.op_name}/{self.blob_name}"

    @property
    def unique_name(self) -> str:
        """The logical name with the distribution hint, when there is one."""
        return self.logical_blob_name + (f":{self.distribute}" if self.distribute else "")

    @property
    def batch_axis(self) -> int | None:
        """The axis that a multi-device job would split: 0, None for a scalar."""
        return 0 if self.shape else None

    @property
    def split_axis(self) -> int | None:
        """The axis along which the hint splits it, None without such a hint."""
        return self.distribute.axis if isinstance(self.distribute, Distribute) else None

    @property
    def is_tensor_list(self) -> bool:
        """True for a list of tensors: never."""
        return False

    @property
    def lbi(self) -> "BlobId":
        """The names of the operator and of its output."""
        return BlobId(self.op_name, self.blob_name)

    @property
    def parallel_conf(self) -> "ParallelConf":
        """Where operators at this place of the job run."""
        return ParallelConf(current_job("parallel_conf").device_tag)

    @property
    def parallel_size(self) -> int:
        """The number of devices that hold it: one."""
        return 1

    @property
    def location(self) -> str:
        """The user's line that made it, as ``model.py:41``."""
        node = self.value.producer()
        return str(node.meta.get("source") or "") if node is not None else ""

    def with_distribute(self, distribute: Any) -> "Blob":
        """The same value as consumers see it under a distribution hint, which changes no value."""
        value, hint = redistribute(self.value, distribute, None)
        return Blob(value, self._dynamic, hint)

    def with_split_distribute(self, axis: int) -> "Blob":
        """The same value, split along `axis` were there several devices."""
        return self.with_distribute(split(axis))

    def with_broadcast_distribute(self) -> "Blob":
        """The same value, copied to each device."""
        return self.with_distribute(broadcast())

    def with_gradient_distribute(self, distribute: Any) -> "Blob":
        """The same value; a hint for its gradient changes none."""
        value, _ = redistribute(self.value, None, distribute)
        return Blob(value, self._dynamic, self.distribute)

    def __repr__(self) -> str:
        return f"Blob({self.logical_blob_name}, shape={self.shape}, dtype={self.dtype.name})"

    def _repr_html_(self) -> str:
        """The blob for a notebook: what is known of it while its job is traced."""
        node = self.value.producer()
        facts = {
            "shape": shape_text(self.shape),
            "dtype": self.dtype.name,
            "made by": None if node is None else node.op_type,
            "at": None if node is None else node.meta.get("source"),
        }
        return view.html_block(f"Blob {self.logical_blob_name}", view.facts_table(facts))


def unwrap(argument: Any) -> Any:
    """The argument with every blob in its lists, tuples and dicts replaced by its value."""
    if isinstance(argument, Blob):
        return argument.value
    if isinstance(argument, list | tuple):
        return type(argument)(unwrap(a) for a in argument)
    if isinstance(argument, dict):
        return {k: unwrap(v) for k, v in argument.items()}
    return argument


def wrap(result: Any, is_dynamic: bool = False) -> Any:
    """The result with every value replaced by a blob."""
    if isinstance(result, Value):
        return Blob(result, is_dynamic)
    if isinstance(result, list | tuple):
        return type(result)(wrap(r, is_dynamic) for r in result)
    return result
