"""One request for an inference, in no protocol's form, checked against the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.ports import Port

__all__ = [
    "Inference",
    "RequestedOutput",
    "Result",
    "arrange_inputs",
    "check_outputs",
    "from_bytes",
    "parse_shape",
    "tensor_bytes",
    "top_classes",
]

Result = tuple[str, str, NDArray[Any]]  # name, datatype, array
_MOST = 2**48  # elements of an array, a size of 0 taken for 1


@dataclass(frozen=True)
class RequestedOutput:
    """An output asked for: as bytes behind the header or not, and as how many top classes."""

    name: str
    is_binary: bool = False
    classes: int = 0


@dataclass(frozen=True)
class Inference:
    """A request's arrays in the model's order, and what is to be sent back."""

    id: str
    arrays: list[NDArray[Any]]
    wanted: tuple[RequestedOutput, ...]
    timeout: float | None = None
    adapter: str = ""  # none: the base model


def parse_shape(name: str, values: object) -> tuple[int, ...]:
    """A shape as a request gives it: a list of sizes."""
    if not isinstance(values, list) or len(values) > 32:
        raise RequestError(f"input '{name}' needs a shape", hint="a list of at most 32 sizes")
    for size in values:
        if type(size) is not int or not 0 <= size < _MOST:
            raise RequestError(f"input '{name}' has a shape with {size!r}, which is no size")
    if prod(size or 1 for size in values) >= _MOST:  # numpy has none so large, empty or not
        raise RequestError(f"input '{name}' has the shape {values}, which no array can have")
    return tuple(values)


def from_bytes(port: Port, shape: tuple[int, ...], data: memoryview | bytes) -> NDArray[Any]:
    """The array whose bytes `data` is, in the same memory."""
    expected = prod(shape) * port.dtype.itemsize
    if len(data) != expected:
        raise RequestError(
            f"input '{port.name}' has {len(data)} bytes of data, {port.datatype} "
            f"{list(shape)} takes {expected}"
        )
    array = np.frombuffer(data, port.dtype)
    if port.datatype == "BOOL" and array.size and array.view(np.uint8).max() > 1:
        raise RequestError(f"input '{port.name}' holds bytes other than 0 and 1 for BOOL")
    return array.reshape(shape)


def find_input(ports: Mapping[str, Port], name: object, given: object) -> Port:
    """The input of that name, if it has that datatype."""
    if not isinstance(name, str) or name not in ports:
        raise RequestError(f"unexpected input {name!r}", hint=f"inputs: {', '.join(ports)}")
    if given != ports[name].datatype:
        raise RequestError(f"input '{name}' is {ports[name].datatype}, the request says {given!r}")
    return ports[name]


def arrange_inputs(
    ports: Mapping[str, Port], given: Mapping[str, NDArray[Any]]
) -> list[NDArray[Any]]:
    """The arrays in the model's order, each of a shape that fits it and the others."""
    missing = [name for name in ports if name not in given]
    if missing:
        raise RequestError(f"input '{missing[0]}' is missing", hint=f"inputs: {', '.join(ports)}")
    sizes: dict[str, int] = {}
    for name, port in ports.items():
        if not port.fits(given[name], sizes):
            raise RequestError(
                f"input '{name}' has shape {list(given[name].shape)}, "
                f"the model takes {list(port.shape)}"
                + (f" where {sizes}" if any(s in sizes for s in port.info.shape) else "")
            )
    return [port.inner(given[name]) for name, port in ports.items()]


def check_outputs(names: Sequence[object], ports: Mapping[str, Port]) -> None:
    """Raise `RequestError` unless the names are of outputs, each once."""
    for name in names:
        if not isinstance(name, str) or name not in ports:
            raise RequestError(f"unexpected output {name!r}", hint=f"outputs: {', '.join(ports)}")
    if len(set(names)) < len(names):
        raise RequestError("the request names an output twice")


def top_classes(
    array: NDArray[Any],
    count: int,
    labels: Sequence[str],
    is_batched: bool,
    is_bfloat16: bool = False,
) -> NDArray[Any]:
    """The `count` largest values of each row, as texts ``value:index`` or ``value:index:label``."""
    if is_bfloat16:  # which travels as its bits
        array = (array.astype(np.uint32) << 16).view(np.float32)
    if array.dtype == np.bool_:  # which has no text with decimals
        array = array.astype(np.uint8)
    count_rows = len(array) if is_batched and array.ndim else 1
    rows = array.reshape(count_rows, array.size // count_rows if count_rows else 0)
    count = min(count, rows.shape[1])
    order = np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :count]
    texts = [
        [f"{row[i]:f}:{i}" + (f":{labels[i]}" if i < len(labels) else "") for i in chosen]
        for row, chosen in zip(rows, order, strict=True)
    ]
    found = np.array(texts, np.object_).reshape(len(rows), count)
    return found if is_batched else found[0]


def tensor_bytes(array: NDArray[Any]) -> bytes | memoryview:
    """An array's bytes, where they lie if they lie in order; texts each behind their length."""
    if array.dtype != np.object_:
        is_whole = array.flags.c_contiguous and array.size
        return array.reshape(-1).view(np.uint8).data if is_whole else array.tobytes()
    texts = [text.encode() for text in array.reshape(-1)]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
