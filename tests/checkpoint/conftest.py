"""Fixtures that the checkpoint tests share."""

import numpy as np
import pytest

from flow2onnx.dtypes import dtypes


@pytest.fixture
def values():
    """One small array per element type, and the shapes that are easy to get wrong."""
    arrays = {d.name: np.arange(6).reshape(2, 3).astype(d.numpy) for d in dtypes()}
    shapes = {"rank-0": (), "one": (1,), "none": (0,), "none-of-3": (3, 0)}
    return arrays | {name: np.ones(shape, np.float32) for name, shape in shapes.items()}


@pytest.fixture(params=["folder", "file.safetensors"])
def target(request, tmp_path):
    """Where to save, in both formats."""
    return tmp_path / request.param
