"""Devices and processes: one process plays all, several play one each."""

import os

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.compile import segments
from flow2onnx.config import Settings
from flow2onnx.engine import current_session
from flow2onnx.engine.compiling import JobCompiler
from flow2onnx.engine.placement import Placement
from flow2onnx.engine.ranks import check_devices
from flow2onnx.errors import ConfigError, UnsupportedError


@pytest.fixture
def two_of_two(monkeypatch):
    """This process as the launcher's second of two."""
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)


def settings(**values):
    made = Settings()
    for name, value in values.items():
        made.set(name, value)
    return made


def test_one_process_plays_all_devices(caplog):
    check_devices(settings(cpu_device_num=1))
    assert not caplog.records
    check_devices(settings(cpu_device_num=4))
    assert "cpu_device_num is 4, and this process plays all" in caplog.text


@pytest.mark.parametrize(
    "values", [{}, {"gpu_device_num": 2}, {"gpu_device_num": 0, "cpu_device_num": 2}]
)
def test_processes_are_devices(two_of_two, values, caplog):
    check_devices(settings(**values))
    assert not caplog.records


@pytest.mark.parametrize("values", [{"gpu_device_num": 4}, {"cpu_device_num": 1}])
def test_other_numbers_are_refused(two_of_two, values):
    with pytest.raises(ConfigError, match="and 2 processes run on this machine"):
        check_devices(settings(**values))


def test_machines_are_those_that_were_started_on(monkeypatch):
    for name, value in {"WORLD_SIZE": "4", "RANK": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    flow.config.machine_num(2)
    flow.env.machine([{"addr": "10.0.0.1"}, {"addr": "10.0.0.2"}])
    assert flow.current_machine_id() == 1
    with pytest.raises(UnsupportedError, match="another number of machines"):
        flow.env.machine([{"addr": f"10.0.0.{i}"} for i in range(3)])
    with pytest.raises(UnsupportedError, match="machine_num"):
        flow.config.machine_num(3)


def test_rounds_of_one_batch_are_refused(two_of_two):
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        loss = x * flow.get_variable("w", (2,), initializer=flow.ones_initializer())
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    with pytest.raises(UnsupportedError, match="needs a batch of its own"):
        job(np.zeros((4, 2), np.float32))


def test_a_job_is_refused_before_anything_runs(two_of_two):
    @flow.global_function(type="predict")
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return x + 1

    flow.config.cpu_device_num(3)
    with pytest.raises(ConfigError, match="start 3 processes on each machine") as caught:
        job(np.zeros(2, np.float32))
    assert "test_ranks.py:" in caught.value.source


@pytest.mark.parametrize(
    ("processors", "threads", "told", "parts"),
    [(2, None, {}, 0), (2, 2, {}, 2), (4, None, {}, 2), (2, 1, {"WORLD_SIZE": "3"}, 2),
     (2, 1, {"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}, 2)],
)  # fmt: skip
def test_the_way_back_is_cut_where_a_processor_has_time_to_send(
    two_of_two, monkeypatch, processors, threads, told, parts
):
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    monkeypatch.setattr(segments, "_LINK_RATE", 1e3)  # a slow link: all may be hidden
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    if threads is not None:
        flow.config.compute_thread_pool_size(threads)
    config = flow.function_config()
    config.enable_all_reduce_group(False)

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((6, 4))) -> tp.Numpy:
        for i in range(2):
            x = flow.math.tanh(flow.layers.dense(x, 4, use_bias=False, name=f"d{i}"))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(x)
        return x

    made = JobCompiler(Placement(current_session().settings)).compile_for_calls(job.spec)
    assert len(made.parts) == parts
