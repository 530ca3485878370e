"""The cache folder of a provider that builds engines: taken by default, done without if need be."""

import logging

import pytest

from flow2onnx_runtime import OptionsError, cache_folders
from flow2onnx_runtime.cache_folders import make_folders, with_caches
from flow2onnx_runtime.providers import PROVIDERS

TENSORRT, CUDA = PROVIDERS["tensorrt"].name, PROVIDERS["cuda"].name


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A cache folder of its own, asked about anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folders._writable_cache.cache_clear()
    yield tmp_path
    cache_folders._writable_cache.cache_clear()


def test_engines_and_timings_are_kept_unless_told(home):
    folder = str(home / "flow2onnx" / "tensorrt")
    kept = {
        "trt_engine_cache_enable": "True", "trt_engine_cache_path": folder,
        "trt_timing_cache_enable": "True", "trt_timing_cache_path": folder,
    }  # fmt: skip
    assert with_caches(TENSORRT) == (TENSORRT, kept)
    assert (home / "flow2onnx" / "tensorrt").is_dir()
    own = {"trt_engine_cache_enable": "False", "device_id": "1"}
    assert with_caches((TENSORRT, own)) == (TENSORRT, kept | own)


def test_all_of_them_given_need_no_folder(home):
    given = (TENSORRT, dict.fromkeys(PROVIDERS["tensorrt"].defaults, "given"))
    assert with_caches(given) is given
    assert not list(home.iterdir())


def test_other_providers_keep_nothing(home):
    assert with_caches(CUDA) == CUDA
    assert not list(home.iterdir())


def test_a_folder_that_cannot_be_made_is_done_without_and_said_once(home, caplog):
    (home / "flow2onnx").write_text("no folder")
    with caplog.at_level(logging.WARNING):
        assert [with_caches(TENSORRT) for _ in range(2)] == [TENSORRT] * 2
    (record,) = caplog.records
    assert "what tensorrt builds is not kept for the next process" in record.message


def test_a_user_without_a_home_does_without(monkeypatch, caplog):
    monkeypatch.setattr(
        cache_folders, "user_cache", lambda name: cache_folders.Path("~no").expanduser()
    )
    assert with_caches(TENSORRT) == TENSORRT
    assert "not kept" in caplog.text


def test_folders_that_are_given_are_made(home):
    path = home / "several" / "levels"
    make_folders([(TENSORRT, {"trt_engine_cache_path": str(path), "device_id": "0"}), CUDA])
    assert path.is_dir()
    assert not list(path.iterdir())


def test_a_folder_that_cannot_be_made_is_an_error(home):
    (home / "file").touch()
    given = {"trt_timing_cache_path": str(home / "file" / "below")}
    with pytest.raises(OptionsError, match=r"file/below, which cannot be made: .*\n.*trt_timing"):
        make_folders([(TENSORRT, given)])
