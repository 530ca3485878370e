"""Train jobs and their variables, beside numpy."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import (
    ArgumentError,
    ConfigError,
    DTypeError,
    JobError,
    NonFiniteError,
)
from tests.api.support import f32, raises, rate, sgd, values, variable

X = tp.Numpy.Placeholder((4, 3))
STEPS = [np.random.default_rng(i).standard_normal((4, 3)).astype(np.float32) for i in range(6)]
START = np.array([[0.5, -1.0, 2.0]], np.float32)


def trained(minimize, steps=STEPS, *, regularizer=None, config=None, start=START):
    """w after each step of minimising the elements of (x * w)^2, made by `minimize(loss)`."""

    def job(x: X) -> tp.Numpy:
        w = flow.get_variable(
            "w", (1, 3), initializer=flow.zeros_initializer(), regularizer=regularizer
        )
        product = x * w
        loss = product * product
        minimize(loss)
        return loss

    decorate = flow.global_function(type="train") if config is None else flow.function(config)
    train = decorate(job)
    flow.load_variables({"w": start})
    found = []
    for x in steps:
        train(x)
        found.append(values("w")[0])
    return np.array(found)


def gradient(x, w):
    """Of the mean over all elements of (x * w)^2."""
    return (2 * x * x * w).sum(0, keepdims=True) / x.size


def model(update, steps=STEPS, start=START):
    """w after each step, where update(t, w, g) is the next one."""
    w, found = start.astype(np.float64), []
    for t, x in enumerate(steps):
        w = update(t, w, gradient(x.astype(np.float64), w))
        found.append(w)
    return np.array(found)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


class Momentum:
    def __init__(self, lr, beta):
        self.lr, self.beta, self.v = lr, beta, 0.0

    def __call__(self, t, w, g):
        self.v = self.beta * self.v - self.lr * g
        return w + self.v


class AdamModel:
    def __init__(self, lr, is_corrected, beta1=0.9, beta2=0.999, epsilon=1e-8):
        self.lr, self.is_corrected, self.epsilon = lr, is_corrected, epsilon
        self.beta1, self.beta2, self.m, self.v = beta1, beta2, 0.0, 0.0

    def __call__(self, t, w, g):
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.v = self.beta2 * self.v + (1 - self.beta2) * g * g
        lr = self.lr
        if self.is_corrected:
            lr *= np.sqrt(1 - self.beta2 ** (t + 1)) / (1 - self.beta1 ** (t + 1))
        return w - lr * self.m / (np.sqrt(self.v) + self.epsilon)


class TestOptimizers:
    def test_sgd(self):
        found = trained(lambda loss: sgd(0.1).minimize(loss))
        close(found, model(lambda t, w, g: w - 0.1 * g))

    @pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.5}])
    def test_momentum(self, options):
        found = trained(lambda loss: flow.optimizer.SGD(rate(0.1), **options).minimize(loss))
        close(found, model(Momentum(0.1, options.get("momentum", 0.9))))

    @pytest.mark.parametrize("is_corrected", [False, True])
    def test_adam(self, is_corrected):
        found = trained(
            lambda loss: flow.optimizer.Adam(
                rate(0.05), beta1=0.8, beta2=0.95, epsilon=1e-3, do_bias_correction=is_corrected
            ).minimize(loss)
        )
        close(found, model(AdamModel(0.05, is_corrected, 0.8, 0.95, 1e-3)))

    def test_adam_is_not_corrected_by_default(self):
        found = trained(lambda loss: flow.optimizer.Adam(rate(0.05)).minimize(loss))
        close(found, model(AdamModel(0.05, False)))

    @pytest.mark.parametrize("momentum", [0, 0.9])
    def test_piecewise_rate_includes_its_boundary(self, momentum):
        scheduler = flow.optimizer.PiecewiseConstantScheduler([1, 3], [0.1, 0.05, 0.01])
        found = trained(
            lambda loss: flow.optimizer.SGD(scheduler, momentum=momentum).minimize(loss)
        )
        rates, step = [0.1, 0.1, 0.05, 0.05, 0.01, 0.01], Momentum(0, momentum)

        def update(t, w, g):
            step.lr = rates[t]
            return step(t, w, g)

        close(found, model(update))

    @pytest.mark.parametrize("clip", [0.05, 1.0, 100.0])
    @pytest.mark.parametrize("momentum", [0, 0.9])
    def test_clipping(self, clip, momentum):
        found = trained(
            lambda loss: flow.optimizer.SGD(
                rate(0.1), momentum=momentum,
                grad_clipping=flow.optimizer.grad_clipping.by_global_norm(clip),
            ).minimize(loss)
        )  # fmt: skip
        step = Momentum(0.1, momentum)
        close(found, model(
            lambda t, w, g: step(t, w, g * min(1, clip / (np.linalg.norm(g) + 1e-6)))
        ))  # fmt: skip

    @pytest.mark.parametrize("momentum", [0, 0.9])
    @pytest.mark.parametrize(("l1", "l2"), [(0.1, 0.0), (0.0, 0.2), (0.1, 0.2)])
    def test_regularizer_is_neither_averaged_nor_clipped(self, l1, l2, momentum):
        make = {
            (0.1, 0.0): lambda: flow.regularizers.l1(0.1),
            (0.0, 0.2): lambda: flow.regularizers.l2(0.2),
            (0.1, 0.2): lambda: flow.regularizers.l1_l2(0.1, 0.2),
        }[l1, l2]
        clipping = flow.optimizer.grad_clipping.by_global_norm(0.05)
        found = trained(
            lambda loss: sgd(0.1, momentum, grad_clipping=clipping).minimize(loss),
            regularizer=make(),
        )
        step = Momentum(0.1, momentum)

        def update(t, w, g):
            g = g * min(1, 0.05 / (np.linalg.norm(g) + 1e-6)) + l1 * np.sign(w) + l2 * w
            return step(t, w, g)

        close(found, model(update))

    @pytest.mark.parametrize("momentum", [0, 0.9])
    def test_static_loss_scale_changes_nothing(self, momentum):
        found = trained(lambda loss: sgd(0.1, momentum, loss_scale_factor=1024.0).minimize(loss))
        close(found, model(Momentum(0.1, momentum)))

    def test_learning_rate_has_to_be_a_scheduler(self):
        with pytest.raises(ArgumentError, match="lr_scheduler is a scheduler"):
            flow.optimizer.SGD("0.1")


class TestLegacyConfiguration:
    @staticmethod
    def config(conf, lr=0.1):
        config = flow.function_config()
        if lr is not None:
            config.train.primary_lr(lr)
        if conf is not None:
            config.train.model_update_conf(conf)
        return config

    @pytest.mark.parametrize(
        ("conf", "make"),
        [
            ({"naive_conf": {}}, lambda: Momentum(0.1, 0)),
            ({"momentum_conf": {"beta": 0.8}}, lambda: Momentum(0.1, 0.8)),
            ({"momentum_conf": {}}, lambda: Momentum(0.1, 0.9)),
            ({"adam_conf": {}}, lambda: AdamModel(0.1, False)),
            ({"adam_conf": {"beta1": 0.8, "do_bias_correction": True}},
             lambda: AdamModel(0.1, True, 0.8)),
            (None, lambda: Momentum(0.1, 0)),
        ],
    )  # fmt: skip
    def test_forms(self, conf, make):
        found = trained(flow.losses.add_loss, config=self.config(conf))
        # 1 - beta2^t has three digits less in float32
        np.testing.assert_allclose(found, model(make()), rtol=2e-4, atol=1e-5)

    def test_decay_and_clipping(self):
        conf = {
            "naive_conf": {},
            "learning_rate_decay": {
                "piecewise_constant_conf": {"boundaries": [1], "values": [0.1, 0.02]}
            },
            "clip_conf": {"clip_by_global_norm": {"clip_norm": 0.3}},
        }
        found = trained(flow.losses.add_loss, config=self.config(conf))
        close(found, model(
            lambda t, w, g: w - (0.1 if t <= 1 else 0.02)
            * g * min(1, 0.3 / (np.linalg.norm(g) + 1e-6))
        ))  # fmt: skip

    def test_without_a_rate_nothing_moves(self):
        found = trained(flow.losses.add_loss, config=self.config({"naive_conf": {}}, lr=None))
        np.testing.assert_array_equal(found, [START] * len(STEPS))

    def test_without_any_optimizer_nothing_moves(self):
        @flow.global_function(type="train")
        def train() -> tp.Numpy:
            loss = variable("w", value=3.0) * 1.0
            flow.losses.add_loss(loss)
            return loss

        train()
        assert values("w")[0].tolist() == [3, 3]
        assert values("System-Train-TrainStep-train")[0] == [1]

    def test_two_optimizers(self):
        with pytest.raises((ConfigError, JobError), match="model_update_conf"):
            trained(flow.losses.add_loss,
                    config=self.config({"naive_conf": {}, "adam_conf": {}}))  # fmt: skip


class TestLoss:
    @pytest.mark.parametrize("shape", [(1,), (6,), (2, 3), (2, 1, 3)])
    def test_gradient_is_divided_by_the_number_of_elements(self, shape):
        @flow.global_function(type="train")
        def train() -> tp.Numpy:
            w = flow.get_variable("w", shape, initializer=flow.zeros_initializer())
            loss = w * 2.0
            sgd(1.0).minimize(loss)
            return loss

        train()
        np.testing.assert_allclose(values("w")[0], np.full(shape, -2 / np.prod(shape)), rtol=1e-6)

    @pytest.mark.parametrize("form", ["list", "tuple", "calls", "add_loss"])
    def test_of_two_losses_the_means_add_up(self, form):
        config = flow.function_config()
        config.train.primary_lr(1.0)
        config.train.model_update_conf({"naive_conf": {}})

        def train() -> tp.Numpy:
            w = variable("w", (2,), value=0.0)
            losses = [w * 3.0, w * 5.0]
            if form == "add_loss":
                for loss in losses:
                    flow.losses.add_loss(loss)
            elif form == "calls":
                sgd(9.0).minimize(losses[0])
                sgd(1.0).minimize(losses[1])  # replaces the optimizer, not the loss
            else:
                sgd(1.0).minimize(losses if form == "list" else tuple(losses))
            return losses[0]

        kind = flow.function(config) if form == "add_loss" else flow.global_function("train")
        result = kind(train)()
        assert result.tolist() == [0, 0]
        np.testing.assert_allclose(values("w")[0], [-4, -4], rtol=1e-6)

    def test_losses_of_different_shapes(self):
        @flow.global_function(type="train")
        def train() -> tp.Numpy:
            w = variable("w", (2,))
            sgd(1.0).minimize([w * 1.0, flow.reshape(w, [1, 2])])  # here
            return w

        with raises(JobError, AssertionError, "losses differ", job="train", at="# here"):
            train()

    def test_a_loss_is_a_blob_of_real_numbers(self):
        @flow.global_function(type="train")
        def train() -> tp.Numpy:
            w = variable("w", (2,))
            sgd(1.0).minimize(3.0)  # here
            return w

        with raises(ArgumentError, ValueError, "a loss is a blob", job="train", at="# here",
                    has_hint=False):  # fmt: skip
            train()

    def test_a_loss_of_integers(self):
        @flow.global_function(type="train")
        def train() -> tp.Numpy:
            w = variable("w", (2,))
            sgd(1.0).minimize(flow.cast(w, flow.int32))  # here
            return w

        with raises(DTypeError, TypeError, "real numbers", job="train", at="# here",
                    has_hint=False):  # fmt: skip
            train()

    def test_train_job_without_a_loss(self):
        @flow.global_function(type="train")
        def train() -> tp.Numpy:
            return variable("w", (2,))

        with raises(
            JobError, AssertionError, "train job without a loss", job="train", at="global_fun"
        ):
            train()

    def test_train_job_without_a_variable(self):
        @flow.global_function(type="train")
        def train(x: X) -> tp.Numpy:
            sgd(1.0).minimize(x * 2.0)
            return x

        with raises(JobError, AssertionError, "no loss depends on a variable", job="train"):
            train(STEPS[0])

    def test_add_loss_in_a_predict_job(self):
        @flow.global_function(type="predict")
        def predict() -> tp.Numpy:
            w = variable("w", (2,))
            flow.losses.add_loss(w)  # here
            return w

        with raises(flow.errors.FlowError, NotImplementedError, job="predict", at="# here"):
            predict()

    def test_minimize_makes_a_predict_job_train(self):
        @flow.global_function(type="predict")
        def job() -> tp.Numpy:
            loss = variable("w", (2,), value=1.0) * 1.0
            sgd(1.0).minimize(loss)
            return loss

        assert job().tolist() == [1, 1]
        assert job().tolist() == [0.5, 0.5]
        assert values("System-Train-TrainStep-job")[0] == [2]

    def test_way_to_the_loss_through_integers(self):
        @flow.global_function(type="train")
        def train() -> tp.Numpy:
            w = variable("w", (2,))
            loss = flow.cast(flow.cast(w, flow.int32), flow.float)
            sgd(1.0).minimize(loss)
            return loss

        with raises(JobError, AssertionError, "no loss depends on", job="train"):
            train()


class TestVariablesArgument:
    @pytest.mark.parametrize("form", [["a"], lambda: ["a"]])
    def test_only_those_are_trained(self, form):
        @flow.global_function(type="train")
        def train() -> tp.Numpy:
            loss = variable("a") * variable("b")
            sgd(1.0, variables=form).minimize(loss)
            return loss

        train()
        assert [v.tolist() for v in values("a", "b")] == [[0.5, 0.5], [1, 1]]

    def test_unknown_name(self):
        @flow.global_function(type="train")
        def train() -> tp.Numpy:
            loss = variable("a") * 1.0
            sgd(1.0, variables=["nowhere"]).minimize(loss)  # here
            return loss

        with raises(ArgumentError, AssertionError, "nowhere", job="train", at="# here",
                    has_hint=False):  # fmt: skip
            train()

    def test_variables_made_after_minimize_are_not_trained(self):
        @flow.global_function(type="train")
        def train() -> tuple[tp.Numpy, tp.Numpy]:
            loss = variable("a") * 1.0
            sgd(1.0).minimize(loss)
            return loss, variable("b")

        train()
        assert [v.tolist() for v in values("a", "b")] == [[0.5, 0.5], [1, 1]]


class TestState:
    def test_step_counter_of_each_train_job(self):
        def train() -> tp.Numpy:
            loss = variable() * 1.0
            sgd(0.0).minimize(loss)
            return loss

        def other() -> tp.Numpy:
            return train()

        first, second = flow.global_function("train")(train), flow.global_function("train")(other)
        first(), first(), second()
        counters = values("System-Train-TrainStep-train", "System-Train-TrainStep-other")
        assert [(c.dtype, c.tolist()) for c in counters] == [(np.int64, [2]), (np.int64, [1])]

    def test_assigned_value_is_seen_by_the_next_call(self):
        @flow.global_function()
        def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
            w = variable("w", value=0.0)
            flow.assign(w, w + x)
            return w

        assert job(f32(1, 2)).tolist() == [0, 0]
        assert job(f32(1, 2)).tolist() == [1, 2]

    def test_float64(self):
        @flow.global_function(type="train")
        def train(x: tp.Numpy.Placeholder((3,), flow.float64)) -> tp.Numpy:
            w = flow.get_variable(
                "w", (3,), flow.float64, flow.constant_initializer(1.0, flow.float64)
            )
            loss = x * w
            sgd(0.3, 0.9).minimize(loss)
            return loss

        x = np.array([1.0, 1 / 3, 1e-9])
        train(x)
        np.testing.assert_allclose(values("w")[0], 1 - np.float64(np.float32(0.3)) * x / 3,
                                   rtol=1e-8)  # fmt: skip


class TestStopOnNonFinite:
    @staticmethod
    def job(returns_loss=True):
        @flow.global_function(type="train")
        def train(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
            w = variable("w", (2,), value=1.0)
            loss = flow.math.log(x) * w
            sgd(0.1, 0.9).minimize(loss)
            return loss if returns_loss else x

        return train

    @pytest.mark.parametrize("returns_loss", [True, False])
    @pytest.mark.parametrize("bad", [-1.0, 0.0])
    def test_stops_before_the_update(self, bad, returns_loss):
        flow.config.stop_on_non_finite()
        train = self.job(returns_loss)
        train(f32(2, 3))
        before = values(*flow.get_all_variables())
        with raises(NonFiniteError, FloatingPointError, "loss of step 1 is not finite",
                    job="train", at="train(f32(4, bad))"):  # fmt: skip
            train(f32(4, bad))
        for old, new in zip(before, values(*flow.get_all_variables()), strict=True):
            np.testing.assert_array_equal(old, new)
        out = train(f32(2, 3))
        assert out.shape == (2,)
        assert values("System-Train-TrainStep-train")[0] == [2]

    def test_stops_where_the_loss_is_bfloat16(self):
        flow.config.stop_on_non_finite()

        @flow.global_function(type="train")
        def train(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
            w = flow.get_variable("w", (2,), initializer=flow.ones_initializer())
            loss = flow.cast(flow.math.log(x * w), flow.bfloat16)
            flow.optimizer.SGD(
                flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0
            ).minimize(loss)
            return loss

        train(f32(2, 3))
        with pytest.raises(NonFiniteError, match="loss of step 1 is not finite"):
            train(f32(4, -1))

    def test_off_by_default(self):
        train = self.job()
        assert not np.isfinite(train(f32(1, -1))).all()
        assert values("System-Train-TrainStep-train")[0] == [1]

    def test_predict_jobs_go_on(self):
        flow.config.stop_on_non_finite()

        @flow.global_function()
        def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
            return flow.math.log(x)

        assert np.isnan(job(f32(1, -1))[1])
