"""Small names: environment, devices, old spellings, and what a blob tells of itself."""

import logging

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import (
    AnnotationError,
    ArgumentError,
    CheckpointError,
    ConfigError,
    ContextError,
    UnsupportedError,
)
from tests.api.support import raises, sgd, variable
from tests.ops.jobs import define, predict

INPUT = flow.FixedTensorDef((2,))
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def traced(look, kind="predict"):
    """The answer of `look` for the one input, inside a job."""
    found = []

    def body(x):
        found.append(look(x))
        return x

    flow.clear_default_session()
    define(body, [X], kind)(X).get()
    return found[0]


def test_names_that_old_programs_ask_for():
    assert traced(lambda x: x.static_shape) == (2, 3)
    assert flow.int is flow.int32
    assert flow.Size((2, 3)).numel() == 6
    assert flow.Size([2, 3]) == (2, 3)
    devices = traced(lambda x: flow.current_scope().device_parallel_desc_symbol)
    assert (devices.device_tag, devices.parallel_num) == ("cpu", 1)
    assert devices.parallel_conf.device_name == ("0:0",)
    with raises(UnsupportedError, NotImplementedError, "traced once"):
        flow.deprecated.nn.Module()


@pytest.mark.parametrize("dtype", [*flow.dtypes(), "float16", np.int8])
def test_variables_may_have_any_type_by_default(dtype):
    config = flow.function_config()
    config.default_data_type(dtype)

    @flow.global_function("predict", config)
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        v = flow.get_variable("v", (2,), dtype=None, initializer=flow.ones_initializer())
        assert v.dtype == config.value("default_data_type")
        return x

    assert np.array_equal(job(X), X)


def test_blob_members():
    assert traced(lambda x: x.with_split_distribute(1).distribute) == flow.distribute.split(1)
    assert traced(lambda x: x.with_split_distribute(1).unique_name.endswith(":S(1)"))
    assert traced(lambda x: x.with_broadcast_distribute().distribute) == flow.distribute.broadcast()
    assert traced(lambda x: (x.split_axis, x.with_split_distribute(1).split_axis)) == (None, 1)
    assert traced(lambda x: x.with_broadcast_distribute().split_axis) is None
    assert traced(lambda x: x.is_tensor_list) is False
    assert traced(lambda x: x.parallel_size) == 1
    assert traced(lambda x: x.batch_axis) == 0
    lbi, name = traced(lambda x: (x.lbi, x.logical_blob_name))
    assert f"{lbi.op_name}/{lbi.blob_name}" == name


def test_where_a_blob_comes_from():
    assert traced(lambda x: (x + 1).location).startswith("tests/api/test_environment.py:")
    assert traced(lambda x: x.location) == ""


def test_placement_of_a_blob():
    def look(x):
        outside = x.parallel_conf
        with flow.scope.placement("gpu", "0:0"), flow.scope.placement("cpu", "0:0"):
            inside = x.parallel_conf
        return outside, inside, x.parallel_conf

    outside, inside, after = traced(look)
    assert inside.device_tag == "cpu"
    assert outside == after
    assert outside.device_name == ("0:0",)


def test_current_scope():
    def look(x):
        with flow.scope.namespace("a"), flow.scope.mirrored_view():
            return flow.current_scope()

    found = traced(look)
    assert (found.namespace, found.is_mirrored, found.parallel_num) == ("a", True, 1)
    with raises(ContextError, NotImplementedError, "current_scope"):
        flow.current_scope()


def test_scope_config():
    def look(x):
        with flow.experimental.scope.config(checkpointing=True, ssp_num_stages=2):
            return flow.math.relu(x).shape

    assert traced(look) == (2, 3)
    with raises(ConfigError, ValueError, "no attribute of a scope is named checkpoint"):
        traced(lambda x: flow.experimental.scope.config(checkpoint=True).__enter__())


@pytest.mark.parametrize(
    "spelling",
    ["name_scope", "deprecated.variable_scope", "experimental.name_scope"],
)
def test_old_namespaces(spelling):
    scope = flow
    for part in spelling.split("."):
        scope = getattr(scope, part)

    def look(x):
        with pytest.warns(DeprecationWarning, match=r"scope\.namespace"), scope("a"):
            return flow.get_variable("w", (1,), initializer=flow.zeros_initializer()).op_name

    assert traced(look) == "a-w"


def test_environment():
    assert flow.current_machine_id() == 0
    assert flow.current_resource()["machine_num"] == 1
    assert flow.distributed.get_rank() == 0
    assert flow.distributed.get_world_size() == 1
    assert not flow.eager_execution_enabled()
    assert not flow.sysconfig.with_xla()
    assert not flow.sysconfig.has_rpc_backend_grpc()
    assert not flow.sysconfig.has_rpc_backend_local()
    assert isinstance(flow.sysconfig.with_cuda(), bool)
    assert flow.sysconfig.get_compile_flags() == flow.sysconfig.get_link_flags() == []
    assert flow.sysconfig.get_cuda_version() == ""


def test_unique_str():
    names = [flow.unique_str("a"), flow.util.unique_str("a"), flow.unique_str("b")]
    assert len(set(names)) == 3
    assert names[0].startswith("a")


def test_is_deprecated():
    assert flow.is_deprecated(flow.fixed_placement)
    assert not flow.is_deprecated(flow.scope.placement)


@pytest.mark.parametrize(
    "call",
    [flow.enable_eager_execution, lambda: flow.inter_job_reuse_mem_strategy("reuse_mem_priority")],
)
def test_what_has_no_effect_says_so(call, caplog):
    with caplog.at_level(logging.WARNING, "flow2onnx.config"):
        assert call() is None
    (record,) = caplog.records
    assert "has no effect" in record.message
    assert "test_environment.py" in record.message


def test_strategies_are_known_by_name():
    with pytest.raises(ConfigError, match="'reuse_memory' is no strategy") as caught:
        flow.inter_job_reuse_mem_strategy("reuse_memory")
    assert "reuse_mem_priority" in caught.value.hint


def test_no_eager_execution_is_no_news(caplog):
    flow.enable_eager_execution(False)
    assert not caplog.records


def test_profiler():
    flow.profiler.range_push("a")
    flow.profiler.range_pop()
    (y,) = predict(lambda x: flow.profiler.nvtx_end(flow.profiler.nvtx_start(x, "a"), "a"), X)
    np.testing.assert_array_equal(y, X)


def test_interface_blobs():
    flow.clear_default_session()

    @flow.global_function(type="train")
    def job() -> tp.Numpy:
        w = variable("w", (2,), 1.0)
        sgd(1.0).minimize(w)
        return w

    np.testing.assert_array_equal(flow.experimental.get_interface_blob_value("w"), [1, 1])
    flow.experimental.set_interface_blob_value("w", np.array([3, 4], np.float32))
    np.testing.assert_array_equal(job(), [3, 4])
    with raises(CheckpointError, RuntimeError, '"v" is not a variable name'):
        flow.experimental.get_interface_blob_value("v")
    with raises(CheckpointError, RuntimeError, '"v" is not a variable name'):
        flow.experimental.set_interface_blob_value("v", np.zeros(2, np.float32))


def test_typing_check():
    flow.clear_default_session()
    flow.experimental.enable_typing_check()
    with raises(AnnotationError, NotImplementedError, "should be annotated"):

        @flow.global_function()
        def old(x=INPUT):
            return x

    with raises(AnnotationError, NotImplementedError, "the result of global function"):

        @flow.global_function()
        def half(x: tp.Numpy.Placeholder((2,))):
            return x

    flow.experimental.enable_typing_check(False)
    flow.global_function()(lambda x=INPUT: x)
    flow.clear_default_session()


def test_one_device():
    def body(x):
        (piece,) = flow.advanced.distribute_split(x)
        (copy,) = flow.advanced.distribute_clone(piece)
        mapped = flow.advanced.distribute_map([copy], flow.math.relu)
        mapped = flow.cast_to_current_logical_view(mapped)
        return flow.advanced.distribute_add([flow.advanced.distribute_concat([mapped])])

    np.testing.assert_array_equal(predict(body, X)[0], np.maximum(X, 0))
    with raises(ArgumentError, ValueError, "there is one device, and 2 blobs in xs"):
        traced(lambda x: flow.advanced.distribute_add([x, x]))
    flow.distribute.assert_is_valid_distribute(flow.distribute.auto())
    with raises(ArgumentError, AssertionError, "distribute is a distribution hint, got 'S(0)'"):
        flow.distribute.assert_is_valid_distribute("S(0)")


def test_keras():
    def body(x):
        return flow.keras.activations.relu(x), flow.math.tanh(x)

    relu, tanh = predict(body, X)
    np.testing.assert_array_equal(relu, np.maximum(X, 0))
    with raises(ArgumentError, ValueError, "stay at their defaults"):
        traced(lambda x: flow.keras.activations.relu(x, alpha=0.5))

    def old(x):
        with pytest.warns(DeprecationWarning, match=r"flow\.keras\.activations\.tanh is"):
            y = flow.keras.activations.tanh(x)
        with pytest.warns(DeprecationWarning, match=r"flow\.keras\.maths\.add is"):
            return flow.keras.maths.add(x, y)

    np.testing.assert_allclose(predict(old, X)[0], X + tanh, rtol=1e-6)


def test_system_assign():
    flow.clear_default_session()

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        w = flow.get_variable("w", (2, 3), initializer=flow.zeros_initializer())
        return flow.system.assign(w, x)

    np.testing.assert_array_equal(job(X), np.zeros_like(X))
    np.testing.assert_array_equal(job(X), X)


def test_the_misspelt_scheduler():
    with pytest.warns(DeprecationWarning, match="PolynomialScheduler since 0.3.3"):
        old = flow.optimizer.PolynomialSchduler(0.1, 10)
    assert type(old) is type(flow.optimizer.PolynomialScheduler(0.1, 10))


@pytest.mark.parametrize("call", [
    lambda x: flow.math.relu("text"),
    lambda x: flow.concat([x, 1]),
    lambda x: flow.concat(x),
    lambda x: flow.layers.dense(None, 3),
])  # fmt: skip
def test_what_is_no_blob(call):
    with raises(ArgumentError, ValueError, "blob"):
        traced(call)


def test_an_eager_program_decorates_its_job_at_each_call():
    """It trains on: the second decoration of one text is the same job."""
    flow.enable_eager_execution(True)
    flow.train.CheckPoint().init()  # no job is there yet
    traced = []

    def step(x):
        @flow.global_function(type="train")
        def train_job(x: tp.Numpy.Placeholder((2, 2))) -> tp.Numpy:
            traced.append(1)
            loss = flow.matmul(x, variable("w", (2, 1), 1.0))
            sgd(0.5).minimize(loss)
            return loss

        return train_job(x)

    ones = np.ones((2, 2), np.float32)
    assert [step(ones).mean() for _ in range(3)] == [2, 1, 0]
    assert traced == [1]
