"""Watching values and gradients."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.api.results import LocalBlob
from flow2onnx.errors import ArgumentError, JobError
from tests.api.support import f32, raises, sgd, values, variable


def test_handlers_by_annotation():
    seen = []

    def array(x: tp.Numpy):
        seen.append(("array", type(x), x.tolist()))

    def several(x: tp.ListNumpy):
        seen.append(("list", type(x), x[0].tolist()))

    def text(x: "tp.Numpy"):
        seen.append(("text", type(x), x.tolist()))

    def plain(x):
        seen.append(("plain", type(x), x.numpy().tolist()))

    class Handler:
        def __call__(self, x):
            seen.append(("object", type(x), x.numpy().tolist()))

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        for handler in (array, several, text, plain, Handler()):
            flow.watch(x * 2, handler)
        return x

    job(f32(1, 2))
    assert seen == [
        ("array", np.ndarray, [2, 4]),
        ("list", list, [2, 4]),
        ("text", np.ndarray, [2, 4]),
        ("plain", LocalBlob, [2, 4]),
        ("object", LocalBlob, [2, 4]),
    ]


def test_builtin_handlers():
    seen = []

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        flow.watch(x, seen.append)
        return x

    job(f32(1, 2))
    assert seen[0].numpy().tolist() == [1, 2]


def test_printing(capsys):
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        flow.watch(x, "the input")
        flow.watch(x + 1)
        return x

    job(f32(1, 2))
    assert capsys.readouterr().out == "the input [1. 2.]\n[2. 3.]\n"


def test_input_output_variable_and_loss_may_be_watched():
    seen = {}

    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        w = variable("w", value=3.0)
        loss = x * w
        for name, blob in (("x", x), ("w", w), ("loss", loss)):
            flow.watch(blob, seen_under(seen, name))
        sgd(1.0).minimize(loss)
        return loss

    train(f32(1, 2))
    assert seen == {"x": [[1, 2]], "w": [[3, 3]], "loss": [[3, 6]]}
    train(f32(1, 2))
    assert seen["w"] == [[3, 3], [2.5, 2]]  # before the update


def seen_under(seen, name):
    return lambda value: seen.setdefault(name, []).append(value.numpy().tolist())


def test_delivery_comes_before_the_result():
    order = []

    def body(x):
        flow.watch(x, lambda value: order.append("watch"))
        return x

    @flow.global_function()
    def later(x: tp.Numpy.Placeholder((2,))) -> tp.Callback[tp.Numpy]:
        return body(x)

    @flow.global_function()
    def future(x: tp.Numpy.Placeholder((2,))):
        return body(x)

    for _ in range(3):
        later(f32(1, 2))(lambda x: order.append("result"))
    flow.sync_default_session()
    assert order == ["watch", "result"] * 3
    order.clear()
    future(f32(1, 2)).get()
    assert order == ["watch"]


def test_gradients_are_those_of_the_sum_of_the_loss():
    seen = {}

    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((4,))) -> tp.Numpy:
        w = variable("w", (1,), value=1.0)
        product = x * w
        loss = product * product
        flow.watch_diff(w, seen_under(seen, "w"))
        flow.watch_diff(product, seen_under(seen, "product"))
        flow.watch_diff(loss, seen_under(seen, "loss"))
        sgd(0.1).minimize(loss)
        return loss

    train(f32(1, 2, 3, 4))
    assert seen == {"loss": [[1, 1, 1, 1]], "product": [[2, 4, 6, 8]], "w": [[60]]}
    np.testing.assert_allclose(values("w")[0], [1 - 0.1 * 60 / 4], rtol=1e-6)


@pytest.mark.parametrize("momentum", [0, 0.9])
def test_watching_changes_no_update(momentum):
    def trained(watches):
        @flow.global_function(type="train")
        def train(x: tp.Numpy.Placeholder((8, 3))) -> tp.Numpy:
            y = flow.layers.dense(
                x, 4, activation=flow.nn.relu, name="d",
                kernel_initializer=flow.random_normal_initializer(0.0, 1.0),
            )  # fmt: skip
            if watches:
                flow.watch_diff(y, lambda g: None)
            sgd(0.1, momentum).minimize(y)
            return y

        rng = np.random.default_rng(0)
        for _ in range(4):
            train(rng.standard_normal((8, 3)).astype(np.float32))
        out = values("d-weight", "d-bias")
        flow.clear_default_session()
        return out

    for plain, watched in zip(trained(False), trained(True), strict=True):
        np.testing.assert_allclose(plain, watched, rtol=2e-6, atol=1e-7)


def test_gradient_of_a_value_without_one():
    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        idle = x + 1
        flow.watch_diff(idle, "g")
        loss = x * variable()
        sgd(0.1).minimize(loss)
        return loss

    with raises(JobError, AssertionError, "no loss depends on", job="train"):
        train(f32(1, 2))


def test_gradient_in_a_predict_job():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        flow.watch_diff(x, "g")  # here
        return x

    with raises(JobError, AssertionError, "predict job", job="job", at="# here"):
        job(f32(1, 2))


def two(a, b):
    pass


def wrongly_annotated(x: int):
    pass


def tuple_annotated(x: tp.Bundle[tp.Numpy]):
    pass


@pytest.mark.parametrize(
    ("handler", "builtin", "text"),
    [
        (two, ValueError, "one parameter"),
        (5, ValueError, "a function or a text"),
        (wrongly_annotated, NotImplementedError, "invalid return annotation"),
        (tuple_annotated, ValueError, "takes one array"),
    ],
)
def test_wrong_handlers(handler, builtin, text):
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        flow.watch(x, handler)  # here
        return x

    with raises(flow.errors.FlowError, builtin, text, job="job", at="# here") as info:
        job(f32(1, 2))
    assert info.value.op == "watch"


def test_what_is_watched_is_a_blob():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        flow.watch([x])  # here
        return x

    with raises(ArgumentError, AssertionError, "watch takes a blob", job="job", at="# here"):
        job(f32(1, 2))
