"""The network of torch_cases, several times in one model: a copy for each optimizer."""

import numpy as np
from onnx import TensorProto, helper

from tests.imported import models

KINDS = {np.float64: TensorProto.DOUBLE, np.float32: TensorProto.FLOAT}


def copies(names, weights, dtype=np.float64):
    """x (5, 4) and y (5, 3) to the sum of the mean squared errors of a network for each name."""
    nodes, tensors, losses = [], [], []
    for name in names:
        tensors += [models.tensor(f"{name}.{n}", dtype(v)) for n, v in weights.items()]
        nodes += _network(name)
        losses.append(f"{name}/loss")
    nodes.append(helper.make_node("Sum", losses, ["loss"]))
    kind = KINDS[dtype]
    inputs = [models.info("x", [5, 4], kind), models.info("y", [5, 3], kind)]
    return models.model(nodes, inputs, [models.info("loss", [], kind)], tensors)


def _network(name):
    chain = [
        ("MatMul", ["x", f"{name}.w1"]), ("Add", [None, f"{name}.b1"]), ("Tanh", [None]),
        ("MatMul", [None, f"{name}.w2"]), ("Add", [None, f"{name}.b2"]),
        ("Mul", [None, f"{name}.scale"]), ("Sub", [None, "y"]), ("Mul", [None, None]),
    ]  # fmt: skip
    last, nodes = None, []
    for i, (kind, inputs) in enumerate(chain):
        made = f"{name}/{i}"
        nodes.append(helper.make_node(kind, [v or last for v in inputs], [made]))
        last = made
    return [*nodes, helper.make_node("ReduceMean", [last], [f"{name}/loss"], keepdims=0)]
