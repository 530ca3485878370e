"""Every test begins in a folder of its own with a bundle in it."""

import shutil
from pathlib import Path

import pytest

from tests.integrations.page import save_bundle


def pytest_collection_modifyitems(items):
    """Let packages of others warn each other of what they will do: only ours are errors."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session")
def kept_bundle(tmp_path_factory):
    """A bundle that is made once."""
    folder = tmp_path_factory.mktemp("kept") / "bundle"
    save_bundle(folder)
    return folder


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, kept_bundle):
    """The folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(kept_bundle, "bundle")
    return tmp_path
