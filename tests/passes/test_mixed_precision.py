"""`enable_auto_mixed_precision`: what is computed in half precision, and what comes of it."""

import logging
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from flow2onnx_runtime import kernels

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.compile import Target, compile_job
from flow2onnx.dtypes import bfloat16, by_name, float16, float32
from flow2onnx.graph import Builder
from flow2onnx.graph.types import dtype_of
from flow2onnx.passes import mixed_precision, run_passes, upcast_missing_kernels
from flow2onnx.passes.mixed_precision import CLEAR, FAILING_IN_HALF, GREY, WHITE, mix_precision
from flow2onnx.passes.upcast_missing_kernels import UpcastMissingKernels
from tests.api.support import sgd
from tests.passes.text import body_of, checked, graph_of, lines

HALVES = ("float16", "bfloat16")
RNG = np.random.default_rng(7)


def mixed(half="float16"):
    """A configuration with mixed precision, or without for None."""
    config = flow.function_config()
    if half is None:
        return config
    config.enable_auto_mixed_precision(True)
    config.runtime.mixed_precision_dtype(half)
    return config


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def weight(name, *shape):
    initializer = flow.random_normal_initializer(stddev=0.5)
    return flow.get_variable(name, shape, initializer=initializer)


def nodes(job, target=None):
    """The nodes of a job by operator, each with the element type of its first output."""
    found = {}
    for node in compile_job(job.spec, target=target or Target()).model.graph:
        found.setdefault(node.op_type, []).append(dtype_of(node.outputs[0]).name)
    return found


def predict(body, *shape, half="float16"):
    """A predict job of one input with mixed precision."""

    @flow.global_function(function_config=mixed(half))
    def job(x: tp.Numpy.Placeholder(shape)) -> tp.Numpy:
        return body(x)

    return job


class Table:
    """Kernels for what a function says of operator and element types, as a device might have."""

    provider = "a device's"

    def __init__(self, says):
        self._says = says

    def supports(self, op_type, opset, types):
        return self._says(op_type, set(types.values()))

    def has(self, op_type):
        return True

    def knows(self, op_type, opset):
        return True

    def leaves(self, op_type):
        return False

    def pads_alike(self, op_type):
        return False


EVERYTHING = Target(kernels=Table(lambda op_type, types: True))


# --- what is rewritten ------------------------------------------------------------------------


def perceptron(x):
    h = flow.math.relu(flow.matmul(x, weight("a", 4, 8)) + weight("c", 8))
    return flow.nn.softmax(flow.matmul(h, weight("d", 8, 3)) + weight("e", 3))


def test_products_and_what_lies_between_are_half():
    found = nodes(predict(perceptron, 2, 4), EVERYTHING)
    products = [t for op in ("MatMul", "Gemm") for t in found.get(op, [])]
    assert products == ["float16", "float16"]
    assert found["Relu"] == ["float16"]
    assert found["Softmax"] == ["float32"]
    # the last sum has no product ahead, so that its digits are not rounded away
    assert found["Add"][-1] == "float32"


def test_without_the_flag_nothing_changes():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        return perceptron(x)

    assert {t for types in nodes(job).values() for t in types} == {"float32"}


@pytest.fixture
def rounding(monkeypatch):
    """Casts of ours instead of the CPU provider's own, between which it rounds nothing."""
    monkeypatch.setattr(upcast_missing_kernels, "casts_itself", lambda *_: False)


@pytest.mark.parametrize("half", HALVES)
def test_results_are_those_of_rounded_operands(half, rounding):
    w, small = normal(4, 3), by_name(half).numpy
    job = predict(lambda x: flow.matmul(x, weight("w", 4, 3)), 2, 4, half=half)
    flow.load_variables({"w": w})
    x = normal(2, 4)
    product = x.astype(small).astype(np.float32) @ w.astype(small).astype(np.float32)
    result = job(x)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, product.astype(small).astype(np.float32))


def test_a_value_is_cast_once():
    def twice(x):
        return flow.matmul(x, weight("a", 4, 4)) + flow.matmul(x, weight("b", 4, 4))

    model = compile_job(predict(twice, 2, 4).spec, target=EVERYTHING).model
    casts = [n for n in model.graph if n.op_type == "Cast" and n.inputs[0].name == "x"]
    assert len(casts) == 1


def test_a_value_between_two_products_is_not_cast():
    def chain(x):
        return flow.matmul(flow.math.tanh(flow.matmul(x, weight("a", 4, 4))), weight("b", 4, 4))

    found = nodes(predict(chain, 2, 4), EVERYTHING)
    assert found["Tanh"] == ["float16"]
    assert sorted(found["Cast"]) == ["float16"] * 3 + ["float32"]  # x, a, b and the result


@pytest.mark.parametrize(("provider", "kind"), [("cpu", "float32"), ("cuda", "float16")])
def test_on_cuda_normalized_values_are_rounded_before_what_follows(provider, kind):
    def body(x):
        h = flow.nn.softmax(flow.matmul(x, weight("a", 4, 4)))
        return flow.matmul(flow.math.relu(h), weight("b", 4, 4))

    found = nodes(predict(body, 2, 4), replace(EVERYTHING, provider=provider))
    assert found["Softmax"] == ["float32"]
    assert found["Relu"] == [kind]
    assert len(found["Cast"]) == 6, "as many either way"


def test_on_cuda_a_normalized_result_keeps_its_digits():
    def body(x):
        return flow.math.relu(flow.nn.softmax(flow.matmul(x, weight("a", 4, 4))))

    found = nodes(predict(body, 2, 4), replace(EVERYTHING, provider="cuda"))
    assert found["Relu"] == ["float32"], "no product is ahead"


def test_a_sum_with_a_single_precision_value_stays_single():
    def body(x):
        s = flow.math.exp(x)
        return flow.matmul(flow.matmul(x, weight("a", 4, 4)) + s, weight("b", 4, 4))

    assert nodes(predict(body, 2, 4), EVERYTHING)["Add"] == ["float32"]


@pytest.mark.parametrize("number", [1e9, 1e-9])
def test_a_number_that_does_not_fit_keeps_its_node_single(number):
    def body(x):
        return flow.matmul(flow.matmul(x, weight("a", 4, 4)) * number, weight("b", 4, 4))

    assert nodes(predict(body, 2, 4), EVERYTHING)["Mul"] == ["float32"]


def test_double_precision_is_left_alone():
    @flow.global_function(function_config=mixed())
    def job(x: tp.Numpy.Placeholder((2, 4), dtype=flow.double)) -> tp.Numpy:
        return flow.matmul(x, x, transpose_b=True)

    assert nodes(job)["MatMul" if "MatMul" in nodes(job) else "Gemm"] == ["float64"]


def test_an_operator_with_its_own_gradient_stays_single():
    def body(x):
        h = flow.nn.relu6(flow.matmul(x, weight("a", 4, 4)))
        return flow.matmul(h, weight("b", 4, 4))

    assert nodes(predict(body, 2, 4), EVERYTHING)["Clip"] == ["float32"]


def test_a_white_identity_rounds():
    job = predict(lambda x: flow.amp_white_identity(x), 2)
    assert nodes(job, EVERYTHING) == {"Cast": ["float16", "float32"], "Identity": ["float16"]}
    np.testing.assert_array_equal(job(np.float32([1 / 3, 2049])), np.float32([0.33325195, 2048]))


def test_the_input_of_a_white_identity_leads_to_half():
    def body(x):
        return flow.amp_white_identity(flow.math.tanh(flow.matmul(x, weight("a", 4, 4))))

    assert nodes(predict(body, 2, 4), EVERYTHING)["Tanh"] == ["float16"]


def test_shapes_of_weights_may_change_on_the_way():
    def body(x):
        y = flow.matmul(x, flow.transpose(weight("a", 4, 4), [1, 0]))
        return flow.matmul(y * flow.reshape(weight("c", 2, 2), [4]), weight("b", 4, 4))

    assert nodes(predict(body, 2, 4), EVERYTHING)["Mul"] == ["float16"]


ALONE = {
    "Flatten": lambda b, h: b.Flatten(h),
    "Gelu": lambda b, h: b.Gelu(h),
    "GlobalAveragePool": lambda b, h: b.Reshape(b.GlobalAveragePool(b.Unsqueeze(h, [0])), [1, 4]),
    "Split": lambda b, h: b.several("Split", h, num_outputs=2, axis=0, outputs=2)[1],
    "Squeeze": lambda b, h: b.Squeeze(b.Unsqueeze(h, [0]), [0]),
    "Sum": lambda b, h: b.Sum(h, h, h),
    "Trilu": lambda b, h: b.Trilu(h),
    "Unsqueeze": lambda b, h: b.Reshape(b.Unsqueeze(h, [0]), [4, 4]),
}


@pytest.mark.parametrize("op_type", ALONE)
def test_operators_of_other_models_are_half(op_type):
    b = Builder()
    x, w, v = (b.input(name, (4, 4), float32) for name in "xwv")
    b.output(b.MatMul(ALONE[op_type](b, b.MatMul(x, w)), v), "y")
    mix_precision(b, float16, weights=[w, v])
    run_passes(b.graph)
    assert {dtype_of(n.outputs[0]) for n in b.graph if n.op_type == op_type} == {float16}
    assert b.graph.outputs[0].name == "y"
    assert dtype_of(b.graph.outputs[0]) == float32
    checked(b.graph)


def test_every_operator_of_the_lists_is_tested():
    named = {name.split()[0] for name in BODIES} | set(ALONE)
    assert named >= (WHITE | GREY | CLEAR) - {"Conv"}


# --- what a runtime has kernels for -----------------------------------------------------------


def test_an_operator_without_a_kernel_stays_single():
    lacking = Table(lambda op_type, types: op_type != "Tanh" or "float16" not in types)

    def body(x):
        return flow.matmul(flow.math.tanh(flow.matmul(x, weight("a", 4, 4))), weight("b", 4, 4))

    found = nodes(predict(body, 2, 4), Target(kernels=lacking))
    assert found["Tanh"] == ["float32"]
    assert {t for op in ("MatMul", "Gemm") for t in found.get(op, [])} == {"float16"}


def test_a_gradient_without_a_kernel_is_widened():
    lacking = Table(lambda op_type, types: op_type != "Greater" or "bfloat16" not in types)

    @flow.global_function(type="train", function_config=mixed("bfloat16"))
    def job(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        h = flow.math.relu(flow.matmul(x, weight("a", 4, 4)))
        loss = flow.math.reduce_sum(flow.matmul(h, weight("b", 4, 4)))
        sgd(0.1).minimize(loss)
        return loss

    graph = compile_job(job.spec, target=Target(kernels=lacking)).model.graph
    compared = [v for n in graph if n.op_type == "Greater" for v in n.inputs]
    assert compared
    assert {dtype_of(v).name for v in compared} == {"float32"}
    assert {dtype_of(n.outputs[0]).name for n in graph if n.op_type == "Relu"} == {"bfloat16"}


GAPS = {
    "inside": (
        "g (bfloat16[2] x) => (bfloat16[2] y)",
        "a = Neg(x)  b = Exp(a)  y = Neg(b)",
        'a = Neg(x)  "Exp/a/wide" = Cast<to=1>(a)  "b/wide" = Exp("Exp/a/wide")'
        '  b = Cast<to=16>("b/wide")  y = Neg(b)',
    ),
    "a result": (
        "g (bfloat16[2] x) => (bfloat16[2] y)",
        "y = Exp(x)",
        '"Exp/x/wide" = Cast<to=1>(x)  "y/wide" = Exp("Exp/x/wide")  y = Cast<to=16>("y/wide")',
    ),
    "single precision": ("g (float[2] x) => (float[2] y)", "y = Exp(x)", "y = Exp(x)"),
    "a truth": (
        "g (bfloat16[2] x) => (bool[2] y)",
        "y = IsNaN(x)",
        "y = IsNaN(x)",
    ),
}


@pytest.mark.parametrize("name", GAPS)
def test_gaps_are_widened(name):
    signature, before, after = GAPS[name]
    graph = graph_of(f"{signature} {{ {before} }}")
    for node in graph:
        node.name = node.op_type
    table = Table(lambda op_type, types: op_type != "Exp" or "bfloat16" not in types)
    assert UpcastMissingKernels(bfloat16, table).run(graph) == (before != after)
    assert body_of(graph) == lines(after)
    checked(graph)


@pytest.mark.parametrize("op_type", sorted(FAILING_IN_HALF))
def test_additions_that_fail_at_run_time_are_widened(op_type):
    """The CPU provider lists the kernel and fails when it adds up float16."""
    indices = "int64[2] i" if op_type == "ScatterElements" else "int64[2,1] i"
    text = f"g (float16[3] x, {indices}, float16[2] u) => (float16[3] y)"
    text += f' {{ y = {op_type}<reduction="add">(x, i, u) }}'
    x, u = np.float16([1, 2, 3]), np.float16([10, 20])
    i = np.array([1, 1]).reshape((2,) if op_type == "ScatterElements" else (2, 1))
    feeds = {"x": x, "i": i, "u": u}
    with pytest.raises(Exception, match=r"[Ff]loat16|reduction"):
        onnxruntime.InferenceSession(checked(graph_of(text))).run(None, feeds)
    graph = graph_of(text)
    assert UpcastMissingKernels(float16, kernels()).run(graph)
    (y,) = onnxruntime.InferenceSession(checked(graph)).run(None, feeds)
    np.testing.assert_array_equal(y, [1, 32, 3])


@pytest.fixture
def said(caplog):
    mixed_precision._warn_no_speedup.cache_clear()
    caplog.set_level(logging.WARNING, "flow2onnx.passes")
    return caplog


def test_a_cpu_says_once_that_it_gains_nothing(said):
    job = predict(lambda x: flow.matmul(x, x), 2, 2)
    job(normal(2, 2))
    compile_job(job.spec, target=Target(kernels=Table(lambda op, types: "float16" not in types)))
    texts = [r.message for r in said.records if "float16" in r.message]
    assert len(texts) == 1
    assert "nothing gets faster" in texts[0]


def test_a_device_that_gains_says_nothing(said):
    nodes(predict(lambda x: flow.matmul(x, x), 2, 2), EVERYTHING)
    assert not said.records


# --- training ---------------------------------------------------------------------------------


def trained(body, shape, half, steps=1):
    """The loss and the weights after training steps with a body that has weights."""
    flow.clear_default_session()

    @flow.global_function(type="train", function_config=mixed(half))
    def job(x: tp.Numpy.Placeholder(shape)) -> tp.Numpy:
        loss = flow.math.reduce_mean(body(x))
        sgd(0.1).minimize(loss)
        return loss

    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    losses = [job(x).item() for _ in range(steps)]
    return job, losses, {n: v.numpy() for n, v in flow.get_all_variables().items()}


def image(y):
    """A convolution, for bodies between two of them."""
    return flow.layers.conv2d(y, 4, 3, padding="SAME", name=f"conv{y.shape[2]}")


def between(f):
    """The body with `f` between two convolutions."""
    return lambda x: flow.layers.conv2d(f(image(x)), 2, 1, name="last")


BODIES = {
    "Add": between(lambda y: y + y),
    "AveragePool": between(lambda y: flow.nn.avg_pool2d(y, 3, 2, "SAME")),
    "Concat": between(lambda y: flow.concat([y, y], 1)),
    "Div": between(lambda y: y / flow.constant_like(y, 3)),
    "Dropout": between(lambda y: flow.nn.dropout(y, 0.5)),
    "Identity": between(flow.identity),
    "MaxPool": between(lambda y: flow.nn.max_pool2d(y, 2, 2, "SAME")),
    "MaxPool overlapping": between(lambda y: flow.nn.max_pool2d(y, 3, 1, "SAME")),
    "Mul": between(lambda y: y * y),
    "Pad": between(lambda y: flow.pad(y, [(0, 0), (0, 0), (1, 1), (1, 1)])),
    "Relu": between(flow.math.relu),
    "Reshape": between(lambda y: flow.reshape(y, [2, 4, 4, 16])),
    "Sigmoid": between(flow.math.sigmoid),
    "Slice": between(lambda y: flow.slice(y, [0, 0, 1, 1], [2, 4, 6, 6])),
    "Sub": between(lambda y: y - 1.0),
    "Tanh": between(flow.math.tanh),
    "Transpose": between(lambda y: flow.transpose(y, [0, 1, 3, 2])),
    "ConvTranspose": lambda x: flow.layers.conv2d(
        flow.nn.conv2d_transpose(
            x, weight("t", 3, 4, 2, 2), output_shape=(2, 4, 16, 16), strides=2, padding="SAME"
        ), 2, 1, name="last",
    ),
    "Gemm": lambda x: flow.matmul(flow.reshape(x, [6, 64]), weight("w", 64, 5)),
    "MatMul": lambda x: flow.matmul(flow.reshape(x, [2, 3, 64]), weight("w", 64, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_what_is_listed_trains_in_float16(name, rounding):
    job, _, half = trained(BODIES[name], (2, 3, 8, 8), "float16")
    assert "float16" in nodes(job, EVERYTHING)[name.split()[0]]
    _, _, whole = trained(BODIES[name], (2, 3, 8, 8), None)
    for variable, value in whole.items():
        np.testing.assert_allclose(half[variable], value, rtol=2e-2, atol=5e-3)


def test_weights_and_slots_stay_single():
    @flow.global_function(type="train", function_config=mixed())
    def job(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        loss = flow.math.reduce_sum(flow.matmul(x, weight("w", 4, 3)))
        sgd(0.1, momentum=0.9).minimize(loss)
        return loss

    graph = compile_job(job.spec).model.graph
    kept = {v.name: dtype_of(v) for v in (*graph.inputs, *graph.outputs) if "w" in v.name}
    assert kept == dict.fromkeys(("w", "w-momentum", "next/w", "next/w-momentum"), float32)


@pytest.mark.parametrize("half", HALVES)
def test_a_watched_gradient_is_that_of_everything_made_of_the_value(half):
    seen = {}

    @flow.global_function(type="train", function_config=mixed(half))
    def job(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        h = flow.matmul(x, weight("a", 4, 4))
        flow.watch_diff(h, lambda g: seen.update(g=g.numpy()))
        loss = flow.matmul(flow.math.tanh(h), weight("b", 4, 4)) + flow.math.exp(h)
        sgd(0.0).minimize(loss)
        return h

    h = job(normal(2, 4))
    b = flow.get_all_variables()["b"].numpy()
    expected = np.ones((2, 4)) @ b.T * (1 - np.tanh(h) ** 2) + np.exp(h)
    np.testing.assert_allclose(seen["g"], expected, rtol=5e-2, atol=5e-2)


def test_a_static_scale_saves_small_gradients(rounding):
    """A gradient of 1e-8 is 0 in float16, unless it is computed of a multiple of the loss."""

    def moved(scale):
        flow.clear_default_session()

        @flow.global_function(type="train", function_config=mixed())
        def job(x: tp.Numpy.Placeholder((1, 4))) -> tp.Numpy:
            h = flow.matmul(x, weight("w", 4, 4))
            loss = flow.math.reduce_sum(flow.matmul(h, weight("v", 4, 4))) * 1e-8
            flow.optimizer.SGD(
                flow.optimizer.PiecewiseConstantScheduler([], [1e8]),
                momentum=0, loss_scale_factor=scale, variables=["w"],
            ).minimize(loss)  # fmt: skip
            return loss

        flow.load_variables({"w": np.zeros((4, 4), np.float32), "v": np.eye(4, dtype=np.float32)})
        job(np.ones((1, 4), np.float32))
        return flow.get_all_variables()["w"].numpy()

    np.testing.assert_array_equal(moved(None), 0)
    np.testing.assert_allclose(moved(2.0**16), -1, rtol=1e-2)


# --- export -----------------------------------------------------------------------------------


@pytest.mark.parametrize("half", HALVES)
def test_exports_are_standard_and_verified(half, tmp_path):
    job = predict(perceptron, 2, 4, half=half)
    x = normal(2, 4)
    expected = job(x)
    report = job.export(tmp_path / "mixed.onnx")
    assert report.ok, str(report)
    session = onnxruntime.InferenceSession(tmp_path / "mixed.onnx")
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-2)


@pytest.mark.parametrize("half", HALVES)
def test_exported_steps_train_on(half, tmp_path):
    """With a loss scale in their state, on the runtime alone."""
    from flow2onnx_runtime import Trainer

    @flow.global_function(type="train", function_config=mixed(half))
    def job(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        loss = flow.math.reduce_mean(perceptron(x))
        flow.optimizer.Adam(
            flow.optimizer.PiecewiseConstantScheduler([], [0.1]),
            loss_scale_policy=flow.optimizer.loss_scale.dynamic_loss_scale(64.0, 2, 2.0),
        ).minimize(flow.math.square(loss - 1.0))
        return loss

    x = normal(2, 4)
    for _ in range(2):
        job(x)
    report = job.export(tmp_path / "bundle")
    assert report.ok, str(report)
    trainer = Trainer(tmp_path / "bundle")
    np.testing.assert_allclose(trainer.step(x)["out/0"], job(x), rtol=1e-6)
