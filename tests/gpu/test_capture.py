"""Jobs captured as CUDA graphs, which they are unless something is against it: one launch a run."""

from functools import partial

import numpy as np
import pytest
from flow2onnx_runtime import Options, OptionsError, Program

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.api.session import current_session
from flow2onnx.data.ofrecord import OFRecordWriter
from flow2onnx.dtypes import float32
from flow2onnx.engine import capture
from flow2onnx.engine.memory import needed_bytes
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.passes.equal_batches import EqualBatches
from tests.gpu import standin
from tests.models.zoo import ROWS

# The deep ones take minutes to capture; their operators are those of the others.
NAMES = ("mlp", "lenet", "alexnet", "bert", "gpt", "wide_deep")


@pytest.mark.parametrize("row", [r for r in ROWS if r.name in NAMES], ids=lambda r: r.name)
def test_a_captured_step_of_the_zoo_is_one_launch(row):
    train, feed = row.small().train, row.feed()
    for _ in range(3):  # both captures, of either set of buffers, and a replay
        train(*feed)
    assert not standin.report()["violations"]
    standin.reset()
    train(*feed)
    counts = standin.report()
    assert (counts["graph_launches"], counts["captures"]) == (1, 0)
    assert not counts["kernels"]
    assert not counts["allocations"]
    assert not counts["violations"]
    assert counts["to_device"]["bytes"] == sum(np.asarray(a).nbytes for a in feed)
    assert counts["graph_kernels"] > 0
    assert [verdict.is_on for verdict in train.explain().captures] == [True]


def test_a_replay_counts_its_step():
    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        w = flow.get_variable("w", (3, 1), initializer=flow.ones_initializer())
        loss = flow.math.reduce_mean(flow.nn.dropout(flow.matmul(x, w), rate=0.5))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    for _ in range(4):
        train(np.ones((4, 3), np.float32))
    names = {node["operator"] for node in train.session.opening("train").job.structure()}
    assert "Dropout" not in names
    assert "Mod" in names  # of the hash of the step


X = np.ones((4, 3), np.float32)


def training(body=lambda h: h, config=None, rows=4):
    """A train job whose loss `body` makes of a product."""
    config = config or flow.function_config()

    @flow.global_function(type="train", function_config=config)
    def train(x: tp.Numpy.Placeholder((rows, 3))) -> tp.Numpy:
        w = flow.get_variable("w", (3, 2**16), initializer=flow.ones_initializer())
        loss = flow.math.reduce_mean(body(flow.matmul(x, w)))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    return train


def launches(call):
    """The graph launches of a call that has been made before, and the kernels beside them."""
    standin.reset()
    for _ in range(3):
        call()
    recorded = standin.report()
    standin.reset()
    call()
    counts = standin.report()
    assert not counts["violations"]
    if counts["graph_launches"]:
        assert not recorded["violations"], "the host's memory would be read again"
    return counts["graph_launches"], counts["kernels"] > 0


def why_not(job):
    (verdict,) = job.explain().captures
    assert not verdict.is_on
    assert f"not captured: {verdict.reason}" in str(job.explain())
    return verdict.reason


def configured(**settings):
    config = flow.function_config()
    for name, value in settings.items():
        getattr(config.runtime, name)(value)
    return config


def test_predictions_are_captured_too():
    @flow.global_function()
    def predict(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.math.tanh(x)

    assert launches(lambda: predict(X)) == (1, False)
    assert "captured: a run is one launch" in str(predict.explain())


def test_a_job_that_must_not_be_captured_is_not():
    train = training(config=configured(enable_cuda_graph=False))
    assert launches(lambda: train(X)) == (0, True)
    assert why_not(train) == "runtime.enable_cuda_graph(False)"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (lambda: configured(recompute=True), "a number that the host reads"),
        (lambda: configured(execution_mode="parallel"), "run at once"),
        (lambda: configured(enable_profiling=True), "a profile shows operators"),
        (lambda: configured(user_compute_stream=8), "the program's own"),
    ],
    ids=["recompute", "parallel", "profile", "stream"],
)
def test_settings_that_a_capture_excludes(config, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert reason in why_not(training(config=config()))


def test_operators_that_cuda_does_not_run_are_named():
    train = training(flow.math.tan)
    assert launches(lambda: train(X)) == (0, True)
    assert "CUDA does not run Tan" in why_not(train)


def test_asked_for_what_cannot_be_captured_is_an_error():
    train = training(flow.math.tan, configured(enable_cuda_graph=True))
    with pytest.raises(OptionsError, match="CUDA does not run Tan"):
        train(X)


def test_a_join_of_many_values_is_captured():
    @flow.global_function()
    def predict(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.concat([x * float(i) for i in range(70)], 0)

    assert launches(lambda: predict(X)) == (1, False)


def test_a_split_into_uneven_parts_is_captured_as_slices():
    def body(h):
        joined = flow.concat([h * 2.0, flow.slice(h, [0, 0], [4, 7])], 1)
        return flow.math.square(joined)  # the gradient of what is joined is split

    train = training(body)
    assert launches(lambda: train(X)) == (1, False)
    operators = {n["operator"] for n in current_session().opening("train").job.structure()}
    assert "Split" not in operators


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_products_look_up_in_the_host_which_matrices_they_repeat(is_rewritten):
    b = Builder(21)
    shapes = {"x": (2, 3, 4, 5), "w": (3, 5, 6)}
    b.output(b.MatMul(*(b.input(name, s, float32) for name, s in shapes.items())), "y")
    if is_rewritten:
        EqualBatches().run(b.graph)
    cuda = ("CUDAExecutionProvider", {"enable_cuda_graph": "1"})
    captured = Options((cuda, "CPUExecutionProvider"))
    program = Program(model_bytes(model_of(b.graph)), options=captured)
    program.run([np.ones(s, np.float32) for s in shapes.values()])
    assert bool(standin.report()["violations"]) is not is_rewritten


def test_what_depends_on_nothing_is_not_captured():
    @flow.global_function()
    def predict(x: tp.Numpy.Placeholder((4, 3))) -> tuple[tp.Numpy, tp.Numpy]:
        return flow.math.tanh(x), flow.constant(3.0, flow.float, (2,))

    assert launches(lambda: predict(X)) == (0, True)
    assert "the host makes out/1, which depends on nothing" in why_not(predict)


def test_predictions_that_draw_are_not_captured():
    @flow.global_function()
    def predict(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.random.bernoulli(x)

    predict(X)
    assert "no step counts them" in why_not(predict)


def test_what_cannot_be_counted_is_not_captured(monkeypatch):
    def refuse(job):
        raise UnsupportedError("these draws cannot be counted")

    monkeypatch.setattr(capture, "count_draws", refuse)
    train = training(lambda h: flow.nn.dropout(h, rate=0.5))
    assert launches(lambda: train(X)) == (0, True)
    assert "these draws cannot be counted" in why_not(train)


def test_a_job_whose_state_fits_once_only():
    needs = []
    for is_on in (False, True):
        flow.clear_default_session()
        training(config=configured(enable_cuda_graph=is_on))
        needs.append(needed_bytes([current_session().opening("train")]))
    assert needs[0] < needs[1]
    for limit, is_captured in ((needs[1], True), (needs[1] - 1, False)):
        flow.clear_default_session()
        train = training(config=configured(memory_limit=limit))
        assert launches(partial(train, X)) == (int(is_captured), not is_captured)
    assert "which there is no memory for" in why_not(train)


def test_inputs_smaller_than_declared():
    @flow.global_function()
    def predict(x: tp.ListNumpy.Placeholder((4, 3))) -> tp.ListNumpy:
        return flow.math.tanh(x)

    assert launches(lambda: predict([X])) == (1, False)
    assert launches(lambda: predict([X[:2]])) == (0, True)


def test_a_run_that_the_runtime_cannot_record_is_run_without():
    train = training()
    session = current_session()
    session.start()
    executable = next(iter(session._executables.values()))
    assert executable.opening.capture.is_on
    masks = [session.state.mask]
    standin.refuse_captures(True)
    for _ in range(2):
        train(X)
        masks.append(session.state.mask)
    standin.refuse_captures(False)
    assert masks[0] == masks[2] != masks[1], "each call was one step"
    assert launches(lambda: train(X)) == (0, True)
    assert "train failed" in why_not(train)


@pytest.mark.parametrize("stops", [False, True])
def test_each_half_of_a_job_that_accumulates_is_a_launch(stops, tmp_path):
    with OFRecordWriter(tmp_path / "part-0") as writer:
        for _ in range(8):
            writer.write({"x": np.ones(3, np.float32)})
    flow.config.stop_on_non_finite(stops)
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function(type="train", function_config=config)
    def train() -> tp.Numpy:
        read = flow.data.ofrecord_reader(str(tmp_path), batch_size=4)
        x = flow.data.OFRecordRawDecoder(read, "x", (3,), flow.float)
        loss = flow.math.reduce_mean(flow.layers.dense(x, 5, name="d"))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    assert launches(train) == (3, False), "two batches and an update"
    assert [verdict.is_on for verdict in train.explain().captures] == [True, True]
