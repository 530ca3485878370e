"""Models of scikit-learn, exported by skl2onnx, with their own steps of gradient descent."""

import warnings

import numpy as np
import skl2onnx
from sklearn.linear_model import SGDRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor

from tests.zoo.origins import RATES, STEPS, Architecture, Origin, Run

__all__ = ["ARCHITECTURES", "origins"]

ROWS, COLUMNS, CLASSES = 12, 5, 3


def perceptron(kind, activation, **more):
    """A perceptron that takes the whole batch at each step, with neither momentum nor decay."""

    def make(rule):
        return kind(
            hidden_layer_sizes=(7,), activation=activation, solver=rule, alpha=0.0, momentum=0.0,
            learning_rate_init=RATES[rule], batch_size=ROWS, shuffle=False, random_state=0, **more,
        )  # fmt: skip

    return make


def linear(kind, loss):
    """A linear model that takes one row at each step."""

    def make(rule):
        return kind(
            loss=loss, alpha=0.0, learning_rate="constant", eta0=RATES["sgd"], shuffle=False,
            random_state=0,
        )  # fmt: skip

    return make


ARCHITECTURES = [
    *(Architecture(f"MLPRegressor, {a}", perceptron(MLPRegressor, a))
      for a in ("relu", "tanh", "logistic", "identity")),
    *(Architecture(f"MLPClassifier, {a}", perceptron(MLPClassifier, a), "cross_entropy")
      for a in ("relu", "tanh", "logistic")),
    Architecture("SGDRegressor", linear(SGDRegressor, "squared_error")),
]  # fmt: skip


def origins(architecture):
    """The model as skl2onnx exports it: a pair of the exporter and an Origin."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of too few iterations, and of skl2onnx itself
        yield "skl2onnx", _origin(architecture)


def _origin(architecture):
    is_class = architecture.loss == "cross_entropy"
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    y = np.arange(ROWS) % CLASSES if is_class else rng.standard_normal(ROWS).astype(np.float32)
    net = architecture.make("sgd")
    if not hasattr(net, "solver"):
        x, y = x[:1], y[:1]
    _step(net, x, y)
    first = _weights(net)
    kind = skl2onnx.common.data_types.FloatTensorType([len(x), COLUMNS])
    options = {"zipmap": False} if is_class else None
    model = skl2onnx.to_onnx(
        net, initial_types=[("x", kind)], target_opset=18, options=options and {id(net): options}
    )
    rules = RATES if hasattr(net, "solver") else ("sgd",)
    return Origin(
        model=model,
        feeds=(x,),
        labels=y if is_class else y[:, None],
        loss=architecture.loss,
        first=first,
        runs={rule: _run(architecture, rule, net, x, y) for rule in rules},
        scale=1.0 if is_class else 0.5,  # scikit-learn minimises half of the mean square
        output="probabilities" if is_class else None,
        is_named=hasattr(net, "solver"),
    )


def _run(architecture, rule, exported, x, y):
    """Ten steps from the weights of the exported model."""
    net = architecture.make(rule)
    _step(net, x, y)
    if hasattr(net, "solver"):
        net.coefs_ = [w.copy() for w in exported.coefs_]
        net.intercepts_ = [w.copy() for w in exported.intercepts_]
        del net._optimizer  # begins anew at the next step
    else:
        net.coef_[:], net.intercept_[:] = exported.coef_, exported.intercept_
    losses = []
    for _ in range(STEPS):
        before = net.predict(x) if not hasattr(net, "solver") else None
        _step(net, x, y)
        losses.append(net.loss_ if before is None else float(((before - y) ** 2).mean()) / 2)
    return Run(tuple(losses), _weights(net))


def _step(net, x, y):
    settings = {"classes": np.arange(CLASSES)} if hasattr(net, "predict_proba") else {}
    net.partial_fit(x.astype(np.float64), y, **settings)


def _weights(net):
    """The weights by the names that skl2onnx gives them."""
    if not hasattr(net, "solver"):
        return {"coefficients": net.coef_.copy(), "intercepts": net.intercept_.copy()}
    found = {}
    for i, (w, b) in enumerate(zip(net.coefs_, net.intercepts_, strict=True)):
        found |= {f"coefficient{i or ''}": w.copy(), f"intercepts{i or ''}": b.copy()}
    return found
