"""Models that end in a softmax or sigmoid, under losses that apply one themselves."""

import warnings

import numpy as np
import pytest
from onnx import helper

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, ShapeError
from tests.imported import models

X, Y = models.random(8, 5, 4), np.int64([0, 2, 1, 0, 2])
ENDS = {
    "Softmax": [helper.make_node("Softmax", ["s"], ["y"], axis=1)],
    "LogSoftmax": [helper.make_node("LogSoftmax", ["s"], ["y"], axis=1)],
    "Sigmoid": [helper.make_node("Sigmoid", ["s"], ["y"])],
    "Log": [helper.make_node("Softmax", ["s"], ["p"]), helper.make_node("Log", ["p"], ["y"])],
    "shaped": [
        helper.make_node("Softmax", ["s"], ["p"]),
        helper.make_node("Reshape", ["p", "shape"], ["r"]),
        helper.make_node("Identity", ["r"], ["y"]),
    ],
    "Relu": [helper.make_node("Relu", ["s"], ["y"])],
}


def ending_in(name, opset=21):
    tensors = [
        models.tensor("w", models.random(0, 4, 3)), models.tensor("shape", np.int64([-1, 3])),
    ]  # fmt: skip
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"], "product"), *ENDS[name]]
    return models.model(
        nodes, [models.info("x", ["n", 4])], [models.info("y", ["n", 3])], tensors, opset
    )


def step(model, loss, labels=Y, **options):
    trainer = flow.make_trainable(model, loss, "sgd", lr=0.5, **options).trainer()
    losses = [trainer.step(X, labels)["loss"].item() for _ in range(3)]
    return losses, trainer.state_dict()["w"]


def of_scores(loss="cross_entropy", labels=Y):
    model = ending_in("Relu")
    del model.graph.node[1]
    model.graph.node[0].output[0] = "y"
    return step(model, loss, labels)


@pytest.mark.parametrize("name", ["Softmax", "shaped", "Sigmoid"])
def test_a_second_activation_is_told(name):
    with pytest.warns(UserWarning, match="pass logits=True") as caught:
        flow.make_trainable(ending_in(name), "cross_entropy", "sgd")
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("name", "loss"),
    [("Softmax", "nll"), ("Sigmoid", "bce_with_logits"), ("Softmax", "bce_with_logits"),
     ("Softmax", "kl"), ("Sigmoid", "nll")],
)  # fmt: skip
def test_other_losses_are_told_too(name, loss):
    with pytest.warns(UserWarning, match="logits=True"):
        flow.make_trainable(ending_in(name), loss, "sgd")


@pytest.mark.parametrize(
    ("name", "loss"),
    [("LogSoftmax", "nll"), ("Log", "nll"), ("Sigmoid", "bce"), ("Softmax", "mse"),
     ("LogSoftmax", "cross_entropy"), ("Relu", "cross_entropy")],
)  # fmt: skip
def test_what_is_right_is_not_told(name, loss):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flow.make_trainable(ending_in(name), loss, "sgd")


@pytest.mark.parametrize("name", ["Softmax", "shaped", "LogSoftmax"])
def test_training_on_logits_is_that_of_the_scores(name):
    losses, weights = step(ending_in(name), "cross_entropy", logits=True)
    expected, wanted = of_scores()
    assert losses == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(weights, wanted, rtol=1e-5)


def test_rows_of_an_old_softmax_come_back_too():
    tensors = [models.tensor("w", models.random(0, 4, 3))]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"], "product"),
        helper.make_node("Unsqueeze", ["s"], ["u"], axes=[2]),
        helper.make_node("Softmax", ["u"], ["p"], axis=1),
        helper.make_node("Squeeze", ["p"], ["y"], axes=[2]),
    ]
    x, y = models.info("x", ["n", 4]), models.info("y", ["n", 3])
    model = models.model(nodes, [x], [y], tensors, opset=11)
    losses, weights = step(model, "cross_entropy", logits=True)
    expected, wanted = of_scores()
    assert losses == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(weights, wanted, rtol=1e-5)


def test_the_logits_of_a_sigmoid():
    labels = (models.random(5, 5, 3) > 0).astype(np.float32)
    losses, _ = step(ending_in("Sigmoid"), "bce_with_logits", labels, logits=True)
    expected, _ = of_scores("bce_with_logits", labels)
    assert losses == pytest.approx(expected, rel=1e-5)


def test_logits_that_are_not_there():
    with pytest.raises(ArgumentError, match="output y ends in no LogSoftmax"):
        flow.make_trainable(ending_in("Relu"), "cross_entropy", logits=True)
    for loss in ("nll", "y", lambda y: y):
        with pytest.raises(ArgumentError, match="logits=True is for"):
            flow.make_trainable(ending_in("Softmax"), loss, logits=True)


@pytest.mark.parametrize("loss", ["cross_entropy", "nll"])
def test_labels_that_are_ignored_and_labels_that_are_none(loss):
    name = "Relu" if loss == "cross_entropy" else "LogSoftmax"
    labels = np.int64([0, -1, 1, 2, -1])
    kept = labels >= 0
    trainer = flow.make_trainable(ending_in(name), f"{loss}(ignore_index=-1)", "sgd").trainer()
    plain = flow.make_trainable(ending_in(name), loss, "sgd").trainer()
    expected = plain.evaluate(X[kept], labels[kept])["loss"]
    assert trainer.evaluate(X, labels)["loss"] == pytest.approx(expected, rel=1e-6)
    for wrong in (-1, -2, 3):
        with pytest.raises(Exception, match=r"\bout of data bounds|\bbetween 0 and|labels"):
            plain.step(X, np.int64([0, wrong, 1, 2, 0]))


def test_infinite_scores_of_what_is_ignored_do_not_count():
    model = models.model(
        [helper.make_node("Add", ["x", "w"], ["y"])], [models.info("x", ["n", 3])],
        [models.info("y", ["n", 3])], [models.tensor("w", np.zeros(3, np.float32))],
    )  # fmt: skip
    x = np.float32([[0, 1, 2], [-np.inf, 1, 2]])
    trainer = flow.make_trainable(model, "cross_entropy(ignore_index=-1)", "sgd").trainer()
    assert np.isfinite(trainer.step(x, np.int64([1, -1]))["loss"])


def normalized():
    ones = models.tensor("ones", np.float32([1, 1, 1]))
    zeros = models.tensor("zeros", np.float32([0, 0, 0]))
    mean, variance = (
        models.tensor("mean", models.random(1, 3)),
        models.tensor("var", np.ones(3, np.float32)),
    )
    node = helper.make_node("BatchNormalization", ["x", "ones", "zeros", "mean", "var"], ["y"])
    x, y = models.info("x", ["n", 3]), models.info("y", ["n", 3])
    return models.model([node], [x], [y], [ones, zeros, mean, variance])


def test_a_batch_of_one_leaves_running_statistics_as_they_are():
    trainer = flow.make_trainable(normalized(), "mse", "sgd", training_mode=True).trainer()
    before = trainer.state_dict()
    trainer.step(models.random(0, 1, 3), models.random(1, 1, 3))
    after = trainer.state_dict()
    assert np.isfinite(after["var"]).all()
    np.testing.assert_array_equal(after["mean"], before["mean"])
    np.testing.assert_array_equal(after["var"], before["var"])
    trainer.step(models.random(0, 2, 3), models.random(1, 2, 3))
    assert not np.array_equal(trainer.state_dict()["var"], before["var"])


def test_a_batch_fixed_at_one_is_refused():
    with pytest.raises(ShapeError, match="one value for each channel has no variance"):
        flow.make_trainable(normalized(), "mse", "sgd", training_mode=True, inputs={"x": (1, 3)})


@pytest.mark.parametrize("name", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
@pytest.mark.parametrize("ignored", [None, -1])
def test_losses_inside_a_model_refuse_labels_that_are_no_classes(name, ignored):
    given = {} if ignored is None else {"ignore_index": ignored}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"], "product"),
        helper.make_node("LogSoftmax", ["s"], ["l"], axis=1),
        helper.make_node(name, ["l", "k"], ["y"], **given),
    ]
    inputs = [models.info("x", ["n", 4]), models.info("k", ["n"], models.I)]
    weight = models.tensor("w", models.random(0, 4, 3))
    made = flow.make_trainable(
        models.model(nodes, inputs, [models.info("y", [])], [weight]), "y", "sgd"
    )
    trainer = made.trainer()
    logs = models.random(0, 4, 3)
    scores = X @ logs
    scores -= np.log(np.exp(scores).sum(1, keepdims=True))
    assert trainer.step(X, Y)["loss"] == pytest.approx(-scores[range(5), Y].mean(), rel=1e-5)
    some = np.int64([0, -1, 1, 2, -1])
    if ignored is None:
        with pytest.raises(Exception, match=r"Out of range|out of data bounds"):
            trainer.step(X, some)
    else:
        assert np.isfinite(trainer.step(X, some)["loss"])
    with pytest.raises(Exception, match=r"Out of range|out of data bounds"):
        trainer.step(X, np.int64([0, -2, 1, 2, 0]))
