"""Which shared libraries that a setting names are loaded: the rule, and everybody who asks it."""

import os
import pwd
from types import SimpleNamespace
from typing import NamedTuple

import onnxruntime as ort
import pytest

from flow2onnx_runtime import (
    Options,
    OptionsError,
    open_session,
    plugins,
    require_providers,
    trusted_libraries,
)
from flow2onnx_runtime.provider_checks import _trusted_options, create_session
from flow2onnx_runtime.providers import Provider
from flow2onnx_runtime.trusted_libraries import PackageLibrary, trusted_library

NEG = "g (float[2] x) => (float[2] y) { y = Neg(x) }"
STRANGER = 54321
posix_only = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no such owners")


class _Group(NamedTuple):
    gr_name: str


@pytest.fixture
def library(tmp_path):
    """A file that may be loaded, as far as it is asked for who may write to it."""
    path = tmp_path / "folder" / "lib.so"
    path.parent.mkdir(mode=0o755)
    path.write_bytes(b"no library")
    path.chmod(0o644)
    return path


def give_to_stranger(path, monkeypatch):
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)


def test_a_file_that_only_its_owner_changes(library):
    assert trusted_library(str(library)) == str(library.resolve())


def test_a_link_is_resolved(library, tmp_path):
    link = tmp_path / "link.so"
    link.symlink_to(library)
    assert trusted_library(str(link)) == str(library.resolve())


@pytest.mark.parametrize("path", ["lib.so", "./lib.so", "", "../lib.so", "/lib.so\0"])
def test_a_path_that_is_not_absolute(path, library, monkeypatch):
    monkeypatch.chdir(library.parent)
    with pytest.raises(OptionsError, match="it is no absolute path"):
        trusted_library(path)


def test_what_is_no_regular_file(library):
    pipe = library.with_name("pipe")
    os.mkfifo(pipe)
    for path in (library.parent, pipe, library / "under", "/dev/null", library.with_name("gone")):
        with pytest.raises(OptionsError, match="it is no regular file"):
            trusted_library(str(path))


@posix_only
@pytest.mark.parametrize("mode", [0o646, 0o666, 0o777])
def test_a_file_that_others_write_to(library, mode):
    library.chmod(mode)
    with pytest.raises(OptionsError, match=r"others may write to .*lib\.so\n.*chmod go-w"):
        trusted_library(str(library))


@posix_only
@pytest.mark.parametrize("mode", [0o757, 0o777])
def test_a_folder_that_others_write_to(library, tmp_path, mode):
    for folder in (library.parent, tmp_path):
        before = folder.stat().st_mode
        folder.chmod(mode)
        with pytest.raises(OptionsError, match=f"others may write to {folder}\n"):
            trusted_library(str(library))
        folder.chmod(before)


@posix_only
def test_a_folder_like_tmp_holds_folders_and_no_library(library, tmp_path):
    tmp_path.chmod(0o1777)
    assert trusted_library(str(library))
    library.parent.chmod(0o1777)  # a library opens others that lie beside it
    with pytest.raises(OptionsError, match=f"others may write to {library.parent}"):
        trusted_library(str(library))


@posix_only
def test_a_link_in_a_folder_that_others_write_to(library, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    link = shared / "link.so"
    link.symlink_to(library)
    shared.chmod(0o777)
    with pytest.raises(OptionsError, match=f"others may write to {shared}"):
        trusted_library(str(link))


@posix_only
def test_a_file_of_somebody_else(library, monkeypatch):
    give_to_stranger(library, monkeypatch)
    with pytest.raises(OptionsError, match="belongs to another user"):
        trusted_library(str(library))


@posix_only
def test_a_folder_of_somebody_else(library, monkeypatch):
    give_to_stranger(library.parent, monkeypatch)
    with pytest.raises(OptionsError, match="belongs to another user"):
        trusted_library(str(library))


@posix_only
def test_a_group_is_the_owner_alone_where_it_has_the_name(library, monkeypatch):
    library.chmod(0o664)
    owner = pwd.getpwuid(library.stat().st_uid).pw_name
    names = {"name": owner}
    monkeypatch.setattr(
        trusted_libraries, "grp", SimpleNamespace(getgrgid=lambda n: _Group(names["name"]))
    )
    assert trusted_library(str(library))
    names["name"] = "staff"
    with pytest.raises(OptionsError, match=r"others may write to .*lib\.so"):
        trusted_library(str(library))


@posix_only
def test_a_group_without_a_name_is_somebody_else(library, monkeypatch):
    library.chmod(0o664)

    def nobody(number):
        raise KeyError(number)

    monkeypatch.setattr(trusted_libraries, "grp", SimpleNamespace(getgrgid=nobody))
    with pytest.raises(OptionsError, match="others may write"):
        trusted_library(str(library))


def test_where_files_have_no_owners_the_path_is_all(library, monkeypatch):
    library.chmod(0o666)
    monkeypatch.delattr(os, "geteuid")
    assert trusted_library(str(library))
    with pytest.raises(OptionsError, match="no absolute path"):
        trusted_library("lib.so")


def test_the_library_of_a_package_is_taken_as_it_is():
    assert trusted_library(PackageLibrary("lib.so")) == "lib.so"


# ---- Everybody who asks ------------------------------------------------------------------------


def test_operators(onnx_model, library):
    library.chmod(0o666)
    with pytest.raises(OptionsError, match="others may write"):
        open_session(onnx_model(NEG), Options(operator_libraries=(str(library),)))
    with pytest.raises(OptionsError, match="no absolute path"):
        open_session(onnx_model(NEG), Options(operator_libraries=("lib.so",)))


@pytest.mark.parametrize("act", [lambda o: open_session(b"", o), require_providers])
def test_providers(act, library):
    library.chmod(0o666)
    with pytest.raises(OptionsError, match="others may write"):
        act(Options(provider_libraries=(str(library),)))


def test_a_plugin_of_a_package_is_registered_as_it_is(monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr(plugins, "_registered", set())
    monkeypatch.setattr(
        ort, "register_execution_provider_library", lambda *a: told.append(a), raising=False
    )
    (tmp_path / "some_plugin.py").write_text("def get_library_path(): return 'own.so'\n")
    monkeypatch.syspath_prepend(tmp_path)
    row = Provider(name="some", title="some", plugin="some_plugin")
    monkeypatch.setattr(plugins, "provider_named", lambda name: row)
    plugins.plugin_fault.cache_clear()
    assert plugins.plugin_fault("some") is None
    plugins.plugin_fault.cache_clear()
    assert told == [("own.so", "own.so")]


@pytest.mark.parametrize(
    ("provider", "option"),
    [("TensorrtExecutionProvider", "trt_extra_plugin_lib_paths"),
     ("TensorrtExecutionProvider", "trt_engine_decryption_lib_path"),
     ("QNNExecutionProvider", "backend_path")],
)  # fmt: skip
def test_options_of_providers_that_name_libraries(provider, option, library, onnx_model):
    library.chmod(0o666)
    for value in (str(library), f"libplain.so;{library}", "./lib.so"):
        with pytest.raises(OptionsError, match="is not loaded"):
            create_session(onnx_model(NEG), ort.SessionOptions(), [(provider, {option: value})])


def test_options_that_name_libraries_for_the_loader_pass(library):
    value = f"libplain.so;{library}"
    options = _trusted_options("QNNExecutionProvider", {"backend_path": value, "other": "./x"})
    assert options == {"backend_path": f"libplain.so;{library.resolve()}", "other": "./x"}
