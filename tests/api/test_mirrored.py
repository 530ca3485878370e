"""The mirrored view on several devices, all played by one: lists in, lists out, one update."""

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, UnsupportedError
from tests.api.support import raises, sgd, values, variable


def mirrored(devices=2):
    flow.config.gpu_device_num(devices)
    config = flow.function_config()
    config.default_logical_view(flow.scope.mirrored_view())
    return config


def batches(*shapes, seed=3):
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def test_each_device_has_its_result():
    bodies = []

    @flow.global_function(function_config=mirrored(3))
    def job(x: tp.ListNumpy.Placeholder((2, 3))) -> tp.ListNumpy:
        bodies.append(x.shape)
        return flow.math.reduce_sum(x, axis=[0])

    given = batches((2, 3), (2, 3), (2, 3))
    found = job(given)
    assert bodies == [(2, 3)], "the body is traced once, on one device's piece"
    for array, piece in zip(found, given, strict=True):
        np.testing.assert_allclose(array, piece.sum(0), rtol=1e-6)


def test_one_update_by_the_mean_over_all_devices():
    @flow.global_function(type="train", function_config=mirrored())
    def job(x: tp.ListNumpy.Placeholder((3, 2))) -> tp.ListNumpy:
        loss = flow.math.reduce_sum(x * variable("w", (2,), 1.0), axis=[1])
        sgd(0.5).minimize(loss)
        return loss

    first, second = batches((3, 2), (3, 2))
    losses = job([first, second])
    np.testing.assert_allclose(losses[0], first.sum(1), rtol=1e-6)
    np.testing.assert_allclose(losses[1], second.sum(1), rtol=1e-6)
    (w,) = values("w")
    np.testing.assert_allclose(w, 1 - 0.5 * np.concatenate([first, second]).mean(0), rtol=1e-5)


def test_statistics_are_those_of_each_device():
    """As on several GPUs; the moving ones are kept from the first device."""

    @flow.global_function(type="train", function_config=mirrored())
    def job(x: tp.ListNumpy.Placeholder((4, 2))) -> tp.ListNumpy:
        y = flow.layers.batch_normalization(x, axis=1, momentum=0.0, name="bn")
        sgd(0.1).minimize(flow.math.reduce_mean(y * variable("w", (2,), 1.0)))
        return y

    first, second = batches((4, 2), (4, 2))
    for array, piece in zip(job([first, second]), (first, second), strict=True):
        wanted = (piece - piece.mean(0)) / np.sqrt(piece.var(0) + 1e-3)
        np.testing.assert_allclose(array, wanted, rtol=1e-2, atol=1e-2)
    (mean,) = values("bn-moving_mean")
    np.testing.assert_allclose(mean, first.mean(0), rtol=1e-5, atol=1e-6)


def test_devices_draw_for_themselves():
    @flow.global_function(type="train", function_config=mirrored())
    def job(x: tp.ListNumpy.Placeholder((1, 1000))) -> tp.ListNumpy:
        y = flow.nn.dropout(x * variable("w", (1000,), 1.0), rate=0.5)
        sgd(0.1).minimize(flow.math.reduce_mean(y))
        return y

    ones = np.ones((1, 1000), np.float32)
    first, second = job([ones, ones])
    assert 0.4 < (first == 0).mean() < 0.6
    assert (first != second).any()


def test_an_operator_with_its_own_gradient_on_every_device():
    @flow.global_function(type="train", function_config=mirrored())
    def job(
        x: tp.ListNumpy.Placeholder((2, 4)), y: tp.ListNumpy.Placeholder((2,), dtype=flow.int32)
    ):
        logits = flow.matmul(x, variable("w", (4, 3), 0.1))
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
        sgd(1.0).minimize(loss)
        return loss

    first, second = batches((2, 4), (2, 4))
    labels = [np.array([0, 1], np.int32), np.array([2, 0], np.int32)]
    job([first, second], labels).get()
    whole, chosen = np.concatenate([first, second]), np.concatenate(labels)
    off = np.full((4, 3), 1 / 3)
    off[np.arange(4), chosen] -= 1
    np.testing.assert_allclose(values("w")[0], 0.1 - whole.T @ off / 4, rtol=1e-4, atol=1e-6)


def test_a_local_blob_has_all_pieces():
    declared = flow.MirroredTensorDef((2, 3))

    @flow.global_function(function_config=mirrored())
    def job(x=declared):
        return flow.math.relu(x)

    first, second = batches((2, 3), (2, 3))
    found = job([first, second]).get()
    assert found.shape == (4, 3)
    assert found.parallel_num() == 2
    np.testing.assert_array_equal(found.numpy(1), np.maximum(second, 0))
    for array, piece in zip(found.ndarray_list(), (first, second), strict=True):
        np.testing.assert_array_equal(array, np.maximum(piece, 0))


def test_watching_shows_every_device():
    seen, gradients = [], []

    def watch(x: tp.ListNumpy):
        seen.append(x)

    def watch_diff(x):
        gradients.append(x.numpy_list())

    @flow.global_function(type="train", function_config=mirrored())
    def job(x: tp.ListNumpy.Placeholder((2,))) -> tp.ListNumpy:
        y = x * variable("w", (2,), 2.0)
        flow.watch(y, watch)
        flow.watch_diff(y, watch_diff)
        sgd(0.1).minimize(y)
        return y

    first, second = batches((2,), (2,))
    job([first, second])
    np.testing.assert_allclose(seen[0], [2 * first, 2 * second], rtol=1e-6)
    np.testing.assert_array_equal(gradients[0], np.ones((2, 2)))


def test_a_consistent_job_is_on_one_device():
    flow.config.gpu_device_num(4)

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        return flow.math.reduce_sum(x)

    assert job(np.ones((4, 2), np.float32)) == 8


def test_what_does_not_fit():
    @flow.global_function(function_config=mirrored())
    def job(x: tp.ListNumpy.Placeholder((2, 3))) -> tp.ListNumpy:
        return x * 2

    one, two, three = batches((2, 3), (2, 3), (2, 3))
    with raises(ArgumentError, AssertionError, "3 were passed", at="job([one"):
        job([one, two, three])


def test_a_whole_array_beside_lists():
    @flow.global_function(function_config=mirrored())
    def job(x: tp.ListNumpy.Placeholder((2,)), y: tp.Numpy.Placeholder((2,))) -> tp.ListNumpy:
        return x + y

    one, two, whole = batches((2,), (2,), (2,))
    with raises(UnsupportedError, NotImplementedError, "parameter y is a whole array"):
        job([one, two], whole)
