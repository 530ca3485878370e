"""Networks of the page that fine-tunes a vision model: new heads on classifiers of any exporter."""

import numpy as np
import onnx
import onnxruntime
import pytest
from flow2onnx_runtime import Options, Trainer
from onnx import TensorProto, helper, numpy_helper

from examples.vision_page.bundle import BATCH, SCORES, trainable
from examples.vision_page.network import HEAD, adapt
from flow2onnx.errors import ArgumentError

FLOAT = TensorProto.FLOAT


def classifier(shape=("n", 3, 8, 8), end="Softmax", head="Gemm", kind=FLOAT):
    """Two convolutions, a mean and a dense layer for 5 classes."""
    random = np.random.default_rng(0)
    first = helper.make_node("Conv", ["x", "conv1"], ["a"], pads=[1, 1, 1, 1])
    nodes = [first]
    if shape[1] != 3:
        nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])]
        nodes.append(helper.make_node("Conv", ["t", "conv1"], ["a"], pads=[1, 1, 1, 1]))
    nodes += [
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "conv2"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node(head, ["flat", "dense"], ["scores"]),
        helper.make_node(end, ["scores"], ["y"]),
    ]
    weights = {"conv1": (4, 3, 3, 3), "conv2": (6, 4, 3, 3), "dense": (6, 5)}
    tensors = [
        numpy_helper.from_array(random.normal(size=s).astype(np.float32), n)
        for n, s in weights.items()
    ]
    x = helper.make_tensor_value_info("x", kind, shape)
    y = helper.make_tensor_value_info("y", FLOAT, ("n", 5))
    graph = helper.make_graph(nodes, "net", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_a_head_for_other_classes():
    vision = adapt(classifier(), classes=3, size=96, depth=1)
    assert (vision.size, vision.is_channels_first, vision.shape(2)) == (8, True, (2, 3, 8, 8))
    assert vision.blocks == ("conv2", *HEAD)
    onnx.checker.check_model(vision.model, full_check=True)
    session = onnxruntime.InferenceSession(vision.model.SerializeToString())
    images = np.ones((2, 3, 8, 8), np.float32)
    (scores,) = session.run(None, {"x": images})
    assert scores.shape == (2, 3)
    assert adapt(classifier(), 3, 96, 9).blocks == ("conv1", "conv2", *HEAD)


@pytest.mark.parametrize("options", [{"shape": ("n", 8, 8, 3)}, {"head": "MatMul"}])
def test_exporters_lay_out_otherwise(options):
    vision = adapt(classifier(**options), 3, 96, 1)
    assert vision.is_channels_first is ("shape" not in options)
    assert vision.shape(1)[1:] in ((3, 8, 8), (8, 8, 3))


def test_free_sides_and_a_value_by_name():
    free = adapt(classifier(shape=("n", 3, "h", "w")), 3, 32, 1)
    assert free.size == 32
    named = adapt(classifier(end="Tanh"), 3, 96, 1, features="pooled")
    assert named.model.graph.node[-2].op_type == "Flatten"


@pytest.mark.parametrize(
    ("model", "features", "words"),
    [
        (lambda: classifier(shape=("n", 1, 8, 8)), None, "no 3 channels"),
        (lambda: classifier(shape=(1, 3, 8, 8)), None, "batches of 1 only.*free batch"),
        (lambda: classifier(shape=("n", 3, 8, 9)), None, "8 x 9.*squares"),
        (lambda: classifier(end="Tanh"), None, "not that of a dense layer.*--features"),
        (classifier, "nothing", "no value nothing"),
        (classifier, "c", "not .batch, features.*pooling"),
    ],
)
def test_what_is_no_classifier_of_images(model, features, words):
    with pytest.raises(ArgumentError, match=f"(?s){words}"):
        adapt(model(), 3, 96, 1, features)


def test_rows_and_classes_that_do_not_count(tmp_path):
    vision = adapt(classifier(), 3, 96, 1)
    trainable(vision, vision.blocks).save(tmp_path / "bundle", verify=False)
    trainer = Trainer(tmp_path / "bundle", Options(intra_op_threads=1))
    random = np.random.default_rng(0)
    images = random.normal(size=vision.shape(BATCH)).astype(np.float32)
    targets = np.zeros((BATCH, 3), np.float32)
    targets[:2, :2] = np.eye(2)
    used = np.float32([[1, 1, 0]])
    feeds = {"x": images, "targets": targets, "used": used}
    found = trainer.evaluate(**feeds)
    scores = found[SCORES][:2, :2]
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(found["loss"], -np.log(np.diag(shares)).mean(), rtol=1e-5)
    losses = [float(trainer.step(**feeds)["loss"]) for _ in range(30)]
    assert losses[-1] < losses[0]
    assert trainer.predict(images[:1])["logits"].shape == (1, 3)
