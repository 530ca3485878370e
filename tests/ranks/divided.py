"""Jobs that hints and placements divide: ``python -m tests.ranks.divided OUT [CASE…]``.

Each case trains for some steps and returns what came of it by name, as in `tests.ranks.cases`.
"""

import sys
from pathlib import Path

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp
from tests.ranks import cases
from tests.ranks.cases import BATCH, CLASSES, NORMAL, batches, rate, trained, variables

CASES = {}
SPLIT = flow.distribute.split


def case(function):
    CASES[function.__name__] = function
    return function


def device(number):
    """The placement of one of four stages, in their order on the devices that there are."""
    return flow.scope.placement("cpu", f"0:{number * cases.DEVICES // 4}")


def sgd():
    return flow.optimizer.SGD(rate(0.1), momentum=0.9)


def flat(x):
    return flow.reshape(x, [x.shape[0], -1])


def dense(x, units, name, activation=None, **more):
    return flow.layers.dense(x, units, activation, kernel_initializer=NORMAL, name=name, **more)


def cross_entropy(y, logits):
    return flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits)


@case
def units_split():
    """The kernel of the last layer is split over its output units, unevenly on 2 and 4 ranks."""

    def loss_of(x, y):
        hidden = dense(flat(x), 16, "a", flow.nn.relu)
        return cross_entropy(y, dense(hidden, CLASSES, "b", model_distribute=SPLIT(0)))

    return trained(sgd, loss_of)


@case
def both_layers_split():
    def loss_of(x, y):
        hidden = dense(flat(x), 16, "a", flow.nn.relu, model_distribute=SPLIT(0))
        return cross_entropy(y, dense(hidden, CLASSES, "b", model_distribute=SPLIT(0)))

    return trained(lambda: flow.optimizer.Adam(rate(1e-3), do_bias_correction=True), loss_of)


@case
def inputs_split():
    """A kernel split over what it sums up: every process has a part of the sum."""

    def loss_of(x, y):
        hidden = dense(flat(x), 16, "a", flow.nn.relu)
        kernel = flow.get_variable("k", (16, CLASSES), initializer=NORMAL, distribute=SPLIT(0))
        bias = flow.get_variable("c", (CLASSES,), initializer=flow.zeros_initializer())
        return cross_entropy(y, flow.nn.bias_add(flow.matmul(hidden, kernel), bias))

    return trained(sgd, loss_of)


@case
def casts():
    """Every pair of what processes can have, one after another."""

    def loss_of(x, y):
        hidden = dense(flat(x), 16, "a", flow.math.tanh)
        for hint in ("S(1)", "S(0)", "B", "S(1)", "P", "S(0)", "P", "B", "P", "S(1)", "B"):
            hidden = flow.hierarchical_parallel_cast(hidden, [hint])
        hidden = flow.parallel_cast(
            hidden, distribute=SPLIT(0), gradient_distribute=flow.distribute.broadcast()
        )
        return cross_entropy(y, dense(hidden.with_distribute(SPLIT(1)), CLASSES, "b"))

    return trained(sgd, loss_of)


@case
def face():
    """Rows of unit length, classes split, a margin at the label, and a softmax of split classes."""

    def loss_of(x, y):
        feature = flow.math.l2_normalize(dense(flat(x), 8, "a"), axis=1)
        weight = flow.get_variable("w", (CLASSES, 8), initializer=NORMAL, distribute=SPLIT(0))
        cosines = flow.matmul(feature, flow.math.l2_normalize(weight, axis=1), transpose_b=True)
        moved = flow.combined_margin_loss(cosines, y, m1=0.9, m2=0.3, m3=0.1)
        logits = (moved * 2.0).with_distribute(SPLIT(1))
        return flow.nn.distributed_sparse_softmax_cross_entropy_with_logits(y, logits)

    return trained(sgd, loss_of)


@case
def stages():
    """Layers on different devices, and a loss that no scope places."""

    def loss_of(x, y):
        with device(0):
            hidden = dense(flat(x), 16, "a", flow.nn.relu)
        with device(1):
            hidden = dense(hidden, 9, "b", flow.math.tanh)
        with device(2):
            hidden = dense(hidden, 9, "c", flow.math.tanh)
        with device(3):
            return cross_entropy(y, dense(hidden, CLASSES, "d"))

    return trained(lambda: flow.optimizer.Adam(rate(1e-3), do_bias_correction=True), loss_of)


@case
def stages_in_reverse():
    """The first layers are on the last device; what they make is read twice."""
    config = flow.function_config()
    config.runtime.micro_batches(2)

    def loss_of(x, y):
        with device(3):
            hidden = dense(flat(x), 6, "a", flow.math.tanh)
        with device(0):
            other = dense(hidden, 6, "b", flow.math.tanh)
        with device(3):
            return cross_entropy(y, dense(hidden + other, CLASSES, "c"))

    return trained(sgd, loss_of, config)


@case
def placed_among_parallel():
    """Convolutions on all devices, one layer on the first, one on the second, the loss on all."""

    def loss_of(x, y):
        image = flow.reshape(x, [x.shape[0], 1, 4, 3])
        hidden = flow.layers.conv2d(
            image, 4, 3, padding="SAME", activation=flow.nn.relu, kernel_initializer=NORMAL,
            name="a",
        )  # fmt: skip
        with device(0):
            hidden = dense(flat(hidden), 16, "b", flow.nn.relu)
        hidden = hidden * 0.5
        with device(2):
            logits = dense(hidden, CLASSES, "c")
        return cross_entropy(y, logits)

    return trained(sgd, loss_of)


@case
def table_split():
    """Rows of an embedding lie apart, seven on two or four ranks; a batch reads some twice."""

    @flow.global_function(type="train")
    def job(i: tp.Numpy.Placeholder((BATCH, 2), flow.int32)) -> tp.Numpy:
        table = flow.get_variable("table", (7, 3), initializer=NORMAL, distribute=SPLIT(0))
        rows = flow.math.tanh(flow.gather(table, i))
        loss = flow.math.reduce_sum(flow.math.square(rows), axis=[1, 2])
        flow.optimizer.Adam(rate(0.01), do_bias_correction=True).minimize(loss)
        return loss

    rng = np.random.default_rng(3)
    losses = [job(rng.integers(0, 7, (BATCH, 2)).astype(np.int32)) for _ in range(cases.STEPS)]
    return {"losses": np.array(losses), **variables()}


def all_kinds(x, y):
    """A layer on the second device, a split kernel, and a bias that all have."""
    with device(2):
        hidden = dense(flat(x), 16, "a", flow.nn.relu)
    logits = dense(hidden, CLASSES, "b", model_distribute=SPLIT(0))
    return cross_entropy(y, logits + flow.get_variable("c", (CLASSES,), initializer=NORMAL))


@case
def norm_of_all_kinds():
    """The joint norm is of all variables, wherever they are; a rank's overflow is everyone's."""
    clipping = flow.optimizer.grad_clipping.by_global_norm(0.3)
    policy = flow.optimizer.loss_scale.dynamic_loss_scale(2.0**127, 2)  # it overflows at first
    return trained(
        lambda: flow.optimizer.SGD(
            rate(0.1), momentum=0.9, grad_clipping=clipping, loss_scale_policy=policy
        ),
        all_kinds,
    )


@case
def lamb_of_all_kinds():
    return trained(lambda: flow.optimizer.LAMB(rate(1e-3)), all_kinds)


@case
def kept_and_read():
    """A predict job reads split variables, and values that are loaded are split."""

    @flow.global_function(type="train")
    def job(
        x: tp.Numpy.Placeholder((BATCH, 4, 3)), y: tp.Numpy.Placeholder((BATCH,), flow.int32)
    ) -> tp.Numpy:
        with device(2):
            hidden = dense(flat(x), 16, "a", flow.nn.relu)
        loss = cross_entropy(y, dense(hidden, CLASSES, "b", model_distribute=SPLIT(0)))
        sgd().minimize(loss)
        return loss

    @flow.global_function(type="predict")
    def answer(x: tp.Numpy.Placeholder((3, 4, 3))) -> tp.Numpy:
        hidden = dense(flat(x), 16, "a", flow.nn.relu)
        return dense(hidden, CLASSES, "b", model_distribute=SPLIT(0))

    flow.load_variables({"b-weight": np.linspace(-1, 1, 80, dtype=np.float32).reshape(5, 16)})
    for x, y in batches():
        job(x, y)
    return {"answers": answer(x[:3]), **variables()}


if __name__ == "__main__":
    cases.DEVICES = flow.distributed.get_world_size()
    path = Path(sys.argv[1]) / f"{flow.distributed.get_rank()}.npz"
    np.savez(path, **cases.run(sys.argv[2:], CASES))
