"""One row for each network: its published size, and a small one of the same topology to train."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import flow2onnx as flow
from flow2onnx.api.job import JobFunction, define
from flow2onnx.trace.trace import trace
from flow2onnx.trace.variables import Variable
from models import (
    alexnet,
    bert,
    gpt,
    inception_v3,
    lenet,
    mlp,
    mobilenet_v2,
    resnet50,
    resnext50,
    vgg16,
    wide_deep,
    yolov3,
)
from models.jobs import Jobs

Arrays = tuple[np.ndarray, ...]
CLASSES = 4


def constant(rate):
    return flow.optimizer.PiecewiseConstantScheduler([], [rate])


def adam(rate=1e-3):
    return flow.optimizer.Adam(constant(rate))


def slower():
    return adam(3e-4)


def sgd(rate=0.01):
    return flow.optimizer.SGD(constant(rate), momentum=0)


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def indices(limit, *shape):
    return np.random.default_rng(1).integers(0, limit, shape, dtype=np.int32)


def lit(images, labels):
    """Images brighter by their label."""
    return images + labels.astype(np.float32)[:, None, None, None]


@dataclass(frozen=True)
class Row:
    """A network: the jobs at full size, how many parameters they train, the jobs at a small size.

    `feed` is one batch for the small train job; `names` are variables that old checkpoints have.
    """

    name: str
    full: Callable[[], Any]
    count: int
    small: Callable[[], Any]
    feed: Callable[[], Arrays]
    names: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    steps: int = 5
    is_slow: bool = False


def classifier(module, count, size, names, is_slow=False, options=None, optimizer=sgd, **full):
    """A row for an image classifier: four classes of noise, told apart by brightness."""
    name = module.__name__.rpartition(".")[2]

    def feed():
        labels = np.arange(8, dtype=np.int32) % CLASSES
        return lit(draw(8, 3, size, size), labels), labels

    def small():
        return module.jobs(
            batch=8, size=size, classes=CLASSES, optimizer=optimizer(), **options
        )  # fmt: skip

    label = f"{name}-{'-'.join(full)}" if full else name
    return Row(label, lambda: module.jobs(batch=2, **full), count, small, feed, names,
               is_slow=is_slow)  # fmt: skip


def redefined(module):
    """The jobs of a module that defines them when it is imported, in the session of the test.

    Each has a configuration of its own: a test that sets a flag leaves the module as it was.
    """
    specs = (module.train_job.spec, module.predict_job.spec)
    train, predict = (define(replace(s, config=s.config.copy())) for s in specs)
    return Jobs(train, train, predict)


def digits():
    labels = np.arange(100, dtype=np.int32) % 10
    return lit(draw(100, 1, 28, 28), labels) / 30, labels


def small_bert(layers):
    return bert.jobs(
        2, 8, 3, bert.Config(50, 16, layers, 4, positions=16), optimizer=adam()
    )  # fmt: skip


def sentences():
    weights = np.array([[1, 1, 0], [1, 1, 1]], np.float32)
    places = np.array([[0, 3, 0], [2, 5, 7]], np.int32)
    mask = np.array([[1] * 8, [1] * 8], np.int32)
    return (indices(50, 2, 8), mask, indices(2, 2, 8), places, indices(50, 2, 3), weights,
            np.array([[0], [1]], np.int32))  # fmt: skip


def small_gpt(layers):
    return gpt.jobs(2, 8, gpt.Config(50, 16, layers, 4, positions=16), adam())


def counting():
    return (np.tile(np.arange(9), (2, 1)),)


def small_wide_deep():
    config = wide_deep.Config(100, 100, 4, (32,) * 7, dropout=0.0)
    return wide_deep.jobs(8, config)


def clicks():
    labels = (np.arange(8) % 2).reshape(8, 1).astype(np.int32)
    return labels, draw(8, 13), indices(100, 8, 2), indices(100, 8, 26)


def small_yolov3():
    return yolov3.jobs(2, 64, boxes=3, classes=CLASSES, multiplier=1 / 16, optimizer=adam())


def boxes():
    found = np.array([[0.5, 0.5, 0.3, 0.4], [0.2, 0.8, 0.1, 0.1], [0, 0, 0, 0]], np.float32)
    labels = np.array([[1, 2, -1], [3, 0, -1]], np.int32)
    return draw(2, 3, 64, 64), np.stack([found, found[[1, 0, 2]]]), labels


ROWS = [
    # 784 × 512 + 512 + 512 × 10 + 10
    Row("mlp", lambda: redefined(mlp), 407_050, lambda: redefined(mlp), digits,
        {"hidden-weight": (512, 784)}),
    # 25 × 32 + 32 + 25 × 32 × 64 + 64 + 3136 × 512 + 512 + 512 × 10 + 10
    Row("lenet", lambda: redefined(lenet), 1_663_370, lambda: redefined(lenet), digits,
        {"conv2-weight": (64, 32, 5, 5)}),
    classifier(alexnet, 50_302_912, 96, {"fc1-weight": (4096, 6400)},
               options={"multiplier": 1 / 16}, optimizer=adam),
    classifier(vgg16, 138_365_992, 32,
               {"conv12_weight": (512, 512, 3, 3), "conv0_bn-moving_mean": (64,)},
               options={"multiplier": 1 / 16}, optimizer=adam, is_slow=True),
    classifier(resnet50, 25_557_032, 32,
               {"Resnet-res2_0_branch1_bn-gamma": (256,), "Resnet-fc1001-weight": (1000, 2048)},
               options={"multiplier": 1 / 8}),
    classifier(resnext50, 25_028_904, 32,
               {"layer4-2-conv2-weight": (1024, 32, 3, 3), "layer1-0-downsample-1-beta": (256,)},
               options={"multiplier": 1 / 8, "groups": 4}, is_slow=True),
    classifier(mobilenet_v2, 3_503_872, 32,
               {"MobilenetV2-expanded_conv-depthwise-weight": (32, 1, 3, 3),
                "MobilenetV2-expanded_conv_16-project-BatchNorm-gamma": (320,)},
               options={"multiplier": 1 / 4}, optimizer=adam, is_slow=True),
    classifier(inception_v3, 23_817_352, 75,
               {"InceptionV3-mixed_9-branch3x3dbl-conv3-weight": (384, 384, 3, 1),
                "InceptionV3-mixed_10-branch_pool-conv-bias": (192,)},
               options={"multiplier": 1 / 8}, optimizer=slower, is_slow=True),
    classifier(inception_v3, 23_834_568, 75, {"InceptionV3-conv0_bn-gamma": (32,)},
               options={"multiplier": 1 / 8, "is_normalised": True}, is_slow=True,
               is_normalised=True),
    Row("bert", lambda: bert.jobs(2), 110_106_428, lambda: small_bert(2), sentences,
        {"bert-encoder-layer_11-attention-self-query-weight": (768, 768),
         "cls-predictions-transform-LayerNorm-gamma": (768,)}),
    Row("bert-large", lambda: bert.jobs(2, config=bert.LARGE), 336_226_108,
        lambda: small_bert(12), sentences, is_slow=True),
    Row("gpt", lambda: gpt.jobs(2), 124_439_808, lambda: small_gpt(2), counting,
        {"model-h11-attn-c_attn-weight": (768, 2304), "model-layernorm_f-beta": (768,)}),
    Row("gpt-deep", lambda: gpt.jobs(2), 124_439_808, lambda: small_gpt(12), counting,
        is_slow=True),
    # (1 + 16) × 3,200,000 + 429 × 1024 + 1024 + 6 × (1024 × 1024 + 1024) + 1024 + 1
    Row("wide_deep", lambda: wide_deep.jobs(2), 61_138_945, small_wide_deep, clicks,
        {"deep_embedding": (3_200_000, 16), "fc8-bias": (1,)}),
    Row("yolov3", lambda: yolov3.jobs(2), 61_949_149, small_yolov3, boxes,
        {"yolo-layer1-conv-weight": (32, 3, 3, 3), "yolo-layer106-conv-bias": (255,)},
        is_slow=True),
]  # fmt: skip


def variables(job: JobFunction) -> dict[str, Variable]:
    """The variables of a job without its optimizer's: tracing finds them, nothing is filled."""
    found = trace(job.spec).job.variables
    return {n: v for n, v in found.items() if v.role == "variable"}


def parameters(job: JobFunction) -> int:
    """How many numbers a job trains."""
    return sum(math.prod(v.shape) for v in variables(job).values() if v.is_trainable)
