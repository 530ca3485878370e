"""Models for prediction with native convolutions: beside the same model without."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from flow2onnx_native import accelerator
from flow2onnx_native.abi import DOMAIN
from flow2onnx_native.library import NativeLibrary
from flow2onnx_runtime import Options, OptionsError, Predictor
from flow2onnx_runtime.options import open_session
from onnx import TensorProto, helper, numpy_helper

import flow2onnx as flow
from flow2onnx.dtypes import float32
from flow2onnx.errors import BundleError, UnsupportedError
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of, parse_model

TOLERANCE = 2e-5  # of the largest value
RNG = np.random.default_rng(3)
ONE = Options(intra_op_threads=1)


def weights(name: str, *shape: int) -> onnx.TensorProto:
    values = RNG.standard_normal(shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]))
    return numpy_helper.from_array(values.astype(np.float32), name)


def model(batch: int | str, side: int = 18, channels: int = 32, kernel: int = 3, **shown) -> bytes:
    """Two convolutions, the second with the sum of the first and a ReLU behind it."""
    pads = [kernel // 2] * 4
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["h"], pads=pads),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "w1", "b1"], ["c"], pads=pads),
        helper.make_node("Add", ["r", "c"] if shown.get("turned") else ["c", "r"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    shape = [batch, channels, side, side]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)
               for n in ("y", *shown.get("also", ()))]  # fmt: skip
    size = (channels, channels, kernel, kernel)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], outputs,
        [weights("w0", *size), weights("b0", channels), weights("w1", *size),
         weights("b1", channels)],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return made.SerializeToString()


def images(batch: int, side: int = 18, channels: int = 32):
    return RNG.standard_normal((batch, channels, side, side)).astype(np.float32)


def close(got, want) -> None:
    np.testing.assert_allclose(got, want, atol=TOLERANCE * abs(want).max(), rtol=0)


def operators(content) -> list[str]:
    return [f"{n.domain}:{n.op_type}" for n in parse_model(content).graph]


def both(content: bytes, threads: int = 1) -> tuple[Predictor, Predictor]:
    plain = Options(intra_op_threads=threads)
    return Predictor(content, plain), Predictor(*flow.accelerate(content, plain, native=True))


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("turned", [False, True])
def test_sum_and_relu_are_part_of_a_convolution(
    kernel: int, turned: bool, convolving: NativeLibrary
) -> None:
    content = model(2, kernel=kernel, turned=turned)
    rewritten, _ = flow.accelerate(content, ONE, native=True)
    assert operators(rewritten) == [f"{DOMAIN}:Conv"] * 2
    plain, fast = both(content)
    for _ in range(2):  # the second call finds the weights that the first transformed
        x = images(2)
        close(fast(x)["y"], plain(x)["y"])


def test_any_batch(convolving: NativeLibrary) -> None:
    plain, fast = both(model("N"))
    for batch in (3, 1, 40, 0):
        x = images(batch)
        found = fast(x)["y"]
        assert found.shape == x.shape
        if batch:
            close(found, plain(x)["y"])


def test_a_value_that_others_read_stays(convolving: NativeLibrary) -> None:
    content = model(2, also=("h", "s"))
    rewritten, _ = flow.accelerate(content, ONE, native=True)
    assert operators(rewritten) == [f"{DOMAIN}:Conv", ":Relu", f"{DOMAIN}:Conv", ":Relu"]
    plain, fast = both(content)
    x = images(2)
    want, got = plain(x), fast(x)
    for name in ("y", "h", "s"):
        close(got[name], want[name])


def test_results_do_not_depend_on_the_threads(convolving: NativeLibrary) -> None:
    content, x = model(6), images(6)
    one, two = (both(content, threads)[1](x)["y"] for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_a_nan_comes_through_the_relu(convolving: NativeLibrary) -> None:
    x = images(2)
    x[1, 0, 0, 0] = np.nan
    found = both(model(2))[1](x)["y"]
    assert np.isnan(found[1, :, 0, 0]).all()
    assert np.isfinite(found[0]).all()


def test_many_calls_at_once(convolving: NativeLibrary) -> None:
    plain, fast = both(model("N", side=60), threads=2)
    batches = [images(n, 60) for n in (1, 4, 2, 7)]
    pending = [fast.submit(x) for x in batches]
    for x, one in zip(batches, pending, strict=True):
        close(one.result()["y"], plain(x)["y"])


@pytest.mark.parametrize("changed", [{"side": 6}, {"channels": 8}, {"kernel": 1}])
def test_what_gains_nothing_stays_as_it_is(changed, convolving: NativeLibrary) -> None:
    content, options = model(1, **changed), Options(intra_op_threads=1)
    assert flow.accelerate(content, options, native=True) == (content, options)


def test_few_tiles_are_not_for_many_threads(convolving: NativeLibrary) -> None:
    content = model(5)  # of 25 tiles each
    for threads, native in ((1, True), (2, False)):
        rewritten, _ = flow.accelerate(content, Options(intra_op_threads=threads), native=True)
        assert (rewritten is not content) is native


def convolve(b: Builder, operator: str, x, w: tuple[int, ...], bias: bool, **attributes):
    """A convolution of an input of shape `x`, and how many channels it makes."""
    channels = w[0] if operator == "Conv" else w[1]
    given = [weights("w", *w), *([weights("b", channels)] if bias else [])]
    constants = [b.const(numpy_helper.to_array(c)) for c in given]
    return getattr(b, operator)(b.input("x", x, float32), *constants, **attributes), channels


def convolution(operator: str, x, w: tuple[int, ...], bias: bool = True, **attributes) -> bytes:
    b = Builder()
    b.output(convolve(b, operator, x, w, bias, **attributes)[0], "y")
    return model_bytes(model_of(b.graph))


OTHER_AXES = [
    ("Conv", (2, 24, 200), (24, 24, 3), {"pads": [4, 0], "dilations": [2]}),
    ("Conv", (2, 16, 6, 9, 8), (24, 16, 3, 3, 3), {"pads": [1] * 6}),
    ("Conv", (2, 16, 6, 9, 8), (32, 4, 3, 3, 3), {"group": 4, "strides": [2, 1, 2]}),
    ("ConvTranspose", (2, 16, 9, 8), (16, 24, 4, 4), {"pads": [1] * 4, "strides": [2, 2]}),
    ("ConvTranspose", (2, 16, 4, 9, 8), (16, 24, 2, 2, 2), {"strides": [2, 2, 2]}),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("operator", "x", "w", "attributes"), OTHER_AXES, ids=str)
def test_other_axes_and_transposed_convolutions(
    operator: str, x: tuple[int, ...], w: tuple[int, ...], attributes, bias: bool,
    convolving: NativeLibrary,
) -> None:  # fmt: skip
    content = convolution(operator, x, w, bias, **attributes)
    rewritten, _ = flow.accelerate(content, ONE, native=True)
    native = "Conv" if operator == "Conv" else "ConvInputGradient"
    assert f"{DOMAIN}:{native}" in operators(rewritten)
    assert f":{operator}" not in operators(rewritten)
    given = RNG.standard_normal(x).astype(np.float32)
    for threads in (1, 2):
        plain, fast = both(content, threads)
        close(fast(given)["y"], plain(given)["y"])


@pytest.mark.parametrize(("x", "w", "attributes"), [
    ((2, 16, 20, 20), (16, 24, 2, 2), {"strides": [2, 2]}),  # windows side by side
    ((1, 16, 9, 8), (16, 24, 4, 4), {"strides": [2, 2]}),  # few of them
    (("N", 16, 20, 20), (16, 24, 4, 4), {"strides": [2, 2]}),
])  # fmt: skip
def test_transposed_convolutions_that_gain_nothing_stay(x, w, attributes, convolving) -> None:
    content = convolution("ConvTranspose", x, w, **attributes)
    assert flow.accelerate(content, ONE, native=True)[0] is content


def convolution_with_norm(
    operator: str, w: tuple[int, ...], bias: bool, also: bool = False, **attributes
) -> bytes:
    """Relu(norm(conv(x)) + x2), with the result of the convolution as an output if `also`."""
    b = Builder()
    y, channels = convolve(b, operator, (2, 32, 18, 18), w, bias, **attributes)
    scale, beta, mean = (RNG.standard_normal(channels).astype(np.float32) for _ in range(3))
    variance = RNG.random(channels, np.float32) + np.float32(0.1)
    operands = (b.const(v) for v in (scale, beta, mean, variance))
    h = b.BatchNormalization(y, *operands, epsilon=1e-3)
    b.output(b.Relu(b.Add(h, b.input("x2", tuple(h.shape), float32))), "y")
    if also:
        b.output(b.Neg(y), "h")
    return model_bytes(model_of(b.graph))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("operator", "w", "attributes", "native"), [
    ("Conv", (32, 32, 3, 3), {"pads": [1] * 4}, ["Conv"]),
    ("Conv", (32, 8, 3, 3), {"pads": [1] * 4, "group": 4}, None),
    ("ConvTranspose", (32, 24, 4, 4), {"strides": [2, 2]}, ["ConvInputGradient"]),
], ids=str)  # fmt: skip
def test_normalisations_are_part_of_a_convolution(
    operator: str, w: tuple[int, ...], attributes, native, bias: bool, convolving: NativeLibrary
) -> None:
    content = convolution_with_norm(operator, w, bias, **attributes)
    rewritten, _ = flow.accelerate(content, ONE, native=True)
    if native is None:  # nothing else gains, and the runtime does it as well
        assert rewritten is content
        return
    found = operators(rewritten)
    assert [n for n in found if n.startswith(DOMAIN)] == [f"{DOMAIN}:{n}" for n in native]
    assert ":BatchNormalization" not in found
    plain, fast = both(content)
    shapes = {i.name: i.shape for i in plain.inputs}
    given = {n: RNG.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    close(fast(**given)["y"], plain(**given)["y"])


def test_normalisations_of_what_others_read_stay(convolving: NativeLibrary) -> None:
    content = convolution_with_norm("Conv", (32, 32, 3, 3), True, also=True, pads=[1] * 4)
    rewritten, _ = flow.accelerate(content, ONE, native=True)
    assert ":BatchNormalization" in operators(rewritten)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
def test_large_constants_of_any_type_stay_as_they_are(dtype, convolving: NativeLibrary) -> None:
    table = RNG.integers(0, 99, (90, 70)).astype(dtype)  # more than inference is given
    changed = onnx.load_from_string(model(2))
    kind = helper.np_dtype_to_tensor_dtype(table.dtype)
    changed.graph.initializer.append(numpy_helper.from_array(table, "table"))
    changed.graph.node.append(helper.make_node("Transpose", ["table"], ["t"], perm=[1, 0]))
    changed.graph.output.append(helper.make_tensor_value_info("t", kind, table.T.shape))
    content = changed.SerializeToString()
    rewritten, _ = flow.accelerate(content, ONE, native=True)
    assert rewritten is not content
    found = both(content)[1](images(2))
    np.testing.assert_array_equal(found["t"], table.T)
    assert found["t"].dtype == dtype


def test_weights_that_are_inputs_stay(convolving: NativeLibrary) -> None:
    proto = onnx.load_from_string(model(2))
    (w,) = [t for t in proto.graph.initializer if t.name == "w0"]
    proto.graph.initializer.remove(w)
    proto.graph.input.append(helper.make_tensor_value_info("w0", TensorProto.FLOAT, w.dims))
    rewritten, _ = flow.accelerate(proto.SerializeToString(), ONE, native=True)
    assert operators(rewritten) == [":Conv", ":Relu", f"{DOMAIN}:Conv"]


def test_a_weight_that_a_run_may_feed_is_no_constant(convolving: NativeLibrary) -> None:
    proto = onnx.load_from_string(model(2))
    (w,) = [t for t in proto.graph.initializer if t.name == "w0"]
    proto.graph.input.append(helper.make_tensor_value_info("w0", TensorProto.FLOAT, w.dims))
    content, options = flow.accelerate(proto.SerializeToString(), ONE, native=True)
    assert operators(content) == [":Conv", ":Relu", f"{DOMAIN}:Conv"]
    x, other = images(2), numpy_helper.to_array(weights("w0", *w.dims))
    plain, fast = (open_session(c, o) for c, o in ((proto.SerializeToString(), ONE),
                                                   (content, options)))  # fmt: skip
    for feeds in ({"x": x}, {"x": x, "w0": other}):
        close(fast.run(["y"], feeds)[0], plain.run(["y"], feeds)[0])


def test_a_file_with_weights_beside_it(tmp_path: Path, convolving: NativeLibrary) -> None:
    content = model(2)
    path = tmp_path / "model.onnx"
    onnx.save(onnx.load_from_string(content), path, save_as_external_data=True, size_threshold=0,
              location="w.bin")  # fmt: skip
    (tmp_path / "second").hardlink_to(tmp_path / "w.bin")  # as weights have that adapters share
    before = path.read_bytes()
    fast = Predictor(*flow.accelerate(path, ONE, native=True))
    x = images(2)
    close(fast(x)["y"], Predictor(content)(x)["y"])
    assert path.read_bytes() == before


def test_weights_outside_the_models_folder(tmp_path: Path, convolving: NativeLibrary) -> None:
    path = tmp_path / "model" / "m.onnx"
    path.parent.mkdir()
    onnx.save(
        onnx.load_from_string(model(2)), path, save_as_external_data=True, size_threshold=0,
        location="w.bin",
    )  # fmt: skip
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        tensor.external_data[0].value = "../w.bin"
    (path.parent / "w.bin").rename(tmp_path / "w.bin")
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(BundleError, match="no path inside its folder"):
        flow.accelerate(path, ONE, native=True)


def test_without_the_library(not_installed: None) -> None:
    content = model(2)
    assert flow.accelerate(content)[0] is content
    with pytest.raises(UnsupportedError, match="flow2onnx-native is not installed"):
        flow.accelerate(content, ONE, native=True)


def test_another_provider() -> None:
    content, options = model(2), Options(providers=("CUDAExecutionProvider",))
    assert flow.accelerate(content, options) == (content, options)
    with pytest.raises(OptionsError, match="native operators run on the CPU"):
        flow.accelerate(content, options, native=True)


def test_what_is_no_model(tmp_path: Path, convolving: NativeLibrary) -> None:
    with pytest.raises(BundleError, match=r"the model \(8 bytes\) cannot be opened"):
        flow.accelerate(b"no model", native=True)
    with pytest.raises(BundleError, match=r"missing\.onnx: cannot be read"):
        flow.accelerate(tmp_path / "missing.onnx", native=True)


def native_conv(form: list[int], tile: int, images: int, library: NativeLibrary):
    """A session of one native convolution, 16 channels of 8 by 8."""
    shape = [images, 16, 1, 8, 8, 16, 1, 3, 3, 1, 8, 8, *[1] * 6, 0, 1, 1, 0, 1, 1, 1, 2, 1]
    names = ["x", "w", "b", "z"]
    node = helper.make_node(
        "Conv", names, ["y"], domain=DOMAIN, shape=shape, form=form, method=tile
    )
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in (*names, "y")]
    made = helper.make_model(
        helper.make_graph([node], "g", ports[:4], ports[4:]), ir_version=10,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)],
    )  # fmt: skip
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(library.path)
    return ort.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


@pytest.mark.parametrize(
    ("form", "images"), [([1, 1, 0, 0], 2), ([1, 0, 1, 0], 2), ([1, 0, 0, 1], 2), ([1, 0, 0, 0], 0)]
)
def test_direct_convolutions_do_nothing_else(
    form: list[int], images: int, convolving: NativeLibrary
) -> None:
    with pytest.raises(Exception, match="Conv: only by winograd there are addends, Relu"):
        native_conv(form, 0, images, convolving)


@pytest.mark.parametrize("form", [[1, 0, 0], [1, 0, 0, 0, 0], []])
def test_forms_of_another_length(form: list[int], convolving: NativeLibrary) -> None:
    with pytest.raises(Exception, match=r"Conv: the shape|form|not large enough"):
        native_conv(form, 4, 2, convolving)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"x": (3, 16, 8, 7)}, "input 0 has"),
        ({"x": (16, 64)}, "input 0 has 2 axes"),
        ({"z": (2, 16, 8, 8)}, "input 3 has"),
        ({"b": (15,)}, "input 2 has"),
        ({"x": (1 << 17, 1, 1, 1)}, "more than 65536 images"),
    ],
)
def test_operands_of_other_sizes(changed, told: str, convolving: NativeLibrary) -> None:
    shapes = {"x": (3, 16, 8, 8), "w": (16, 16, 3, 3), "b": (16,), "z": (3, 16, 8, 8)} | changed
    session = native_conv([1, 1, 1, 1], 4, 0, convolving)
    with pytest.raises(Exception, match=told):
        session.run(None, {n: np.ones(s, np.float32) for n, s in shapes.items()})


def test_ranks_of_a_machine_plan_for_their_share_of_its_processors(monkeypatch):
    for name, value in {"WORLD_SIZE": "999", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert [
        accelerator._threads(options) for options in (Options(), Options(intra_op_threads=2))
    ] == [1, 2]
