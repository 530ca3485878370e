"""What is built once: the C runtime in three ways, the release archive, each language's driver."""

from collections.abc import Callable

import pytest

from runtime.bindings import release as archives
from tests.runtimes.c_driver import Command, Driver, make, sanitizers_work
from tests.runtimes.languages import Language


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


@pytest.fixture(scope="session")
def archive(tmp_path_factory):
    """The release archive."""
    path = tmp_path_factory.mktemp("archive") / f"{archives.NAME}.tar.gz"
    archives.write(path)
    return path


@pytest.fixture(scope="session")
def release(archive, tmp_path_factory):
    """The archive's one folder, unpacked."""
    return archives.unpack(archive, tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="session")
def commands(release, tmp_path_factory) -> Callable[[Language], Command]:
    """The driver of a language, built when it is first asked for."""
    made: dict[str, Command] = {}

    def command(language: Language) -> Command:
        if language.name not in made:
            assert language.build is not None
            made[language.name] = language.build(release, tmp_path_factory.mktemp("driver"))
        return made[language.name]

    return command
