"""make_trainable over axes that are free besides the batch: one bundle for all sizes."""

import numpy as np
import pytest
from flow2onnx_runtime import FeedError, Trainer
from onnx import helper

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, GradientError
from tests.imported import models


def attending(batch="batch", length="length"):
    """Numbers of words (batch, length) to scores (batch, length, 5), as torch exports a layer."""
    width, heads, rows = 8, 2, 11

    def size(name, axis):
        return [
            helper.make_node("Shape", ["words"], [f"{name}_all"]),
            helper.make_node("Gather", [f"{name}_all", f"at_{axis}"], [f"{name}_one"]),
            helper.make_node("Unsqueeze", [f"{name}_one", "zero"], [name]),
        ]

    def by_head(name):
        return [
            helper.make_node("MatMul", ["x", f"{name}.weight"], [f"{name}_flat"]),
            helper.make_node("Reshape", [f"{name}_flat", "split"], [f"{name}_split"]),
            helper.make_node("Transpose", [f"{name}_split"], [name], perm=[0, 2, 1, 3]),
        ]

    nodes = [
        *size("b", 0), *size("l", 1),
        helper.make_node("Concat", ["b", "l", "heads", "rest"], ["split"], axis=0),
        helper.make_node("Concat", ["b", "l", "rest"], ["join"], axis=0),
        helper.make_node("Gather", ["embedding", "words"], ["e"]),
        helper.make_node("Range", ["nought", "l_one", "single"], ["places"]),
        helper.make_node("Gather", ["positions", "places"], ["p"]),
        helper.make_node("Add", ["e", "p"], ["x"]),
        *by_head("q"), *by_head("k"), *by_head("v"),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["dots"]),
        helper.make_node("Softmax", ["dots"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["mixed"]),
        helper.make_node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["back", "join"], ["y"]),
        helper.make_node("Add", ["x", "y"], ["sum"]),
        helper.make_node("LayerNormalization", ["sum", "norm.weight", "norm.bias"], ["n"]),
        helper.make_node("MatMul", ["n", "head.weight"], ["scores"]),
    ]  # fmt: skip
    weights = {
        "embedding": (rows, width), "positions": (12, width), "q.weight": (width, width),
        "k.weight": (width, width), "v.weight": (width, width), "norm.bias": (width,),
        "head.weight": (width, 5),
    }  # fmt: skip
    numbers = {
        "at_0": np.int64(0), "at_1": np.int64(1), "zero": [0], "heads": [heads], "rest": [-1],
        "nought": np.int64(0), "single": np.int64(1),
    }  # fmt: skip
    tensors = [models.tensor(n, models.random(i, *s)) for i, (n, s) in enumerate(weights.items())]
    tensors += [models.tensor("norm.weight", 1 + models.random(20, width))]
    tensors += [models.tensor(n, v) for n, v in numbers.items()]
    inputs = [models.info("words", [batch, length], models.I)]
    return models.model(nodes, inputs, [models.info("scores", [batch, length, 5])], tensors)


def picture(height="height", width="width"):
    """Images (1, 2, height, width) to half their size: strides, a pool, a Resize, batch norm."""
    nodes = [
        helper.make_node("Conv", ["x", "a.weight"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "s", "o", "m", "d"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("AveragePool", ["r"], ["p"], kernel_shape=[3, 3], strides=[2, 2],
                         auto_pad="SAME_UPPER"),
        helper.make_node("Resize", ["p", "", "twice"], ["u"], mode="linear"),
        helper.make_node("ConvTranspose", ["u", "b.weight"], ["t"], strides=[2, 2]),
        helper.make_node("MaxPool", ["t"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]  # fmt: skip
    tensors = [
        models.tensor("a.weight", models.random(0, 3, 2, 3, 3)),
        models.tensor("b.weight", models.random(1, 3, 1, 3, 3)),
        models.tensor("s", 1 + models.random(2, 3)), models.tensor("o", models.random(3, 3)),
        models.tensor("m", models.random(4, 3)), models.tensor("d", 1 + models.random(5, 3) ** 2),
        models.tensor("twice", np.float32([1, 1, 2, 2])),
    ]  # fmt: skip
    return models.model(
        nodes,
        [models.info("x", [1, 2, height, width])],
        [models.info("y", [1, 1, None, None])],
        tensors,
    )


def batches(kind):
    """Feeds of several sizes, and the model for each."""
    draws = np.random.default_rng(7)
    if kind == "texts":
        for batch, length in ((2, 5), (3, 9), (1, 1), (2, 12)):
            words = draws.integers(0, 11, (batch, length))
            yield attending(batch, length), (words, draws.integers(0, 5, (batch, length)))
    elif kind == "sentences":
        for batch, length in ((2, 5), (3, 9), (1, 4)):
            x = models.random(length, batch, length, 2)
            yield models.sentences(batch, length), (x, draws.integers(0, 3, (batch,)))
    else:
        for height, width in ((8, 8), (12, 20), (7, 9)):
            x = models.random(height, 1, 2, height, width)
            rows, columns = (2 * (((d - 1) // 2 + 2) // 2) for d in (height, width))
            yield picture(height, width), (x, models.random(width, 1, 1, rows, columns))


FREE = {"texts": attending, "sentences": models.sentences, "pictures": picture}
LOSSES = {"texts": "cross_entropy(axis=-1)", "sentences": "cross_entropy", "pictures": "mse"}


@pytest.mark.parametrize("kind", FREE)
def test_one_bundle_for_all_sizes(kind, tmp_path):
    """Steps of several sizes in one training are those of a bundle made for each size."""
    made = flow.make_trainable(FREE[kind](), LOSSES[kind], "sgd(momentum=0.9)", lr=0.05)
    assert made.check.difference is not None
    assert made.check.difference < 1e-5
    report = made.save(tmp_path / "free")
    assert report.ok, str(report)
    trainer = Trainer(tmp_path / "free")
    state = tmp_path / "state.safetensors"
    for number, (fixed, feeds) in enumerate(batches(kind)):
        apart = flow.make_trainable(fixed, LOSSES[kind], "sgd(momentum=0.9)", lr=0.05).trainer()
        if number:
            apart.load(state)
        loss = trainer.step(*feeds)["loss"]
        np.testing.assert_allclose(loss, apart.step(*feeds)["loss"], rtol=2e-5)
        trainer.save(state)
        for name in made.trained:
            wanted = apart.state.read(name)
            np.testing.assert_allclose(trainer.state.read(name), wanted, rtol=1e-3, atol=2e-5)


def test_sizes_that_have_one_name_agree(tmp_path):
    trainer = flow.make_trainable(attending(), "cross_entropy(axis=-1)", "sgd").trainer()
    words = np.zeros((2, 5), np.int64)
    with pytest.raises(FeedError, match="length"):
        trainer.step(words, np.zeros((2, 4), np.int64))
    assert np.isfinite(trainer.step(words, np.zeros((2, 5), np.int64))["loss"])


def test_one_axis_may_be_fixed_and_the_other_not():
    made = flow.make_trainable(
        attending(), "cross_entropy(axis=-1)", "sgd", inputs={"batch": 2}, check_import=False
    )
    feeds = {i.name: i.shape for i in made.step.model.graph.inputs}
    assert [str(d) for d in feeds["words"]] == ["2", "length"]
    assert [str(d) for d in feeds["labels"]] == ["2", "length"]


def test_what_has_to_be_known_says_what_to_fix():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["square"]),
        helper.make_node("MatMul", ["square", "turned"], ["dots"]),
        helper.make_node("Transpose", ["square"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("Det", ["dots"], ["y"]),
    ]
    nodes[1], nodes[2] = nodes[2], nodes[1]
    model = models.model(
        nodes, [models.info("x", ["batch", "size", 4])], [models.info("y", ["batch"])],
        [models.tensor("w", models.random(0, 4, 4))],
    )  # fmt: skip
    with pytest.raises(GradientError, match=r"the size of its matrices \(size\) is free") as e:
        flow.make_trainable(model, "mse", "sgd")
    assert "inputs=" in str(e.value.hint)
    made = flow.make_trainable(model, "mse", "sgd", inputs={"size": 3}, check_import=False)
    assert made.step.feeds == ("x", "labels")
    with pytest.raises(ArgumentError, match="no input has a dimension 'sizes'"):
        flow.make_trainable(model, "mse", "sgd", inputs={"sizes": 3})
