"""The Open Inference Protocol's requests and answers over HTTP: JSON, with or without bytes."""

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.inference import (
    Inference,
    RequestedOutput,
    Result,
    arrange_inputs,
    check_outputs,
    find_input,
    from_bytes,
    parse_shape,
    tensor_bytes,
)
from flow2onnx_serve.ports import Port

__all__ = ["decode", "dump", "encode", "is_size", "parse_object", "tensor_bytes"]

Json = Any  # whatever a request holds, until it is checked

# element kinds that a list of JSON may have to become an input of a kind
_TAKES = {"f": "iuf", "i": "iu", "u": "iu", "b": "b"}


def parse_object(text: bytes | bytearray | memoryview) -> dict[str, Json]:
    """The JSON object in a body."""
    try:
        value = _DECODER.decode(str(text, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the request is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestError("the request is JSON, but no object")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_PART = 1 << 16  # numbers that are written at once
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def decode(
    body: bytes | bytearray,
    header: int | None,
    inputs: Mapping[str, Port],
    outputs: Mapping[str, Port],
) -> Inference:
    """The request in a body, of which the first `header` bytes are JSON (None: all of it)."""
    if header is not None and header > len(body):
        raise RequestError(f"Inference-Header-Content-Length {header} exceeds {len(body)} bytes")
    view = memoryview(body)
    split = len(body) if header is None else header
    request = parse_object(view[:split])
    given, used = _inputs(request, view[split:], inputs)
    if used != len(body) - split:
        raise RequestError(f"{len(body) - split} bytes follow the JSON, the inputs take {used}")
    parameters = _parameters(request)
    return Inference(
        _id(request),
        arrange_inputs(inputs, given),
        _outputs(request, parameters, outputs),
        _timeout(parameters),
        _adapter(parameters),
    )


def _adapter(parameters: Mapping[str, Json]) -> str:
    given = parameters.get("adapter", "")
    if not isinstance(given, str):
        raise RequestError(f"adapter is {given!r}, not a name")
    return given


def _inputs(
    request: Mapping[str, Json], data: memoryview, ports: Mapping[str, Port]
) -> tuple[dict[str, NDArray[Any]], int]:
    items = request.get("inputs")
    if not isinstance(items, list):
        raise RequestError("the request has no list 'inputs'")
    given: dict[str, NDArray[Any]] = {}
    start = 0
    for item in items:
        if not isinstance(item, dict):
            raise RequestError("an entry of 'inputs' is no object")
        port = find_input(ports, item.get("name"), item.get("datatype"))
        if port.name in given:
            raise RequestError(f"input '{port.name}' is given twice")
        shape = parse_shape(port.name, item.get("shape"))
        size = _binary_size(item, port.name)
        if size is None:
            given[port.name] = _from_json(port, shape, item.get("data"))
        else:
            given[port.name] = from_bytes(port, shape, data[start : start + size])
            start += size
    return given, start


def _parameters(item: Mapping[str, Json]) -> dict[str, Json]:
    parameters = item.get("parameters", {})
    if not isinstance(parameters, dict):
        raise RequestError("'parameters' is no object")
    if "shared_memory_region" in parameters:
        raise RequestError("shared memory is not served", hint="send the data with the request")
    return parameters


def _binary_size(item: Mapping[str, Json], name: str) -> int | None:
    if "parameters" not in item:
        return None
    size = _parameters(item).get("binary_data_size")
    if size is None:
        return None
    if "data" in item:
        raise RequestError(f"input '{name}' has both data and binary_data_size")
    if not is_size(size):
        raise RequestError(f"input '{name}': binary_data_size is {size!r}, not a size")
    return int(size)


def is_size(value: object) -> bool:
    """True for a whole number of at least zero."""
    return type(value) is int and value >= 0


def _from_json(port: Port, shape: tuple[int, ...], data: Json) -> NDArray[Any]:
    if not isinstance(data, list):
        raise RequestError(f"input '{port.name}' needs data, a list", hint="or binary_data_size")
    if port.datatype == "BF16":
        raise RequestError(f"input '{port.name}' is BF16, which JSON cannot carry",
                           hint="send it as binary data")  # fmt: skip
    try:
        found = np.array(data)
    except (ValueError, OverflowError, RecursionError) as error:  # ragged, or too deep
        raise RequestError(f"input '{port.name}' has data that is no array: {error}") from error
    if found.size != prod(shape):
        raise RequestError(f"input '{port.name}' has {found.size} elements of data, its shape "
                           f"{list(shape)} takes {prod(shape)}")  # fmt: skip
    return _cast(port, found).reshape(shape)


def _cast(port: Port, found: NDArray[Any]) -> NDArray[Any]:
    if not found.size:
        return np.empty(0, port.dtype)
    if found.dtype.kind not in _TAKES[port.dtype.kind]:
        raise RequestError(f"input '{port.name}' has data that is not {port.datatype}")
    if port.dtype.kind in "iu":
        limits = np.iinfo(port.dtype)
        if int(found.min()) < limits.min or int(found.max()) > limits.max:
            raise RequestError(f"input '{port.name}' has data outside the range of {port.datatype}")
    with np.errstate(over="ignore"):  # becomes infinite, as in any cast
        return found.astype(port.dtype)


def _id(request: Mapping[str, Json]) -> str:
    given = request.get("id", "")
    if not isinstance(given, str):
        raise RequestError(f"the id is {given!r}, not text")
    return given


def _timeout(parameters: Mapping[str, Json]) -> float | None:
    if parameters.get("sequence_id"):
        raise RequestError("sequences are not served", hint="models here keep no state")
    timeout = parameters.get("timeout")
    if timeout is None:
        return None
    if not is_size(timeout):
        raise RequestError(f"timeout is {timeout!r}, not a number of microseconds")
    return float(min(timeout, 2**50)) / 1e6 or None


def _outputs(
    request: Mapping[str, Json], parameters: Mapping[str, Json], ports: Mapping[str, Port]
) -> tuple[RequestedOutput, ...]:
    default = _flag(parameters, "binary_data_output", False)
    items = request.get("outputs")
    if items is None or items == []:
        return tuple(RequestedOutput(name, default) for name in ports)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RequestError("'outputs' is no list of objects")
    check_outputs([item.get("name") for item in items], ports)
    return tuple(_wanted(item, default) for item in items)


def _wanted(item: Mapping[str, Json], default: bool) -> RequestedOutput:
    parameters = _parameters(item)
    classes = parameters.get("classification", 0)
    if not is_size(classes):
        raise RequestError(f"classification is {classes!r}, not a number of classes")
    return RequestedOutput(
        str(item["name"]), _flag(parameters, "binary_data", default), int(classes)
    )


def _flag(parameters: Mapping[str, Json], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(f"{name} is {value!r}, neither true nor false")
    return value


def encode(
    model: str,
    version: str,
    request: Inference,
    results: Sequence[Result],
) -> tuple[bytes, int | None]:
    """The answer, and how many bytes of it are JSON unless all are.

    `results` holds name, datatype and array for each output in `request.wanted`.
    """
    entries: list[dict[str, Json]] = []
    tensors: list[bytes | memoryview] = []
    long: dict[int, bytes] = {}  # lists of numbers, by the entry that they belong to
    for wanted, (name, datatype, array) in zip(request.wanted, results, strict=True):
        entry: dict[str, Json] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if wanted.is_binary:
            tensors.append(tensor_bytes(array))
            entry["parameters"] = {"binary_data_size": len(tensors[-1])}
        elif array.size > _PART:
            long[len(entries)] = _long_list(name, datatype, array)
        else:
            entry["data"] = _numbers(name, datatype, array).tolist()
        entries.append(entry)
    answer: dict[str, Json] = {"model_name": model, "model_version": version}
    if request.id:
        answer["id"] = request.id
    head = _join(answer, entries, long) if long else dump({**answer, "outputs": entries})
    return (b"".join((head, *tensors)), len(head)) if tensors else (head, None)


def _join(
    answer: dict[str, Json], entries: Sequence[dict[str, Json]], long: Mapping[int, bytes]
) -> bytes:
    """The answer as JSON, with lists that are JSON already."""
    texts = [
        b'%s,"data":%s}' % (dump(entry)[:-1], long[at]) if at in long else dump(entry)
        for at, entry in enumerate(entries)
    ]
    return b'%s,"outputs":[%s]}' % (dump(answer)[:-1], b",".join(texts))


def dump(value: object) -> bytes:
    """JSON in as few bytes as it takes; only what JSON has."""
    return _ENCODER.encode(value).encode()


def _numbers(name: str, datatype: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array in one axis, if JSON can carry its numbers."""
    is_float = array.dtype.kind == "f"
    if datatype == "BF16" or (is_float and not np.isfinite(array).all()):
        raise RequestError(
            f"output '{name}' holds values that JSON cannot carry: "
            f"{'BF16' if datatype == 'BF16' else 'NaN or infinity'}",
            hint="ask for binary data",
        )
    return array.reshape(-1)


def _long_list(name: str, datatype: str, array: NDArray[Any]) -> bytes:
    """The array as JSON, written in parts: as Python's objects numbers take many times the room."""
    flat = _numbers(name, datatype, array)
    parts = (flat[at : at + _PART].tolist() for at in range(0, len(flat), _PART))
    return b"[%s]" % b",".join(dump(part)[1:-1] for part in parts)
