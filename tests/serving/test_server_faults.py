"""Reloads, kills, full disks and models that fail: a server goes on, or ends in order."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

import numpy as np
import pytest
from flow2onnx_runtime import FlowError, save_safetensors

from flow2onnx.export import export_triton
from tests.export.jobs import define
from tests.serving.conftest import start
from tests.serving.models import mlp, place, repository, slow
from tests.serving.requests import BODY, LENGTH, is_well, loops
from tests.serving.waiting import wait_until


def test_reloading_under_way(tmp_path, serving):
    """New versions, good and broken, come while clients ask: no request fails."""
    models = repository(tmp_path / "models")
    server = serving(models, "--poll", 0.1)
    found, done = [], threading.Event()

    def ask():
        while not done.is_set():
            found.append(server.ask("/v2/models/mlp/infer", BODY, LENGTH)[0])

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(2, 6):
        place(models, "mlp", mlp(number) if number % 2 else b"broken", number)
        message = "a version answers" if number % 2 else "a version was not loaded"
        server.wait_for(message, model="mlp", version=number)
    shutil.rmtree(models / "mlp" / "5")
    server.wait_for("a version retires", model="mlp", version=5)
    done.set()
    for thread in threads:
        thread.join(60)
    assert set(found) == {200}
    assert len(found) > 20
    assert server.stop() == 0


def test_a_killed_server_starts_again(tmp_path, serving):
    models = repository(tmp_path / "models")
    first = serving(models, "--poll", 0.05)
    for number in range(2, 8):
        place(models, "mlp", mlp(number), number)
        time.sleep(0.05)
    assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    server = serving(models)
    assert json.loads(server.ask("/v2/models/mlp")[2])["versions"] == ["7"]
    assert is_well(server)


def test_killed_in_the_middle_of_a_reload(tmp_path, serving):
    """A version whose check takes seconds, and fails: neither its loading nor the kill matters."""
    models = repository(tmp_path / "models")
    first = serving(models, "--poll", 0.1)
    folder = place(models, "slow", slow(), 2)
    wrong = np.zeros((64, 64), np.float32)
    save_safetensors(folder / "check.safetensors",
                     {"feeds/n": np.array([100_000]), "results/y": wrong})  # fmt: skip
    first.wait_for("a version is being loaded", model="slow", version=2)
    assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    server = serving(models)
    failed = server.wait_for("a version was not loaded", model="slow", version=2)
    assert "the check" in failed["reason"]
    wait_until(lambda: json.loads(server.ask("/v2/models/slow")[2]).get("versions") == ["1"])
    assert server.post("/v2/models/slow/infer", loops(1))[0] == 200


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own with little room, where one may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk(small_disk, serving):
    """Who writes a version without room for it leaves the old one answering, and no new one."""
    _, predict_job = define()
    place(small_disk, "mlp", mlp(0), 1)
    assert export_triton(predict_job, small_disk).ok
    server = serving(small_disk, "--poll", 0.1)
    filler = small_disk / "filler"
    room = shutil.disk_usage(small_disk).free
    filler.write_bytes(bytes(room - 4096))
    with pytest.raises((FlowError, OSError), match=r"No space|cannot be written"):
        export_triton(predict_job, small_disk)
    assert sorted(p.name for p in (small_disk / "predict_job").glob("[0-9]*")) == ["1"]
    assert not [p for p in small_disk.rglob("*model.onnx") if p.parent.name not in ("1",)]
    # a copy that was cut off, as `cp` leaves it
    (small_disk / "mlp" / "2").mkdir()
    with pytest.raises(OSError, match="No space"):
        (small_disk / "mlp" / "2" / "model.onnx").write_bytes(mlp(2) * 4)
    server.wait_for("a version was not loaded", model="mlp", version=2)
    assert is_well(server)
    for name in ("mlp", "predict_job"):
        assert json.loads(server.ask(f"/v2/models/{name}")[2])["versions"] == ["1"]
    filler.unlink()
    assert export_triton(predict_job, small_disk).ok
    server.wait_for("a version answers", model="predict_job", version=2)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_logs_that_cannot_be_written(unbuffered, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    models = repository(tmp_path / "models")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with open("/dev/full", "w") as full:
        server = start(models, "--port", port, "--poll", 0.1, stderr=full)
    try:
        server.lines.append({"message": "listening", "http": f"127.0.0.1:{port}"})
        wait_until(lambda: server.process.poll() is not None or listens(port))
        for number in (2, 3):
            place(models, "mlp", mlp(number), number)
        wait_until(lambda: json.loads(server.ask("/v2/models/mlp")[2])["versions"] == ["3"])
        assert is_well(server)
        assert server.stop() == 0
    finally:
        server.process.kill()
        server.process.wait(60)


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def test_what_takes_too_long_is_stopped(tmp_path, serving):
    """A run that would take hours is given up with its request: the next one is answered."""
    place(tmp_path, "slow", slow())
    server = serving(tmp_path, "--timeout", 60)
    endless = loops(2_000_000_000) | {"parameters": {"timeout": 300_000}}
    for _ in range(2):
        assert server.post("/v2/models/slow/infer", endless)[0] == 504
        assert server.post("/v2/models/slow/infer", loops(10))[0] == 200


def test_one_model_that_cannot_be_served_among_others(tmp_path, serving):
    models = repository(tmp_path)
    place(models, "broken", b"broken")
    server = serving(models)
    rows = {r["name"]: r for r in json.loads(server.ask("/v2/repository/index", b"{}")[2])}
    assert rows["broken"]["state"] == "UNAVAILABLE"
    assert "cannot be opened" in rows["broken"]["reason"]
    status, headers, body = server.ask("/v2/models/broken/infer", BODY, LENGTH)
    assert (status, headers["Retry-After"]) == (503, "5")
    assert "cannot be opened" in json.loads(body)["error"]
    assert server.ask("/v2/health/ready")[0] == 503
    assert server.ask("/v2/models/mlp/ready")[0] == 200
    assert is_well(server)
