"""The opening of a job: memory check, explanation and run agree on it."""

import numpy as np
import pytest
from flow2onnx_runtime import Options

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine import memory
from flow2onnx.engine.memory import memory_lines, needed_bytes
from flow2onnx.engine.opening import open_model, plan_opening, plan_portable_opening
from flow2onnx.engine.session import current_session
from tests.data.files import write_parts

UNITS = 256
WEIGHTS = UNITS * UNITS * 4
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def minimize(loss):
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
    return loss


def dense(**flags):
    config = flow.function_config()
    for name, value in flags.items():
        getattr(config.runtime, name)(value)

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((4, UNITS))) -> tp.Numpy:
        y = flow.layers.dense(x, UNITS, name="d")
        return minimize(flow.math.reduce_mean(flow.math.square(y)))

    return job, (np.ones((4, UNITS), np.float32),)


def accumulating(folder):
    records = [{"x": row} for row in np.ones((8, UNITS), np.float32)]
    path = write_parts(folder / "d", [records])
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function("train", config)
    def job() -> tp.Numpy:
        read = flow.data.ofrecord_reader(path, batch_size=4)
        x = flow.data.OFRecordRawDecoder(read, "x", (UNITS,), flow.float)
        y = flow.layers.dense(x, UNITS, name="d")
        return minimize(flow.math.reduce_mean(flow.math.square(y)))

    return job, ()


def non_finite(folder):
    flow.config.stop_on_non_finite(True)
    return dense()


def accumulating_non_finite(folder):
    flow.config.stop_on_non_finite(True)
    return accumulating(folder)


JOBS = {
    "as it comes": lambda folder: dense(),
    "stop_on_non_finite": non_finite,
    "in_place(False)": lambda folder: dense(in_place=False),
    "native(False)": lambda folder: dense(native=False),
    "recompute": lambda folder: dense(recompute=2),
    "accumulation": accumulating,
    "accumulation, stop_on_non_finite": accumulating_non_finite,
}


@pytest.fixture
def checked(monkeypatch):
    """The bytes that memory checks found to be needed."""
    found = []

    def needed(openings):
        found.append(needed_bytes(openings))
        return found[-1]

    monkeypatch.setattr(memory, "needed_bytes", needed)
    return found


@pytest.mark.parametrize("name", JOBS)
def test_the_memory_check_needs_what_is_explained(name, tmp_path, checked):
    job, _ = JOBS[name](tmp_path)
    lines = job.explain().memory
    assert checked == [sum(line.bytes for line in lines)]


@pytest.mark.parametrize("name", JOBS)
def test_what_is_explained_is_what_runs(name, tmp_path):
    job, arrays = JOBS[name](tmp_path)
    job(*arrays)
    (executable,) = current_session()._executables.values()
    programs = [executable.program]
    programs += [executable._update.program] if executable.opening.update is not None else []
    runs = [{n for n in p.writes if n not in p.in_place} for p in programs]
    explained = [set(half.names_in_two_buffers) for half in executable.opening.halves]
    assert explained == runs
    twice = set().union(*runs)
    assert {v.name for v in job.explain().state if v.is_safe}.isdisjoint(twice)


def test_a_step_that_must_be_undone_has_two_buffers_of_everything(checked):
    job, _ = non_finite(None)
    weights = job.explain().memory[0]
    assert weights.bytes >= 2 * WEIGHTS
    assert checked[0] >= 4 * WEIGHTS, "of the weights and of their momentum"


def test_an_update_of_several_batches_is_in_place_where_no_loss_can_stop_it(tmp_path):
    """The losses are looked at before it."""
    job, _ = accumulating_non_finite(tmp_path)
    job.explain()
    gradients, update = current_session().opening("job").halves
    assert not gradients.names_in_place
    assert update.names_in_place


def test_a_captured_step_keeps_everything_twice():
    job, _ = dense(native=False)
    compiled = current_session().compile(job.spec)
    captured = Options(providers=((CUDA, {"enable_cuda_graph": "1"}), CPU))
    opening = plan_opening(compiled, captured)
    assert opening.options.captures
    assert opening.in_place == ()
    assert needed_bytes([opening]) == sum(line.bytes for line in memory_lines(opening))
    in_place = plan_opening(compiled, Options())
    assert needed_bytes([opening]) == needed_bytes([in_place]) + 2 * WEIGHTS


def test_state_that_jobs_share_is_counted_once_and_their_calls_in_turn():
    job, _ = dense(native=False)
    opening = plan_opening(current_session().compile(job.spec), Options())
    assert needed_bytes([opening, opening]) == needed_bytes([opening])


def test_a_trainer_elsewhere_opens_the_model_of_the_job():
    job, _ = dense()
    compiled = current_session().compile(job.spec)
    opening = plan_portable_opening(compiled)
    assert opening.model is compiled.model
    assert opening.native == {}
    given = []
    _, confirmed = open_model(opening, lambda content, options: _keep(content, options, given))
    assert given[0].optimized_path
    assert confirmed.options == opening.options, "the path was for this once"


def _keep(content, options, given):
    """Stand in for a runtime that optimises nothing."""
    given.append(options)
    with open(options.optimized_path, "wb") as file:
        file.write(content.content)
