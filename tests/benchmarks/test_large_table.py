"""The benchmark of one very large table, on a small one."""

import mmap

import numpy as np
import pytest

from benchmarks.large_table import LOOKUPS, measure, train_job


@pytest.mark.parametrize("optimizer", ["sgd", "lazy_adam"])
def test_a_table_of_few_rows_is_trained(optimizer: str) -> None:
    job = train_job(50, 4, optimizer)
    ids = np.random.default_rng(0).integers(0, 50, LOOKUPS).astype(np.int32)
    losses = [job(ids).item() for _ in range(4)]
    assert losses[-1] < losses[0]


def test_memory_that_stays_is_seen() -> None:
    size = 1 << 25
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    held = mmap.mmap(-1, size, flags=flags)  # not where the process has freed something
    _, before = measure(lambda: None)
    _, peak = measure(lambda: np.frombuffer(held, np.uint8).fill(1))
    assert peak - before > size / 2
