"""Training that several processes share, or one does: ``python -m tests.ranks.cases OUT [CASE…]``.

Each case trains for some steps and returns what came of it by name: results and variables.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp
from tests.data.files import write_parts

STEPS, BATCH, WIDTH, CLASSES = 6, 8, 12, 5
NORMAL = flow.random_normal_initializer(stddev=0.3)
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def rate(number):
    return flow.optimizer.PiecewiseConstantScheduler([], [number])


def batches(steps=STEPS):
    rng = np.random.default_rng(7)
    for _ in range(steps):
        x = rng.normal(size=(BATCH, 4, 3)).astype(np.float32)
        yield x, rng.integers(0, CLASSES, BATCH).astype(np.int32)


def logits_of(x, width=16):
    flat = flow.reshape(x, [x.shape[0], -1])
    hidden = flow.layers.dense(flat, width, flow.nn.relu, kernel_initializer=NORMAL, name="a")
    return flow.layers.dense(hidden, CLASSES, kernel_initializer=NORMAL, name="b")


def cross_entropy(x, y):
    return flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits_of(x))


def variables():
    return {name: v.numpy() for name, v in flow.get_all_variables().items()}


def trained(optimizer, loss_of=cross_entropy, config=None):
    @flow.global_function(type="train", function_config=config)
    def job(
        x: tp.Numpy.Placeholder((BATCH, 4, 3)), y: tp.Numpy.Placeholder((BATCH,), flow.int32)
    ) -> tp.Numpy:
        loss = loss_of(x, y)
        optimizer().minimize(loss)
        return loss

    losses = [job(x, y) for x, y in batches()]
    return {"losses": np.array(losses), **variables()}


@case
def sgd():
    return trained(lambda: flow.optimizer.SGD(rate(0.1), momentum=0))


@case
def momentum_and_norm():
    clipping = flow.optimizer.grad_clipping.by_global_norm(0.3)
    return trained(lambda: flow.optimizer.SGD(rate(0.1), momentum=0.9, grad_clipping=clipping))


@case
def adam():
    return trained(lambda: flow.optimizer.Adam(rate(1e-3), do_bias_correction=True))


@case
def lamb():
    return trained(lambda: flow.optimizer.LAMB(rate(1e-3)))


@case
def lars():
    return trained(lambda: flow.optimizer.LARS(rate(0.1)))


@case
def dynamic_scale():
    policy = flow.optimizer.loss_scale.dynamic_loss_scale(2.0**127, 2)  # it overflows at first
    return trained(lambda: flow.optimizer.SGD(rate(0.1), momentum=0, loss_scale_policy=policy))


@case
def buckets():
    config = flow.function_config()
    config.enable_all_reduce_group(False)
    return trained(lambda: flow.optimizer.SGD(rate(0.1), momentum=0.5), config=config)


@case
def mean_loss():
    return trained(
        lambda: flow.optimizer.SGD(rate(0.1), momentum=0),
        lambda x, y: flow.math.reduce_mean(cross_entropy(x, y)) * 2.0,
    )


@case
def sum_loss():
    def loss_of(x, y):  # sizes are those of the whole batch, wherever they are asked for
        return flow.math.reduce_sum(cross_entropy(x, y)) / x.shape[0]

    return trained(lambda: flow.optimizer.SGD(rate(0.1), momentum=0), loss_of)


@case
def constants_of_the_batch():
    def loss_of(x, y):
        weights = flow.constant(0.5, flow.float32, (BATCH, CLASSES))
        logits = flow.concat([logits_of(x) * weights, flow.reshape(x, [BATCH, 12])], axis=1)
        return flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits)

    return trained(lambda: flow.optimizer.SGD(rate(0.1), momentum=0), loss_of)


@case
def slices():
    """Of a table only the rows that any rank has read are updated."""
    config = flow.function_config()
    config.indexed_slices_optimizer_conf(
        {"enable": True, "include_op_names": {"op_name": ["table"]}}
    )

    @flow.global_function(type="train", function_config=config)
    def job(i: tp.Numpy.Placeholder((BATCH, 2), flow.int32)) -> tp.Numpy:
        table = flow.get_variable("table", (11, 3), initializer=NORMAL)
        loss = flow.math.reduce_sum(flow.math.square(flow.gather(table, i)), axis=[1, 2])
        flow.optimizer.Adam(rate(0.01)).minimize(loss)
        return loss

    rng = np.random.default_rng(3)
    losses = [job(rng.integers(0, 6, (BATCH, 2)).astype(np.int32)) for _ in range(STEPS)]
    return {"losses": np.array(losses), **variables()}


@case
def mirrored():
    """A list in, a list out; statistics of a batch are those of a device."""
    flow.config.cpu_device_num(DEVICES)
    config = flow.function_config()
    config.default_logical_view(flow.scope.mirrored_view())

    @flow.global_function(type="train", function_config=config)
    def job(
        x: tp.ListNumpy.Placeholder((4, 4, 3)), y: tp.ListNumpy.Placeholder((4,), flow.int32)
    ) -> tp.ListNumpy:
        x = flow.layers.batch_normalization(flow.reshape(x, [x.shape[0], -1]), axis=1, name="n")
        x = flow.nn.dropout(x, rate=0.25, name="d")
        loss = cross_entropy(x, y)
        flow.optimizer.SGD(rate(0.1), momentum=0).minimize(loss)
        return loss

    rng, found = np.random.default_rng(5), []
    for _ in range(STEPS):
        x = rng.normal(size=(DEVICES, 4, 4, 3)).astype(np.float32)
        y = rng.integers(0, CLASSES, (DEVICES, 4)).astype(np.int32)
        found.append(job(list(x), list(y)))
    return {"losses": np.array(found), **variables()}


def read(rounds):
    """Every record is read once an epoch, by one of the ranks, and changed as in one process."""
    config = flow.function_config()
    if rounds > 1:
        config.train.num_gradient_accumulation_steps(rounds)
    rng = np.random.default_rng(6)
    with TemporaryDirectory() as folder:
        samples = [{"x": rng.normal(size=12).astype(np.float32), "y": int(i % CLASSES)}
                   for i in range(3 * BATCH)]  # fmt: skip
        write_parts(Path(folder) / "d", [samples[:10], samples[10:]])

        @flow.global_function(type="train", function_config=config)
        def job() -> tp.Bundle[tp.Numpy]:
            reader = flow.data.ofrecord_reader(
                str(Path(folder) / "d"), batch_size=BATCH, data_part_num=2, random_shuffle=True,
                shuffle_after_epoch=True,
            )  # fmt: skip
            x = flow.data.OFRecordRawDecoder(reader, "x", (12,), flow.float)
            y = flow.data.OFRecordRawDecoder(reader, "y", (1,), flow.int32)
            loss = cross_entropy(x, flow.reshape(y, [BATCH]))
            flow.optimizer.SGD(rate(0.1), momentum=0.9).minimize(loss)
            return loss, x

        found = [job() for _ in range(STEPS)]
        whole = {"losses": np.array([f[0] for f in found]), "x": np.array([f[1] for f in found])}
        return {**whole, **variables()}


@case
def reader():
    return read(1)


@case
def reader_in_rounds():
    return read(3)


@case
def seen():
    """Handlers see what the whole batch has, and its gradients."""
    shown = []

    def loss_of(x, y):
        logits = logits_of(x)
        flow.watch(logits, lambda blob: shown.append(blob.numpy().copy()))
        flow.watch_diff(logits, lambda blob: shown.append(blob.numpy().copy()))
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
        flow.watch(flow.math.reduce_mean(loss), "the mean loss is")
        return loss

    found = trained(lambda: flow.optimizer.SGD(rate(0.1), momentum=0), loss_of)
    return {**found, **{f"shown/{i}": array for i, array in enumerate(shown)}}


@case
def prediction():
    """A predict job, and a train job in smaller batches than declared, share variables."""

    @flow.global_function(type="train")
    def job(
        x: tp.Numpy.Placeholder((BATCH, 4, 3)), y: tp.Numpy.Placeholder((BATCH,), flow.int32)
    ) -> tp.Numpy:
        loss = cross_entropy(x, y)
        flow.optimizer.SGD(rate(0.1), momentum=0).minimize(loss)
        return loss

    @flow.global_function(type="predict")
    def answer(x: tp.Numpy.Placeholder((3, 4, 3))) -> tp.Numpy:
        return logits_of(x)

    # drawn apart in every process: the first one's values hold
    drawn = np.random.default_rng().normal(size=(CLASSES, 16)).astype(np.float32)
    flow.load_variables({"b-weight": np.linspace(-1, 1, 80, dtype=np.float32).reshape(5, 16)})
    if DEVICES > 1:
        kept = flow.get_all_variables()["a-bias"].numpy()
        flow.load_variables({"a-bias": drawn[0]})
        flow.load_variables({"a-bias": kept})
    for x, y in batches():
        job(x, y)
    return {"answers": answer(x[:3]), **variables()}


DEVICES = 2


def run(names):
    """What each case gives, by case and name, each in a session of its own."""
    found = {}
    for name in names or CASES:
        flow.clear_default_session()
        found |= {f"{name}/{key}": value for key, value in CASES[name]().items()}
    return found


if __name__ == "__main__":
    DEVICES = flow.distributed.get_world_size()
    path = Path(sys.argv[1]) / f"{flow.distributed.get_rank()}.npz"
    np.savez(path, **run(sys.argv[2:]))
