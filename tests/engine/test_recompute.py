"""Activations computed twice: the same results, from less memory."""

import subprocess
import sys

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.analysis.live_range import peak_bytes
from flow2onnx.engine.session import current_session
from flow2onnx.errors import ConfigError

BATCH = 64


def config(how, **others):
    made = flow.function_config()
    made.runtime.recompute(how)
    for name, value in others.items():
        getattr(made.runtime, name)(value)
    return made


def minimized(x):
    loss = flow.math.reduce_mean(flow.math.square(x))
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
    return loss


def perceptron(how):
    @flow.global_function(type="train", function_config=config(how))
    def job(x: tp.Numpy.Placeholder((BATCH, 32))) -> tp.Numpy:
        for i in range(9):
            x = flow.layers.dense(x, 32, activation=flow.math.tanh, name=f"d{i}")
        return minimized(x)

    return job, np.random.default_rng(0).random((BATCH, 32), np.float32)


def residual(how, **others):
    """Blocks of convolutions, normalised over the batch, that add to what they were given."""

    @flow.global_function(type="train", function_config=config(how, **others))
    def job(x: tp.Numpy.Placeholder((4, 8, 12, 12))) -> tp.Numpy:
        for i in range(5):
            with flow.scope.namespace(f"block{i}"):
                first = flow.random_normal_initializer(stddev=0.1)
                w = flow.get_variable("w", (8, 8, 3, 3), initializer=first)
                y = flow.nn.conv2d(x, w, 1, "SAME", data_format="NCHW")
                y = flow.layers.batch_normalization(y, axis=1)
                x = flow.nn.relu(x + y)
        return minimized(x)

    return job, np.random.default_rng(0).random((4, 8, 12, 12), np.float32)


def dropping(how):
    """Layers that draw what they drop: computed again, they would drop something else."""

    @flow.global_function(type="train", function_config=config(how))
    def job(x: tp.Numpy.Placeholder((BATCH, 32))) -> tp.Numpy:
        for i in range(6):
            x = flow.layers.dense(x, 32, activation=flow.math.gelu, name=f"d{i}")
            x = flow.layers.layer_norm(x, name=f"n{i}")
            x = flow.nn.dropout(x, 0.5)
        return minimized(x)

    return job, np.random.default_rng(0).random((BATCH, 32), np.float32)


def trained(make, how, steps=4):
    flow.clear_default_session()
    job, x = make(how)
    losses = [job(x) for _ in range(steps)]
    return losses, {n: v.numpy() for n, v in flow.get_all_variables().items()}, compiled()


def compiled():
    (executable,) = current_session()._executables.values()
    return executable.opening.job


@pytest.mark.parametrize("how", [True, 2, 5])
@pytest.mark.parametrize("make", [perceptron, residual, dropping])
def test_the_same_bits_from_less_memory(make, how):
    losses, values, kept = trained(make, False)
    again_losses, again, spared = trained(make, how)
    assert all(map(np.array_equal, losses, again_losses))
    assert all(np.array_equal(values[n], again[n]) for n in values)
    assert spared.recomputed
    assert not kept.recomputed
    assert peak_bytes(spared.model.graph) < peak_bytes(kept.model.graph)


def test_what_is_drawn_is_drawn_once():
    drawn = [n for n in trained(dropping, True)[2].model.graph if n.op_type == "Dropout"]
    assert len(drawn) == 6


def test_products_that_are_kept():
    def sparing(how):
        return residual(how, recompute_products=False)

    losses, _, kept = trained(residual, False)
    again_losses, _, spared = trained(sparing, ["block1", "block2"])
    assert all(map(np.array_equal, losses, again_losses))
    assert all(segment.nodes for segment in spared.recomputed)
    again = [n.op_type for n in spared.model.graph if n.name.startswith("again/")]
    assert "Conv" not in again
    whole = trained(residual, ["block1", "block2"])[2].model.graph
    assert "Conv" in [n.op_type for n in whole if n.name.startswith("again/")]
    assert peak_bytes(spared.model.graph) < peak_bytes(kept.model.graph)


def test_layers_and_scopes_by_name():
    (first,) = trained(perceptron, ["d3"])[2].recomputed
    assert (first.first, first.last) == ("d3-matmul/Gemm", "d3-activation/Tanh")
    assert first.nodes == 0, "the next layer reads what the gradient reads"
    names = [(r.first, r.last) for r in trained(residual, ("block1", "block2"))[2].recomputed]
    assert [a.split("-")[0] for a, _ in names] == ["block1", "block2"]
    assert all(a.split("-")[0] == b.split("-")[0] for a, b in names)


def test_a_name_that_is_not_there():
    job, x = perceptron(["d3", "q"])
    with pytest.raises(ConfigError, match="names q, and no layer"):
        job(x)


@pytest.mark.parametrize("wrong", [1, 2.0, [], ["a", 3], "d3"])
def test_what_is_no_part_of_a_job(wrong):
    with pytest.raises(ConfigError, match="a number from 2, or names of layers"):
        flow.function_config().runtime.recompute(wrong)


def test_what_is_explained():
    job, x = residual(["block1"])
    job(x)
    lines = str(job.explain())
    assert "recomputed:\n  block1-conv2d_0/Conv to block1-relu_0/Relu: " in lines
    assert " nodes run twice, " in lines


MEASURED = """
import sys
import numpy as np, flow2onnx as flow, flow2onnx.typing as tp

config = flow.function_config()
config.runtime.recompute(sys.argv[1] == "again")

@flow.global_function(type="train", function_config=config)
def job(x: tp.Numpy.Placeholder((16384, 256))) -> tp.Numpy:
    for i in range(20):
        x = flow.layers.dense(x, 256, activation=flow.math.tanh, name=f"d{i}")
    loss = flow.math.reduce_mean(flow.math.square(x))
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
    return loss

for _ in range(2):
    job(np.ones((16384, 256), np.float32))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_process_takes_less():
    kept, again = (
        int(subprocess.run([sys.executable, "-c", MEASURED, how], capture_output=True, text=True,
                           check=True).stdout)
        for how in ("kept", "again")
    )  # fmt: skip
    assert again < 0.75 * kept


def tanh_gelu(x):
    inner = 0.7978845608 * (x + 0.044715 * flow.math.pow(x, 3.0))
    return 0.5 * x * (1.0 + flow.math.tanh(inner))


def erf_gelu(x):
    return 0.5 * x * (1.0 + flow.math.erf(x * 0.5**0.5))


def normalized(x):
    centred = x - flow.math.reduce_mean(x, axis=[-1], keepdims=True)
    squares = flow.math.reduce_mean(centred * centred, axis=[-1], keepdims=True)
    return centred * flow.math.rsqrt(squares + 1e-5)


def swish(x):
    return x * flow.math.sigmoid(x)


@pytest.mark.parametrize("curve", [tanh_gelu, erf_gelu, normalized, swish])
def test_what_the_runtime_fuses_is_computed_again(curve):
    def make(how):
        @flow.global_function(type="train", function_config=config(how))
        def job(x: tp.Numpy.Placeholder((4, 8))) -> tp.Numpy:
            for i in range(3):
                x = curve(flow.layers.dense(x, 8, name=f"d{i}"))
            return minimized(x)

        return job, np.random.default_rng(0).random((4, 8), np.float32)

    wanted = trained(make, False, 2)[0]
    for how in (2, 3, 5, 7):  # cuts in other places of the same nodes
        assert all(map(np.array_equal, wanted, trained(make, how, 2)[0]))
