"""Memory of a large variable: there is one of it, whatever is done with it."""

import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp

ROWS, WIDTH = 1 << 20, 4
SIZE = 4 * ROWS * WIDTH


@pytest.fixture(params=["constant", "drawn"])
def job(request: pytest.FixtureRequest) -> Callable[[np.ndarray], np.ndarray]:
    first = {
        "constant": flow.constant_initializer(0.5),
        "drawn": flow.random_uniform_initializer(),
    }[request.param]

    @flow.global_function(type="train")
    def train(ids: tp.Numpy.Placeholder((8,), flow.int32)) -> tp.Numpy:
        table = flow.get_variable("table", (ROWS, WIDTH), initializer=first)
        loss = flow.math.reduce_mean(flow.math.square(flow.gather(table, ids)))
        flow.optimizer.named("sgd", 0.1).minimize(loss)
        return loss

    return train


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    """Count what numpy allocates."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def peak(work: Callable[[], object]) -> float:
    """The most memory that was allocated at once, in sizes of the table."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    work()
    return (tracemalloc.get_traced_memory()[1] - before) / SIZE


def test_a_table_is_made_saved_loaded_and_exported_without_another(job, tmp_path) -> None:
    ids, path = np.arange(8, dtype=np.int32), tmp_path / "snapshot"
    assert peak(lambda: job(ids)) < 1.5, "the table itself"
    assert peak(lambda: flow.checkpoint.save(path)) < 0.5
    saved = flow.checkpoint.get(path)["table"].numpy()
    job(ids)
    assert peak(lambda: flow.load_variables(flow.checkpoint.get(path))) < 0.5
    table = flow.get_all_variables()["table"].numpy()
    np.testing.assert_array_equal(table, saved)
    assert peak(lambda: flow.checkpoint.save(tmp_path / "w.safetensors")) < 0.5
    assert peak(lambda: job.export(tmp_path / "bundle", verify=False)) < 0.5
