"""The file of measured lowerings: whole, bounded, and no trouble when it is damaged."""

import json
import subprocess
import sys
import time
import zipfile
from dataclasses import replace

import pytest

from flow2onnx_runtime import tune, tuning_file
from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.options import Options
from flow2onnx_runtime.tuning_file import (
    MOST_ANSWERS,
    Answer,
    cache_path,
    forms_in,
    machine_of,
    recall,
    remember,
)

FAST = Answer("fast", {"fast": 1.0, "slow": 2.0})


def test_what_is_remembered_is_recalled(tmp_path):
    path = tmp_path / "new" / "folder" / "t.json"
    remember(path, "here", {"a": FAST})
    remember(path, "here", {"b": Answer("slow")})
    remember(path, "there", {"a": Answer("slow")})
    assert recall(path, "here") == {"a": FAST, "b": Answer("slow")}
    assert recall(path, "there") == {"a": Answer("slow")}
    assert recall(path, "nowhere") == {}


def test_a_newer_answer_replaces_an_older(tmp_path):
    remember(tmp_path / "t.json", "here", {"a": FAST})
    remember(tmp_path / "t.json", "here", {"a": Answer("slow")})
    assert recall(tmp_path / "t.json", "here") == {"a": Answer("slow")}


def test_the_oldest_give_way(tmp_path):
    path = tmp_path / "t.json"
    remember(path, "here", {f"q{i}": Answer("f") for i in range(MOST_ANSWERS)})
    remember(path, "here", {"new": FAST})
    found = recall(path, "here")
    assert len(found) == MOST_ANSWERS
    assert "new" in found
    assert "q0" not in found
    for i in range(20):
        remember(path, f"machine {i}", {"a": FAST})
    assert len(json.loads(path.read_text())["machines"]) == 16


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{\n "format": 1,\n "mach',
        b'{"format": 2, "machines": {}}',
        b'{"format": 1, "machines": []}',
        b'{"format": 1, "machines": {"here": []}}',
        b'{"format": 1, "machines": {"here": {"a": "fast"}}}',
        b'{"format": 1, "machines": {"here": {"a": {"form": 1, "ms": {}}}}}',
        b'{"format": 1, "machines": {"here": {"a": {"form": "f", "ms": {"f": "1"}}}}}',
    ],
)
def test_a_damaged_file_is_begun_anew(tmp_path, content):
    path = tmp_path / "t.json"
    path.write_bytes(content)
    assert recall(path, "here") == {}
    with pytest.raises(BundleError):
        forms_in(path)
    remember(path, "here", {"a": FAST})
    assert recall(path, "here") == {"a": FAST}


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"[]", b"{}", b"import oneflow\n", b'{"format": 1}', b'{"machines": {}}'],
)
def test_a_file_of_something_else_is_left_alone(tmp_path, content, caplog):
    path = tmp_path / "train.py"
    path.write_bytes(content)
    (tmp_path / "train.py.lock").write_bytes(b"somebody's")
    with pytest.raises(BundleError, match="something else than measured lowerings"):
        remember(path, "here", {"a": FAST})
    with pytest.raises(BundleError, match="holds no trials"):
        tune.write_trials(path, [])
    assert path.read_bytes() == content
    assert (tmp_path / "train.py.lock").read_bytes() == b"somebody's"
    assert tune.tune([], Options(), path) == {}


def test_writers_at_once_lose_nothing(tmp_path):
    path = tmp_path / "t.json"
    code = """
import sys
from pathlib import Path
from flow2onnx_runtime.tuning_file import Answer, remember
for i in range(12):
    remember(Path(sys.argv[1]), "here", {f"{sys.argv[2]} {i}": Answer("f")})
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), str(n)]) for n in range(3)]
    while any(w.poll() is None for w in writers):
        if path.exists():
            json.loads(path.read_text())  # whole at every moment
        time.sleep(0.002)  # and the processor is the writers'
    assert [w.returncode for w in writers] == [0, 0, 0]
    assert len(recall(path, "here")) == 36


def test_a_folder_that_cannot_be_written_is_an_os_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        remember(tmp_path / "file" / "t.json", "here", {"a": FAST})
    assert recall(tmp_path / "file" / "t.json", "here") == {}


def test_a_machine_is_its_threads_provider_and_version(monkeypatch):
    one = Options(intra_op_threads=1)
    names = {machine_of(one), machine_of(replace(one, intra_op_threads=3))}
    names.add(machine_of(replace(one, providers=("CUDAExecutionProvider",))))
    names.add(machine_of(replace(one, optimization="basic")))
    monkeypatch.setattr(tuning_file.ort, "__version__", "9.9.9")
    names.add(machine_of(one))
    monkeypatch.setattr(tuning_file, "_processor", lambda: "another")
    names.add(machine_of(one))
    assert len(names) == 6


def test_a_new_version_of_the_runtime_measures_again(tmp_path, monkeypatch):
    options = Options(intra_op_threads=1)
    remember(tmp_path / "t.json", machine_of(options), {"a": FAST})
    monkeypatch.setattr(tuning_file.ort, "__version__", "9.9.9")
    assert recall(tmp_path / "t.json", machine_of(options)) == {}


def test_the_file_is_in_the_cache_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_path() == tmp_path / "flow2onnx" / "lowerings.json"
    assert cache_path(tmp_path / "own.json") == tmp_path / "own.json"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_path() == tmp_path / "home" / ".cache" / "flow2onnx" / "lowerings.json"


# --- trials in a file ----------------------------------------------------------------------------
def test_trials_survive_a_file(tmp_path):
    models = {"a": b"1", "b": b"2"}
    trial = tune.Trial("conv of 3", "a", ("a", "b"), models.__getitem__, 7)
    tune.write_trials(tmp_path / "m.zip", [trial, replace(trial, key="other")])
    first, second = tune.read_trials(tmp_path / "m.zip")
    assert (first.key, first.rule, first.forms, first.limit) == ("conv of 3", "a", ("a", "b"), 7)
    assert [second.model(f) for f in second.forms] == [b"1", b"2"]


def test_a_file_without_trials_is_refused(tmp_path, capsys):
    path = tmp_path / "m.zip"
    for content in (None, b"no zip"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(BundleError, match="holds no trials"):
            tune.read_trials(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("trials.json", json.dumps({"format": 1, "trials": [
            {"key": "k", "rule": "a", "limit": 1, "models": {"a": "0/a.onnx"}}]}))  # fmt: skip
    with pytest.raises(BundleError, match=r"0/a\.onnx is not in the file"):
        tune.read_trials(path)
    assert tune.main([str(path), "-o", str(tmp_path / "t.json")]) == 1
    assert "0/a.onnx is not in the file" in capsys.readouterr().err
