"""Train jobs with the native library: the flag, what they compute, and what goes wrong."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from flow2onnx_native.abi import LOOP_COUNT, cpp_header, digest
from flow2onnx_native.library import NativeLibrary

import flow2onnx as flow
import flow2onnx.typing as tp
from benchmarks.native import KINDS
from flow2onnx.engine import memory
from flow2onnx.engine.memory import needed_bytes
from flow2onnx.errors import ConfigError, UnsupportedError
from tests.native.conftest import FLAGS, LIBRARY, setup_flags

BATCH = 6
WITHOUT_ONEDNN = ("Fused", "FusedChannels", "Rows", "AddRows", "PutRows", "AddNamedRows",
                  "Transpose", "CrossEntropy", "MaxPool", "MaxPoolGradient", "Pack",
                  "PackedProduct", "Recurrence", "RecurrenceGradient", "Attention",
                  "AttentionGradient")  # fmt: skip


def lenet_like(wish, steps: int = 6, update=None, path: Path | None = None):
    """The losses of some steps, the weights after them, and the job."""
    flow.clear_default_session()
    config = flow.FunctionConfig()
    if wish is not None:
        config.runtime.native(wish)

    @flow.global_function(type="train", function_config=config)
    def job(
        x: tp.Numpy.Placeholder((BATCH, 3, 12, 12)),
        labels: tp.Numpy.Placeholder((BATCH,), dtype=flow.int32),
    ) -> tp.Numpy:
        init = flow.random_normal_initializer(0, 0.1)
        y = flow.layers.conv2d(x, 8, 3, padding="SAME", name="conv", kernel_initializer=init)
        y = flow.nn.relu(flow.layers.batch_normalization(y, axis=1, name="norm"))
        y = flow.layers.conv2d(y, 9, 3, strides=2, name="second", kernel_initializer=init)
        y = flow.layers.layer_norm(flow.reshape(y, [BATCH, -1]), name="ln")
        y = flow.math.gelu(flow.layers.dense(y, 33, name="dense", kernel_initializer=init))
        y = flow.layers.dense(y, 10, name="last", kernel_initializer=init)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, y)
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.01])
        (update or flow.optimizer.Adam)(rate).minimize(loss)
        return loss

    flow.config.compute_thread_pool_size(2)
    draw = np.random.default_rng(0)
    losses = []
    for _ in range(steps):
        x = draw.standard_normal((BATCH, 3, 12, 12)).astype(np.float32)
        losses.append(job(x, draw.integers(0, 10, BATCH).astype(np.int32)).mean())
    return np.array(losses), job


UPDATES = {
    "adam": flow.optimizer.Adam,
    "adamw": lambda rate: flow.optimizer.AdamW(rate, weight_decay=0.1, do_bias_correction=True),
    "momentum": lambda rate: flow.optimizer.SGD(rate, momentum=0.9),
    "sgd": lambda rate: flow.optimizer.SGD(rate, momentum=0),
    "lamb": flow.optimizer.LAMB,
    "rmsprop": flow.optimizer.RMSProp,
}


@pytest.mark.parametrize("update", UPDATES)
def test_jobs_learn_the_same(update: str, library: NativeLibrary) -> None:
    plain, job = lenet_like(wish=False, update=UPDATES[update])
    assert job.explain().native == {}
    native, job = lenet_like(wish=True, update=UPDATES[update])
    assert job.explain().native["Fused"] > 3
    np.testing.assert_allclose(native, plain, rtol=2e-4)


def test_explain_tells_which_took_part(convolving: NativeLibrary) -> None:
    _, job = lenet_like(wish="auto", steps=1)
    told = job.explain()
    assert told.native["Conv"] == 2
    assert told.native["ConvInputGradient"] == 1
    assert "native operators:" in str(told)
    assert "Conv" in told.nodes[0].operators


def test_by_default_it_is_used_where_it_is_installed(package: None) -> None:
    _, job = lenet_like(wish=None, steps=1)
    assert job.explain().native["Fused"] > 5


def test_the_memory_check_needs_what_is_explained(
    library: NativeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = []

    def needed(openings):
        checked.append(needed_bytes(openings))
        return checked[-1]

    monkeypatch.setattr(memory, "needed_bytes", needed)
    _, job = lenet_like(wish=True, steps=1)
    explained = job.explain()
    assert explained.native
    assert checked == [sum(line.bytes for line in explained.memory)]


def dense_job(*, wish: bool):
    flow.clear_default_session()
    config = flow.FunctionConfig()
    config.runtime.native(wish)

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((4, 300))) -> tp.Numpy:
        w = flow.get_variable("w", (300, 300), initializer=flow.random_normal_initializer(0, 0.1))
        loss = flow.math.square(flow.matmul(x, w))
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.0001])
        flow.optimizer.Adam(rate).minimize(loss)
        return loss

    losses = [job(np.ones((4, 300), np.float32)).mean() for _ in range(5)]
    assert losses[4] < losses[0]
    return losses, job


def test_state_is_updated_in_place(library: NativeLibrary) -> None:
    plain, _ = dense_job(wish=False)
    native, job = dense_job(wish=True)
    np.testing.assert_allclose(native, plain, rtol=1e-5)
    verdicts = {v.name: v for v in job.explain().state}
    assert verdicts["w-m"].is_safe
    assert verdicts["w-v"].is_safe


def test_exported_models_are_standard(library: NativeLibrary, tmp_path: Path) -> None:
    _, job = lenet_like(wish=True, steps=1)
    job.export(tmp_path / "bundle")
    models = list((tmp_path / "bundle").rglob("*.onnx"))
    assert models
    for path in models:
        model = onnx.load(path)
        assert {n.domain for n in model.graph.node} <= {""}
        assert [o.domain for o in model.opset_import] == [""]


def test_predict_jobs_stay_as_they_are(library: NativeLibrary) -> None:
    flow.clear_default_session()

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        return flow.math.negative(flow.math.abs(x))

    job(np.ones((2, 3), np.float32))
    assert job.explain().native == {}


def test_not_installed_nothing_changes(not_installed: None) -> None:
    _, job = lenet_like(wish="auto", steps=1)
    assert job.explain().native == {}


def test_insisting_on_what_is_not_installed(not_installed: None) -> None:
    with pytest.raises(UnsupportedError, match="flow2onnx-native is not installed"):
        lenet_like(wish=True, steps=1)


def test_a_library_that_is_none(
    package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / LIBRARY
    path.write_bytes(b"not a library")
    monkeypatch.setenv("FLOW2ONNX_NATIVE", str(path))
    with pytest.raises(UnsupportedError, match="cannot be opened"):
        lenet_like(wish="auto", steps=1)


def test_a_library_that_is_missing(
    package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOW2ONNX_NATIVE", str(tmp_path / LIBRARY))
    with pytest.raises(UnsupportedError, match="cannot be opened"):
        lenet_like(wish=True, steps=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('const char *flow2onnx_native_abi() { return "99"; }', "is b'99', not"),
        ("int something_else() { return 1; }", "cannot be opened"),
    ],
)
def test_a_library_of_another_table(
    text: str, message: str, package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, path = tmp_path / "other.cc", tmp_path / LIBRARY
    source.write_text(f'extern "C" {text}\n')
    compiler = shutil.which("g++")
    assert compiler is not None, "the package was compiled"
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", path], check=True)
    monkeypatch.setenv("FLOW2ONNX_NATIVE", str(path))
    with pytest.raises(UnsupportedError, match=message):
        lenet_like(wish="auto", steps=1)


def test_the_header_has_the_numbers_of_the_table() -> None:
    header = cpp_header()
    assert "ADD = 13" in header
    assert f"constexpr int64_t LOOP_COUNT = {LOOP_COUNT};" in header
    assert "struct Step { int64_t operation, to, a, b, c; };" in header
    assert digest() in header


def test_onednn_that_cannot_be_opened(
    package: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # asked in a process of its own, as this one may have oneDNN open already
    text = (
        "from flow2onnx_native.library import open_library; import logging; logging.basicConfig();"
        "print(open_library().operators)"
    )
    environment = {**os.environ, "FLOW2ONNX_ONEDNN": "/nowhere/libdnnl.so",
                   "PYTHONPATH": os.pathsep.join(sys.path)}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(WITHOUT_ONEDNN)
    assert (
        "oneDNN cannot be used, convolutions and products run without: FLOW2ONNX_ONEDNN: the "
        "library '/nowhere/libdnnl.so' is not loaded: it is no regular file" in done.stderr
    )


def test_the_flag_takes_three_values() -> None:
    with pytest.raises(ConfigError, match=r"runtime\.native takes True, False or 'auto'"):
        flow.FunctionConfig().runtime.native("yes")


def test_the_tests_compile_as_the_package_does() -> None:
    assert set(setup_flags()) == set(FLAGS) - {"-Werror"}


def test_the_benchmark_leaves_out_every_operator_once(convolving: NativeLibrary) -> None:
    left_out = [operator for own in KINDS.values() for operator in own if operator != "Winograd"]
    assert sorted(left_out) == sorted(convolving.operators)
