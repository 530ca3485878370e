"""Hostile models: small files that claim, nest, repeat or expand more than anyone can hold."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h

__all__ = ["FAMILIES", "Case", "case"]

Random = random.Random
# The name of a model and its bytes.
Case = tuple[str, bytes]

_X = h.make_tensor_value_info("x", T.FLOAT, [2, 3])
_Y = h.make_tensor_value_info("y", T.FLOAT, [2, 3])
_HUGE = (2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)


def case(number: int, seed: int = 0) -> Case:
    """The model of a number, the same for the same seed; the families take turns."""
    name, family = list(FAMILIES.items())[number % len(FAMILIES)]
    made = family(Random(f"{seed}/{number}"))
    return f"{name}-{number}", made if isinstance(made, bytes) else made.SerializeToString()


def _model(
    nodes: Sequence[onnx.NodeProto],
    *,
    inputs: Sequence[onnx.ValueInfoProto] = (_X,),
    outputs: Sequence[onnx.ValueInfoProto] = (_Y,),
    tensors: Sequence[onnx.TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    weight = onnx.numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    graph = h.make_graph(nodes, "g", inputs, outputs, [weight, *tensors])
    opsets = [h.make_opsetid("", 21), h.make_opsetid("f", 1)]
    return h.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def _integers(name: str, values: Sequence[int]) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(values, np.int64), name)


def _scaled(name: str = "s") -> onnx.NodeProto:
    """The node that makes every model have something to train."""
    return h.make_node("Mul", ["x", "w"], [name])


def _function(name: str, nodes: Sequence[onnx.NodeProto]) -> onnx.FunctionProto:
    return h.make_function("f", name, ["a"], ["b"], nodes, [h.make_opsetid("", 21),
                                                              h.make_opsetid("f", 1)])  # fmt: skip


def _calls(name: str, callee: str, count: int) -> onnx.FunctionProto:
    """A function that calls another `count` times, one call after the other."""
    names = ["a", *(f"t{i}" for i in range(count - 1)), "b"]
    nodes = [h.make_node(callee, [names[i]], [names[i + 1]], domain="f") for i in range(count)]
    return _function(name, nodes)


# --- functions -----------------------------------------------------------------------------------
def functions_without_end(rng: Random) -> onnx.ModelProto:
    """Functions that call the next several times: a thousand bytes, 10^6 to 10^30 nodes."""
    levels, fanout = rng.choice([(20, 2), (30, 2), (12, 10), (30, 10), (60, 3)])
    made = [_calls(f"F{i}", f"F{i + 1}", fanout) for i in range(levels)]
    made.append(_function(f"F{levels}", [h.make_node("Relu", ["a"], ["b"])]))
    return _model([_scaled(), h.make_node("F0", ["s"], ["y"], domain="f")], functions=made)


def functions_in_a_circle(rng: Random) -> onnx.ModelProto:
    """Functions of which the last calls the first."""
    count = rng.choice([1, 2, 3, 50])
    made = [_calls(f"F{i}", f"F{(i + 1) % count}", rng.choice([1, 2])) for i in range(count)]
    return _model([_scaled(), h.make_node("F0", ["s"], ["y"], domain="f")], functions=made)


def functions_deep(rng: Random) -> onnx.ModelProto:
    """Functions that call each other in a long row."""
    count = rng.choice([100, 1000, 10_000])
    made = [_calls(f"F{i}", f"F{i + 1}", 1) for i in range(count)]
    made.append(_function(f"F{count}", [h.make_node("Relu", ["a"], ["b"])]))
    return _model([_scaled(), h.make_node("F0", ["s"], ["y"], domain="f")], functions=made)


def functions_with_constants(rng: Random) -> onnx.ModelProto:
    """A function that holds a large constant, called often."""
    size, calls = rng.choice([(1 << 18, 500), (1 << 20, 2000), (1 << 20, 60)])
    content = onnx.numpy_helper.from_array(np.ones(size, np.float32), "c")
    nodes = [
        h.make_node("Constant", [], ["c"], value=content),
        h.make_node("ReduceSum", ["c"], ["r"], keepdims=0),
        h.make_node("Add", ["a", "r"], ["b"]),
    ]
    return _model(
        [_scaled(), h.make_node("F0", ["s"], ["y"], domain="f")],
        functions=[_calls("F0", "F1", calls), _function("F1", nodes)],
    )


def functions_in_branches(rng: Random) -> onnx.ModelProto:
    """Functions whose calls lie in both branches of an If."""
    levels = rng.choice([16, 25, 40])

    def body(i: int) -> onnx.FunctionProto:
        call = [h.make_node(f"F{i + 1}", ["a"], ["o"], domain="f")]
        out = [h.make_tensor_value_info("o", T.FLOAT, None)]
        branch = h.make_graph(call, "branch", [], out)
        nodes = [
            h.make_node("Constant", [], ["k"], value=h.make_tensor("k", T.BOOL, [], [True])),
            h.make_node("If", ["k"], ["b"], then_branch=branch, else_branch=branch),
        ]
        return _function(f"F{i}", nodes)

    made = [body(i) for i in range(levels)]
    made.append(_function(f"F{levels}", [h.make_node("Relu", ["a"], ["b"])]))
    return _model([_scaled(), h.make_node("F0", ["s"], ["y"], domain="f")], functions=made)


# --- graphs in graphs, long graphs, wide graphs --------------------------------------------------
def nested_if(rng: Random) -> onnx.ModelProto:
    """An If in an If in an If."""
    depth, is_known = rng.choice([4, 8, 16, 24, 30]), rng.random() < 0.5
    names = ["o"] * (depth + 1) if rng.random() < 0.2 else [f"o{i}" for i in range(depth + 1)]
    nodes = [h.make_node("Relu", ["s"], names[:1])]
    for level in range(depth):
        out = h.make_tensor_value_info(names[level], T.FLOAT, [2, 3])
        inner = h.make_graph(nodes, f"level{level}", [], [out])
        other = _renamed(inner, f"_{level}")
        if level > 10:  # or the file would be long
            out = h.make_tensor_value_info("t", T.FLOAT, [2, 3])
            other = h.make_graph([h.make_node("Relu", ["s"], ["t"])], "short", [], [out])
        nodes = [h.make_node("If", ["k"], [names[level + 1]], then_branch=inner,
                             else_branch=other)]  # fmt: skip
    known = [h.make_tensor("k", T.BOOL, [], [True])] if is_known else []
    asked = [] if is_known else [h.make_tensor_value_info("k", T.BOOL, [])]
    nodes = [_scaled(), *nodes, h.make_node("Identity", names[-1:], ["y"])]
    return _model(nodes, inputs=[_X, *asked], tensors=known)


def _renamed(graph: onnx.GraphProto, suffix: str) -> onnx.GraphProto:
    """A copy whose nodes make values of other names."""
    made = onnx.GraphProto()
    made.CopyFrom(graph)
    for value in (*made.output, *made.node):
        if isinstance(value, onnx.ValueInfoProto):
            value.name += suffix
            continue
        value.output[0] += suffix
        for attribute in value.attribute:
            attribute.g.CopyFrom(_renamed(attribute.g, suffix))
    return made


def chain(rng: Random) -> onnx.ModelProto:
    """One node after the other, 10^5 and more."""
    count = rng.choice([120_000, 200_000, 300_000])
    kind = rng.choice(["Relu", "Identity", "Sigmoid", "Neg"])
    names = ["s", *(f"v{i}" for i in range(count - 1)), "y"]
    return _model([_scaled(), *(h.make_node(kind, [names[i]], [names[i + 1]])
                                for i in range(count))])  # fmt: skip


def wide_node(rng: Random) -> onnx.ModelProto:
    """One node of very many inputs or outputs."""
    count = rng.choice([100_000, 1_000_000])
    if rng.random() < 0.5:
        return _model([_scaled(), h.make_node("Sum", ["s"] * count, ["y"])])
    split = h.make_node("Split", ["s"], [f"o{i}" for i in range(count)], num_outputs=count)
    return _model([_scaled(), split, h.make_node("Relu", ["o0"], ["y"])])


def many_values(rng: Random) -> onnx.ModelProto:
    """Inputs, outputs, types, opsets or texts without number."""
    count = rng.choice([100_000, 300_000])
    model = _model([_scaled(), h.make_node("Relu", ["s"], ["y"])])
    value = h.make_tensor_value_info("z", T.FLOAT, [1])
    field = rng.choice(["input", "output", "value_info", "opset_import", "metadata_props"])
    if field in ("opset_import", "metadata_props"):
        entry = h.make_opsetid("d", 1) if field == "opset_import" else _entry("k", "v")
        getattr(model, field).extend([entry] * count)
    else:
        getattr(model.graph, field).extend([value] * count)
    return model


def _entry(key: str, value: str) -> onnx.StringStringEntryProto:
    return onnx.StringStringEntryProto(key=key, value=value)


# --- loops ---------------------------------------------------------------------------------------
def loop(rng: Random) -> onnx.ModelProto:
    """A Loop that is to be unrolled more often than can be, loops in loops too."""
    count, depth = rng.choice([(2**62, 1), (10**6, 1), (4000, 2), (100, 3), (60, 5)])
    nodes = [h.make_node("Add", [f"v{depth}"] * 2, [f"o{depth}"])]
    for level in range(depth, 0, -1):
        v, o, c, d, i = (f"{name}{level}" for name in "vocdi")  # names are given once in a model
        body = h.make_graph(
            [h.make_node("Identity", [c], [d]), *nodes],
            "body",
            [
                h.make_tensor_value_info(i, T.INT64, []),
                h.make_tensor_value_info(c, T.BOOL, []),
                h.make_tensor_value_info(v, T.FLOAT, None),
            ],
            [h.make_tensor_value_info(d, T.BOOL, []), h.make_tensor_value_info(o, T.FLOAT, None)],
        )
        around = level - 1
        nodes = [h.make_node("Loop", ["n", "k", f"v{around}"], [f"o{around}"], body=body)]
    outer = h.make_node("Loop", ["n", "k", "s"], ["y"], body=body)
    tensors = [_scalar("n", count), h.make_tensor("k", T.BOOL, [], [True])]
    return _model([_scaled(), outer], tensors=tensors)


def _scalar(name: str, value: int) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(value, np.int64), name)


def scan(rng: Random) -> onnx.ModelProto:
    """A Scan over a long axis."""
    length = rng.choice([5_000, 10**6, 2**40])
    state = h.make_tensor_value_info("v", T.FLOAT, None)
    part = h.make_tensor_value_info("p", T.FLOAT, None)
    nodes = [h.make_node("Add", ["v", "p"], ["o"]), h.make_node("Identity", ["o"], ["q"])]
    outs = [h.make_tensor_value_info(n, T.FLOAT, None) for n in "oq"]
    body = h.make_graph(nodes, "body", [state, part], outs)
    nodes = [_scaled(), h.make_node("Scan", ["s", "z"], ["e", "y"], num_scan_inputs=1, body=body)]
    long = h.make_tensor_value_info("z", T.FLOAT, [length, 2, 3])
    return _model(nodes, inputs=[_X, long])


def recurrent(rng: Random) -> onnx.ModelProto:
    """A recurrent layer over a long sequence."""
    length, kind = rng.choice([20_000, 10**6, 2**40]), rng.choice(["LSTM", "GRU", "RNN"])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    z = h.make_tensor_value_info("z", T.FLOAT, [length, 1, 2])
    tensors = [
        onnx.numpy_helper.from_array(np.ones((1, gates * 2, 2), np.float32), name) for name in "WR"
    ]
    return _model([h.make_node(kind, ["z", "W", "R"], ["y"], hidden_size=2)], inputs=[z],
                  tensors=tensors)  # fmt: skip


# --- sizes ---------------------------------------------------------------------------------------
def filled(rng: Random) -> onnx.ModelProto:
    """A constant that is made large by a node whose operands are known."""
    size = rng.choice([2**28, 2**31, 2**40, 2**62])
    kind = rng.choice(["ConstantOfShape", "Expand", "Range", "Tile", "OneHot", "Pad", "Upsample"])
    one = onnx.numpy_helper.from_array(np.ones(1, np.float32), "one")
    limits = [_scalar("low", 0), _scalar("high", size), _scalar("by", 1)]
    shape = _integers("shape", [size])
    values = onnx.numpy_helper.from_array(np.asarray([0, 1], np.float32), "values")
    node = {
        "ConstantOfShape": h.make_node("ConstantOfShape", ["shape"], ["big"]),
        "Expand": h.make_node("Expand", ["one", "shape"], ["big"]),
        "Range": h.make_node("Range", ["low", "high", "by"], ["whole"]),
        "Tile": h.make_node("Tile", ["one", "shape"], ["big"]),
        "OneHot": h.make_node("OneHot", ["low", "high", "values"], ["big"]),
        "Pad": h.make_node("Pad", ["one", "pads"], ["big"]),
        "Upsample": h.make_node("Resize", ["one", "", "", "shape"], ["big"]),
    }[kind]
    cast = [h.make_node("Cast", ["whole"], ["big"], to=T.FLOAT)] if kind == "Range" else []
    total = [h.make_node("ReduceSum", ["big"], ["t"], keepdims=0)]
    tensors = [one, *limits, shape, values, _integers("pads", [0, size])]
    return _model([_scaled(), node, *cast, *total, h.make_node("Add", ["s", "t"], ["y"])],
                  tensors=tensors)  # fmt: skip


def computed_sizes(rng: Random) -> onnx.ModelProto:
    """Numbers that the model computes itself until they are long lists, or sizes of values."""
    kind = rng.choice(["range", "shape", "concat", "input", "fill", "parts"])
    big = h.make_tensor_value_info("z", T.FLOAT, [rng.choice([10**8, 2**31, 2**40])])
    squared = [h.make_node("Mul", ["k", "k"], ["n"]), h.make_node("Unsqueeze", ["n", "o"], ["m"])]
    doubled = [h.make_node("Concat", [f"c{i}"] * 2, [f"c{i + 1}"], axis=0) for i in range(36)]
    nodes = {
        "range": [*squared, h.make_node("Range", ["l", "n", "d"], ["r"])],
        "shape": [*squared, h.make_node("ConstantOfShape", ["m"], ["r"])],
        "fill": [*squared, h.make_node("Expand", ["o", "m"], ["r"])],
        "concat": [h.make_node("Shape", ["x"], ["c0"]), *doubled,
                   h.make_node("Identity", ["c36"], ["r"])],
        "input": [h.make_node("Add", ["z", "z"], ["r"])],
        "parts": [*squared, h.make_node("Expand", ["o", "m"], ["e"]),
                  h.make_node("SplitToSequence", ["e"], ["q"]),
                  h.make_node("SequenceAt", ["q", "l"], ["r"])],
    }[kind]  # fmt: skip
    tail = [
        h.make_node("Cast", ["r"], ["f"], to=T.FLOAT),
        h.make_node("ReduceSum", ["f"], ["t"], keepdims=0),
        h.make_node("Add", ["s", "t"], ["y"]),
    ]
    tensors = [_scalar("k", rng.choice([4000, 2**16, 2**20])), _scalar("l", 0), _scalar("d", 1),
               _integers("o", [0])]  # fmt: skip
    inputs = [_X, big] if kind == "input" else [_X]
    return _model([_scaled(), *nodes, *tail], inputs=inputs, tensors=tensors)


def doubled(rng: Random) -> onnx.ModelProto:
    """A value that is put beside itself again and again."""
    depth = rng.choice([28, 40, 62, 80])
    names = ["s", *(f"v{i}" for i in range(depth)), "y"]
    nodes = [h.make_node("Concat", [n, n], [m], axis=0)
             for n, m in pairwise(names)]  # fmt: skip
    return _model([_scaled(), *nodes])


def claimed_sizes(rng: Random) -> onnx.ModelProto:
    """Tensors and inputs whose shapes are larger, smaller or other than their content."""
    dims = rng.choice([[2**40], [2**31, 2**31, 2**31], [-1], [0], [2, -3], [0, 2**62], [2**63 - 1]])
    where = rng.choice(["initializer", "constant", "input"])
    tensor = T(name="big", data_type=rng.choice([T.FLOAT, T.INT64, T.STRING, 99]), dims=dims)
    tensor.raw_data = bytes(rng.choice([0, 4, 8]))
    nodes, inputs, tensors = [_scaled()], [_X], []
    if where == "initializer":
        tensors = [tensor]
    elif where == "constant":
        nodes.append(h.make_node("Constant", [], ["big"], value=tensor))
    else:
        inputs = [_X, h.make_tensor_value_info("big", T.FLOAT, dims)]
    return _model([*nodes, h.make_node("Add", ["s", "big"], ["y"])], inputs=inputs, tensors=tensors)


def large_batch(rng: Random) -> onnx.ModelProto:
    """A usual layer on an input that no memory holds."""
    x = h.make_tensor_value_info("x", T.FLOAT, [rng.choice(_HUGE), 3])
    w = onnx.numpy_helper.from_array(np.ones((3, 4), np.float32), "v")
    return _model([h.make_node("MatMul", ["x", "v"], ["y"])], inputs=[x], tensors=[w])


def sparse(rng: Random) -> onnx.ModelProto:
    """Sparse initializers: of huge shapes, or under one name again and again."""
    model = _model([_scaled(), h.make_node("Add", ["s", "q"], ["y"])])
    values = onnx.numpy_helper.from_array(np.ones(1, np.float32), "q")
    index = _integers("q_index", [rng.choice([0, -1, 2**40])])
    dims = rng.choice([[2**40], [3], [2**62, 8], [-3]])
    tensor = onnx.SparseTensorProto(values=values, indices=index, dims=dims)
    model.graph.sparse_initializer.extend([tensor] * rng.choice([1, 2, 20_000]))
    return model


def windows(rng: Random) -> onnx.ModelProto:
    """Convolutions and pools of absurd windows, paddings and groups."""
    big = rng.choice([10**4, 10**6, 2**40, -1, 0])
    x = h.make_tensor_value_info("x", T.FLOAT, [1, 2, rng.choice([8, 10**6, 2**40]), 8])
    w = onnx.numpy_helper.from_array(np.ones((2, 2, 3, 3), np.float32), "v")
    node = rng.choice(
        [
            h.make_node("MaxPool", ["c"], ["y"], kernel_shape=[big, 1]),
            h.make_node("AveragePool", ["c"], ["y"], kernel_shape=[2, 2], pads=[big] * 4),
            h.make_node("LpPool", ["c"], ["y"], kernel_shape=[big, big]),
            h.make_node("Conv", ["c", "v"], ["y"], dilations=[big, big], pads=[big] * 4),
            h.make_node("Conv", ["c", "v"], ["y"], group=big),
            h.make_node("ConvTranspose", ["c", "v"], ["y"], strides=[big, big]),
        ]
    )
    return _model([h.make_node("Conv", ["x", "v"], ["c"]), node], inputs=[x], tensors=[w])


# --- texts, types, damage ------------------------------------------------------------------------
def long_text(rng: Random) -> onnx.ModelProto:
    """A name, a note or a key of many megabytes."""
    text = "n" * rng.choice([2_000_000, 30_000_000, 100_000_000])
    model = _model([_scaled(), h.make_node("Relu", ["s"], ["y"])])
    node = model.graph.node[1]
    where = rng.choice(["op", "domain", "node", "value", "graph", "doc", "key", "producer", "dim"])
    if where == "value":
        node.input[0] = model.graph.node[0].output[0] = text
    elif where == "key":
        model.metadata_props.append(_entry(text, "v"))
    elif where == "producer":
        model.producer_name = text
    elif where == "graph":
        model.graph.name = text
    elif where == "dim":
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = text
    else:
        fields = {"op": "op_type", "node": "name", "doc": "doc_string"}
        setattr(node, fields.get(where, where), text)
    return model


def deep_types(rng: Random) -> onnx.ModelProto:
    """A sequence of sequences of sequences."""
    model = _model([_scaled(), h.make_node("Relu", ["s"], ["y"])])
    kind = h.make_tensor_type_proto(T.FLOAT, [1])
    for _ in range(rng.choice([5, 20, 40])):
        kind = h.make_sequence_type_proto(kind)
    model.graph.input.append(h.make_value_info("deep", kind))
    return model


def deep_graphs(rng: Random) -> bytes:
    """Graphs in attributes, nested deeper than a reader of messages goes."""

    def field(number: int, content: bytes) -> bytes:
        return _varint(number << 3 | 2) + _varint(len(content)) + content

    content = b""
    for _ in range(rng.choice([30, 60, 1000, 5000])):
        attribute = field(1, b"then_branch") + field(6, content)
        content = field(1, field(4, b"If") + field(5, attribute))
    base = _model([_scaled("y")])
    return base.SerializeToString() + field(7, content)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def circular_graph(rng: Random) -> onnx.ModelProto:
    """Values that are made from themselves, twice or not at all."""
    kind = rng.choice(["itself", "circle", "twice", "nowhere"])
    nodes = {
        "itself": [h.make_node("Add", ["x", "y"], ["y"])],
        "circle": [h.make_node("Relu", ["b"], ["y"]), h.make_node("Relu", ["y"], ["b"])],
        "twice": [h.make_node("Relu", ["s"], ["y"]), h.make_node("Neg", ["s"], ["y"])],
        "nowhere": [h.make_node("Add", ["s", "missing"], ["y"])],
    }[kind]
    return _model([_scaled(), *nodes])


def wrong_types(rng: Random) -> onnx.ModelProto:
    """Attributes of other types than their operators take, or with the wrong content."""
    node = rng.choice(
        [
            h.make_node("Concat", ["s", "s"], ["y"], axis=rng.choice([1.5, "a", [1], 2**40])),
            h.make_node("If", ["s"], ["y"], then_branch=1, else_branch=[1]),
            h.make_node("Loop", ["s"], ["y"], body="text"),
            h.make_node("Cast", ["s"], ["y"], to=rng.choice([0, 99, -1, 2**40])),
            h.make_node("Transpose", ["s"], ["y"], perm=rng.choice([[0, 0], [5, 9], [2**40, 0]])),
            h.make_node("Gather", ["s", "s"], ["y"]),
            h.make_node("Einsum", ["s", "s"], ["y"], equation="..." * 5000),
            h.make_node("Constant", [], ["y"], value_strings=["a"] * 10),
            h.make_node("Constant", [], ["y"]),
            h.make_node("Reshape", ["s", "w"], ["y"]),
            h.make_node("Scan", ["s"], ["y"], num_scan_inputs=rng.choice([-1, 0, 2**40])),
        ]
    )
    return _model([_scaled(), node])


def strange_opsets(rng: Random) -> onnx.ModelProto:
    """Opsets that do not exist, or several of one domain."""
    model = _model([_scaled(), h.make_node("Relu", ["s"], ["y"])])
    versions = rng.choice([[0], [-1], [2**62], [1], [7], [21, 3], []])
    del model.opset_import[:]
    model.opset_import.extend(h.make_opsetid("", v) for v in versions)
    return model


def sequences(rng: Random) -> onnx.ModelProto:
    """A tensor split into a sequence of very many parts."""
    x = h.make_tensor_value_info("x", T.FLOAT, [rng.choice([50_000, 10**7, 2**40]), 3])
    nodes = [
        h.make_node("Mul", ["x", "v"], ["s"]),
        h.make_node("SplitToSequence", ["s"], ["q"], axis=0),
        h.make_node("ConcatFromSequence", ["q"], ["y"], axis=0),
    ]
    weight = onnx.numpy_helper.from_array(np.ones(3, np.float32), "v")
    return _model(nodes, inputs=[x], tensors=[weight])


def elsewhere(rng: Random) -> onnx.ModelProto:
    """A tensor in another file that is not the model's to name."""
    place = rng.choice(["../w", "/etc/passwd", "/dev/zero", "missing", "a\0b", ".", "w" * 5000])
    tensor = T(name="q", data_type=T.FLOAT, dims=[2, 3], data_location=T.EXTERNAL)
    tensor.external_data.append(_entry("location", place))
    tensor.external_data.append(_entry("offset", str(rng.choice([0, -1, 2**70]))))
    return _model([_scaled(), h.make_node("Add", ["s", "q"], ["y"])], tensors=[tensor])


def damaged(rng: Random) -> bytes:
    """A hostile model with bytes changed, or cut off."""
    family = rng.choice([nested_if, functions_in_a_circle, filled, loop, scan, claimed_sizes])
    content = bytearray(family(rng).SerializeToString())
    for _ in range(rng.choice([1, 5, 50])):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return bytes(content[: rng.choice([len(content), len(content) // 2])])


FAMILIES: dict[str, Callable[[Random], onnx.ModelProto | bytes]] = {
    f.__name__: f
    for f in (
        functions_without_end, functions_in_a_circle, functions_deep, functions_with_constants,
        functions_in_branches, nested_if, chain, wide_node, many_values, loop, scan, recurrent,
        filled, computed_sizes, doubled, claimed_sizes, large_batch, sparse, windows, long_text,
        deep_types, deep_graphs, circular_graph, wrong_types, strange_opsets, sequences, elsewhere,
        damaged,
    )
}  # fmt: skip
