"""The protocol's requests and answers over gRPC: tensors in messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # has no types
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
from flow2onnx_serve.messages import MESSAGES
from flow2onnx_serve.ports import Port

__all__ = ["Incoming", "decode", "decode_parts", "encode", "parse", "split"]

Message = Any  # of classes made at run time
Buffer = Any  # whatever a memoryview can be made of

_ENTRIES = 4096  # fields of a message: inputs, outputs, tensors, parameters
_NAMES, _RAW = (1, 2, 3), 7  # the numbers of the fields: model, version, id; tensors

# the typed lists that a request may use in place of bytes
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip


@dataclass(frozen=True)
class Incoming:
    """A request whose names are read: the whole `message`, or one of the names alone.

    In the second case `head` is all of it but the tensors, which lie apart, in its parts.
    """

    message: Message
    head: Sequence[memoryview] | None = None
    tensors: Sequence[memoryview] = ()


def parse(kind: Any, data: bytes) -> Message:
    """The message of that kind in these bytes."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RequestError(f"the message cannot be read: {error}") from error


def split(data: bytes) -> Incoming:
    """The request in a message of which only the outermost fields are read, no tensor copied."""
    view, at = memoryview(data), 0
    names: list[memoryview] = []
    head: list[memoryview] = []
    tensors: list[memoryview] = []
    for _ in range(_ENTRIES):
        if at == len(data):
            message = parse(MESSAGES["ModelInferRequest"], b"".join(names))
            return Incoming(message, head, tensors)
        start = at
        number, size, at = _field(data, at)
        if at > len(data):
            raise _unreadable()
        if number == _RAW and size is not None:
            tensors.append(view[at - size : at])
            continue
        head.append(view[start:at])
        if number in _NAMES:
            names.append(view[start:at])
    raise RequestError(f"the message has more than {_ENTRIES} fields", 413)


def _field(data: bytes, at: int) -> tuple[int, int | None, int]:
    """A field's number, its bytes if it has a length, and where it ends."""
    key, at = _varint(data, at)
    number, kind = key >> 3, key & 7
    if kind == 2:
        size, at = _varint(data, at)
        return number, size, at + size
    if kind == 0:
        return number, None, _varint(data, at)[1]
    if kind in (1, 5):
        return number, None, at + (8 if kind == 1 else 4)
    raise _unreadable()  # groups, which proto3 has not


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise _unreadable()


def _unreadable() -> RequestError:
    return RequestError("the message cannot be read: a field is cut off or of no kind")


def decode_parts(
    head: Sequence[Buffer],
    tensors: Sequence[Buffer],
    inputs: Mapping[str, Port],
    outputs: Mapping[str, Port],
) -> Inference:
    """The request in what `split` found."""
    message = parse(MESSAGES["ModelInferRequest"], b"".join(head))
    return decode(message, inputs, outputs, [memoryview(tensor) for tensor in tensors])


def decode(
    request: Message,
    inputs: Mapping[str, Port],
    outputs: Mapping[str, Port],
    tensors: Sequence[memoryview | bytes] | None = None,
) -> Inference:
    """The request in a message, whose tensors may be given apart."""
    raw = request.raw_input_contents if tensors is None else tensors
    is_raw = len(raw) > 0
    if is_raw and len(raw) != len(request.inputs):
        raise RequestError(f"{len(raw)} raw_input_contents for {len(request.inputs)} inputs")
    given: dict[str, NDArray[Any]] = {}
    for position, item in enumerate(request.inputs):
        port = find_input(inputs, item.name, item.datatype)
        if port.name in given:
            raise RequestError(f"input '{port.name}' is given twice")
        if "shared_memory_region" in item.parameters:
            raise RequestError("shared memory is not served", hint="send the data itself")
        shape = parse_shape(port.name, list(item.shape))
        given[port.name] = (
            from_bytes(port, shape, raw[position])
            if is_raw else _from_contents(port, shape, item.contents)
        )  # fmt: skip
    return Inference(
        request.id,
        arrange_inputs(inputs, given),
        _wanted(request, outputs),
        _timeout(request),
        _adapter(request),
    )


def _adapter(request: Message) -> str:
    if "adapter" not in request.parameters:
        return ""
    given = request.parameters["adapter"]
    if given.WhichOneof("choice") not in (None, "string_param"):
        raise RequestError("adapter is not a name", hint="give it as string_param")
    return str(given.string_param)


def _from_contents(port: Port, shape: tuple[int, ...], contents: Message) -> NDArray[Any]:
    name = _CONTENTS.get(port.datatype)
    if name is None:
        raise RequestError(f"input '{port.name}' is {port.datatype}", hint="use raw_input_contents")
    values = np.array(getattr(contents, name))
    if values.size != np.prod(shape, dtype=object):
        raise RequestError(f"input '{port.name}' has {values.size} elements in {name}, its shape "
                           f"is {list(shape)}")  # fmt: skip
    if values.size and port.dtype.kind in "iu":
        limits = np.iinfo(port.dtype)
        if values.min() < limits.min or values.max() > limits.max:
            raise RequestError(f"input '{port.name}' has data outside the range of {port.datatype}")
    return values.astype(port.dtype).reshape(shape)


def _wanted(request: Message, ports: Mapping[str, Port]) -> tuple[RequestedOutput, ...]:
    if not request.outputs:
        return tuple(RequestedOutput(name) for name in ports)
    check_outputs([item.name for item in request.outputs], ports)
    return tuple(RequestedOutput(item.name, True, _classes(item)) for item in request.outputs)


def _classes(item: Message) -> int:
    if "classification" not in item.parameters:
        return 0
    classes = int(item.parameters["classification"].int64_param)
    if classes < 0:
        raise RequestError(f"classification is {classes}, not a number of classes")
    return classes


def _timeout(request: Message) -> float | None:
    parameters = request.parameters
    if "sequence_id" in parameters:
        raise RequestError("sequences are not served", hint="models here keep no state")
    if "timeout" not in parameters:
        return None
    value = parameters["timeout"]
    return max(value.int64_param, value.uint64_param, 0) / 1e6 or None


def encode(model: str, version: str, name: str, results: Sequence[Result]) -> Message:
    """The answer to the request of that name; `results` holds name, datatype and array of each."""
    return MESSAGES["ModelInferResponse"](
        model_name=model,
        model_version=version,
        id=name,
        outputs=[{"name": n, "datatype": t, "shape": a.shape} for n, t, a in results],
        raw_output_contents=[bytes(tensor_bytes(array)) for _, _, array in results],
    )
