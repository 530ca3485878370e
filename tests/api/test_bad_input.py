"""Every mistake gives an error that names the job, the operator, the line and what to do."""

import traceback

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import (
    AnnotationError,
    ArgumentError,
    CallError,
    ContextError,
    DTypeError,
    JobError,
    ProviderError,
    ShapeError,
    VariableError,
)
from tests.api.support import f32, raises


@pytest.fixture
def job():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3)), y: tp.Numpy.Placeholder((2,), flow.int32)) -> tp.Numpy:
        return x

    return job


X, Y = np.zeros((2, 3), np.float32), np.zeros((2,), np.int32)


@pytest.mark.parametrize(
    ("args", "kind", "builtin", "text"),
    [
        ((X.T, Y), ShapeError, AssertionError, "x: shape (2, 3) is declared, (3, 2) was passed"),
        ((X[0], Y), ShapeError, AssertionError, "(3,) was passed"),
        ((X[:1], Y), ShapeError, ValueError, "(1, 3) was passed"),
        ((X[None], Y), ShapeError, AssertionError, "(1, 2, 3) was passed"),
        ((X.astype("d"), Y), DTypeError, TypeError, "float32 is declared, float64 was passed"),
        ((X, Y.astype("f")), DTypeError, TypeError, "y: int32 is declared, float32 was passed"),
        ((X, Y.astype("l")), DTypeError, AssertionError, "int32 is declared, int64 was passed"),
        ((X.astype("D"), Y), DTypeError, TypeError, "complex128"),
        ((X.astype(object), Y), DTypeError, TypeError, "object"),
        ((X.tolist(), Y), ArgumentError, AssertionError, "list was passed"),
        ((1.0, Y), ArgumentError, AssertionError, "float was passed"),
        ((None, Y), ArgumentError, AssertionError, "NoneType was passed"),
        ((), ArgumentError, AssertionError, "2 arguments are declared (x, y), 0 were passed"),
        ((X,), ArgumentError, AssertionError, "1 were passed"),
        ((X, Y, Y), ArgumentError, AssertionError, "3 were passed"),
    ],
)
def test_arguments(job, args, kind, builtin, text):
    with raises(kind, builtin, text, job="job", at="job(*args)"):
        job(*args)


def test_arguments_by_name(job):
    assert np.array_equal(job(X + 1, y=Y), X + 1)
    assert np.array_equal(job(y=Y, x=X), X)


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((X,), {"labels": Y}, "got an unexpected keyword argument 'labels'"),
        ((X, Y), {"y": Y}, "got multiple values for argument 'y'"),
        ((), {"y": Y}, "is missing x"),
    ],
)
def test_keyword_arguments(job, args, kwargs, text):
    with raises(CallError, TypeError, text, job="job", at="job(*args, **kwargs)"):
        job(*args, **kwargs)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (f32(1, 2), ArgumentError, "a list of one array per device"),
        ([], ArgumentError, "0 were passed"),
        ([f32(1), f32(2)], ArgumentError, "2 were passed"),
        ([[1.0]], ArgumentError, "a numpy.ndarray"),
        ([f32(1, 2, 3)], ShapeError, "at most shape (2,) is declared, (3,) was passed"),
        ([f32(1, 2).reshape(1, 2)], ShapeError, "(1, 2) was passed"),
        ([np.zeros(2)], DTypeError, "float64 was passed"),
    ],
)
def test_list_arguments(value, kind, text):
    @flow.global_function()
    def listed(x: tp.ListNumpy.Placeholder((2,))) -> tp.ListNumpy:
        return x

    with raises(kind, AssertionError, text, job="listed", at="listed(value)"):
        listed(value)


def test_several_arrays_in_a_tensor_list():
    @flow.global_function()
    def listed(x: tp.ListListNumpy.Placeholder((4,))) -> tp.ListListNumpy:
        return x

    with raises(flow.errors.UnsupportedError, NotImplementedError, "tensor list", job="listed"):
        listed([[f32(1), f32(2)]])


def test_parameters_in_part_annotated():
    with raises(
        AnnotationError,
        NotImplementedError,
        "All parameters of global function should be annotated",
        job="mixed",
        at="global_function",
    ) as info:

        @flow.global_function()
        def mixed(x: tp.Numpy.Placeholder((2,)), y, z=3) -> tp.Numpy:
            return x

    assert "annotate y, z" in info.value.hint


@pytest.mark.parametrize("annotation", [int, np.ndarray, tp.Numpy, "tp.Nothing", 5, tuple])
def test_unknown_annotations(annotation):
    def odd(x):
        return x

    odd.__annotations__["x"] = annotation
    with raises(AnnotationError, NotImplementedError, job="odd", at="def odd"):
        flow.global_function()(odd)


def test_parameters_of_other_kinds():
    kind = tp.Numpy.Placeholder((2,))

    def several(*x: kind) -> tp.Numpy: ...
    def named(**x: kind) -> tp.Numpy: ...
    def keyword(*, x: kind) -> tp.Numpy: ...

    for function in (several, named, keyword):
        with raises(
            JobError,
            AssertionError,
            "no parameters like *args or **kwargs supported",
            job=function.__name__,
            at=f"def {function.__name__}",
        ):
            flow.global_function()(function)


def test_default_that_is_no_definition():
    with raises(AnnotationError, NotImplementedError, "default of parameter x", job="odd"):

        @flow.function()
        def odd(x=3):
            return x


@pytest.mark.parametrize("shape", [[2, 3], 2, None])
def test_placeholder_shape_is_a_tuple(shape):
    with raises(ShapeError, AssertionError, f"shape should be a tuple. {shape} found"):
        tp.Numpy.Placeholder(shape)


@pytest.mark.parametrize("shape", [(0,), (-1, 2), (2.0,), (np.int64(2),), (True,)])
def test_placeholder_dimensions_are_positive(shape):
    with raises(ShapeError, AssertionError, "should be an int above 0"):
        tp.Numpy.Placeholder(shape)


def body_job(body):
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Bundle[tp.Numpy]:
        return body(x)

    return flow.global_function()(job)


@pytest.mark.parametrize(
    ("op", "body", "kind", "builtin"),
    [
        ("matmul", lambda x: flow.matmul(x, x), ShapeError, AssertionError),
        ("reshape", lambda x: flow.reshape(x, [4, 4]), ShapeError, ValueError),
        ("concat", lambda x: flow.concat([x, flow.reshape(x, [3, 2])], 0), ShapeError, ValueError),
        ("math.add", lambda x: flow.math.add(x, flow.cast(x, flow.int32)), DTypeError, TypeError),
        ("math.add", lambda x: x + flow.cast(x, flow.int32), DTypeError, TypeError),
        ("nn.dropout", lambda x: flow.nn.dropout(x, rate=2.0), ArgumentError, ValueError),
        ("math.relu", lambda x: flow.math.relu(x, x, x, x), ArgumentError, AssertionError),
        ("math.relu", lambda x: flow.math.relu(y=x), ArgumentError, AssertionError),
    ],
)
def test_operators(op, body, kind, builtin):
    with raises(kind, builtin, job="job", at=f'("{op}", lambda', has_hint=False) as info:
        body_job(body)(X)
    assert info.value.op is not None
    assert info.value.op.split(".")[-1] == op.split(".")[-1]


def test_same_operator_name_twice():
    def body(x):
        flow.math.relu(x, name="r")
        return flow.math.relu(x, name="r")  # again

    with raises(JobError, AssertionError, "op_name: r already exist in job", at="# again",
                job="job"):  # fmt: skip
        body_job(body)(X)


def test_second_unnamed_layer():
    def body(x):
        return flow.layers.dense(flow.layers.dense(x, 2), 2)  # unnamed

    with raises(VariableError, AssertionError, "'Dense-weight' already exists", at="# unnamed",
                job="job"):  # fmt: skip
        body_job(body)(X)


def test_operator_outside_a_job():
    with raises(ContextError, NotImplementedError, at="flow.math.relu(X)") as info:
        flow.math.relu(X)
    assert info.value.op == "math.relu"


def test_failure_inside_the_runtime_is_located():
    @flow.global_function()
    def pick(i: tp.Numpy.Placeholder((1,), flow.int32)) -> tp.Numpy:
        table = flow.get_variable("t", (3,), initializer=flow.ones_initializer())
        return flow.gather(table, i + 0)  # computed: nobody checks it before

    assert pick(np.array([2], np.int32)).tolist() == [1]
    with raises(flow.errors.FlowError, RuntimeError, job="pick", at="pick(np.array([9]"):
        pick(np.array([9], np.int32))


def test_provider_that_is_not_usable():
    from flow2onnx_runtime import usable_providers

    if "TensorrtExecutionProvider" in usable_providers():
        pytest.skip("this machine has TensorRT")
    config = flow.function_config()
    config.use_tensorrt(True)

    @flow.global_function("predict", config)
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        return x

    with raises(ProviderError, RuntimeError, "TensorrtExecutionProvider", job="job", at="job(X)"):
        job(X)


def test_unknown_setting():
    with pytest.raises((AssertionError, AttributeError), match="concurrency_width"):
        flow.function_config().concurrency_widht(3)


def test_runtime_options_of_settings():
    from flow2onnx.config import Settings
    from flow2onnx.engine.options import job_options

    settings, config = Settings(), flow.function_config()
    settings.set("compute_thread_pool_size", 1)
    settings.set("enable_tensor_float_32_compute", False)
    config.cudnn_conv_use_deterministic_algo_only(True)
    on_cpu = job_options(config, settings, "CPUExecutionProvider")
    assert on_cpu.provider_names == ("CPUExecutionProvider",)
    assert on_cpu.intra_op_threads == 1
    assert on_cpu.deterministic
    on_gpu = job_options(config, settings, "CUDAExecutionProvider")
    assert on_gpu.provider_names == ("CUDAExecutionProvider", "CPUExecutionProvider")
    assert on_gpu.providers[0][1]["use_tf32"] == "0"


def frames(error):
    return [f.filename for f in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("body", [lambda x: flow.reshape(x, [5]), lambda x: x.shape[9]])
def test_tracebacks_are_of_the_users_frames(body, monkeypatch):
    with pytest.raises((ShapeError, IndexError)) as caught:
        body_job(body)(X)
    found = frames(caught.value)
    assert sum("flow2onnx/" in name for name in found) <= 1, found
    assert sum(name == __file__ for name in found) == 3  # the call, the job, the operator
    assert caught.value.__cause__ is None
    flow.clear_default_session()
    monkeypatch.setenv("FLOW2ONNX_TRACEBACK", "full")
    with pytest.raises((ShapeError, IndexError)) as caught:
        body_job(body)(X)
    assert sum("flow2onnx/" in name for name in frames(caught.value)) > 4
