"""Native operators on the CUDA provider: kernels really run, on the memory of the stand-in."""

import numpy as np
import onnxruntime as ort
import pytest
from flow2onnx_native.accelerator import rewrite
from flow2onnx_runtime import Options

import flow2onnx as flow
from flow2onnx.api.session import current_session
from flow2onnx.dtypes import float32
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from tests.gpu import kernel_texts, standin
from tests.models.zoo import ROWS
from tests.native.running import ANALYSIS

CUDA = "CUDAExecutionProvider"
OPTIONS = Options(providers=(CUDA,))


def session(b: Builder, *, is_native: bool):
    """A session of a graph, with the native operators and without; what it has of them."""
    model, options, used, why = rewrite(model_of(b.graph), OPTIONS, ANALYSIS, winograd=True)
    assert not why
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    if is_native:
        settings.register_custom_ops_library(options.operator_libraries[0])
    content = model_bytes(model if is_native else model_of(b.graph))
    return ort.InferenceSession(content, settings, providers=[CUDA]), used


def update(b: Builder, name: str, shape: tuple[int, ...]) -> None:
    w, m, g = (b.input(f"{name}/{part}", shape, float32) for part in "wmg")
    momentum = b.Add(b.Mul(m, 0.9), g)
    b.output(momentum, f"next/{name}/m")
    b.output(b.Sub(w, b.Mul(momentum, 0.1)), f"next/{name}/w")


def test_a_program_computes_on_the_stream_of_the_provider(native):
    b = Builder()
    x = b.input("x", (30, 70), float32)
    b.output(b.ReduceSum(b.Mul(b.Neg(x), x), [0], keepdims=0), "sums")
    opened, used = session(b, is_native=True)
    assert used == {"Fused": 1}
    given = np.random.default_rng(0).standard_normal((30, 70)).astype(np.float32)
    standin.reset()
    (sums,) = opened.run(None, {"x": given})
    np.testing.assert_allclose(sums, -(given.astype(np.float64) ** 2).sum(0), rtol=1e-5)
    assert standin.report()["launched"] == {"flow2onnx_fused": 1, "flow2onnx_sums": 1}


def test_all_weights_are_one_launch(native):
    b = Builder()
    shapes = {f"w{i}": (7 * i + 2, 5) for i in range(40)}
    for name, shape in shapes.items():
        update(b, name, shape)
    opened, used = session(b, is_native=True)
    assert used == {"FusedParts": 1}
    draw = np.random.default_rng(0)
    feeds = {v.name: draw.standard_normal(v.shape).astype(np.float32) for v in opened.get_inputs()}
    standin.reset()
    found = dict(zip([o.name for o in opened.get_outputs()], opened.run(None, feeds), strict=True))
    assert standin.report()["launched"] == {"flow2onnx_fused": 1}
    for name in shapes:
        momentum = feeds[f"{name}/m"] * np.float32(0.9) + feeds[f"{name}/g"]
        np.testing.assert_array_equal(found[f"next/{name}/m"], momentum)


def small_bert():
    (row,) = [r for r in ROWS if r.name == "bert"]
    train = row.small().train
    train.spec.config.runtime.enable_cuda_graph(False)
    return train, row.feed()


def launches(train, feed) -> dict[str, int]:
    train(*feed)
    standin.reset()
    train(*feed)
    report = standin.report()
    assert not report["violations"]
    return report["launched"]


def test_a_train_job_uses_them_and_explains_it(native):
    train, feed = small_bert()
    train.spec.config.runtime.native(False)
    plain = launches(train, feed)
    flow.clear_default_session()
    train, feed = small_bert()
    fused = launches(train, feed)
    told = train.explain()
    assert told.native["FusedParts"] >= 1
    assert "native operators:" in str(told)
    assert fused["flow2onnx_fused"] > 1
    assert sum(fused.values()) < 0.6 * sum(plain.values())


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_attention_of_a_job_is_three_launches(dropout, native):
    train = kernel_texts.small_gpt(dropout)
    train.spec.config.runtime.enable_cuda_graph(False)
    launched = launches(train, (np.ones((2, 25), np.int64),))
    assert train.explain().native["AttentionGradient"] == 1
    for name in ("attention", "attention_queries", "attention_keys"):
        assert launched[f"flow2onnx_{name}"] == 1
    assert launched.get("flow2onnx_draw", 0) == (3 if dropout else 0)  # what is thinned out besides
    graph = current_session().opening(train.spec.name).model.graph
    shapes = {v.shape.numpy() for n in graph for v in n.outputs if v.shape is not None}
    assert (2, 2, 24, 24) not in shapes, "the matrix of all scores"


def test_a_captured_step_with_them_is_one_launch(native):
    train = kernel_texts.small_gpt()
    train.spec.config.runtime.enable_cuda_graph(True)
    feed = np.ones((2, 25), np.int64)
    for _ in range(3):  # both captures, of either set of buffers, and a replay
        train(feed)
    standin.reset()
    train(feed)
    counts = standin.report()
    assert (counts["graph_launches"], counts["captures"]) == (1, 0)
    assert not counts["kernels"]
    assert not counts["allocations"]
    assert not counts["violations"]
    assert train.explain().native["FusedParts"] >= 1
    assert train.explain().native["Draw"] == 3


def test_steps_without_native_operators_draw_by_the_runtime(native, monkeypatch):
    monkeypatch.setenv("FLOW2ONNX_NVRTC", "")
    train = kernel_texts.small_gpt()
    train.spec.config.runtime.enable_cuda_graph(False)
    train(np.ones((2, 25), np.int64))
    graph = current_session().opening(train.spec.name).model.graph
    assert sum(n.op_type == "Dropout" for n in graph) == 4


def test_without_nvrtc_the_standard_operators_run(native, monkeypatch):
    monkeypatch.setenv("FLOW2ONNX_NVRTC", "")
    train, feed = small_bert()
    train(*feed)
    told = train.explain()
    assert not told.native
    assert "there is no NVRTC" in told.why_not_native
    assert "none: the native operators for CUDA cannot be used: there is no NVRTC" in str(told)


def test_who_insists_on_them_is_told_what_is_missing(native, monkeypatch):
    monkeypatch.setenv("FLOW2ONNX_NVRTC", "")
    train, feed = small_bert()
    train.spec.config.runtime.native(True)
    with pytest.raises(UnsupportedError, match=r"runtime.native\(True\): .*there is no NVRTC"):
        train(*feed)
