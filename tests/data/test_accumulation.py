"""train.num_gradient_accumulation_steps: one call reads several batches and makes one update."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.session import current_session
from flow2onnx.errors import NonFiniteError, UnsupportedError
from tests.api.support import raises, rate, variable
from tests.data.files import write_parts

X = np.linspace(-1, 1, 24).astype(np.float32).reshape(12, 2)


@pytest.fixture
def folder(tmp_path):
    return write_parts(tmp_path / "d", [[{"x": row} for row in X]])


def train_job(folder, steps, size, optimizer, **settings):
    config = flow.function_config()
    if steps is not None:
        config.train.num_gradient_accumulation_steps(steps)

    @flow.global_function("train", config)
    def job() -> tp.Bundle[tp.Numpy]:
        read = flow.data.ofrecord_reader(folder, batch_size=size)
        x = flow.data.OFRecordRawDecoder(read, "x", (2,), flow.float)
        w = variable("w", (2, 1), 0.5, regularizer=settings.get("regularizer"))
        y = flow.matmul(x, w)
        loss = flow.math.reduce_mean(y * y + y) if settings.get("scalar") else y * y + y
        optimizer().minimize(loss)
        return loss, x

    return job


def weights():
    return {name: v.numpy() for name, v in flow.get_all_variables().items()}


OPTIMIZERS = {
    "sgd": lambda: flow.optimizer.SGD(rate(0.1), momentum=0.9),
    "adam": lambda: flow.optimizer.Adam(rate(0.1), do_bias_correction=True),
    "clipped": lambda: flow.optimizer.SGD(
        rate(0.5), momentum=0, grad_clipping=flow.optimizer.grad_clipping.by_global_norm(0.2)
    ),
    "scaled": lambda: flow.optimizer.SGD(
        rate(0.1), loss_scale_policy=flow.optimizer.loss_scale.static_loss_scale(64)
    ),
    "dynamic": lambda: flow.optimizer.SGD(
        rate(0.1), loss_scale_policy=flow.optimizer.loss_scale.dynamic_loss_scale()
    ),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_is_one_step_on_the_larger_batch(folder, kind):
    job = train_job(folder, 3, 2, OPTIMIZERS[kind], regularizer=flow.regularizers.l2(0.01))
    found = [job() for _ in range(5)]
    small = weights()
    flow.clear_default_session()
    job = train_job(folder, None, 6, OPTIMIZERS[kind], regularizer=flow.regularizers.l2(0.01))
    expected = [job() for _ in range(5)]
    large = weights()
    for (loss, x), (whole, read) in zip(found, expected, strict=True):
        np.testing.assert_allclose(loss, whole, rtol=1e-5)
        np.testing.assert_array_equal(x, read)
    for name, value in large.items():
        np.testing.assert_allclose(small[name], value, rtol=1e-5, atol=1e-7)


def test_results_grow_and_the_step_counts_calls(folder):
    job = train_job(folder, 4, 3, OPTIMIZERS["sgd"], scalar=True)
    for _ in range(2):
        loss, x = job()
        assert loss.shape == (4,)
        np.testing.assert_array_equal(x, X)
    assert weights()["System-Train-TrainStep-job"] == 2


def test_watches_see_every_round(folder):
    seen = []
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function("train", config)
    def job() -> tp.Numpy:
        x = flow.data.OFRecordRawDecoder(
            flow.data.ofrecord_reader(folder, 3), "x", (2,), flow.float
        )
        flow.watch(x, lambda blob: seen.append(blob.numpy()))
        loss = flow.matmul(x, variable("w", (2, 1)))
        flow.optimizer.SGD(rate(0.1)).minimize(loss)
        return loss

    job()
    np.testing.assert_array_equal(seen[0], X[:6])


def test_placeholders_are_refused():
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function("train", config)
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        loss = x * variable()
        flow.optimizer.SGD(rate(0.1)).minimize(loss)
        return loss

    with raises(UnsupportedError, NotImplementedError, "the job has placeholders", job="job"):
        job(np.ones(2, np.float32))


def test_predict_jobs_do_not_care(folder):
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function("predict", config)
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return x + 1

    assert job(np.ones(2, np.float32)).tolist() == [2, 2]


def test_a_call_that_fails_between_leaves_no_gradients(tmp_path):
    rows = [1, 2, np.nan, 3, 4, 5]
    folder = write_parts(tmp_path / "d", [[{"x": np.float32([r])} for r in rows]])
    flow.config.stop_on_non_finite(True)
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function("train", config)
    def job() -> tp.Numpy:
        x = flow.data.OFRecordRawDecoder(flow.data.ofrecord_reader(folder), "x", (1,), flow.float)
        loss = x * variable("w", (1,))
        flow.optimizer.SGD(rate(0.1), momentum=0).minimize(loss)
        return loss

    job()  # 1, 2: the gradient is 1.5
    with pytest.raises(NonFiniteError):
        job()  # NaN ends the call, 3 is read by the next
    job()  # 3, 4
    np.testing.assert_allclose(weights()["w"], 1 - 0.1 * 1.5 - 0.1 * 3.5, rtol=1e-6)
    assert not any(v.any() for n, v in weights().items() if n.endswith("-gradients"))
    assert current_session().is_running
