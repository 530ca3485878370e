"""The table of operators, checked in real jobs."""

import zlib
from inspect import unwrap

import numpy as np
import pytest

import flow2onnx as flow
from flow2onnx.errors import UnsupportedError
from flow2onnx.ops.named_losses import LOSSES
from flow2onnx.trace.registry import entries
from tests.ops.jobs import define, opens, predict, run, watched_gradients
from tests.ops.table import FLOATS, ROWS

# element type: tolerance of results, and of gradients
TOLERANCE = {"float64": (1e-9, 1e-6), "float32": (2e-5, 5e-4), "float16": (4e-3, 4e-2)}
# not functions from blobs to blobs; each has tests of its own
ELSEWHERE = {
    "acc",
    "advanced.distribute_map",
    "assign",
    "categorical_ordinal_encode",
    "ctc_loss",
    "distributed_partial_fc_sample",
    "experimental.indexed_slices_reduce_sum",
    "experimental.logical_slice_assign",
    "get_variable",
    "layers.batch_normalization",
    "layers.batch_normalization_add_relu",
    "layers.batch_normalization_relu",
    "layers.categorical_ordinal_encoder",
    "losses.add_loss",
    "nn.GRU",
    "nn.LSTM",
    "nn.RNN",
    "nn.avg_pool1d",
    "nn.ctc_greedy_decoder",
    "nn.max_pool1d",
    "nn.random_mask_like",
    "pack",
    "quantization.fake_quantization",
    "quantization.min_max_observer",
    "quantization.moving_average_min_maxObserver",
    "quantization.moving_average_min_max_observer",
    "random.CoinFlip",
    "random.bernoulli",
    "random.coin_flip",
    "random.gen_seed",
    "random.generate_random_batch_permutation_indices",
    "random.shuffle",
    "repeat",
    "system.assign",
    "truncated_normal",
    "unpack",
}

# modules whose operators run on the host, which tests/data is about
ON_THE_HOST = {"blob_conf", "detection", "images", "readers", "tensor_buffers"}


def pairs(rows, always=(), among=None):
    """Each row with each of its element types, or with those of `among`.

    The fast suite has those of `always` and, of the others, one that the row's name draws: every
    operator in one of them, and every one of them with a share of all operators.
    """
    for row in rows:
        dtypes = [d for d in row.dtypes if among is None or d in among]
        others = [d for d in dtypes if d not in always]
        drawn = others[zlib.crc32(row.id.encode()) % len(others)] if others else None
        for dtype in dtypes:
            marks = [pytest.mark.slow] if dtype in others and dtype != drawn else []
            yield pytest.param(row, dtype, id=f"{row.id}-{dtype}", marks=marks)


PAIRS = list(pairs(ROWS, always=("float32",)))
DIFFERENTIABLE = list(pairs((row for row in ROWS if row.varied or row.owns), among=FLOATS))


def generator(row, dtype):
    return np.random.default_rng(zlib.crc32(f"{row.id} {dtype}".encode()))


def exact(arrays):
    """Real numbers in double precision, so that the reference adds no rounding of its own."""
    return [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]


def as_list(result):
    return result if isinstance(result, list) else [result]


def is_runnable(row, dtype, arrays):
    """True if the runtime has the kernels; it must have what the row does not say it lacks."""
    return dtype not in row.lacks or opens(row.call, arrays)


def test_every_operator_has_a_row():
    named = {unwrap(entries()[row.name].function) for row in ROWS}
    missing = {
        name
        for name, entry in entries().items()
        if unwrap(entry.function) not in named
        and entry.function.__module__.rpartition(".")[2] not in ON_THE_HOST
        and not name.endswith("_initializer")
        and not name.startswith(("optimizer.", "regularizers."))
    }
    assert missing == ELSEWHERE | {f"losses.{name}" for name in LOSSES}  # test_named_losses.py


@pytest.mark.parametrize(("row", "dtype"), PAIRS)
def test_forward(row, dtype):
    rng = generator(row, dtype)
    arrays = row.draw(rng, dtype)
    if not is_runnable(row, dtype, arrays):
        with pytest.raises(UnsupportedError, match="no kernel") as info:
            predict(row.call, *arrays)
        assert info.value.source.startswith("tests/ops/row.py")
        return
    job = define(row.call, arrays)
    owned = row.draw_owned(rng)
    flow.load_variables(owned, ignore_mismatch=False)
    found = run(job, *arrays)
    wanted = as_list(row.ref(*exact(arrays), *exact(owned.values())))
    assert len(found) == len(wanted)
    for y, want in zip(found, wanted, strict=True):
        assert y.shape == want.shape
        assert y.dtype == (row.result or dtype)
        if y.dtype.kind == "f":
            tolerance = max(
                TOLERANCE.get(d, TOLERANCE["float64"])[0] for d in (dtype, y.dtype.name)
            )
            np.testing.assert_allclose(y, want, tolerance, tolerance)
        else:
            np.testing.assert_array_equal(y, want.astype(y.dtype))


@pytest.mark.parametrize(("row", "dtype"), DIFFERENTIABLE)
def test_gradient(row, dtype):
    rng = generator(row, dtype)
    arrays = row.draw(rng, dtype)
    if not is_runnable(row, dtype, arrays):
        pytest.skip(f"the runtime has no {row.name} in {dtype}")
    owned = row.draw_owned(rng)
    references = as_list(row.ref(*exact(arrays), *exact(owned.values())))
    seeds = [rng.uniform(0.5, 1.5, y.shape).astype(row.result or dtype) for y in references]
    found = watched_gradients(row.call, arrays, row.varied, seeds, owned)
    names = [f"in{i}" for i in row.varied] + list(owned)
    assert set(found) == set(names)
    for name, start in zip(
        names, [arrays[i] for i in row.varied] + list(owned.values()), strict=True
    ):
        assert found[name].shape == start.shape
        assert found[name].dtype == start.dtype
    tolerance = max(TOLERANCE[dtype][1], TOLERANCE[row.result or dtype][1])
    for _ in range(2):
        compare_along(row, arrays, owned, seeds, found, rng, tolerance)


def compare_along(row, arrays, owned, seeds, found, rng, tolerance):
    """The slope along a random direction, from the gradients and from the reference."""
    point = dict(enumerate(exact(arrays))) | dict(zip(owned, exact(owned.values()), strict=True))
    steps = {
        k: rng.choice([-1.0, 1.0], v.shape) * rng.uniform(0.5, 1, v.shape)
        for k, v in point.items()
        if k in row.varied or k in owned
    }

    def total(size):
        moved = {k: v + size * steps[k] if k in steps else v for k, v in point.items()}
        results = as_list(row.ref(*moved.values()))
        return sum(
            float((y * s.astype(np.float64)).sum()) for y, s in zip(results, seeds, strict=True)
        )

    size = 1e-5
    wanted = (total(size) - total(-size)) / (2 * size)
    parts = [
        found[k if k in owned else f"in{k}"].astype(np.float64) * step for k, step in steps.items()
    ]
    slope = sum(float(p.sum()) for p in parts)
    scale = 1 + sum(float(np.abs(p).sum()) for p in parts)
    assert abs(slope - wanted) <= tolerance * scale, f"{slope} along {row.id}, expected {wanted}"
