"""Mixed precision trains to the accuracy of single precision, on scikit-learn's digits."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.passes import upcast_missing_kernels
from models import lenet

BATCH, TRAINED = 100, 1000
# Small enough that no step of these overflows: a step more or less moves accuracy by 1 %.
SCALE = {"loss_scale_policy": flow.optimizer.loss_scale.dynamic_loss_scale(16.0)}


def digits():
    """Images of 8 by 8 in [0, 1] and their labels, in an order of their own."""
    from sklearn.datasets import load_digits  # takes longer to import than all else of the module

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(3).permutation(len(labels))
    return (images[order] / 16).astype(np.float32), labels[order].astype(np.int32)


def lenet_inputs(images):
    """The size that LeNet takes: every pixel three times, and a frame."""
    large = images.reshape(-1, 1, 8, 8).repeat(3, 2).repeat(3, 3)
    return np.pad(large, [(0, 0), (0, 0), (2, 2), (2, 2)])


def dense(x, units, name):
    start = flow.random_normal_initializer(stddev=0.15)
    return flow.layers.dense(x, units, kernel_initializer=start, name=name)


def attention(x, name):
    """Two heads over eight tokens of 32 numbers."""

    def heads(part):
        split = flow.reshape(dense(x, 32, f"{name}-{part}"), [BATCH, 8, 2, 16])
        return flow.transpose(split, [0, 2, 1, 3])

    q, k, v = map(heads, "qkv")
    weights = flow.nn.softmax(flow.matmul(q, k, transpose_b=True) * 0.25)
    seen = flow.reshape(flow.transpose(flow.matmul(weights, v), [0, 2, 1, 3]), [BATCH, 8, 32])
    return dense(seen, 32, f"{name}-out")


def transformer(images):
    """A token for each row; two blocks of attention and a hidden layer; the mean decides."""
    places = flow.get_variable(
        "places", (1, 8, 32), initializer=flow.random_normal_initializer(stddev=0.1)
    )
    x = dense(flow.reshape(images, [BATCH, 8, 8]), 32, "embed") + places
    for i in range(2):
        x = x + attention(flow.layers.layer_norm(x, name=f"norm{i}a"), f"attention{i}")
        h = flow.math.gelu(dense(flow.layers.layer_norm(x, name=f"norm{i}b"), 64, f"up{i}"))
        x = x + dense(h, 32, f"down{i}")
    return dense(flow.math.reduce_mean(x, [1]), 10, "head")


NETWORKS = {
    "lenet": (
        lenet.network, lenet_inputs, (BATCH, 1, 28, 28), 14,
        lambda rate: flow.optimizer.SGD(rate(0.02), momentum=0.9, **SCALE),
    ),
    "transformer": (
        transformer, lambda images: images, (BATCH, 64), 30,
        lambda rate: flow.optimizer.SGD(rate(0.03), momentum=0.9, **SCALE),
    ),
}  # fmt: skip


# there is no bfloat16 convolution at the opset of jobs
HALVES = {"lenet": ("float16",), "transformer": ("float16", "bfloat16")}
LAST = {"lenet": "dense2-weight", "transformer": "head-weight"}


def accuracy(name, half):
    """The share of held back digits that are recognised, and a weight of the last layer."""
    flow.clear_default_session()
    network, prepared, shape, epochs, optimizer = NETWORKS[name]
    config = flow.function_config()
    if half is not None:
        config.enable_auto_mixed_precision(True)
        config.runtime.mixed_precision_dtype(half)

    @flow.global_function(type="train", function_config=config)
    def step(images: tp.Numpy.Placeholder(shape), labels: lenet.Labels) -> tp.Numpy:
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images))
        optimizer(lambda r: flow.optimizer.CosineScheduler(r, epochs * TRAINED // BATCH)).minimize(
            loss
        )
        return loss

    @flow.global_function(function_config=config)
    def logits(images: tp.Numpy.Placeholder(shape)) -> tp.Numpy:
        return network(images)

    images, labels = digits()
    images = prepared(images)
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(TRAINED).reshape(-1, BATCH)
        for chosen in order:
            step(images[chosen], labels[chosen])
    batches = range(TRAINED, len(labels) - BATCH + 1, BATCH)
    hits = [logits(images[i : i + BATCH]).argmax(1) == labels[i : i + BATCH] for i in batches]
    weights = flow.get_all_variables()
    assert weights["System-Train-TrainStep-step"].numpy() == epochs * TRAINED // BATCH
    return np.mean(hits), weights[LAST[name]].numpy()


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_half_precision_is_as_accurate(name, monkeypatch):
    monkeypatch.setattr(
        upcast_missing_kernels, "casts_itself", lambda *_: False
    )  # round as a GPU does
    whole, weight = accuracy(name, None)
    assert whole > 0.95
    for half in HALVES[name]:
        reached, rounded = accuracy(name, half)
        assert abs(reached - whole) <= 0.005, half
        assert 0 < abs(rounded - weight).max() < 0.1, half
