"""Checks of a model before anyone parses it: counts, and files that it names.

The parser has the last word: a location that it sees and we do not would be read unchecked.
"""

from collections.abc import Iterator

import onnx
from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.model_check import check_model
from google.protobuf.message import DecodeError, Message
from onnx import helper

from tests.fuzz.target import scratch
from tests.hostile.models import FAMILIES, case
from tests.imported import models

TOKENS = (b"location", b"\x0a\x08location", b"../x",
          b"\x08\x0a\x12\x04ORTM", b"\x72", b"\x6a", b"\x2a",
          b"\x3a", b"\x70\x01", b"\xca\x01", b"\xa2\x01", b"\x0b", b"\x0c",
          b"\x80\x80\x80\x80\x10")  # fmt: skip
LONGEST = 1 << 14
LARGE = ("nested_if", "chain", "many_values", "deep_graphs")  # hostile by their size


def seeds() -> Iterator[bytes]:
    """Sound models, one with tensors in other files at every place, and small hostile ones."""
    yield models.perceptron(4).SerializeToString()
    yield outside().SerializeToString()
    for number, family in enumerate(FAMILIES):
        if family not in LARGE and len(content := case(number)[1]) <= LONGEST:
            yield content


def outside() -> onnx.ModelProto:
    """A model with a tensor in another file at every place that can hold one."""
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[2], data_location=1)
    tensor.external_data.add(key="location", value="w.bin")
    sparse = onnx.SparseTensorProto(values=tensor, indices=tensor, dims=[4])
    value = helper.make_tensor_value_info("y", 1, [2])
    inner = helper.make_graph([], "inner", [], [value], [tensor], sparse_initializer=[sparse])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner)
    node.attribute.add(name="a", type=4, t=tensor)
    node.attribute.add(name="b", type=9).tensors.append(tensor)
    node.attribute.add(name="c", type=11, sparse_tensor=sparse)
    node.attribute.add(name="d", type=12).sparse_tensors.append(sparse)
    node.attribute.add(name="e", type=10).graphs.append(inner)
    function = helper.make_function("f", "g", [], ["y"], [node], [helper.make_opsetid("", 21)])
    function.attribute_proto.add(name="z", type=4, t=tensor)
    graph = helper.make_graph([node], "outer", [], [value], [tensor], sparse_initializer=[sparse])
    made = helper.make_model(graph, functions=[function], ir_version=10)
    made.training_info.add(initialization=graph, algorithm=inner)
    return made


def run(data: bytes) -> None:
    """Check a model that names files which are not there; whoever gets through names none."""
    path = scratch() / "model.onnx"
    path.write_bytes(data)
    refusal = None
    try:
        check_model(path)
        check_model(data, load_format="ONNX")
    except BundleError as error:
        refusal = error
    try:
        named = set(parsed_locations(onnx.ModelProto.FromString(data)))
    except DecodeError:
        named = set()
    assert refusal or not named, f"locations that nobody checked: {named}"
    if refusal:
        raise refusal


def parsed_locations(message: Message) -> Iterator[str]:
    """The locations of all tensors of a message, as the parser has them."""
    if isinstance(message, onnx.TensorProto):
        for entry in message.external_data:
            if entry.key == "location" and isinstance(entry.value, str):
                yield entry.value
    for field, content in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in [content] if isinstance(content, Message) else content:
                yield from parsed_locations(part)
