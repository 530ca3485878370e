"""The import hook: which names `oneflow` has while a program runs."""

import importlib
import operator
import sys

import pytest

import flow2onnx as flow
from flow2onnx.api.modules import UnknownModuleError, UnknownSymbolError
from flow2onnx.cli.oneflow import oneflow_names
from flow2onnx.engine.session import current_session
from flow2onnx.errors import UnsupportedError


@pytest.fixture
def oneflow():
    with oneflow_names():
        yield importlib.import_module("oneflow")


def test_it_is_gone_afterwards():
    with oneflow_names():
        importlib.import_module("oneflow.nn")
    assert "oneflow.nn" not in sys.modules
    with pytest.raises(ModuleNotFoundError, match="No module named 'oneflow'"):
        importlib.import_module("oneflow")


@pytest.mark.parametrize("name", ["oneflow", "oneflow.compatible.single_client", "oneflow.python"])
def test_names_are_those_of_flow(oneflow, name):
    module = importlib.import_module(name)
    assert module.reshape is flow.reshape
    assert module.optimizer.grad_clipping.by_global_norm is (
        flow.optimizer.grad_clipping.by_global_norm
    )
    assert module.typing.Numpy is flow.typing.Numpy
    assert module.config is flow.config


def test_inner_modules_of_flow2onnx_do_not_show(oneflow):
    assert not hasattr(oneflow, "compile")
    assert set(dir(oneflow)) == set(flow.__all__)


def test_star_import(oneflow):
    names = {}
    exec("from oneflow import *", names)
    assert names["matmul"] is flow.matmul


def test_files_of_oneflows_source(oneflow):
    distribute = importlib.import_module("oneflow.python.framework.distribute")
    assert distribute.split is flow.distribute.split
    assert importlib.import_module("oneflow.framework.distribute").split is flow.distribute.split
    assert importlib.import_module("oneflow.python.ops.array_ops").reshape is flow.reshape
    assert importlib.import_module("oneflow.python.framework.dtype").float32 is flow.float32


def test_generated_modules_have_constants(oneflow):
    conf = importlib.import_module("oneflow.core.operator.op_conf_pb2")
    assert conf.kRelu == conf.kRelu != conf.kNone
    types = importlib.import_module("oneflow.core.common.data_type_pb2")
    assert (types.kFloat, types.kUInt8) == (flow.float32, flow.uint8)
    with pytest.raises(UnsupportedError, match=r"InitializerConf is a message .* not here"):
        conf.InitializerConf()


def test_an_unknown_symbol_names_release_and_the_nearest(oneflow):
    current_session().release = "0.1.4"
    with pytest.raises(UnknownSymbolError) as caught:
        oneflow.nn.bias_adds  # noqa: B018 — the look-up is what fails
    assert caught.value.message == "flow.nn.bias_adds of OneFlow 0.1.4 is not available"
    assert "test_oneflow.py:" in caught.value.source
    assert caught.value.hint == "did you mean flow.nn.bias_add?"
    assert isinstance(caught.value, AttributeError)
    assert isinstance(caught.value, NotImplementedError)


@pytest.mark.parametrize(
    ("symbol", "nearest"),
    [
        ("conv2d", "did you mean flow.layers.conv2d or flow.nn.conv2d?"),
        ("layers.denze", "did you mean flow.layers.dense?"),
        ("zzzzzzzz", None),
    ],
)
def test_the_nearest_name(oneflow, symbol, nearest):
    with pytest.raises(UnknownSymbolError) as caught:
        operator.attrgetter(symbol)(oneflow)
    assert caught.value.hint == nearest


def test_an_unknown_module_fails_as_an_import(oneflow):
    for text in ("import oneflow.vision", "from oneflow import vision"):
        with pytest.raises(UnknownModuleError, match=r"flow\.vision of OneFlow 0\.4\.0") as caught:
            exec(text, {})
        assert isinstance(caught.value, ModuleNotFoundError)


def test_a_function_is_no_module(oneflow):
    with pytest.raises(UnknownModuleError, match=r"flow\.nn\.relu is no module") as caught:
        importlib.import_module("oneflow.nn.relu")
    assert caught.value.hint == "write: from oneflow.nn import relu"


def test_experimental_mirrors_and_unsupported_names():
    with oneflow_names():
        import oneflow as old
        from oneflow.experimental import scope
        from oneflow.experimental.nn import relu

        assert relu is flow.nn.relu
        assert scope.placement is flow.scope.placement
        assert old.experimental.scope.config is flow.experimental.scope.config
        assert old.repeat is flow.repeat
        assert "experimental" in dir(old)


RECORD = """
import oneflow.core.record.record_pb2 as ofrecord
from oneflow.core.record import record_pb2
from oneflow.compatible.single_client.core.record.record_pb2 import OFRecord

sample = {
    "label": ofrecord.Feature(int32_list=ofrecord.Int32List(value=[3])),
    "pixels": ofrecord.Feature(float_list=ofrecord.FloatList(value=[0.5, 1.5])),
    "name": ofrecord.Feature(bytes_list=ofrecord.BytesList(value=[b"x"])),
}
data = ofrecord.OFRecord(feature=sample).SerializeToString()
read = OFRecord.FromString(data)
print(read.feature["label"].int32_list.value[0], list(read.feature["pixels"].float_list.value))
again = record_pb2.OFRecord()
again.ParseFromString(data)
print(again.feature["name"].bytes_list.value[0], again == read, read.ByteSize() == len(data))
"""


def test_records_are_real_messages(flow2onnx, script):
    result = flow2onnx("run", script(RECORD))
    assert result.stdout == "3 [0.5, 1.5]\nb'x' True True\n"
    assert result.exit_code == 0
