"""The C runtime, built once each: of its files, of the single one, and with the sanitizers."""

import pytest

from tests.runtimes.c_driver import Driver, make, sanitizers_work


@pytest.fixture(scope="session", params=["files", "single"])
def built(request, tmp_path_factory):
    single = request.param == "single"
    return make(tmp_path_factory.mktemp("c"), "driver", "digits", single=single)


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sanitized")
    if not sanitizers_work(folder):
        pytest.skip("this C compiler has no AddressSanitizer that runs here")
    return make(folder, "driver", sanitize=True)


@pytest.fixture
def driver(built):
    found = Driver(built)
    yield found
    found.close()


@pytest.fixture
def watched(sanitized):
    found = Driver(sanitized)
    yield found
    found.close()
