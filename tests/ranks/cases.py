"""Training that several processes share, or one does: ``python -m tests.ranks.cases OUT [CASE…]``.

Each case trains for some steps and returns what came of it by name: results and variables.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import NonFiniteError
from tests.data.files import write_parts

STEPS, BATCH, WIDTH, CLASSES = 6, 8, 12, 5
NORMAL = flow.random_normal_initializer(stddev=0.3)
CASES = {}
SLOW = set()  # of them, those that the fast tests leave out


def case(function):
    CASES[function.__name__] = function
    return function


def slow(function):
    SLOW.add(function.__name__)
    return case(function)


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


def trained(optimizer, loss_of=cross_entropy, config=None, data=batches):
    @flow.global_function(type="train", function_config=config)
    def job(
        x: tp.Numpy.Placeholder((BATCH, 4, 3)), y: tp.Numpy.Placeholder((BATCH,), flow.int32)
    ) -> tp.Numpy:
        loss = loss_of(x, y)
        optimizer().minimize(loss)
        return loss

    losses = [job(x, y) for x, y in data()]
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
    return sliced(flow.function_config())


@case
def slices_of_descent():
    """Plain SGD, whose gradients travel times the rate, with the bias of a bucket beside rows."""
    sgd = flow.optimizer.SGD(flow.optimizer.CosineScheduler(0.1, 8), momentum=0)
    return sliced(flow.function_config(), has_weights=True, optimizer=sgd)


def sliced(config, has_weights=False, optimizer=None):
    config.indexed_slices_optimizer_conf(
        {"enable": True, "include_op_names": {"op_name": ["table"]}}
    )

    @flow.global_function(type="train", function_config=config)
    def job(i: tp.Numpy.Placeholder((BATCH, 2), flow.int32)) -> tp.Numpy:
        table = flow.get_variable("table", (11, 3), initializer=NORMAL)
        h = flow.reshape(flow.gather(table, i), [i.shape[0], 6])
        if has_weights:
            h = flow.matmul(h, flow.get_variable("w", (6, 3), initializer=NORMAL))
        loss = flow.math.reduce_sum(flow.math.square(h), axis=[1])
        (optimizer or flow.optimizer.Adam(rate(0.01))).minimize(loss)
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


def read(rounds, config=None):
    """Every record is read once an epoch, by one of the ranks, and changed as in one process."""
    config = config or flow.function_config()
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


def zero(threshold=10):
    """The flags of ZeRO-1 for variables of this size; by their shapes some parts are uneven."""
    config = flow.function_config()
    config.enable_non_distributed_optimizer(True)
    config.optimizer_placement_optimization_threshold(threshold)
    return config


@slow
def zero_momentum():
    return trained(lambda: flow.optimizer.SGD(rate(0.1), momentum=0.9), config=zero())


@slow
def zero_adam():
    return trained(lambda: flow.optimizer.Adam(rate(1e-3), do_bias_correction=True), config=zero())


@case
def zero_lamb_and_norm():
    """Norms of single variables, and of all together, are those of all parts."""
    clipping = flow.optimizer.grad_clipping.by_global_norm(0.3)
    return trained(lambda: flow.optimizer.LAMB(rate(1e-3), grad_clipping=clipping), config=zero())


@slow
def zero_lars():
    return trained(lambda: flow.optimizer.LARS(rate(0.1)), config=zero())


@slow
def zero_dynamic_scale():
    policy = flow.optimizer.loss_scale.dynamic_loss_scale(2.0**127, 2)
    return trained(
        lambda: flow.optimizer.SGD(rate(0.1), momentum=0.9, loss_scale_policy=policy), config=zero()
    )


@slow
def zero_averages():
    """Averages of weights are whole, and the matrices of muon move whole; biases are in parts."""
    return trained(lambda: flow.optimizer.named("muon", 0.01, ema=0.9), config=zero(5))


@slow
def zero_slices():
    """A table of which rows are updated stays whole on all ranks; the rest is in parts."""
    return sliced(zero(), has_weights=True)


@slow
def zero_in_rounds():
    return read(3, zero())


def with_a_large_row():
    """The last row, which is the last rank's, is too large at the third step."""
    for step, (x, y) in enumerate(batches()):
        if step == 2:
            x[-1] *= 1e37
        yield x, y


def held_back(config=None):
    """One rank's overflow: no rank moves, and the scale shrinks on all."""
    policy = flow.optimizer.loss_scale.dynamic_loss_scale(2.0**10, 2)
    found = trained(
        lambda: flow.optimizer.SGD(rate(0.1), momentum=0.9, loss_scale_policy=policy),
        config=config, data=with_a_large_row,
    )  # fmt: skip
    del found["losses"]  # of which one is not finite
    return found


@slow
def one_rank_overflows():
    return held_back()


@slow
def zero_one_rank_overflows():
    return held_back(zero())


def refused(config=None):
    """A loss that is not finite on one rank ends the step on all, which go on from there."""
    flow.config.stop_on_non_finite(True)
    ends = []

    @flow.global_function(type="train", function_config=config)
    def job(
        x: tp.Numpy.Placeholder((BATCH, 4, 3)), y: tp.Numpy.Placeholder((BATCH,), flow.int32)
    ) -> tp.Numpy:
        loss = cross_entropy(x, y)
        flow.optimizer.SGD(rate(0.1), momentum=0.9).minimize(loss)
        return loss

    for step, (x, y) in enumerate(batches()):
        if step in (1, 4):
            x[0 if step == 1 else -1] = np.nan
        try:
            job(x, y)
        except NonFiniteError:
            ends.append(step)
    return {"ends": np.array(ends), **variables()}


@slow
def stop_on_non_finite():
    return refused()


@slow
def stop_on_non_finite_in_segments():
    return refused(cut(3))


def mixed(dtype, config):
    config.enable_auto_mixed_precision(True)
    config.runtime.mixed_precision_dtype(dtype)
    policy = flow.optimizer.loss_scale.dynamic_loss_scale(2.0**10, 2)
    return trained(
        lambda: flow.optimizer.SGD(rate(0.1), momentum=0.9, loss_scale_policy=policy), config=config
    )


@slow
def float16():
    return mixed("float16", flow.function_config())


@slow
def bfloat16():
    return mixed("bfloat16", flow.function_config())


@slow
def zero_float16_in_segments():
    return mixed("float16", zero_and_cut())


def cut(segments):
    config = flow.function_config()
    config.runtime.gradient_segments(segments)
    return config


def zero_and_cut():
    config = zero()
    config.runtime.gradient_segments(2)
    return config


def normalised(config):
    """A network whose way back reads what the way there keeps, in several layers."""
    rng = np.random.default_rng(8)

    @flow.global_function(type="train", function_config=config)
    def job(
        x: tp.Numpy.Placeholder((BATCH, 4, 3)), y: tp.Numpy.Placeholder((BATCH,), flow.int32)
    ) -> tp.Bundle[tp.Numpy]:
        h = flow.layers.layer_norm(logits_of(x, 24), name="l")
        table = flow.get_variable("table", (CLASSES, 7), initializer=NORMAL)
        h = flow.math.tanh(flow.matmul(h, table)) + flow.gather(flow.get_variable(
            "rows", (CLASSES, 7), initializer=NORMAL), y)  # fmt: skip
        logits = flow.layers.dense(h, CLASSES, kernel_initializer=NORMAL, name="c")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
        flow.watch_diff(h, lambda blob: shown.append(blob.numpy().copy()))
        flow.optimizer.Adam(rate(1e-3), do_bias_correction=True).minimize(loss)
        return loss, logits

    shown, found = [], []
    for _ in range(STEPS):
        x = rng.normal(size=(BATCH, 4, 3)).astype(np.float32)
        found.append(job(x, rng.integers(0, CLASSES, BATCH).astype(np.int32)))
    whole = {"losses": np.array([f[0] for f in found]), "logits": np.array([f[1] for f in found])}
    return {**whole, "shown": np.array(shown), **variables()}


@case
def segments():
    """In one model, and in three between which gradients are sent: the same to the bit.

    The order in which more than two numbers add up depends on their place in a bucket.
    """
    whole = normalised(cut(1))
    flow.clear_default_session()
    in_parts = normalised(cut(3))
    if DEVICES > 2:
        return in_parts
    same = {f"{name} is the same": np.array_equal(a, in_parts[name]) for name, a in whole.items()}
    return {**in_parts, **{name: np.array(is_same) for name, is_same in same.items()}}


@slow
def zero_in_segments():
    return normalised(zero_and_cut())


@slow
def segments_of_rounds():
    return read(3, cut(2))


@slow
def statistics_of_a_device():
    """In the consistent view, too; one process that plays the devices has the mirrored view."""
    rows, is_alone = BATCH // DEVICES, flow.distributed.get_world_size() == 1
    config = flow.function_config()
    if is_alone:
        flow.config.cpu_device_num(DEVICES)
        config.default_logical_view(flow.scope.mirrored_view())
    kind, size = (tp.ListNumpy, rows) if is_alone else (tp.Numpy, BATCH)

    @flow.global_function(type="train", function_config=config)
    def job(x: kind.Placeholder((size, 4, 3)), y: kind.Placeholder((size,), flow.int32)) -> kind:
        x = flow.layers.batch_normalization(flow.reshape(x, [size, -1]), axis=1, name="n")
        loss = cross_entropy(x, y)
        flow.optimizer.SGD(rate(0.1), momentum=0).minimize(loss)
        return loss

    found = []
    for x, y in batches():
        arrays = [np.split(x, DEVICES), np.split(y, DEVICES)] if is_alone else [x, y]
        found.append(np.reshape(job(*arrays), -1))
    return {"losses": np.array(found), **variables()}


@slow
def draws():
    """Ranks draw apart, and the same again when a program is repeated."""

    def shown():
        flow.clear_default_session()

        @flow.global_function(type="train")
        def job(x: tp.Numpy.Placeholder((BATCH, 40))) -> tp.Numpy:
            w = flow.get_variable("w", (40,), initializer=flow.ones_initializer())
            loss = flow.nn.dropout(x * w, rate=0.5, name="d")
            flow.optimizer.SGD(rate(0.0), momentum=0).minimize(loss)
            return loss

        return np.array([job(np.ones((BATCH, 40), np.float32)) for _ in range(3)])

    first, again = shown(), shown()
    pieces = np.split(first, DEVICES, axis=1)
    return {
        "they are apart": np.array(all(not np.array_equal(pieces[0], p) for p in pieces[1:])),
        "steps are apart": np.array(not np.array_equal(first[0], first[1])),
        "they are the same again": np.array(np.array_equal(first, again)),
    }


DEVICES = 2


def run(names, cases=CASES):
    """The results of each case, by case and name, each in a session of its own."""
    found = {}
    for name in names or cases:
        flow.clear_default_session()
        found |= {f"{name}/{key}": value for key, value in cases[name]().items()}
    return found


if __name__ == "__main__":
    DEVICES = flow.distributed.get_world_size()
    path = Path(sys.argv[1]) / f"{flow.distributed.get_rank()}.npz"
    np.savez(path, **run(sys.argv[2:]))
