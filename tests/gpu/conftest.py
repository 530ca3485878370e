"""The real CUDA provider runs over the stand-in for the CUDA libraries: `make test-gpu`."""

import pytest

from tests.gpu import standin


def pytest_collection_modifyitems(items):
    """Skip them where the stand-in is not in the loader's path."""
    here = [item for item in items if "tests/gpu/" in item.nodeid]
    if here and not standin.is_loaded():
        for item in here:
            item.add_marker(pytest.mark.skip("make test-gpu: the stand-in for CUDA is not loaded"))


@pytest.fixture(autouse=True)
def counted_anew():
    """Each test counts from 0, on a device of the usual size."""
    if standin.is_loaded():
        standin.repair()
        standin.reset()
