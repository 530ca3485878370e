"""Part files: the order of records, epoch after epoch."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow2onnx.data.shards import Parts, batches, part_files, part_name
from flow2onnx.errors import DataError
from tests.data.files import numbered, write_parts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    sizes, start, parts = (3, 1, 4), 0, []
    for size in sizes:
        parts.append(numbered(size, start))
        start += size
    return write_parts(tmp_path_factory.mktemp("parts"), parts)


def first(parts, count):
    return [int(r.feature("n").values[0]) for r in islice(parts.records(), count)]


def test_names():
    assert part_name(3) == "part-3"
    assert part_name(3, "of-", 5) == "of-00003"
    assert part_name(123456, suffix_length=5) == "part-123456"


def test_in_order_for_ever(folder):
    assert first(Parts(folder, 3), 20) == [*range(8), *range(8), *range(4)]
    assert first(Parts(folder, 2), 6) == [0, 1, 2, 3, 0, 1]


def test_batches_go_on_where_the_files_end(folder):
    found = [
        [int(r.feature("n").values[0]) for r in b]
        for (b,) in islice(batches(Parts(folder, 3), 5), 4)
    ]
    assert found == [[0, 1, 2, 3, 4], [5, 6, 7, 0, 1], [2, 3, 4, 5, 6], [7, 0, 1, 2, 3]]


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 30), st.integers(0, 2**32), st.booleans())
def test_shuffling_loses_and_doubles_nothing(folder, buffer, seed, shuffles_parts):
    parts = Parts(folder, 3, buffer=buffer, seed=seed, shuffles_parts=shuffles_parts)
    count = 8 * 10
    shown = Counter(first(parts, count))
    # everything read was shown, but for what is held back
    read = Counter(first(Parts(folder, 3), count + buffer))
    if not shuffles_parts:
        assert sum((read - shown).values()) == buffer
        assert not shown - read
    assert set(shown) <= set(range(8))
    assert first(parts, count) == first(parts, count)


def test_a_seed_decides(folder):
    orders = {tuple(first(Parts(folder, 3, buffer=8, seed=s), 16)) for s in range(10)}
    assert len(orders) == 10


def test_parts_change_their_order_after_the_first_epoch(folder):
    parts = Parts(folder, 3, shuffles_parts=True, seed=3)
    epochs = np.array(first(parts, 80)).reshape(10, 8)
    assert epochs[0].tolist() == list(range(8))
    assert all(sorted(epoch) == list(range(8)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 2
    for epoch in epochs:  # a part stays together
        at = {n: i for i, n in enumerate(epoch)}
        assert at[1] == at[0] + 1
        assert at[7] == at[4] + 3


def test_one_record_in_memory_at_a_time(folder):
    records = Parts(folder, 3).records()
    next(records)
    assert records.gi_frame is not None
    records.close()


def test_missing_and_empty_parts(tmp_path):
    folder = write_parts(tmp_path, [numbered(1)])
    with pytest.raises(DataError, match="part-1"):
        first(Parts(folder, 2), 2)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "part-0").touch()
    with pytest.raises(DataError, match="hold no record"):
        first(Parts(str(tmp_path / "empty"), 1), 1)


def test_part_files(tmp_path):
    for name in ("part-10", "part-9", "part-x", "other"):
        (tmp_path / name).touch()
    (tmp_path / "part-3").mkdir()
    assert [p.name for p in part_files(tmp_path)] == ["part-9", "part-10"]
