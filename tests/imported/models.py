"""Small models in the standard's own form, as other tools might have made them."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F, I = TensorProto.FLOAT, TensorProto.INT64  # noqa: E741  # element types, as short as in papers


def tensor(name, content):
    return numpy_helper.from_array(np.asarray(content), name)


def info(name, shape, kind=F):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, tensors=(), opset=21, domains=(), functions=(), checks=True):
    graph = helper.make_graph(nodes, "foreign", inputs, outputs, list(tensors))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    made = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)
    if checks:
        onnx.checker.check_model(made)
    return made


def random(seed, *shape):
    return (np.random.default_rng(seed).standard_normal(shape) * 0.5).astype(np.float32)


def perceptron(batch="batch"):
    """x (batch, 4) to scores (batch, 3)."""
    tensors = [
        tensor("fc1.weight", random(0, 4, 6)),
        tensor("fc1.bias", random(1, 6)),
        tensor("fc2.weight", random(2, 6, 3)),
        tensor("fc2.bias", random(3, 3)),
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], "first"),
        helper.make_node("Tanh", ["h"], ["a"], "squash"),
        helper.make_node("Gemm", ["a", "fc2.weight", "fc2.bias"], ["scores"], "second"),
    ]
    return model(nodes, [info("x", [batch, 4])], [info("scores", [batch, 3])], tensors)


def sentences(batch="batch", length="length"):
    """Texts (batch, length, 2) to scores (batch, 3): an LSTM, a convolution, a pool over time."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["steps", "w", "r"], ["y"], hidden_size=3),
        helper.make_node("Squeeze", ["y", "one"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["by_time"], perm=[1, 2, 0]),
        helper.make_node("Conv", ["by_time", "k"], ["c"], pads=[1, 1]),
        helper.make_node("Add", ["c", "by_time"], ["kept"]),
        helper.make_node("MaxPool", ["kept"], ["p"], kernel_shape=[3], strides=[2], ceil_mode=1),
        helper.make_node("ReduceMean", ["p", "last"], ["mean"], keepdims=1),
        helper.make_node("Shape", ["kept"], ["size"], start=0, end=1),
        helper.make_node("Concat", ["size", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["mean", "target"], ["scores"]),
    ]
    tensors = [
        tensor("w", random(1, 1, 12, 2)),
        tensor("r", random(2, 1, 12, 3)),
        tensor("k", random(3, 3, 3, 3)),
        tensor("one", [1]),
        tensor("last", [2]),
        tensor("rest", [-1]),
    ]
    inputs, outputs = [info("x", [batch, length, 2])], [info("scores", [batch, 3])]
    return model(nodes, inputs, outputs, tensors)


def convolutional(batch="batch"):
    """Convolution, normalisation, pooling, a reshape by the shape, a branch, dropout."""
    yes = helper.make_graph(
        [helper.make_node("Mul", ["p", "two"], ["twice"])], "yes", [], [info("twice", None)]
    )
    no = helper.make_graph(
        [helper.make_node("Neg", ["p"], ["less"])], "no", [], [info("less", None)]
    )
    tensors = [
        tensor("conv.weight", random(0, 4, 1, 3, 3)),
        tensor("bn.weight", 1 + random(1, 4)),
        tensor("bn.bias", random(2, 4)),
        tensor("bn.mean", random(3, 4)),
        tensor("bn.var", 1 + random(4, 4) ** 2),
        tensor("two", np.float32(2)),
        tensor("limit", np.float32(0)),
        tensor("head", random(5, 36, 3)),
        tensor("ratio", np.float32(0.5)),
        tensor("one", np.int64([1])),
        tensor("rest", np.int64([-1])),
    ]
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "conv.weight"], ["c"], "conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["n"], "bn"),
        node("Relu", ["n"], ["r"], "relu"),
        node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("ReduceSum", ["p"], ["total"], "sum", keepdims=0),
        node("Greater", ["total", "limit"], ["large"], "large"),
        node("If", ["large"], ["q"], "branch", then_branch=yes, else_branch=no),
        node("Shape", ["q"], ["size"], "size", end=1),
        node("Concat", ["size", "rest"], ["target"], "target", axis=0),
        node("Reshape", ["q", "target"], ["flat"], "flat"),
        node("Dropout", ["flat", "ratio"], ["d"], "drop"),
        node("MatMul", ["d", "head"], ["scores"], "head"),
    ]
    return model(nodes, [info("x", [batch, 1, 6, 6])], [info("scores", [batch, 3])], tensors)
