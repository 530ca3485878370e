"""Files and folders appear whole or not at all, whatever happens to the writer."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from flow2onnx_runtime import BundleError, replace_file, replace_folder
from flow2onnx_runtime import files as module
from flow2onnx_runtime.files import replace_bytes

SIZE = 2_000_000


def writes(content):
    return lambda file: file.write(content) and None


def fills(content):
    def fill(folder):
        (folder / "a").write_bytes(content)
        (folder / "sub").mkdir()
        (folder / "sub" / "b").write_bytes(content)

    return fill


def fail(_):
    raise RuntimeError("disk on fire")


def test_a_file_is_made_and_replaced(tmp_path):
    for content in (b"one", b"two"):
        replace_file(tmp_path / "f", writes(content))
        assert (tmp_path / "f").read_bytes() == content
    assert os.listdir(tmp_path) == ["f"]


def test_bytes_replace_a_file(tmp_path):
    for content in (b"one", b""):
        replace_bytes(tmp_path / "f", content)
        assert (tmp_path / "f").read_bytes() == content
    assert os.listdir(tmp_path) == ["f"]
    with pytest.raises(BundleError, match="there is no folder"):
        replace_bytes(tmp_path / "none" / "f", b"x")


def test_a_failing_writer_leaves_the_file(tmp_path):
    replace_file(tmp_path / "f", writes(b"old"))

    def half(file):
        file.write(b"ne")
        fail(file)

    with pytest.raises(RuntimeError, match="on fire"):
        replace_file(tmp_path / "f", half)
    assert (tmp_path / "f").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_a_link_keeps_pointing_to_the_file(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    replace_file(tmp_path / "link", writes(b"new"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_wrong_targets_are_named(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BundleError, match="folder is a folder, not a file"):
        replace_file(tmp_path / "folder", writes(b"x"))
    with pytest.raises(BundleError, match="file is a file, not a folder"):
        replace_folder(tmp_path / "file", fills(b"x"))
    with pytest.raises(BundleError, match=r"there is no folder .*none\n.*create the folder"):
        replace_file(tmp_path / "none" / "f", writes(b"x"))
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_folder_is_made_and_replaced(tmp_path):
    target = tmp_path / "t"
    replace_folder(target, fills(b"one"))
    with pytest.raises(BundleError, match=r"with content\n.*overwrite=True"):
        replace_folder(target, fills(b"two"))
    assert (target / "sub" / "b").read_bytes() == b"one"
    (target / "extra").write_bytes(b"")
    replace_folder(target, fills(b"two"), overwrite=True)
    assert sorted(os.listdir(target)) == ["a", "sub"]
    assert (target / "a").read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["t"]


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "t").mkdir()
    replace_folder(tmp_path / "t", fills(b"one"))
    assert (tmp_path / "t" / "a").read_bytes() == b"one"


def test_a_failing_filler_leaves_the_folder(tmp_path):
    replace_folder(tmp_path / "t", fills(b"one"))
    with pytest.raises(RuntimeError, match="on fire"):
        replace_folder(tmp_path / "t", fail, overwrite=True)
    assert (tmp_path / "t" / "a").read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["t"]


def test_a_system_that_cannot_swap_is_told(tmp_path, monkeypatch):
    replace_folder(tmp_path / "t", fills(b"one"))
    monkeypatch.setattr(module, "_swap_error", lambda a, b: "Invalid argument")
    with pytest.raises(BundleError, match=r"one step on this system: Invalid argument\n.*new path"):
        replace_folder(tmp_path / "t", fills(b"two"), overwrite=True)
    assert (tmp_path / "t" / "a").read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["t"]


def test_leftovers_go_and_files_being_written_stay(tmp_path):
    (tmp_path / ".f.0123456789ab.tmp").write_bytes(b"left by a killed process")
    (tmp_path / ".f.not-ours.tmp").write_bytes(b"")
    inside, finish = threading.Event(), threading.Event()

    def slow(file):
        inside.set()
        finish.wait(10)
        file.write(b"slow")

    thread = threading.Thread(target=replace_file, args=(tmp_path / "f", slow))
    thread.start()
    assert inside.wait(10)
    replace_file(tmp_path / "f", writes(b"quick"))
    assert (tmp_path / "f").read_bytes() == b"quick"
    finish.set()
    thread.join()
    assert (tmp_path / "f").read_bytes() == b"slow"
    assert sorted(os.listdir(tmp_path)) == [".f.not-ours.tmp", "f"]


def lose_the_first(monkeypatch, folder):
    """Another writer takes the first temporary for a leftover, before it is locked."""
    lock, lost = module._lock, []

    def late(descriptor):
        if not lost:
            lost.extend(folder.glob(".*.tmp"))
            for path in lost:
                module.remove_abandoned(path)
        lock(descriptor)

    monkeypatch.setattr(module, "_lock", late)
    return lost


def test_a_temporary_that_was_taken_for_a_leftover_is_made_again(tmp_path, monkeypatch):
    lost = lose_the_first(monkeypatch, tmp_path)
    replace_file(tmp_path / "f", writes(b"new"))
    assert (tmp_path / "f").read_bytes() == b"new"
    assert len(lost) == 1
    lost.clear()
    replace_folder(tmp_path / "t", fills(b"new"))
    assert (tmp_path / "t" / "a").read_bytes() == b"new"
    assert len(lost) == 1
    assert sorted(os.listdir(tmp_path)) == ["f", "t"]


def test_of_two_writers_of_a_new_folder_the_last_wins_or_is_refused(tmp_path, monkeypatch):
    rename = os.rename

    def second(temporary, target):
        monkeypatch.setattr(os, "rename", rename)
        replace_folder(target, fills(b"first"))
        rename(temporary, target)

    monkeypatch.setattr(os, "rename", second)
    replace_folder(tmp_path / "t", fills(b"last"), overwrite=True)
    assert (tmp_path / "t" / "a").read_bytes() == b"last"
    monkeypatch.setattr(os, "rename", second)
    with pytest.raises(BundleError, match="with content"):
        replace_folder(tmp_path / "u", fills(b"last"))
    assert (tmp_path / "u" / "a").read_bytes() == b"first"
    assert sorted(os.listdir(tmp_path)) == ["t", "u"]


FILE_WRITER = f"""
import itertools, sys
from flow2onnx_runtime.files import replace_file
for i in itertools.count():
    content = bytes([i % 251]) * {SIZE}
    def write(file):
        for start in range(0, {SIZE}, 100_000):
            file.write(content[start:start + 100_000])
    replace_file(sys.argv[1], write)
    print(".", end="", flush=True)
"""

FOLDER_WRITER = f"""
import itertools, sys
from flow2onnx_runtime.files import replace_folder
for i in itertools.count():
    content = bytes([i % 251]) * {SIZE // 4}
    def fill(folder):
        for name in "abcd":
            (folder / name).write_bytes(content)
    replace_folder(sys.argv[1], fill, overwrite=True)
    print(".", end="", flush=True)
"""


def file_is_whole(path):
    content = path.read_bytes()
    return len(content) == SIZE and content.count(content[:1]) == SIZE


def folder_is_whole(path):
    contents = [(path / name).read_bytes() for name in "abcd"]
    return len(set(contents)) == 1 and len(contents[0]) == SIZE // 4


def kill_writers(script, path, is_whole, kills, seed):
    random_ = random.Random(seed)
    for _ in range(kills):
        with subprocess.Popen(
            [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout.read(1) == b"."
            time.sleep(random_.uniform(0, 0.03))
            writer.send_signal(signal.SIGKILL)
        assert is_whole(path)
    leftovers = [name for name in os.listdir(path.parent) if name != path.name]
    assert len(leftovers) <= 1  # only the last kill's


@pytest.mark.parametrize("kills", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_a_killed_writer_leaves_a_whole_file(tmp_path, kills):
    kill_writers(FILE_WRITER, tmp_path / "f", file_is_whole, kills, seed=kills)


@pytest.mark.parametrize("kills", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_a_killed_writer_leaves_a_whole_folder(tmp_path, kills):
    kill_writers(FOLDER_WRITER, tmp_path / "t", folder_is_whole, kills, seed=kills)
