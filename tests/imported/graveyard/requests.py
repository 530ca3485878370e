"""Requests of people to training packages for ONNX that have ended, as small models.

Each has the structure that was asked for, a loss by name, and a batch. The numbers of the threads
are those of microsoft/onnxruntime, if no other repository is named.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["REQUESTS", "Request"]

OPSET, IR_VERSION = 17, 8  # the newest that the last training package reads


@dataclass(frozen=True)
class Request:
    """A request: what was asked for, the model, the loss and the batch."""

    name: str
    asked: str
    model: onnx.ModelProto
    loss: str
    feeds: dict
    labels: np.ndarray


@dataclass
class Net:
    """A model that is being made: `call` adds a node, `weight` a tensor to train."""

    seed: int = 0
    nodes: list = field(default_factory=list)
    tensors: list = field(default_factory=list)

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)

    def call(self, op_type, *inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        given = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(op_type, given, names, names[0], **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, name, *shape, scale=0.3, offset=0.0):
        content = offset + scale * self.rng.standard_normal(shape)
        self.tensors.append(numpy_helper.from_array(content.astype(np.float32), name))
        return name

    def constant(self, content):
        name = f"c{len(self.nodes)}_{len(self.tensors)}"
        tensor = numpy_helper.from_array(np.asarray(content), name)
        self.nodes.append(helper.make_node("Constant", [], [name], name, value=tensor))
        return name

    def dense(self, x, name, inside, outside):
        product = self.call("MatMul", x, self.weight(f"{name}.weight", inside, outside))
        return self.call("Add", product, self.weight(f"{name}.bias", outside))

    def norm(self, x, name, width):
        scale = self.weight(f"{name}.weight", width, scale=0.1, offset=1.0)
        bias = self.weight(f"{name}.bias", width)
        return self.call("LayerNormalization", x, scale, bias, axis=-1)

    def rms_norm(self, x, name, width):
        """As exporters write it out."""
        square = self.call("ReduceMean", self.call("Mul", x, x), axes=[-1])
        size = self.call("Sqrt", self.call("Add", square, np.float32(1e-5)))
        near = self.call("Mul", x, self.call("Reciprocal", size))
        return self.call("Mul", near, self.weight(f"{name}.weight", width, scale=0.1, offset=1.0))

    def attention(self, x, name, rows, width, heads, *, turn=None, mask=None):
        def split(part):
            y = self.dense(x, f"{name}.{part}", width, width)
            y = self.call("Reshape", y, np.int64([0, rows, heads, width // heads]))
            y = self.call("Transpose", y, perm=[0, 2, 1, 3])
            return turn(self, y, rows, width // heads) if turn and part != "v" else y

        q, k, v = split("q"), split("k"), split("v")
        scores = self.call("MatMul", q, self.call("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.call("Div", scores, np.float32(np.sqrt(width // heads)))
        if mask is not None:
            scores = self.call("Add", scores, mask)
        y = self.call("MatMul", self.call("Softmax", scores, axis=-1), v)
        y = self.call("Transpose", y, perm=[0, 2, 1, 3])
        return self.dense(self.call("Reshape", y, np.int64([0, rows, width])), name, width, width)

    def gelu(self, x):
        erf = self.call("Erf", self.call("Div", x, np.float32(np.sqrt(2))))
        half = self.call("Mul", x, np.float32(0.5))
        return self.call("Mul", half, self.call("Add", erf, np.float32(1)))

    def finish(self, result, inputs, shape):
        kinds = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}
        given = [
            helper.make_tensor_value_info(n, kinds[a.dtype.kind], a.shape)
            for n, a in inputs.items()
        ]
        self.nodes.append(helper.make_node("Identity", [result], ["y"], "y"))
        end = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "request", given, [end], self.tensors)
        made = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )
        onnx.checker.check_model(made, full_check=True)
        return made


REQUESTS: dict[str, Callable] = {}


def request(asked):
    """Register a function that fills a net: it returns the result and its shape, and the batch."""

    def add(function):
        def make():
            net = Net()
            result, shape, feeds, *loss = function(net)
            name = loss[0] if loss else "mse"
            rng = np.random.default_rng(7)
            labels = (
                rng.integers(0, shape[1], (shape[0], *shape[2:]))
                if name == "cross_entropy"
                else rng.standard_normal(shape).astype(np.float32)
            )
            model = net.finish(result, feeds, shape)
            return Request(function.__name__, asked, model, name, feeds, labels)

        REQUESTS[function.__name__] = make
        return function

    return add


def numbers(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def words(*shape, size=11):
    return np.random.default_rng(4).integers(1, size, shape)


@request("a gradient of Resize, for a U-Net on a device (#16866)")
def resize(net):
    h = net.call("Relu", net.call("Conv", "x", net.weight("down", 4, 2, 3, 3), pads=[1] * 4))
    low = net.call("MaxPool", h, kernel_shape=[2, 2], strides=[2, 2])
    up = net.call(
        "Resize", low, "", np.float32([1, 1, 2, 2]), mode="linear",
        coordinate_transformation_mode="half_pixel",
    )  # fmt: skip
    joined = net.call("Concat", up, h, axis=1)
    y = net.call("Conv", joined, net.weight("last", 1, 8, 3, 3), pads=[1] * 4)
    return y, (2, 1, 6, 6), {"x": numbers(2, 2, 6, 6)}


@request("a gradient of ConvTranspose on the CPU (#17710)")
def conv_transpose(net):
    h = net.call("Conv", "x", net.weight("inside", 4, 2, 3, 3), strides=[2, 2], pads=[1] * 4)
    y = net.call(
        "ConvTranspose", net.call("LeakyRelu", h), net.weight("outside", 4, 1, 4, 4),
        net.weight("bias", 1), strides=[2, 2], pads=[1] * 4,
    )  # fmt: skip
    return y, (2, 1, 6, 6), {"x": numbers(2, 2, 6, 6)}


@request("Gemm in all its forms (#18344)")
def gemm(net):
    h = net.call("Gemm", "x", net.weight("a", 5, 4), net.weight("b", 5), transB=1)
    h = net.call("Relu", h)
    h = net.call("Gemm", h, net.weight("c", 5, 5), alpha=0.5)  # without an offset
    t = net.call("Transpose", h, perm=[1, 0])
    return (
        net.call("Gemm", t, net.weight("d", 5, 2), net.weight("e", 1, 2), transA=1, beta=2.0),
        (3, 2),
        {"x": numbers(3, 4)},
    )


@request("the gradient graph of a vision transformer (#19038)")
def vision_transformer(net):
    patches = net.call("Conv", "x", net.weight("patch", 8, 3, 4, 4), strides=[4, 4])
    h = net.call("Transpose", net.call("Reshape", patches, np.int64([2, 8, 4])), perm=[0, 2, 1])
    first = net.call("Expand", net.weight("class", 1, 1, 8), np.int64([2, 1, 8]))
    h = net.call("Add", net.call("Concat", first, h, axis=1), net.weight("places", 1, 5, 8))
    h = net.call("Add", h, net.attention(net.norm(h, "n1", 8), "attn", 5, 8, 2))
    inner = net.gelu(net.dense(net.norm(h, "n2", 8), "up", 8, 16))
    h = net.norm(net.call("Add", h, net.dense(inner, "down", 16, 8)), "n3", 8)
    top = net.call("Gather", h, np.int64(0), axis=1)
    return net.dense(top, "head", 8, 3), (2, 3), {"x": numbers(2, 3, 8, 8)}, "cross_entropy"


@request("BERT for sentiment on a device (#19351)")
def bert(net):
    h = net.call("Gather", net.weight("words", 11, 8), "x")
    h = net.norm(net.call("Add", h, net.weight("places", 6, 8)), "n0", 8)
    h = net.norm(net.call("Add", h, net.attention(h, "attn", 6, 8, 2)), "n1", 8)
    inner = net.dense(net.gelu(net.dense(h, "up", 8, 16)), "down", 16, 8)
    h = net.norm(net.call("Add", h, inner), "n2", 8)
    pooled = net.call("Tanh", net.dense(net.call("Gather", h, np.int64(0), axis=1), "pool", 8, 8))
    return net.dense(pooled, "head", 8, 2), (2, 2), {"x": words(2, 6)}, "cross_entropy"


@request("DistilBERT, with a mask of attention (#22465)")
def distilbert(net):
    h = net.norm(net.call("Gather", net.weight("words", 11, 8), "x"), "n0", 8)
    row = net.call("Unsqueeze", net.call("Cast", "mask", to=TensorProto.FLOAT), np.int64([1, 2]))
    hidden = net.call("Mul", net.call("Sub", np.float32(1), row), np.float32(-1e9))
    h = net.norm(net.call("Add", h, net.attention(h, "attn", 6, 8, 2, mask=hidden)), "n1", 8)
    inner = net.dense(net.gelu(net.dense(h, "up", 8, 16)), "down", 16, 8)
    mask = np.int64([[1] * 6, [1] * 4 + [0] * 2])
    return net.norm(net.call("Add", h, inner), "n2", 8), (2, 6, 8), {"x": words(2, 6), "mask": mask}


@request("the loss of YOLO, made of boxes that overlap (#19464, #20201)")
def yolo_loss(net):
    h = net.call("Conv", "x", net.weight("conv", 4, 2, 3, 3), net.weight("bias", 4))
    part = net.call("Split", net.call("Sigmoid", h), np.int64([2, 2]), axis=1, outputs=2)
    low = net.call("Sub", part[0], part[1])
    high = net.call("Add", part[0], part[1])
    # the box of the truth is from 0.1 to 0.8 either way
    cut = net.call("Sub", net.call("Min", high, np.float32(0.8)),
                   net.call("Max", low, np.float32(0.1)))  # fmt: skip
    cut = net.call("Max", cut, np.float32(0))
    shared = net.call("ReduceProd", cut, axes=[1])
    own = net.call("ReduceProd", net.call("Sub", high, low), axes=[1])
    union = net.call("Sub", net.call("Add", own, np.float32(0.49)), shared)
    overlap = net.call("Div", shared, union)
    worst = net.call("ReduceMin", overlap, axes=[2, 3])
    best = net.call("ReduceMax", overlap, axes=[2, 3])
    return net.call("Sub", best, worst), (2, 1, 1, 1), {"x": numbers(2, 2, 5, 5)}


def rotary(net, x, rows, size):
    """Turn pairs of numbers by an angle that grows with the place."""
    angle = np.arange(rows)[:, None] / 100 ** (np.arange(size // 2) / (size // 2))
    angle = np.concatenate([angle, angle], -1)
    near, far = net.call("Split", x, np.int64([size // 2] * 2), axis=-1, outputs=2)
    turned = net.call("Concat", net.call("Neg", far), near, axis=-1)
    return net.call("Add", net.call("Mul", x, np.cos(angle).astype(np.float32)),
                    net.call("Mul", turned, np.sin(angle).astype(np.float32)))  # fmt: skip


def decoder(net):
    """A layer of a language model, with one table for words and results."""
    table = net.weight("words", 11, 8)
    mask = np.triu(np.full((6, 6), -1e9, np.float32), 1)
    h = net.call("Gather", table, "x")
    h = net.call("Add", h, net.attention(
        net.rms_norm(h, "n1", 8), "attn", 6, 8, 2, turn=rotary, mask=mask))  # fmt: skip
    near = net.rms_norm(h, "n2", 8)
    gate = net.dense(near, "gate", 8, 12)
    inner = net.call("Mul", net.call("Mul", gate, net.call("Sigmoid", gate)),
                     net.dense(near, "up", 8, 12))  # fmt: skip
    h = net.rms_norm(net.call("Add", h, net.dense(inner, "down", 12, 8)), "n3", 8)
    scores = net.call("MatMul", h, net.call("Transpose", table, perm=[1, 0]))
    return net.call("Reshape", scores, np.int64([12, 11])), (12, 11), {"x": words(2, 6)}


@request("SmolLM trained in a browser (microsoft/onnxruntime-training-examples #203)")
def smol_lm(net):
    return (*decoder(net), "cross_entropy")


@request("models that generate, from their exported folders")
def generating_model(net):
    h = net.call("Gather", net.weight("words", 11, 8), "x")
    h = net.call("Add", h, net.attention(net.rms_norm(h, "n1", 8), "attn", 6, 8, 2, turn=rotary))
    experts = net.call("Softmax", net.dense(h, "router", 8, 3), axis=-1)
    weights, chosen = net.call("TopK", experts, np.int64([2]), axis=-1, outputs=2)
    tables = net.call("Einsum", h, net.weight("experts", 3, 8, 8), equation="btd,edf->btef")
    places = net.call("Expand", net.call("Unsqueeze", chosen, np.int64([3])),
                      np.int64([2, 6, 2, 8]))  # fmt: skip
    picked = net.call("GatherElements", tables, places, axis=2)
    mixed = net.call("Mul", picked, net.call("Unsqueeze", weights, np.int64([3])))
    y = net.call("Add", h, net.call("ReduceSum", mixed, np.int64([2]), keepdims=0))
    return y, (2, 6, 8), {"x": words(2, 6)}


@request("SimplifiedLayerNormalization, which T5 is made of (pull request #14866)")
def simplified_layer_norm(net):
    h = net.rms_norm(net.dense("x", "inside", 4, 8), "norm", 8)
    return net.dense(net.call("Relu", h), "outside", 8, 4), (3, 4), {"x": numbers(3, 4)}


@request("a gradient of Reciprocal, for DragGAN (microsoft/onnxruntime-training-examples #185)")
def reciprocal(net):
    w = net.weight("conv", 4, 2, 3, 3)
    square = net.call("ReduceSum", net.call("Mul", w, w), np.int64([1, 2, 3]))
    size = net.call("Sqrt", net.call("Add", square, np.float32(1e-8)))
    y = net.call("Conv", "x", net.call("Mul", w, net.call("Reciprocal", size)))
    return y, (2, 4, 3, 3), {"x": numbers(2, 2, 5, 5)}


@request("a gradient of ReduceMin, for the distance of two sets of points (#14412)")
def nearest_points(net):
    moved = net.call("Add", "x", net.weight("shift", 1, 3))
    gaps = net.call("Sub", net.call("Unsqueeze", moved, np.int64([1])), numbers(1, 7, 3)[:, ::-1])
    squares = net.call("ReduceSum", net.call("Mul", gaps, gaps), np.int64([2]), keepdims=0)
    return net.call("ReduceMin", squares, axes=[1], keepdims=0), (5,), {"x": numbers(5, 3)}


@request("a gradient of Atan (#22407)")
def atan(net):
    h = net.call("Atan", net.dense("x", "inside", 4, 6))
    return net.dense(h, "outside", 6, 2), (3, 2), {"x": numbers(3, 4)}


@request("LayerNormalization with one output, as the standard has it (#19427)")
def layer_norm(net):
    h = net.norm(net.dense("x", "inside", 4, 8), "norm", 8)
    return (
        net.dense(net.call("Relu", h), "outside", 8, 3),
        (3, 3),
        {"x": numbers(3, 4)},
        ("cross_entropy"),
    )
