"""A process that is killed while it saves leaves complete checkpoints only."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from flow2onnx.checkpoint.store import list_checkpoints, load, save

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
SAVER = Path(__file__).with_name("saver.py")


def number_in(path):
    """The one number that a checkpoint holds everywhere."""
    loaded = load(path)
    assert sorted(loaded) == ["w0", "w1", "w2", "w3"]
    for i, saved in enumerate(loaded[name] for name in sorted(loaded)):
        assert saved.shape == (i * 1000, 3)
    numbers = {float(x) for saved in loaded.values() for x in np.unique(saved.numpy())}
    assert len(numbers) == 1, f"{path} mixes {numbers}"
    return int(numbers.pop())


@pytest.fixture
def saver():
    command = [sys.executable, str(SAVER)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        yield process
        process.stdin.close()


def last_before_kill(saver, request, random_):
    """The number of the last save that was reported before the process was killed."""
    print(*request, file=saver.stdin, flush=True)
    child, last = int(saver.stdout.readline()), int(saver.stdout.readline())
    time.sleep(random_.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    while not (line := saver.stdout.readline()).startswith("status"):
        last = int(line)
    assert int(line.split()[1]) == signal.SIGKILL, "it ended by itself"
    return last


def kill_while_saving_folders(saver, root, times, random_):
    first = 1
    for _ in range(times):
        last = last_before_kill(saver, ("folder", first, root), random_)
        names = list_checkpoints(root)
        numbers = [number_in(root / name) for name in names]
        assert names == [f"snapshot_{n:09}" for n in numbers]
        oldest = max(first - 1, 1)
        # every reported one is there, and the next may be, reported or not
        assert numbers in ([*range(oldest, last + 1)], [*range(oldest, last + 2)])
        for name in names[:-1]:
            shutil.rmtree(root / name)
        first = numbers[-1] + 1


def kill_while_replacing_a_file(saver, root, times, random_):
    first = 1
    for _ in range(times):
        last = last_before_kill(saver, ("file", first, root), random_)
        number = number_in(root / "model.safetensors")
        assert number in (last, last + 1)
        first = number + 1


def check_kills(saver, root, times):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    folders, file = root / "folders", root / "file"
    folders.mkdir()
    file.mkdir()
    kill_while_saving_folders(saver, folders, times, random.Random(seed))
    kill_while_replacing_a_file(saver, file, times, random.Random(seed))
    # the next save removes what the last kill left
    save(folders / "snapshot_last", {})
    save(file / "model.safetensors", {})
    assert os.listdir(file) == ["model.safetensors"]
    assert not list(folders.glob(".*"))


def test_ten_kills_in_each_format(saver, tmp_path):
    check_kills(saver, tmp_path, 10)


@pytest.mark.slow
def test_a_hundred_kills_in_each_format(saver, tmp_path):
    check_kills(saver, tmp_path, 100)


def leftover(root, name, *, empty=False):
    folder = root / f".{name}.0123456789ab.tmp"
    folder.mkdir()
    if not empty:
        (folder / "snapshot_done").touch()
    return folder


def test_the_next_save_removes_leftovers_of_any_name(tmp_path):
    abandoned = [leftover(tmp_path, "snapshot_1"), leftover(tmp_path, "b", empty=True)]
    save(tmp_path / "snapshot_2", {})
    assert not any(folder.exists() for folder in abandoned)


def test_a_folder_in_use_and_foreign_files_stay(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    in_use = leftover(tmp_path, "a")
    foreign = tmp_path / ".notes.tmp"
    foreign.mkdir()
    descriptor = os.open(in_use, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    save(tmp_path / "snapshot_2", {})
    os.close(descriptor)
    assert all(folder.exists() for folder in (in_use, foreign))
