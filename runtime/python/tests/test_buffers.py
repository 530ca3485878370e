"""Buffers: what is written is read, and their bytes are counted, of every element type."""

import numpy as np
import pytest

from flow2onnx_runtime.buffers import bytes_of, copy_to_buffer
from flow2onnx_runtime.dtypes import ELEMENTS


@pytest.mark.parametrize("element", ELEMENTS, ids=lambda element: element.name)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_content_and_size(element, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(element.numpy)
    buffer = copy_to_buffer(("cpu", 0), array, element)
    assert bytes_of(buffer.value) == array.nbytes
    assert buffer.read().dtype == array.dtype
    np.testing.assert_array_equal(buffer.read(), array)
