"""Builds made once: the C runtime in three ways, the release archive, each language's driver."""

import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.bindings import release as archives
from tests.runtimes.c_driver import Command, Driver, make, sanitizers_work
from tests.runtimes.languages import Language
from tests.shared_builds import alone, shared_folder


@pytest.fixture(scope="session")
def plain_build(tmp_path_factory) -> Path:
    """The folder with the driver in C, of an object file for each source."""
    return build_c(tmp_path_factory, "files")


@pytest.fixture(scope="session", params=["files", pytest.param("single", marks=pytest.mark.slow)])
def built(request, tmp_path_factory) -> Path:
    return build_c(tmp_path_factory, request.param)


def build_c(factory: pytest.TempPathFactory, kind: str) -> Path:
    """The folder of a build, which all processes that run the tests share."""
    folder = shared_folder(factory) / f"c-{kind}"
    with alone(folder):  # Make does nothing where it is made
        return make(folder, "driver", "digits", single=kind == "single")


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory) -> Path:
    folder = shared_folder(tmp_path_factory) / "c-sanitized"
    with alone(folder):
        folder.mkdir(exist_ok=True)
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
    drivers = shared_folder(tmp_path_factory) / "drivers"

    def command(language: Language) -> Command:
        return build_once(language, release, drivers)

    return command


def build_once(language: Language, release: Path, folder: Path) -> Command:
    """The driver that any of the processes which run the tests has built before, or builds now."""
    assert language.build is not None
    own = folder / re.sub(r"\W", "_", language.name)
    folder.mkdir(exist_ok=True)
    with alone(own):
        kept = own / "command.pickle"
        if not kept.exists():
            shutil.rmtree(own, ignore_errors=True)
            own.mkdir()
            kept.write_bytes(pickle.dumps(language.build(release, own)))
        found: Command = pickle.loads(kept.read_bytes())
        return found
