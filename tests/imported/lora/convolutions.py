"""A small network of images with products and convolutions, as a model file, made by seed."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CLASSES, STEPS = 5, 10
TARGETS = ["conv1", "conv2", "conv3", "fc"]
RANKS = {"conv2": 6, "*": 4}  # of three groups
# by module: the shape of the weight, and the settings of a convolution
SHAPES = {
    "conv1": ((6, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    "conv2": ((9, 2, 3, 3), {"strides": [2, 2], "group": 3}),
    "conv3": ((8, 9, 1, 1), {}),
    "fc": ((8, 8), {}),
    "head": ((CLASSES, 8), {}),
}


def weights(seed=0):
    """Weights and biases by name."""
    rng, found = np.random.default_rng(seed), {}
    for module, (shape, _) in SHAPES.items():
        scale = np.prod(shape[1:]) ** -0.5
        found[f"{module}.weight"] = (2 * scale * rng.standard_normal(shape)).astype(np.float32)
        found[f"{module}.bias"] = (0.1 * rng.standard_normal(shape[0])).astype(np.float32)
    return found


def write_network(path, seed=0):
    """Write the model: images (batch, 3, 8, 8) to logits (batch, classes)."""
    nodes, x = [], "images"
    for module, (shape, settings) in SHAPES.items():
        kind = "Conv" if len(shape) == 4 else "Gemm"
        if module == "fc":
            nodes += [
                helper.make_node("GlobalAveragePool", [x], ["pooled"], "pool"),
                helper.make_node("Flatten", ["pooled"], ["rows"], "rows"),
            ]
            x = "rows"
        attrs = settings if kind == "Conv" else {"transB": 1}
        y = "logits" if module == "head" else f"{module}_out"
        operands = [x, f"{module}.weight", f"{module}.bias"]
        nodes.append(helper.make_node(kind, operands, [y], f"/{module}/{kind}", **attrs))
        x = y
        if module != "head":
            nodes.append(helper.make_node("Relu", [y], [f"{module}_act"], f"/{module}/Relu"))
            x = f"{module}_act"
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "network", [info("images", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(a, n) for n, a in weights(seed).items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def batches():
    """Images and labels of each step."""
    rng = np.random.default_rng(3)
    for _ in range(STEPS):
        yield rng.standard_normal((6, 3, 8, 8)).astype(np.float32), rng.integers(0, CLASSES, 6)
