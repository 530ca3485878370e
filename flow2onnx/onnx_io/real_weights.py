"""Products with weights of few bits as products with real numbers, which lie in a file."""

from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper

from flow2onnx.graph.contrib import CONTRIB_DOMAIN
from flow2onnx.onnx_io.blocks import read_blocks, tensor_content

__all__ = ["write_real_weights"]

_PAGE = 4096  # so that the runtime can map a tensor


def write_real_weights(
    model: onnx.ModelProto,
    folder: str,
    path: Path,
    nodes: Collection[str],
    by_rows: Collection[str] = (),
) -> None:
    """Let the MatMulNBits called `nodes` be MatMul, in place; their weights are written to `path`.

    They are read one at a time from the files in `folder`. Those that nothing else reads leave the
    model. Nodes called `by_rows`, too, read the transpose of a weight that lies row by row, as the
    packed one does, so that some rows are one part of the file.
    """
    tensors = {t.name: t for t in model.graph.initializer}
    written: dict[tuple[str, bool], str] = {}
    with path.open("wb") as file:
        for node in list(model.graph.node):
            if node.op_type != "MatMulNBits" or node.domain != CONTRIB_DOMAIN:
                continue
            if node.name not in nodes:
                continue
            packed, is_turned = node.input[1], node.name in by_rows
            if (packed, is_turned) not in written:
                own = {n: tensor_content(tensors[n], folder) for n in node.input[1:4] if n}
                real = read_blocks(node, own).real
                array = np.ascontiguousarray(real if is_turned else real.T, np.float32)
                name = f"{packed}/real{'/rows' * is_turned}"
                model.graph.initializer.append(_place(name, array, path.name, file))
                written[packed, is_turned] = name
            _as_product(model, node, written[packed, is_turned], is_turned=is_turned)
    _drop_unread(model)


def _place(name: str, array: np.ndarray[tuple[int, ...], np.dtype[np.float32]], file: str,
           stream: BinaryIO) -> TensorProto:  # fmt: skip
    """Write an array at the next page of a file; the tensor that lies there."""
    start = -(-stream.tell() // _PAGE) * _PAGE
    stream.seek(start)
    stream.write(array.tobytes())
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=array.shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", file), ("offset", start), ("length", array.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _as_product(
    model: onnx.ModelProto, node: onnx.NodeProto, weight: str, *, is_turned: bool
) -> None:
    """Turn a node into a MatMul, and an Add after it if it has a bias; before it a transpose."""
    x, y = node.input[0], node.output[0]
    bias = node.input[5] if len(node.input) > 5 else ""
    product = f"{y}/product" if bias else y
    read = f"{y}/weight" if is_turned else weight
    made = helper.make_node("MatMul", [x, read], [product], node.name)
    made.metadata_props.extend(node.metadata_props)
    place = list(model.graph.node).index(node)
    node.CopyFrom(made)
    if is_turned:
        turn = helper.make_node("Transpose", [weight], [read], f"{node.name}/weight", perm=[1, 0])
        model.graph.node.insert(place, turn)
        place += 1
    if bias:
        add = helper.make_node("Add", [product, bias], [y], f"{node.name}/bias")
        model.graph.node.insert(place + 1, add)


def _drop_unread(model: onnx.ModelProto) -> None:
    read = {n for node in model.graph.node for n in node.input} | {
        o.name for o in model.graph.output
    }
    kept = [t for t in model.graph.initializer if t.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
