"""The network of the page: any classifier of images in ONNX with a new head, or a small one."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.utils import Extractor

import flow2onnx as flow
from flow2onnx.errors import ArgumentError
from models import mobilenet_v2

LOGITS = "logits"
HEAD = ("head.weight", "head.bias")
BEHIND_HEAD = ("Softmax", "LogSoftmax", "Sigmoid", "Add", "Identity", "Squeeze", "Reshape",
               "Flatten", "Cast")  # fmt: skip
WEIGHTED = ("Conv", "Gemm", "MatMul")
STEPS, PIECES, PARTS = 150, 16, 5  # of the training of a small network


@dataclass(frozen=True)
class Vision:
    """A classifier with a head of its own: images of `size` pixels in, `classes` logits out.

    `blocks` are the names of the weights of its last blocks, the head's included.
    """

    model: onnx.ModelProto
    input: str
    size: int
    is_channels_first: bool
    classes: int
    blocks: tuple[str, ...]

    def shape(self, batch: int) -> tuple[int, ...]:
        """The shape of a batch of images."""
        sides = (self.size, self.size)
        return (batch, 3, *sides) if self.is_channels_first else (batch, *sides, 3)


def adapt(
    model: onnx.ModelProto, classes: int, size: int, depth: int, features: str | None = None
) -> Vision:
    """The classifier with a new head for `classes` on what its last product reads, or `features`.

    `depth` is how many of its last convolutions belong to the last blocks; `size` is taken where
    the model leaves height and width free. Raises ArgumentError for what is no classifier of RGB
    images of any batch.
    """
    image, is_channels_first, size = _image(model, size)
    place = features or _features(model)
    cut = _extracted(model, image.name, place)
    shape = [d.dim_value for d in cut.graph.output[0].type.tensor_type.shape.dim]
    width = _width(shape, place)
    _add_head(cut, place, width, classes, is_flat=len(shape) == 2)
    blocks = (*_last_weights(cut, depth), *HEAD)
    return Vision(cut, image.name, size, is_channels_first, classes, blocks)


def small_mobilenet(size: int, width: float, steps: int = STEPS) -> onnx.ModelProto:
    """MobileNetV2, `width` times as wide, that has seen two photographs and nothing else.

    It has learnt for `steps` steps to tell from which photograph of scikit-learn's, and from which
    fifth of it, pieces of `size` pixels are. Its features tell colours, edges and textures apart.
    """
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.05])
    optimizer = flow.optimizer.SGD(rate, momentum=0.9)
    jobs = mobilenet_v2.jobs(
        batch=PIECES, size=size, classes=2 * PARTS, optimizer=optimizer, multiplier=width
    )
    random = np.random.default_rng(0)
    for _ in range(steps):
        jobs.train(*_pieces(random, size))
    with TemporaryDirectory() as folder:
        path = Path(folder, "mobilenet.onnx")
        jobs.predict.export(path, dynamic_batch=True)
        return onnx.load(path)


def _pieces(
    random: np.random.Generator, size: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Squares of photographs, 0 to 1, shape (PIECES, 3, size, size), and where they are from."""
    from sklearn.datasets import load_sample_images

    images, labels = [], []
    photographs = load_sample_images().images
    for chosen in random.integers(0, len(photographs), PIECES):
        height, width, _ = photographs[chosen].shape
        step = random.integers(1, max(min(height, width // PARTS * 2) // size, 1) + 1)
        side = size * step
        y, x = random.integers(0, height - side + 1), random.integers(0, width - side + 1)
        piece = photographs[chosen][y : y + side : step, x : x + side : step].transpose(2, 0, 1)
        images.append(piece * random.uniform(0.6, 1.0, (3, 1, 1)))
        labels.append(PARTS * chosen + (x + side // 2) * PARTS // width)
    return (np.stack(images) / 255).astype(np.float32), np.array(labels, np.int32)


def _image(model: onnx.ModelProto, size: int) -> tuple[onnx.ValueInfoProto, bool, int]:
    """The input of the images, whether channels come first in it, its height and width."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    hint = (
        "give a classifier of RGB images with one input, (batch, 3, height, width) or channels last"
    )
    if len(inputs) != 1:
        raise ArgumentError(f"the model has inputs {[v.name for v in inputs]}", hint=hint)
    dims = inputs[0].type.tensor_type.shape.dim
    shape = [d.dim_value for d in dims]
    if len(shape) != 4 or inputs[0].type.tensor_type.elem_type != TensorProto.FLOAT:
        raise ArgumentError(f"the input {inputs[0].name} has shape {shape}", hint=hint)
    if 3 not in (shape[1], shape[3]):
        raise ArgumentError(
            f"the input {inputs[0].name} has shape {shape}: no 3 channels", hint=hint
        )
    if shape[0] > 0:
        raise ArgumentError(
            f"the model takes batches of {shape[0]} only",
            hint="export it with a free batch: dynamic_shapes of torch, dynamic_batch=True here",
        )
    is_channels_first = shape[1] == 3
    height, width = shape[2:] if is_channels_first else shape[1:3]
    if height != width:
        raise ArgumentError(f"images are {height} x {width}", hint="give a model of squares")
    return inputs[0], is_channels_first, height or size


def _features(model: onnx.ModelProto) -> str:
    """The input of the last product on the way to the first output."""
    makers = {name: node for node in model.graph.node for name in node.output}
    value = model.graph.output[0].name
    while value in makers:
        node = makers[value]
        if node.op_type in ("Gemm", "MatMul"):
            return str(node.input[0])
        if node.op_type not in BEHIND_HEAD:
            break
        made = [name for name in node.input if name in makers]
        if not made:
            break
        value = made[0]
    raise ArgumentError(
        f"the output {model.graph.output[0].name} is not that of a dense layer",
        hint="name the value that a new head is to read with --features",
    )


def _extracted(model: onnx.ModelProto, image: str, features: str) -> onnx.ModelProto:
    """The part of the model from the images to the features."""
    typed = onnx.shape_inference.infer_shapes(model)
    known = {value.name for value in typed.graph.value_info}
    if features not in known:
        raise ArgumentError(
            f"the model has no value {features} whose shape is known",
            hint="name a value of its graph: `flow2onnx show MODEL` has them",
        )
    return Extractor(typed).extract_model([image], [features])


def _width(shape: list[int], features: str) -> int:
    """The number of features, known and laid out as (batch, n) or (batch, n, 1, 1)."""
    if len(shape) == 2 and shape[1] > 0:
        return shape[1]
    if len(shape) == 4 and shape[1] > 0 and shape[2:] == [1, 1]:
        return shape[1]
    raise ArgumentError(
        f"{features} has shape {shape}: not (batch, features)",
        hint="name a value behind the pooling with --features",
    )


def _add_head(
    model: onnx.ModelProto, features: str, width: int, classes: int, is_flat: bool
) -> None:
    """Append a dense layer of small random weights, in place; its result is the only output."""
    graph = model.graph
    if not is_flat:
        graph.node.append(
            helper.make_node("Flatten", [features], ["head.features"], "head/Flatten")
        )
        features = "head.features"
    weight = np.random.default_rng(0).normal(0, 0.01, (width, classes)).astype(np.float32)
    for name, array in zip(HEAD, (weight, np.zeros(classes, np.float32)), strict=True):
        graph.initializer.append(numpy_helper.from_array(array, name))
    graph.node.append(helper.make_node("Gemm", [features, *HEAD], [LOGITS], "head/Gemm"))
    del graph.output[:]
    graph.output.append(
        helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, ("batch", classes))
    )


def _last_weights(model: onnx.ModelProto, depth: int) -> list[str]:
    """The float tensors that nodes from the last but `depth` convolution on read."""
    floats = {
        t.name for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and t.dims
    }
    nodes = list(model.graph.node)
    places = [
        i
        for i, node in enumerate(nodes)
        if node.op_type in WEIGHTED and floats.intersection(node.input) - set(HEAD)
    ]
    if not places:
        raise ArgumentError(
            "no convolution of the model has a weight of its own",
            hint="export it with its weights as initializers",
        )
    first = places[-min(depth, len(places))]
    read = [name for node in nodes[first:] for name in _learnt(node)]
    return [name for name in dict.fromkeys(read) if name in floats - set(HEAD)]


def _learnt(node: onnx.NodeProto) -> list[str]:
    """The inputs of a node that may be learnt: the statistics of a normalisation stay."""
    return list(node.input[:3] if node.op_type == "BatchNormalization" else node.input)
