"""Small models in ONNX's text form, and a bundle made of them."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, parser

from flow2onnx_runtime import save_safetensors
from flow2onnx_runtime.manifest import FileEntry, Manifest, PredictJob, StateSpec, TensorSpec
from flow2onnx_runtime.safetensors import read_header

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'

# Least squares with momentum: y = x w + b, on a batch of 4. The updates come first in the text,
# an order in which in-place updates would go wrong.
STEP = """step (float[4,3] x, float[4,1] y, float[3,1] w, float[1] b, float[3,1] m, int64 steps)
 => (float loss, float[3,1] "next/w", float[1] "next/b", float[3,1] "next/m", int64 "next/steps")
 <float rate = {0.1}, float decay = {0.9}, int64 one = {1}, float two = {2}, float count = {4},
  int64[1] rows = {0}>
{
 xw = MatMul(x, w)
 z = Add(xw, b)
 d = Sub(z, y)
 dd = Mul(d, d)
 loss = ReduceMean<keepdims=0>(dd)
 d2 = Mul(d, two)
 g = Div(d2, count)
 xt = Transpose<perm=[1,0]>(x)
 gw = MatMul(xt, g)
 gb = ReduceSum<keepdims=0>(g, rows)
 kept = Mul(m, decay)
 "next/m" = Add(kept, gw)
 uw = Mul("next/m", rate)
 "next/w" = Sub(w, uw)
 ub = Mul(gb, rate)
 "next/b" = Sub(b, ub)
 "next/steps" = Add(steps, one)
}"""

INIT = """init () => (float[3,1] w, float[1] b, float[3,1] m, int64 steps)
{
 w = Constant<value = float[3,1] {0.5, -0.25, 1.0}>()
 b = Constant<value = float[1] {0.125}>()
 m = Constant<value = float[3,1] {0, 0, 0}>()
 steps = Constant<value = int64 {0}>()
}"""

PREDICT = """predict (float[N,3] x, float[3,1] w, float[1] b) => (float[N,1] z)
{ xw = MatMul(x, w)  z = Add(xw, b) }"""

BAKED = """baked (float[N,3] x) => (float[N,1] z)
 <float[3,1] w = {0.5, -0.25, 1.0}, float[1] b = {0.125}>
{ xw = MatMul(x, w)  z = Add(xw, b) }"""


HELD = "held.safetensors"
WEIGHTS = {
    "w": np.array([[0.5], [-0.25], [1.0]], np.float32),
    "b": np.array([0.125], np.float32),
}


def beside(model: bytes, file: Path) -> bytes:
    """The model with its initializers taken from a .safetensors file."""
    proto, places = ModelProto.FromString(model), read_header(file).tensors
    for tensor in proto.graph.initializer:
        place = places[tensor.name]
        tensor.ClearField("float_data")
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        entries = {
            "location": file.name, "offset": place.start, "length": place.end - place.start,
        }  # fmt: skip
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
    return proto.SerializeToString()


def to_bytes(text: str) -> bytes:
    return parser.parse_model(HEADER + text).SerializeToString()


@pytest.fixture(scope="session")
def onnx_model() -> Callable[[str], bytes]:
    """The bytes of a model from the text of its graph."""
    return to_bytes


@pytest.fixture(scope="session")
def step_model() -> bytes:
    return to_bytes(STEP)


@pytest.fixture(scope="session")
def predict_model() -> bytes:
    return to_bytes(PREDICT)


@pytest.fixture(scope="session")
def baked_model() -> bytes:
    return to_bytes(BAKED)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle with one step and two predict jobs: sharing the state, and with weights inside."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    models = {"init.onnx": INIT, "step.onnx": STEP, "predict.onnx": PREDICT, "baked.onnx": BAKED}
    for name, text in models.items():
        (folder / name).write_bytes(to_bytes(text))
    save_safetensors(folder / HELD, WEIGHTS)
    (folder / "baked.onnx").write_bytes(beside(to_bytes(BAKED), folder / HELD))
    manifest_of(folder, [*models, HELD]).write(folder)
    return folder


def manifest_of(folder: Path, names: list[str]) -> Manifest:
    x = TensorSpec("x", ("N", 3), "float32")
    z = TensorSpec("z", ("N", 1), "float32")
    return Manifest(
        job="train_job",
        producer="test 1",
        opset=21,
        files={name: FileEntry.of(folder / name) for name in names},
        state=(
            StateSpec("w", (3, 1), "float32"),
            StateSpec("b", (1,), "float32"),
            StateSpec("m", (3, 1), "float32", "slot"),
            StateSpec("steps", (), "int64", "counter"),
        ),
        feeds=(TensorSpec("x", (4, 3), "float32"), TensorSpec("y", (4, 1), "float32")),
        results=(TensorSpec("loss", (), "float32"),),
        losses=("loss",),
        predict=(
            PredictJob("predict_job", "predict.onnx", (x,), (z,), reads=("w", "b")),
            PredictJob("baked_job", "baked.onnx", (x,), (z,), holds=("w", "b")),
        ),
    )


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises, also in tests that a shell started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu:
        return
    from flow2onnx_runtime import usable_providers

    if "CUDAExecutionProvider" not in usable_providers():
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason="no usable CUDA provider"))
