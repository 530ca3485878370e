"""The time dimension: what is cut into sub-steps and put together again in one call."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, FlowError, ShapeError, UnsupportedError
from tests.api.support import raises, sgd

X = np.arange(24, dtype=np.float32).reshape(4, 6) - 7


def predicted(*bodies):
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((4, 6))) -> tp.Bundle[tp.Numpy]:
        return [body(x) for body in bodies]

    return job(X)


def mean_free(x):
    return x - x.mean(0)


def test_operators_go_over_the_pieces_one_after_another():
    halves = X.reshape(2, 2, 6)
    got = predicted(
        lambda x: flow.pack(flow.unpack(x, 2), 2),
        lambda x: flow.pack(mean_free(flow.unpack(x, 2)), 2),
        lambda x: flow.acc(flow.unpack(x, 2), 2),
        lambda x: flow.acc(flow.repeat(x, 3), 3),
        lambda x: flow.pack(flow.acc(flow.unpack(x, 4), 2), 2),
        lambda x: flow.pack(flow.unpack(x, 2) + flow.repeat(x[0], 2), 2),
        lambda x: flow.pack(flow.concat([flow.unpack(x, 2), flow.unpack(x, 2)], 1), 2),
        lambda x: flow.pack(flow.unpack(flow.unpack(x, 2), 2), 4),
    )
    wanted = [
        X,
        (halves - halves.mean(1, keepdims=True)).reshape(4, 6),
        halves.sum(0),
        3 * X,
        X.reshape(2, 2, 6).sum(1),
        X + X[0],
        np.concatenate([X, X], 1),
        X,
    ]
    for i, (g, w) in enumerate(zip(got, wanted, strict=True)):
        np.testing.assert_allclose(g, w, rtol=1e-6, err_msg=str(i))


def test_gradients_add_up_over_the_sub_steps():
    """Accumulation as OneFlow's pass builds it: repeated weights, an accumulated loss."""

    def trained(body):
        flow.clear_default_session()

        @flow.global_function(type="train")
        def job(x: tp.Numpy.Placeholder((4, 6))) -> tp.Numpy:
            w = flow.get_variable("w", (6, 3), initializer=flow.ones_initializer())
            loss = body(x, w)
            sgd(0.01).minimize(loss)
            return loss

        job(X)
        return flow.get_all_variables()["w"].numpy()

    def at_once(x, w):
        return flow.math.square(flow.matmul(x, w)).sum()

    def in_steps(x, w):
        product = flow.matmul(flow.unpack(x, 2), flow.repeat(w, 2), name="product")
        return flow.acc(flow.math.square(product).sum(), 2)

    np.testing.assert_allclose(trained(in_steps), trained(at_once), rtol=1e-5)


WRONG = [
    (lambda x: flow.unpack(x, 3), ShapeError, "no 3 equal pieces"),
    (lambda x: flow.unpack(x, 0), ArgumentError, "unpack_num is 0"),
    (lambda x: flow.repeat(x, 1.5), ArgumentError, "repeat_num is 1.5"),
    (lambda x: flow.pack(flow.unpack(x, 2), 3), ArgumentError, "there are 2 sub-steps"),
    (lambda x: flow.unpack(x, 2) + flow.unpack(x, 4), ShapeError, "2 and 4 sub-steps"),
    (lambda x: flow.unpack(x, 2), UnsupportedError, "flow.pack(x, n) puts them together"),
]


@pytest.mark.parametrize(("body", "kind", "text"), WRONG, ids=[row[2] for row in WRONG])
def test_what_does_not_go_together(body, kind, text):
    with pytest.raises(FlowError) as caught:
        predicted(body)
    assert isinstance(caught.value, kind)
    assert text in str(caught.value)


def test_the_loss_has_one_value():
    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((4, 6))) -> tp.Numpy:
        w = flow.get_variable("w", (6,), initializer=flow.ones_initializer())
        loss = flow.unpack(x * w, 2)
        sgd(0.01).minimize(loss)  # here
        return x

    with raises(UnsupportedError, NotImplementedError, "flow.acc", job="job"):
        job(X)
