"""The memory a job is estimated to need, beside what it takes and what there is."""

import logging
import subprocess
import sys

import numpy as np
import pytest
from flow2onnx_runtime import Options
from flow2onnx_runtime.free_memory import free_bytes

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.memory import needed_bytes
from flow2onnx.engine.opening import plan_opening
from flow2onnx.engine.session import current_session
from flow2onnx.errors import NotEnoughMemoryError

MIB = 2**20


def dense(units=256, limit=None):
    config = flow.function_config()
    if limit is not None:
        config.runtime.memory_limit(limit)

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((4, units))) -> tp.Numpy:
        y = flow.layers.dense(x, units, name="d")
        loss = flow.math.reduce_mean(flow.math.square(y))
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
        return loss

    return job


def test_a_job_that_needs_too_much_is_not_begun():
    job = dense(limit=100_000)
    with pytest.raises(NotEnoughMemoryError, match=r"need about 1 MiB, and there are 0 MiB: .*of"):
        job(np.zeros((4, 256), np.float32))


def test_a_job_that_needs_nearly_all_says_so(caplog):
    needed = needed_bytes([plan_opening(current_session().compile(dense().spec), Options())])
    flow.clear_default_session()
    job = dense(limit=int(needed * 1.1))
    with caplog.at_level(logging.WARNING, "flow2onnx.memory"):
        job(np.zeros((4, 256), np.float32))
    assert "the jobs need about 1 MiB of the 1 MiB there are" in caplog.text


MEASURED = """
import sys
import numpy as np, flow2onnx as flow, flow2onnx.typing as tp
from flow2onnx.engine.memory import needed_bytes
from flow2onnx.engine.session import current_session

def job_of(batch, units, layers):
    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((batch, units))) -> tp.Numpy:
        for i in range(layers):
            x = flow.layers.dense(x, units, name=f"d{i}", activation=flow.math.tanh)
        loss = flow.math.reduce_mean(flow.math.square(x))
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.Adam(rate).minimize(loss)
        return loss
    return job

def peak(batch, units, layers):
    job, x = job_of(batch, units, layers), np.ones((batch, units), np.float32)
    for _ in range(3):
        job(x)
    openings = [e.opening for e in current_session()._executables.values()]
    # the resident set's own mark: that of getrusage begins with the process that started this one
    mark = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(mark) * 1024, needed_bytes(openings)

base, _ = peak(2, 8, 2)
flow.clear_default_session()
taken, needed = peak(*map(int, sys.argv[1:]))
print((taken - base) / needed)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((64, 1536, 6), id="weights"),
        pytest.param((4096, 512, 8), id="activations", marks=pytest.mark.slow),
    ],
)
def test_the_estimate_is_within_a_factor_of_two_of_what_is_taken(sizes):
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, sizes)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 0.5 < float(done.stdout) < 2, done.stdout


def system(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal: 64000 kB\nMemAvailable: 32000 kB\n"


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, None),
        ({"proc/meminfo": MEMINFO}, 32000 * 1024),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/app/worker\n",
                "sys/fs/cgroup/app/worker/memory.max": "max\n",
                "sys/fs/cgroup/app/worker/memory.current": "4096\n",
                "sys/fs/cgroup/app/memory.max": "1000000\n",
                "sys/fs/cgroup/app/memory.current": "900000\n",
                "sys/fs/cgroup/app/memory.stat": "anon 5\ninactive_file 50000\n",
            },
            150_000,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "4:cpu:/\n3:memory:/box\n",
                "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "2000000\n",
                "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "2500000\n",
            },
            0,
        ),
    ],
    ids=["unknown", "no limit", "version 2", "version 1, over it"],
)
def test_what_there_is(tmp_path, files, free):
    assert free_bytes(("cpu", 0), system(tmp_path, files)) == free


def test_this_machine_has_some():
    assert free_bytes() is None or free_bytes() > MIB
