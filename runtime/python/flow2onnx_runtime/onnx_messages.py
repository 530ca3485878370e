"""The messages of an .onnx file that a picture of it needs, without a library for them.

protobuf comes with onnxruntime, which needs it; it is imported only by who imports this module.
Fields are those of onnx.proto; what holds the content of tensors is left out and not read.
"""

import os
from collections.abc import Collection
from pathlib import Path

from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.files import open_file
from flow2onnx_runtime.messages import messages, parse_bytes
from flow2onnx_runtime.model_check import check_model
from flow2onnx_runtime.view.graph import Graph, graph_of

__all__ = ["read_graph"]

_MESSAGES = messages(
    "onnx",
    {
        "StringStringEntryProto": "string key = 1; string value = 2",
        "OperatorSetIdProto": "string domain = 1; int64 version = 2",
        "TensorProto": "repeated int64 dims = 1; int32 data_type = 2; string name = 8",
        "TensorShapeProto": "repeated TensorShapeProto.Dimension dim = 1",
        "TensorShapeProto.Dimension": "oneof:value int64 dim_value = 1; "
        "oneof:value string dim_param = 2",
        "TypeProto": "oneof:value TypeProto.Tensor tensor_type = 1",
        "TypeProto.Tensor": "int32 elem_type = 1; TensorShapeProto shape = 2",
        "ValueInfoProto": "string name = 1; TypeProto type = 2",
        "AttributeProto": "string name = 1; float f = 2; int64 i = 3; bytes s = 4; "
        "TensorProto t = 5; GraphProto g = 6; repeated float floats = 7; repeated int64 ints = 8; "
        "repeated bytes strings = 9; repeated TensorProto tensors = 10; "
        "repeated GraphProto graphs = 11",
        "NodeProto": "repeated string input = 1; repeated string output = 2; string name = 3; "
        "string op_type = 4; repeated AttributeProto attribute = 5; string domain = 7; "
        "repeated StringStringEntryProto metadata_props = 9",
        "GraphProto": "repeated NodeProto node = 1; string name = 2; "
        "repeated TensorProto initializer = 5; repeated ValueInfoProto input = 11; "
        "repeated ValueInfoProto output = 12; repeated ValueInfoProto value_info = 13",
        "ModelProto": "int64 ir_version = 1; string producer_name = 2; "
        "string producer_version = 3; GraphProto graph = 7; "
        "repeated OperatorSetIdProto opset_import = 8",
    },
)


def read_graph(
    path: str | os.PathLike[str],
    title: str,
    *,
    state: Collection[str] | None = None,
    variables: Collection[str] | None = None,
    trained: Collection[str] | None = None,
) -> Graph:
    """The graph of an .onnx file, as `graph_of` makes it; `BundleError` for one that is none.

    Shapes are those that the file has, as every file of flow2onnx has them.
    """
    with open_file(path) as file:
        content = file.read()
    check_model(content, path=path)
    try:
        model = parse_bytes(content, _MESSAGES["ModelProto"])
    except ValueError as error:
        raise BundleError(f"{Path(path)} is no ONNX model: {error}") from error
    return graph_of(model, title, state=state, variables=variables, trained=trained)
