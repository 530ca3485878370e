"""scikit-learn's perceptron through skl2onnx: the same steps as in scikit-learn."""

import numpy as np
import pytest

skl2onnx = pytest.importorskip("skl2onnx")
from sklearn.neural_network import MLPClassifier, MLPRegressor  # noqa: E402

import flow2onnx as flow  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of too few iterations, and of skl2onnx itself


def data(seed, n=12):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 5)).astype(np.float32), rng.integers(0, 3, n)


def exported(net, **options):
    kind = skl2onnx.common.data_types.FloatTensorType([None, 5])
    return skl2onnx.to_onnx(net, initial_types=[("x", kind)], target_opset=18, **options)


def settings(**more):
    return dict(
        hidden_layer_sizes=(7,), solver="sgd", learning_rate_init=0.1, momentum=0.0, alpha=0.0,
        shuffle=False, random_state=0, **more,
    )  # fmt: skip


def test_classifier():
    x, y = data(0)
    net = MLPClassifier(activation="tanh", batch_size=12, **settings())
    net.partial_fit(x.astype(np.float64), y, classes=[0, 1, 2])

    def loss(probabilities, target):
        logs = flow.math.log(probabilities)
        return flow.math.negative(flow.math.reduce_mean(flow.math.reduce_sum(logs * target, 1)))

    made = flow.make_trainable(
        exported(net, options={"zipmap": False}),
        loss,
        "sgd",
        lr=0.1,
        inputs={"target": (("batch", 3), flow.float32)},
    )
    trainer = made.trainer()
    for i in range(10):
        x, y = data(i + 1)
        net.partial_fit(x.astype(np.float64), y)
        got = trainer.step(x, np.eye(3, dtype=np.float32)[y])
        assert got["loss"].item() == pytest.approx(net.loss_, rel=1e-4)


def test_regressor():
    x, _ = data(0)
    net = MLPRegressor(activation="relu", batch_size=12, **settings())
    net.partial_fit(x.astype(np.float64), x[:, 0].astype(np.float64))
    made = flow.make_trainable(exported(net), "mse", "sgd", lr=0.05)
    trainer = made.trainer()
    for i in range(10):
        x, _ = data(i + 1)
        target = x[:, :1] * 2 - x[:, 1:2]
        net.partial_fit(x.astype(np.float64), target[:, 0].astype(np.float64))
        # scikit-learn minimises half of the mean square
        assert trainer.step(x, target)["loss"].item() / 2 == pytest.approx(net.loss_, rel=1e-4)
