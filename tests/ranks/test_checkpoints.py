"""A checkpoint of state in parts is that of one process, for any number of ranks."""

import numpy as np
import pytest

import flow2onnx as flow
from tests.ranks.ranks import ROOT, ends, start, start_ranks

PROGRAM = str(ROOT / "tests/ranks/checkpoints.py")


def trained(kind, count, folder, steps, *given, engine="torch"):
    """Train in `count` processes from a checkpoint on, and write the next."""
    arguments = [PROGRAM, kind, str(steps), str(folder), *map(str, given)]
    alone = count == 1
    processes = [start(engine, arguments)] if alone else start_ranks(count, arguments, engine)
    results = ends(processes)
    assert all(status == 0 for status, _, _ in results), results
    return folder / "saved"


def values(path):
    return {name: saved.numpy() for name, saved in flow.checkpoint.get(path).items()}


def check_loaded(folder, count, saved):
    """Every rank has read, bit by bit, what lies in the checkpoint."""
    expected = values(saved)
    for rank in range(count):
        found = dict(np.load(folder / f"read-{rank}.npz"))
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, name)


def check_layout(saved):
    """Whole tensors, in OneFlow's folder and in one file, and nothing beside them."""
    expected = values(saved)
    assert {n: v.shape for n, v in expected.items()} == {
        "w": (5, 7), "w-m": (5, 7), "w-v": (5, 7), "b": (7,), "b-m": (7,), "b-v": (7,),
        "s": (1,), "s-m": (1,), "s-v": (1,), "System-Train-TrainStep-job": (1,),
    }  # fmt: skip
    assert (saved / "snapshot_done").exists()
    for name, value in expected.items():
        np.testing.assert_array_equal(np.fromfile(saved / name / "out", value.dtype), value.ravel())
    in_file = values(saved.with_suffix(".safetensors"))
    for name, value in expected.items():
        np.testing.assert_array_equal(in_file[name], value)


@pytest.mark.parametrize(
    ("kind", "engine", "counts"),
    [("zero", "torch", (2, 1)),
     *(pytest.param(kind, engine, (1, 4, 2, 1), marks=pytest.mark.slow)
       for kind in ("zero", "split") for engine in ("torch", "mpi", "mpich"))],
    ids=lambda given: given if isinstance(given, str) else "-".join(map(str, given)),
)  # fmt: skip
def test_any_number_of_ranks_goes_on(kind, engine, counts, tmp_path):
    saved = trained(kind, counts[0], tmp_path / "0", 3, engine=engine)
    for i, count in enumerate(counts[1:], 1):
        check_layout(saved)
        folder = tmp_path / str(i)
        following = trained(kind, count, folder, 3, saved, engine=engine)
        check_loaded(folder, count, saved)
        saved = following
    alone = values(trained(kind, 1, tmp_path / "alone", 3 * len(counts), engine=engine))
    for name, value in values(saved).items():
        np.testing.assert_allclose(value, alone[name], rtol=1e-6, atol=2e-6, err_msg=name)
