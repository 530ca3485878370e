"""Small models for the server's tests, and repositories of them."""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WIDTH, CLASSES = 16, 5
MLP_CONFIG = """
name: "mlp" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 16 }
output { name: "out/0" data_type: TYPE_FP32 dims: 5 label_filename: "labels.txt" }
dynamic_batching { max_queue_delay_microseconds: 0 }
"""
ELEMENTS = {
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16, "bool": TensorProto.BOOL, "int8": TensorProto.INT8,
    "int16": TensorProto.INT16, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16, "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
}  # fmt: skip


def _model(nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()


def mlp(seed=0, width=WIDTH, batch="batch", scale=1.0):
    """Two layers; another seed is another version."""
    draws = np.random.default_rng(seed)
    first = draws.standard_normal((width, 32)).astype(np.float32) * np.float32(scale)
    second = draws.standard_normal((32, CLASSES)).astype(np.float32)
    node = helper.make_node
    return _model(
        [node("MatMul", ["x", "first"], ["h"]), node("Relu", ["h"], ["r"]),
         node("MatMul", ["r", "second"], ["out/0"])],
        [("x", TensorProto.FLOAT, [batch, width])],
        [("out/0", TensorProto.FLOAT, [batch, CLASSES])],
        [("first", first), ("second", second)],
    )  # fmt: skip


def types(elements=ELEMENTS):
    """Gives each input back."""
    shape = [2, 3]
    return _model(
        [helper.make_node("Identity", [n], [f"same/{n}"]) for n in elements],
        [(n, t, shape) for n, t in elements.items()],
        [(f"same/{n}", t, shape) for n, t in elements.items()],
    )


def centred():
    """Subtracts the mean of the batch: rows that influence each other."""
    return _model(
        [helper.make_node("ReduceMean", ["x", "axes"], ["mean"], keepdims=1),
         helper.make_node("Sub", ["x", "mean"], ["y"])],
        [("x", TensorProto.FLOAT, ["batch", 3])], [("y", TensorProto.FLOAT, ["batch", 3])],
        [("axes", np.array([0], np.int64))],
    )  # fmt: skip


def lookup():
    """Rows of a table of ten; other indices fail."""
    table = np.arange(20, dtype=np.float32).reshape(10, 2)
    return _model(
        [helper.make_node("Gather", ["table", "i"], ["row"])],
        [("i", TensorProto.INT64, ["batch"])], [("row", TensorProto.FLOAT, ["batch", 2])],
        [("table", table)],
    )  # fmt: skip


def slow():
    """Multiplies matrices as often as `n` says."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]),
         helper.make_node("MatMul", ["a", "a"], ["b"]),
         helper.make_node("Tanh", ["b"], ["c"])],
        "body",
        [helper.make_tensor_value_info("step", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("a", TensorProto.FLOAT, [64, 64])],
        [helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("c", TensorProto.FLOAT, [64, 64])],
    )  # fmt: skip
    return _model(
        [helper.make_node("Reshape", ["n", "none"], ["count"]),
         helper.make_node("Loop", ["count", "", "start"], ["y"], body=body)],
        [("n", TensorProto.INT64, [1])], [("y", TensorProto.FLOAT, [64, 64])],
        [("none", np.array([], np.int64)),
         ("start", np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32))],
    )  # fmt: skip


def scalar():
    """Half of one number, and its square."""
    return _model(
        [helper.make_node("Mul", ["x", "half"], ["y"]), helper.make_node("Mul", ["x", "x"], ["z"])],
        [("x", TensorProto.FLOAT, [])],
        [("y", TensorProto.FLOAT, []), ("z", TensorProto.FLOAT, [])],
        [("half", np.array(0.5, np.float32))],
    )  # fmt: skip


def place(repository: Path, name: str, model: bytes, version: int = 1, config: str = "") -> Path:
    """Put a version into a repository; returns its folder."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model)
    if config:
        (repository / name / "config.pbtxt").write_text(config)
    return folder


def repository(path: Path) -> Path:
    """A repository of all of them."""
    place(path, "mlp", mlp(0), 1, MLP_CONFIG)
    (path / "mlp" / "labels.txt").write_text("ant\nbee\ncat\ndog\n")
    place(path, "plain", mlp(1))
    place(path, "both", mlp(2), 1, "version_policy { all {} }")
    place(path, "both", mlp(3), 2)
    for make in (types, centred, lookup, slow, scalar):
        place(path, make.__name__, make())
    return path
