"""The protocol's requests and answers over gRPC: tensors in messages."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.inference import (
    Inference,
    RequestedOutput,
    arrange_inputs,
    check_outputs,
    find_input,
    from_bytes,
    parse_shape,
    tensor_bytes,
)
from flow2onnx_serve.messages import MESSAGES
from flow2onnx_serve.ports import Port

__all__ = ["decode", "encode"]

Message = Any  # of classes made at run time

# the typed lists that a request may use in place of bytes
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip


def decode(request: Message, inputs: Mapping[str, Port], outputs: Mapping[str, Port]) -> Inference:
    """The request in a message."""
    raw = request.raw_input_contents
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
        request.id, arrange_inputs(inputs, given), _wanted(request, outputs), _timeout(request)
    )


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


def encode(
    model: str, version: str, name: str, results: Sequence[tuple[str, str, NDArray[Any]]]
) -> Message:
    """The answer to the request of that name; `results` holds name, datatype and array of each."""
    return MESSAGES["ModelInferResponse"](
        model_name=model,
        model_version=version,
        id=name,
        outputs=[{"name": n, "datatype": t, "shape": a.shape} for n, t, a in results],
        raw_output_contents=[tensor_bytes(array) for _, _, array in results],
    )
