"""Numbering categories in order of appearance."""

import numpy as np
import pytest
from flow2onnx_runtime.errors import RunError

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from tests.ops.jobs import define, predict, run

encoder = flow.layers.categorical_ordinal_encoder


class Numbers(dict):
    """The numbering itself: 0 for 0, then 1, 2, … in order of appearance."""

    def __missing__(self, key):
        self[key] = len(self) + 1
        return self[key]

    def of(self, keys):
        return np.vectorize(lambda k: self[k] if k else 0)(keys)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_numbers_go_on_from_call_to_call(dtype):
    rng, numbers = np.random.default_rng(3), Numbers()
    flow.clear_default_session()
    job = define(lambda x: encoder(x, 40), [np.zeros((3, 4), dtype)])
    for _ in range(6):
        keys = (rng.integers(-12, 12, (3, 4)) * 1_000_003).astype(dtype)
        (found,) = run(job, keys)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, numbers.of(keys))
    kept = flow.get_all_variables()
    table = kept["CategoricalOrdinalEncoder-Table"].numpy().reshape(40, 2)
    size = kept["CategoricalOrdinalEncoder-Size"].numpy()
    assert size.tolist() == [len(numbers)]
    assert {int(k): int(v) for k, v in table if k} == dict(numbers)


def test_a_table_in_another_order_is_read():
    table = np.zeros(8, np.int64)
    table[2:4], table[6:8] = (50, 2), (70, 1)
    flow.clear_default_session()
    job = define(lambda x: encoder(x, 4), [np.zeros(3, np.int64)])
    flow.load_variables(
        {"CategoricalOrdinalEncoder-Table": table, "CategoricalOrdinalEncoder-Size": np.array([2])}
    )
    assert run(job, np.array([70, 9, 50]))[0].tolist() == [1, 3, 2]
    assert run(job, np.array([9, 70, 8]))[0].tolist() == [3, 1, 4]


def test_a_full_table_loses_nothing():
    flow.clear_default_session()
    job = define(lambda x: encoder(x, 2), [np.zeros(3, np.int32)])
    assert run(job, np.array([5, 6, 5], np.int32))[0].tolist() == [1, 2, 1]
    with pytest.raises(RunError, match="out of data bounds"):
        run(job, np.array([5, 7, 6], np.int32))


BAD = {
    "capacity": (lambda x: encoder(x, 0), ArgumentError, "capacity is a positive int"),
    "hash": (lambda x: encoder(x, 2, False), UnsupportedError, "keys are hashes already"),
    "type": (lambda x: encoder(flow.cast(x, flow.int8), 2), DTypeError, "int32 or int64"),
    "shape": (
        lambda x: flow.categorical_ordinal_encode(x, x, x), ShapeError, r"table is \(3,\)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_mistakes(name):
    body, kind, text = BAD[name]
    with pytest.raises(kind, match=text):
        predict(body, np.zeros(3, np.int32))
