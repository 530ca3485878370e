"""Losses by name of imported models: outputs that they read, labels that they take."""

import numpy as np
import pytest
from onnx import helper

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError
from flow2onnx.ops.named_losses import LOSSES
from tests.imported import models
from tests.ops.jobs import predict

X = models.random(9, 6, 4)


def linear(count, *sizes):
    """x (batch, …, 4) to outputs y0, y1, … (batch, …, 3), each by a weight of its own."""
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]) for i in range(count)]
    outputs = [models.info(f"y{i}", ["n", *sizes, 3]) for i in range(count)]
    tensors = [models.tensor(f"w{i}", models.random(i, 4, 3)) for i in range(count)]
    return models.model(nodes, [models.info("x", ["n", *sizes, 4])], outputs, tensors)


def outputs_of(x, *places):
    return [x @ models.random(i, 4, 3) for i in places]


def expected(name, *arrays, **settings):
    return predict(lambda *v: getattr(flow.losses, name)(*v, **settings), *arrays)[0].item()


def test_a_loss_of_several_outputs_reads_the_first_of_the_model():
    trainer = flow.make_trainable(linear(3), "triplet(margin=0.5)", "sgd", lr=0.1).trainer()
    assert [f.name for f in trainer.manifest.feeds] == ["x"]
    found = trainer.step(X)["loss"].item()
    assert found == pytest.approx(expected("triplet", *outputs_of(X, 0, 1, 2), margin=0.5))
    assert trainer.evaluate(X[:2])["loss"].item() != found


def test_outputs_are_named_in_their_order():
    made = flow.make_trainable(linear(3), "info_nce", "sgd", output=["y2", "y0"])
    assert made.trained == ("w0", "w2")
    found = made.trainer().evaluate(X)["loss"].item()
    assert found == pytest.approx(expected("info_nce", *outputs_of(X, 2, 0)), rel=1e-5)


def test_labels_of_pairs_are_one_for_each_row():
    made = flow.make_trainable(linear(2), "cosine_embedding", "sgd", labels="together")
    signs = np.float32([1, -1, 1, 1, -1, -1])
    trainer = made.trainer()
    assert [(f.name, f.shape) for f in trainer.manifest.feeds[1:]] == [("together", ("batch",))]
    found = trainer.evaluate(X, signs)["loss"].item()
    assert found == pytest.approx(expected("cosine_embedding", *outputs_of(X, 0, 1), signs))


def test_texts_of_any_batch():
    x = models.random(3, 2, 5, 4)
    labels, times, lengths = np.int64([[1, 2], [2, -1]]), np.int64([5, 3]), np.int64([2, 1])
    made = flow.make_trainable(
        linear(1, 5), "ctc(logits=True, batch_first=True)", "sgd", lr=0.1,
        inputs={"labels": (("batch", 2), flow.int64)},
    )  # fmt: skip
    trainer = made.trainer()
    names = [f.name for f in trainer.manifest.feeds]
    assert names == ["x", "labels", "input_lengths", "target_lengths"]
    scores = outputs_of(x, 0)[0]
    for n in (2, 1):
        given = x[:n], labels[:n], times[:n], lengths[:n]
        reference = expected("ctc", scores[:n], *given[1:], logits=True, batch_first=True)
        assert trainer.evaluate(*given)["loss"].item() == pytest.approx(reference, rel=1e-5)
    losses = [trainer.step(x, labels, times, lengths)["loss"].item() for _ in range(3)]
    assert losses[2] < losses[0]


def test_probabilities_as_labels():
    trainer = flow.make_trainable(
        linear(1), "cross_entropy(probabilities=True, weight=[1.0, 2.0, 3.0])", "sgd"
    ).trainer()
    shares = np.full((6, 3), 1 / 3, np.float32)
    found = trainer.evaluate(X, shares)["loss"].item()
    weight = [1.0, 2.0, 3.0]
    reference = expected(
        "cross_entropy", *outputs_of(X, 0), shares, probabilities=True, weight=weight
    )
    assert found == pytest.approx(reference, rel=1e-5)


WRONG = [
    ("triplet", {}, ArgumentError, "reads 3 outputs (anchor, positive, negative), here are 1"),
    ("mse", {"output": ["y0", "y0"]}, ArgumentError, "reads 1 outputs (output), here are 2"),
    ("mse", {"output": ["y9"]}, ArgumentError, "no output 'y9'"),
    ("ctc", {}, ShapeError, "ctc takes (time, batch, classes)"),
    ("crossentropy", {}, ArgumentError, "did you mean cross_entropy"),
    ("tripled", {}, ArgumentError, "did you mean triplet"),
    ("focal(gama=2)", {}, ArgumentError, "did you mean gamma"),
    ("mse(output=3)", {}, ArgumentError, "no setting 'output'"),
    ("cross_entropy(weight=[1.0])", {}, ArgumentError, "a list of 3 numbers"),
    ("mse", {"inputs": {"labels": (("batch", 4), flow.float32)}}, ArgumentError, "the loss needs"),
]


@pytest.mark.parametrize(("loss", "options", "kind", "message"), WRONG, ids=[w[3] for w in WRONG])
def test_wrong_losses(loss, options, kind, message):
    with pytest.raises(kind) as caught:
        flow.make_trainable(linear(1), loss, "sgd", **options)
    assert message in str(caught.value)


def test_texts_need_a_length():
    with pytest.raises(ArgumentError, match="how long rows of labels are") as caught:
        flow.make_trainable(linear(1, 5), "ctc(batch_first=True)", "sgd")
    assert "inputs={'labels': (('batch', 20), flow.int64)}" in str(caught.value)
    with pytest.raises(ArgumentError, match="inputs: labels is float32"):
        flow.make_trainable(
            linear(1, 5), "ctc(batch_first=True)", "sgd", inputs={"labels": ("batch", 2)}
        )


def test_names_of_labels_are_not_the_models():
    model = linear(1, 5)
    model.graph.input[0].name = "input_lengths"
    model.graph.node[0].input[0] = "input_lengths"
    with pytest.raises(ArgumentError, match="which ctc calls an input"):
        flow.make_trainable(model, "ctc(batch_first=True)", "sgd")


@pytest.mark.parametrize(("loss", "activation"), [
    ("focal", "Sigmoid"), ("softmax_focal", "Softmax"), ("dice", "Sigmoid"),
])  # fmt: skip
def test_losses_that_apply_an_activation_tell_of_a_second_one(loss, activation):
    model = linear(1)
    model.graph.node.append(helper.make_node(activation, ["y0"], ["p"]))
    model.graph.output[0].name = "p"
    with pytest.warns(UserWarning, match=f"{loss} applies"):
        flow.make_trainable(model, loss, "sgd")
    made = flow.make_trainable(model, loss, "sgd", logits=True)
    assert made.trained == ("w0",)


def test_dice_of_probabilities():
    model = linear(1)
    model.graph.node.append(helper.make_node("Softmax", ["y0"], ["p"], axis=-1))
    model.graph.output[0].name = "p"
    made = flow.make_trainable(model, "dice(sigmoid=False)", "sgd")
    assert made.trained == ("w0",)


def test_every_loss_is_documented():
    for name, loss in LOSSES.items():
        assert loss.function.__doc__, name


def test_whole_numbers_are_no_output_of_a_loss():
    model = linear(2)
    model.graph.node.append(helper.make_node("Cast", ["y1"], ["k"], to=7))
    model.graph.output[1].CopyFrom(models.info("k", ["n", 3], models.I))
    with pytest.raises(DTypeError, match="output k is int64"):
        flow.make_trainable(model, "info_nce", "sgd")
