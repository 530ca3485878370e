"""`Options(native=True)`: bundles and model files on native operators, beside standard ones."""

import gc
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from flow2onnx_native import accelerator
from flow2onnx_native.abi import DOMAIN
from flow2onnx_runtime import Options, OptionsError, Predictor, Trainer
from flow2onnx_runtime.options import open_session
from onnx import TensorProto, helper, numpy_helper

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph.model import parse_model

PLAIN = Options(intra_op_threads=1)
NATIVE = Options(intra_op_threads=1, native=True)
UNITS = 130  # weights of more bytes than are updated in place
IDS, WORDS = 8, 300


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A step of Adam with a table and a normalisation, and its prediction."""
    flow.clear_default_session()
    init = flow.random_normal_initializer(0, 0.1)

    def network(ids):
        table = flow.get_variable("table", (WORDS, UNITS), initializer=init)
        y = flow.layers.dense(
            flow.gather(table, ids), UNITS, name="hidden", kernel_initializer=init
        )
        y = flow.layers.layer_norm(flow.math.gelu(y), name="norm")
        return flow.layers.dense(y, 5, name="last", kernel_initializer=init)

    @flow.global_function(type="train")
    def train(
        ids: tp.Numpy.Placeholder((IDS,), dtype=flow.int32),
        labels: tp.Numpy.Placeholder((IDS,), dtype=flow.int32),
    ) -> tp.Numpy:
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, network(ids))
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.01])
        flow.optimizer.Adam(rate).minimize(loss)
        return loss

    @flow.global_function(type="predict")
    def predict(ids: tp.Numpy.Placeholder((IDS,), dtype=flow.int32)) -> tp.Numpy:
        return network(ids)

    train.export(tmp_path / "bundle", predict=[predict])
    return tmp_path / "bundle"


def batches(count: int):
    draw = np.random.default_rng(0)
    return [(draw.integers(-WORDS, WORDS, IDS).astype(np.int32),
             draw.integers(0, 5, IDS).astype(np.int32)) for _ in range(count)]  # fmt: skip


def trained(bundle: Path, options: Options):
    """The losses of some steps, and the state after them."""
    trainer = Trainer(bundle, options)
    losses = [next(iter(trainer.step(ids=ids, labels=labels).values())).mean()
              for ids, labels in batches(6)]  # fmt: skip
    return np.array(losses), trainer.state.to_dict()


@pytest.mark.usefixtures("package")
def test_a_bundle_trains_alike(bundle: Path) -> None:
    content, _ = accelerator.accelerate((bundle / "step.onnx").read_bytes(), PLAIN)
    assert DOMAIN in {n.domain for n in parse_model(content).graph}
    want, weights = trained(bundle, PLAIN)
    got, found = trained(bundle, NATIVE)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert found.keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_allclose(found[name], value, atol=2e-5, err_msg=name)


@pytest.mark.usefixtures("package")
def test_a_bundle_predicts_alike(bundle: Path) -> None:
    ids = batches(1)[0][0]
    want = next(iter(Predictor(bundle, PLAIN)(ids).values()))
    np.testing.assert_allclose(next(iter(Predictor(bundle, NATIVE)(ids).values())), want, atol=1e-5)


def large_constants(dtype: str) -> tuple[bytes, np.ndarray]:
    """y = x W + b with a W that is packed, t = a table of that type, and W may be fed."""
    draw = np.random.default_rng(1)
    table = draw.integers(0, 99, (120, 80)).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    w, b = (draw.standard_normal(shape).astype(np.float32) for shape in ((256, 256), (256,)))
    kinds = {"x": ("FLOAT", (16, 256)), "y": ("FLOAT", (16, 256)), "t": ("FLOAT", table.T.shape)}
    infos = {n: helper.make_tensor_value_info(n, getattr(TensorProto, kind), shape)
             for n, (kind, shape) in kinds.items()}  # fmt: skip
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["y"]),
        helper.make_node("Cast", ["table"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["wide"], ["t"], perm=[1, 0]),
    ]
    graph = helper.make_graph(
        nodes, "g", [infos["x"]], [infos["y"], infos["t"]],
        [numpy_helper.from_array(a, n) for n, a in (("w", w), ("b", b), ("table", table))],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return made.SerializeToString(), table


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "uint8", "int4"])
def test_large_constants_of_any_type_are_read(dtype: str, kept: bool, tmp_path: Path) -> None:
    content, table = large_constants(dtype)
    native = replace(NATIVE, graph_cache=str(tmp_path) if kept else None)
    x = np.random.default_rng(2).standard_normal((16, 256)).astype(np.float32)
    want = Predictor(content, PLAIN)(x)
    for _ in range(2):  # the second of what was kept
        predictor = Predictor(content, native)
        gc.collect()
        np.empty(1 << 20).fill(np.nan)  # over what was freed
        found = predictor(x)
        np.testing.assert_allclose(found["y"], want["y"], rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(found["t"], table.T.astype(np.float32))


@pytest.mark.usefixtures("package")
def test_a_large_weight_that_a_run_may_feed(tmp_path: Path) -> None:
    content, _ = large_constants("float32")
    proto = onnx.load_from_string(content)
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, (256, 256)))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, size_threshold=0, location="w.bin")
    draw = np.random.default_rng(4)
    x, w = (draw.standard_normal(n).astype(np.float32) for n in ((16, 256), (256, 256)))
    plain, fast = (open_session(path, options) for options in (PLAIN, NATIVE))
    for feeds in ({"x": x}, {"x": x, "w": w}):
        np.testing.assert_allclose(
            fast.run(["y"], feeds)[0], plain.run(["y"], feeds)[0], rtol=1e-4, atol=1e-4
        )


@pytest.mark.usefixtures("not_installed")
def test_without_the_package_it_is_said(bundle: Path) -> None:
    with pytest.raises(UnsupportedError, match="flow2onnx-native is not installed"):
        Trainer(bundle, NATIVE)
    with pytest.raises(UnsupportedError, match="flow2onnx-native is not installed"):
        open_session(str(bundle / "step.onnx"), NATIVE)


def test_on_other_providers_it_is_refused() -> None:
    with pytest.raises(OptionsError, match="native operators of models run on the CPU"):
        Options(providers=("CUDAExecutionProvider",), native=True)


@pytest.mark.usefixtures("package")
def test_other_libraries_of_operators_stay(bundle: Path) -> None:
    options = Options(native=True, operator_libraries=("own.so",))
    with pytest.raises(OptionsError, match=r"own\.so"):
        open_session(str(bundle / "step.onnx"), options)
