"""Tensors in parts: put together they are what they were."""

import numpy as np
import pytest

from flow2onnx_runtime.divided import join_parts, own_part, part_size


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 0), (7, 3)])
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 9])
def test_parts_make_the_whole(shape, parts):
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    made = [own_part(array, rank, parts) for rank in range(parts)]
    assert {part.shape for part in made} == {(part_size(shape, parts),)}
    found = join_parts(made, shape)
    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)
