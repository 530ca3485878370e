"""Variables: one for each name in a session, whatever job mentions it."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import VariableError
from tests.api.support import f32, raises, sgd, values, variable


def test_train_and_predict_share_variables():
    @flow.global_function(type="train")
    def train() -> tp.Numpy:
        loss = variable("w", value=1.0) * 2.0
        sgd(1.0).minimize(loss)
        return loss

    @flow.global_function()
    def predict() -> tp.Numpy:
        return variable("w", value=1.0)

    seen = [predict()[0]]
    for _ in range(3):
        train()
        seen.append(predict()[0])
    assert seen == [1, 0, -1, -2]


def test_two_train_jobs_share_variables_and_optimizer_state():
    def train(x):
        loss = variable("w", (1,), value=0.0) * x
        sgd(1.0, momentum=0.5).minimize(loss)
        return loss

    @flow.global_function(type="train")
    def first(x: tp.Numpy.Placeholder((1,))) -> tp.Numpy:
        return train(x)

    @flow.global_function(type="train")
    def second(x: tp.Numpy.Placeholder((1,))) -> tp.Numpy:
        return train(x)

    w = v = 0.0
    for job, x in ((first, 1.0), (second, 3.0), (first, 2.0), (second, -1.0)):
        job(f32(x))
        v = 0.5 * v - x
        w += v
        np.testing.assert_allclose(values("w", "w-momentum"), [[w], [v]])
    steps = values("System-Train-TrainStep-first", "System-Train-TrainStep-second")
    assert [s.tolist() for s in steps] == [[2], [2]]


def test_gan_pattern():
    """Two players, each trained by its own job, the other's variables frozen there."""

    def generator(z, trainable):
        return z * variable("g", (1,), value=1.0, trainable=trainable)

    def discriminator(x, trainable, reuse=False):
        w = flow.get_variable(
            "d", (1,), initializer=flow.constant_initializer(2.0), trainable=trainable, reuse=reuse
        )
        return x * w

    one = tp.Numpy.Placeholder((1,))

    @flow.global_function(type="train")
    def train_generator(z: one) -> tp.Numpy:
        loss = discriminator(generator(z, True), False)
        sgd(0.1).minimize(loss)
        return loss

    @flow.global_function(type="train")
    def train_discriminator(z: one, real: one) -> tuple[tp.Numpy, tp.Numpy]:
        fake = discriminator(generator(z, False), True)
        loss = fake - discriminator(real, True, reuse=True)
        sgd(0.1).minimize(loss)
        return loss, fake

    g, d = 1.0, 2.0
    for z, real in ((1.0, 2.0), (2.0, -1.0), (0.5, 3.0)):
        np.testing.assert_allclose(train_generator(f32(z)), [d * g * z], rtol=1e-6)
        g -= 0.1 * d * z
        loss, fake = train_discriminator(f32(z), f32(real))
        np.testing.assert_allclose((loss[0], fake[0]), (d * (g * z - real), d * g * z), rtol=1e-5)
        d -= 0.1 * (g * z - real)
        np.testing.assert_allclose(values("g", "d"), [[g], [d]], rtol=1e-6)


def test_variable_that_no_loss_reaches_stays():
    @flow.global_function(type="train")
    def train() -> tp.Numpy:
        variable("idle", value=3.0)
        frozen = variable("frozen", value=4.0, trainable=False)
        loss = variable("w") * frozen
        sgd(1.0).minimize(loss)
        return loss

    train()
    w, idle, frozen = values("w", "idle", "frozen")
    assert (w.tolist(), idle.tolist(), frozen.tolist()) == ([-1, -1], [3, 3], [4, 4])


def test_second_get_in_one_job_returns_the_first():
    @flow.global_function()
    def job() -> tp.Numpy:
        first = variable("w", (2,), value=1.0)
        second = flow.get_variable("w", (9, 9), dtype=flow.int32, reuse=True)
        assert second is first
        return first + second

    assert job().tolist() == [2, 2]


def test_reuse_false():
    @flow.global_function()
    def job() -> tp.Numpy:
        variable("w")
        return flow.get_variable("w", (2,), reuse=False)  # again

    text = (
        "variable 'w' already exists, getting the same variable is not allowed when param reuse "
        "is False"
    )
    with raises(VariableError, AssertionError, text, at="# again", job="job"):
        job()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"shape": (3,)}, "has shape (3,), but (2,)"),
        ({"dtype": flow.float64}, "has dtype oneflow.float64, but oneflow.float32"),
    ],
)
def test_another_meaning_in_another_job(options, text):
    @flow.global_function()
    def first() -> tp.Numpy:
        return variable("w")

    @flow.global_function()
    def second() -> tp.Numpy:
        return variable("w", **options)

    with raises(VariableError, AssertionError, text, job="second") as info:
        first()
    assert isinstance(info.value, ValueError)
    assert "support.py" in info.value.source  # where `variable` calls get_variable


@pytest.mark.parametrize(
    ("shape", "text"),
    [(None, "param shape should be a list or tuple of dimension"), (3, "list or tuple"),
     ((0,), "positive"), ((2.0,), "positive")],
)  # fmt: skip
def test_shape_of_a_variable(shape, text):
    @flow.global_function()
    def job() -> tp.Numpy:
        return flow.get_variable("w", shape, initializer=flow.zeros_initializer())  # here

    # the text itself says what to do
    with raises(VariableError, AssertionError, text, at="# here", job="job", has_hint=False):
        job()


def test_variable_needs_an_initializer():
    @flow.global_function()
    def job() -> tp.Numpy:
        return flow.get_variable("w", (2,))  # here

    with raises(VariableError, AssertionError, "has no initializer", at="# here", job="job"):
        job()


def test_initializer_of_the_configuration():
    config = flow.function_config()
    config.default_initializer_conf({"constant_conf": {"value": 2.5}})

    @flow.global_function("predict", config)
    def job() -> tp.Numpy:
        return flow.get_variable("w", (2,))

    assert job().tolist() == [2.5, 2.5]


def test_all_variables():
    @flow.global_function(type="train")
    def train() -> tp.Numpy:
        loss = variable("w", (2,), value=2.0) + flow.cast(
            flow.get_variable("n", (2,), flow.int32, flow.ones_initializer(dtype=flow.int32)),
            flow.float,
        )
        sgd(0.5, momentum=0.9).minimize(loss)
        return loss

    found = flow.get_all_variables()  # starts the session
    assert {n: (v.shape, v.dtype) for n, v in found.items()} == {
        "w": ((2,), flow.float32),
        "n": ((2,), flow.int32),
        "w-momentum": ((2,), flow.float32),
        "System-Train-TrainStep-train": ((1,), flow.int64),
    }
    assert found["w"].numpy().tolist() == [2, 2]
    train()
    assert found["w"].numpy().tolist() == [1.75, 1.75]  # the present value
    found["w"].numpy()[:] = 0
    assert found["w"].numpy().tolist() == [1.75, 1.75]
    assert "w" in repr(found["w"])


class TestInitialValues:
    @staticmethod
    def drawn(seed=None, names=("a", "b"), shape=(50,)):
        if seed is not None:
            flow.config.random_seed(seed)

        @flow.global_function()
        def job() -> tp.Bundle[tp.Numpy]:
            initializer = flow.random_normal_initializer(0.0, 1.0)
            return [flow.get_variable(n, shape, initializer=initializer) for n in names]

        out = job()
        flow.clear_default_session()
        return out

    def test_depend_on_name_and_seed_only(self):
        a, b = self.drawn()
        again_b, c, again_a = self.drawn(names=("b", "c", "a"))
        np.testing.assert_array_equal(a, again_a)
        np.testing.assert_array_equal(b, again_b)
        assert not np.array_equal(a, b)
        assert not np.array_equal(b, c)

    def test_follow_the_seed_of_the_session(self):
        first, second, again = self.drawn(1)[0], self.drawn(2)[0], self.drawn(1)[0]
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, second)
        assert not np.array_equal(first, self.drawn()[0])

    def test_are_drawn_once_for_all_jobs(self):
        initializer = flow.random_uniform_initializer

        @flow.global_function()
        def first() -> tp.Numpy:
            return flow.get_variable("w", (5,), initializer=initializer())

        @flow.global_function()
        def second() -> tp.Numpy:
            return flow.get_variable("w", (5,), initializer=initializer())

        np.testing.assert_array_equal(first(), second())

    def test_own_seed(self):
        def draw(**options):
            @flow.global_function()
            def job() -> tuple[tp.Numpy, tp.Numpy]:
                initializer = flow.random_uniform_initializer()
                return tuple(
                    flow.get_variable(n, (20,), initializer=initializer, **options) for n in "ab"
                )

            out = job()
            flow.clear_default_session()
            return out

        a, b = draw(random_seed=5)
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, draw(random_seed=6)[0])


class TestDropout:
    X = tp.Numpy.Placeholder((100, 100))
    ones = np.ones((100, 100), np.float32)

    def jobs(self, session_seed=None, **options):
        if session_seed is not None:
            flow.config.random_seed(session_seed)

        def body(x):
            return flow.nn.dropout(x * variable("w", (1,)), rate=0.4, **options)

        @flow.global_function(type="train")
        def train(x: self.X) -> tp.Numpy:
            out = body(x)
            sgd(0.0).minimize(out)
            return out

        @flow.global_function()
        def predict(x: self.X) -> tp.Numpy:
            return body(x)

        return train, predict

    def test_statistics_and_scale(self):
        train, predict = self.jobs()
        out = train(self.ones)
        assert set(np.unique(out)) == {0.0, np.float32(1 / 0.6)}
        assert abs((out == 0).mean() - 0.4) < 0.03  # six standard deviations
        assert abs(out.mean() - 1) < 0.05
        np.testing.assert_array_equal(predict(self.ones), self.ones)

    def test_two_calls_differ(self):
        train, _ = self.jobs()
        assert not np.array_equal(train(self.ones), train(self.ones))

    def masks(self, session_seed=None, **options):
        train, _ = self.jobs(session_seed, **options)
        out = [train(self.ones) for _ in range(2)]
        flow.clear_default_session()
        return np.stack(out)

    def test_two_sessions_of_one_seed_agree(self):
        np.testing.assert_array_equal(self.masks(), self.masks())
        np.testing.assert_array_equal(self.masks(7), self.masks(7))

    def test_seed_of_the_session_counts(self):
        assert not np.array_equal(self.masks(7), self.masks(8))
        assert not np.array_equal(self.masks(7), self.masks())

    def test_own_seed(self):
        first = self.masks(7, seed=3, name="drop")
        np.testing.assert_array_equal(first, self.masks(8, seed=3, name="drop"))
        assert not np.array_equal(first, self.masks(7, seed=4, name="drop"))

    def test_rate_zero_is_the_identity(self):
        @flow.global_function(type="train")
        def train(x: self.X) -> tp.Numpy:
            out = flow.nn.dropout(x * variable("w", (1,)), rate=0.0)
            sgd(0.0).minimize(out)
            return out

        np.testing.assert_array_equal(train(self.ones), self.ones)

    def test_mask_of_the_gradient_is_that_of_the_output(self):
        seen = []

        @flow.global_function(type="train")
        def train(x: self.X) -> tp.Numpy:
            inner = x * variable("w", (1,))
            flow.watch_diff(inner, lambda g: seen.append(g.numpy()))
            out = flow.nn.dropout(inner, rate=0.4)
            sgd(0.0).minimize(out)
            return out

        np.testing.assert_array_equal(train(self.ones), seen[0])
