"""`enable_quantization_aware_training` and the flags of `qat.`."""

import numpy as np
import onnx
import onnxruntime
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.compile import compile_job
from flow2onnx.errors import ArgumentError, ConfigError, UnsupportedError
from flow2onnx.graph import Builder
from flow2onnx.passes.quantize_bias import QuantizeBias
from tests.api.support import raises, sgd

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 3, 8, 8)).astype(np.float32)


def qat(**flags):
    config = flow.function_config()
    config.enable_quantization_aware_training(True)
    for name, value in flags.items():
        getattr(config.qat, name)(value)
    return config


def network(x):
    """Two convolutions with ReLU, and a dense layer."""
    start = flow.random_normal_initializer(stddev=0.3)
    for i in range(2):
        x = flow.layers.conv2d(x, 4, 3, padding="SAME", activation=flow.math.relu,
                               kernel_initializer=start, name=f"conv{i}")  # fmt: skip
    return flow.layers.dense(flow.reshape(x, [2, -1]), 3, kernel_initializer=start, name="dense")


def jobs(body=network, shape=X.shape, rate=0.01, **flags):
    """A train job and a predict job of one network."""

    @flow.global_function(type="train", function_config=qat(**flags))
    def train(x: tp.Numpy.Placeholder(shape)) -> tp.Numpy:
        loss = flow.math.reduce_mean(flow.math.square(body(x)))
        sgd(rate).minimize(loss)
        return loss

    @flow.global_function(function_config=qat(**flags))
    def predict(x: tp.Numpy.Placeholder(shape)) -> tp.Numpy:
        return body(x)

    return train, predict


def product(x):
    return flow.matmul(x, flow.get_variable("w", (4, 3), initializer=flow.ones_initializer()))


def state(name):
    return flow.get_all_variables()[name].numpy()


def rounded(x, scale, zero=0, low=-128, high=127):
    return ((np.clip(np.rint(x / scale) + zero, low, high) - zero) * scale).astype(np.float32)


def count(job, op_type):
    return sum(n.op_type == op_type for n in compile_job(job.spec).model.graph)


# --- the graph --------------------------------------------------------------------------------


def test_products_read_quantized_operands():
    train, predict = jobs()
    for job in (train, predict):
        assert count(job, "QuantizeLinear") == 6
        for node in compile_job(job.spec).model.graph:
            if node.op_type == "Conv" and "grad" not in node.name:
                assert {v.producer().op_type for v in node.inputs[:2]} == {"DequantizeLinear"}


def test_without_the_flag_nothing_is_quantized():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder(X.shape)) -> tp.Numpy:
        return network(x)

    assert count(job, "QuantizeLinear") == 0


def test_the_short_name_means_the_same():
    config = flow.function_config()
    config.enable_qat(True)

    @flow.global_function(function_config=config)
    def job(x: tp.Numpy.Placeholder(X.shape)) -> tp.Numpy:
        return network(x)

    assert count(job, "QuantizeLinear") == 6


def test_a_value_is_observed_once():
    def twice(x):
        weights = [
            flow.get_variable(n, (4, 3), initializer=flow.ones_initializer()) for n in ("a", "b")
        ]
        return flow.matmul(x, weights[0]) + flow.matmul(x, weights[1])

    train, _ = jobs(twice, (2, 4))
    assert count(train, "QuantizeLinear") == 3
    scales = [n for n in compile_job(train.spec).variables if n.endswith("-scale")]
    assert scales == ["a-input-scale"]


def test_a_weight_used_twice_has_two_observers():
    train, _ = jobs(lambda x: product(x) + product(x * 2.0), (2, 4))
    scales = [n for n in compile_job(train.spec).variables if n.endswith("-scale")]
    assert scales == ["w-input-scale", "w-input_1-scale"]


# --- numbers ----------------------------------------------------------------------------------


def test_a_step_computes_with_what_eight_bits_hold():
    train, _ = jobs(product, (2, 4), rate=0.0)
    w, x = RNG.normal(size=(4, 3)).astype(np.float32), RNG.normal(size=(2, 4)).astype(np.float32)
    flow.load_variables({"w": w})
    small = rounded(x, abs(x).max() / 127) @ rounded(w, abs(w).max() / 127)
    np.testing.assert_allclose(train(x), np.mean(small**2), rtol=1e-5)


def test_one_scale_for_each_output_channel():
    train, _ = jobs(product, (2, 4), rate=0.0, per_channel_weight_quantization=True)
    w, x = RNG.normal(size=(4, 3)).astype(np.float32), RNG.normal(size=(2, 4)).astype(np.float32)
    w *= np.float32([1, 10, 100])
    flow.load_variables({"w": w})
    small = rounded(x, abs(x).max() / 127) @ rounded(w, abs(w).max(0) / 127)
    np.testing.assert_allclose(train(x), np.mean(small**2), rtol=1e-5)


@pytest.mark.parametrize("low", [-1, 0.5])
def test_zero_points_anywhere(low):
    train, _ = jobs(product, (2, 4), rate=0.0, symmetric=False)
    w = RNG.uniform(-0.5, 2, (4, 3)).astype(np.float32)
    x = RNG.uniform(low, 3, (2, 4)).astype(np.float32)
    flow.load_variables({"w": w})

    def affine(v):
        """Zero is always among the values that the eight bits hold."""
        least, most = min(v.min(), 0), max(v.max(), 0)
        scale = np.float32((most - least) / 255)
        return rounded(v, scale, np.rint(-least / scale), 0, 255)

    np.testing.assert_allclose(train(x), np.mean((affine(x) @ affine(w)) ** 2), rtol=1e-5)


@pytest.mark.parametrize("symmetric", [True, False])
def test_cambricon_scales_are_powers_of_two(symmetric):
    """Its formula has zero points at 0 whatever qat.symmetric says, as OneFlow's kernel."""
    train, _ = jobs(product, (2, 4), rate=0.0, target_backend="cambricon", symmetric=symmetric)
    train(np.float32([[0.1, 3, -2, 1]] * 2))
    assert state("w-input-scale") == 2.0 ** (1 - 6)


def test_the_gradient_passes_straight_through():
    train, _ = jobs(product, (2, 4), rate=1.0)
    x = RNG.normal(size=(2, 4)).astype(np.float32)
    train(x)
    small = rounded(x, abs(x).max() / 127)
    g = small.T @ (2 / 6 * (small @ np.ones((4, 3), np.float32)))
    np.testing.assert_allclose(state("w"), 1 - g, rtol=1e-4, atol=1e-5)


# --- observers --------------------------------------------------------------------------------


def test_ranges_move():
    train, _ = jobs(product, (2, 4), rate=0.0, moving_min_max_momentum=0.75)
    train(np.float32([[-1, 0, 0, 2]] * 2))
    assert (state("w-input-moving_min"), state("w-input-moving_max")) == (-1, 2)
    train(np.float32([[-5, 0, 0, 4]] * 2))
    assert (state("w-input-moving_min"), state("w-input-moving_max")) == (-2, 2.5)
    np.testing.assert_allclose(state("w-input-scale"), 2.5 / 127)


def test_ranges_stay_after_so_many_steps():
    train, _ = jobs(product, (2, 4), rate=0.0, moving_min_max_stop_update_after_iters=2)
    found = []
    for top in (1.0, 2.0, 30.0, 40.0):
        train(np.full((2, 4), top, np.float32))
        found.append(state("w-input-moving_max").item())
    assert found[1] == found[2] == found[3] == pytest.approx(1.05)


def test_a_step_that_overflows_leaves_the_range():
    train, _ = jobs(product, (2, 4), rate=0.0)
    train(np.ones((2, 4), np.float32))
    train(np.full((2, 4), np.inf, np.float32))
    assert state("w-input-moving_max") == 1


def test_predict_jobs_use_the_observed_range():
    train, predict = jobs(product, (2, 4), rate=0.0)
    train(np.float32([[-1, 0, 0, 2]] * 2))
    x = RNG.normal(size=(2, 4)).astype(np.float32) * 3  # beyond the range: it is cut there
    ones = np.ones((4, 3), np.float32)
    np.testing.assert_allclose(predict(x), rounded(x, 2 / 127) @ rounded(ones, 1 / 127), rtol=1e-5)


def test_a_range_never_observed_shows():
    _, predict = jobs(product, (2, 4))
    assert np.isnan(predict(np.ones((2, 4), np.float32))).all()


def test_training_gets_somewhere():
    train, predict = jobs()
    losses = [train(X).item() for _ in range(10)]
    assert losses[-1] < losses[0] / 10
    assert np.isfinite(predict(X)).all()


def test_with_mixed_precision():
    config = qat()
    config.enable_auto_mixed_precision(True)

    @flow.global_function(type="train", function_config=config)
    def train(x: tp.Numpy.Placeholder(X.shape)) -> tp.Numpy:
        loss = flow.math.reduce_mean(flow.math.square(network(x)))
        sgd(0.01).minimize(loss)
        return loss

    losses = [train(X).item() for _ in range(10)]
    assert losses[-1] < losses[0] / 10


def test_a_backend_without_zero_points():
    with raises(ConfigError, ValueError, "qat.symmetric"):
        jobs(product, (2, 4), symmetric=False, target_backend="tensorrt")[0](np.ones((2, 4), "f"))


# --- the operators ----------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "bits"), [("symmetric", 8), ("symmetric", 4), ("affine", 8)])
@pytest.mark.parametrize("per_layer", [True, False])
def test_fake_quantization_by_an_observer(scheme, bits, per_layer):
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((3, 4))) -> tuple[tp.Numpy, tp.Numpy, tp.Numpy]:
        scale, zero = flow.quantization.min_max_observer(
            x, bits, scheme, per_layer_quantization=per_layer
        )
        return scale, zero, flow.quantization.fake_quantization(x, scale, zero, bits, scheme)

    x = RNG.normal(size=(3, 4)).astype(np.float32)
    scale, zero, y = job(x)
    axis = None if per_layer else 1
    low, high = x.min(axis, keepdims=True), x.max(axis, keepdims=True)
    half = 2 ** (bits - 1)
    if scheme == "symmetric":
        size, middle = np.maximum(abs(low), abs(high)) / (half - 1), np.zeros_like(low)
        expected = rounded(x, size, middle, -half, half - 1)
    else:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        size = (high - low) / (2 * half - 1)
        middle = np.rint(-low / size)
        expected = rounded(x, size, middle, 0, 2 * half - 1)
    assert scale.shape == zero.shape == ((1,) if per_layer else (3,))
    np.testing.assert_allclose(scale, size.reshape(-1), rtol=1e-6)
    np.testing.assert_array_equal(zero, middle.reshape(-1))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["Observer", "_observer"])
def test_a_moving_observer(name):
    observer = getattr(flow.quantization, f"moving_average_min_max{name}")

    def body(x):
        scale, zero = observer(x, momentum=0.5, name="seen")
        w = flow.get_variable("w", (2,), initializer=flow.ones_initializer())
        return scale, flow.quantization.fake_quantization(x * w, scale, zero)

    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        scale, y = body(x)
        sgd(1.0).minimize(flow.math.reduce_sum(y))
        return scale

    @flow.global_function()
    def predict(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return body(x)[0]

    x = np.float32([-1, 2])
    np.testing.assert_allclose(train(x), 2 / 127)
    np.testing.assert_array_equal(state("w"), 1 - x)  # straight through
    np.testing.assert_allclose(train(x * 2), 3 / 127)
    np.testing.assert_allclose(predict(x), 3 / 127)


BAD = {
    "bits": (dict(quantization_bit=1), ArgumentError, "quantization_bit"),
    "scheme": (dict(quantization_scheme="linear"), ArgumentError, "quantization_scheme"),
    "formula": (dict(quantization_formula="cambricon"), UnsupportedError, "cambricon"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_an_observer_does_not_take(name):
    arguments, kind, text = BAD[name]

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return flow.quantization.min_max_observer(x, **arguments)[0]

    with pytest.raises(kind, match=text):
        job(np.ones(2, np.float32))


# --- export -----------------------------------------------------------------------------------


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_exported_model_computes_in_integers(symmetric, per_channel, tmp_path):
    train, predict = jobs(symmetric=symmetric, per_channel_weight_quantization=per_channel)
    for _ in range(3):
        train(X)
    expected, path = predict(X), tmp_path / "quantized.onnx"
    assert predict.export(path).ok
    written = onnx.load(path)
    assert {i.domain for i in written.opset_import} == {""}
    assert "conv0-weight-input-scale" in {i.name for i in written.graph.initializer}
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 3  # that file is for this machine only, it warns
    session = onnxruntime.InferenceSession(path, options)
    steps = abs(session.run(None, {"x": X})[0] - expected)
    assert steps.max() < 0.02 * abs(expected).max()
    kinds = [n.op_type for n in onnx.load(tmp_path / "optimised.onnx").graph.node]
    assert "QGemm" in kinds
    # a ReLU between two convolutions can be part of uint8's range, not of int8's
    assert kinds.count("QLinearConv") == (0 if symmetric else 2)


def test_biases_of_other_products_stay():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder(X.shape)) -> tp.Numpy:
        return network(x)

    model = compile_job(job.spec).model
    assert not QuantizeBias(Builder()).run(model.graph)
