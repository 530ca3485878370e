"""Forms that jobs take on CUDA: what cuDNN accepts, in the type asked for, on the GPU alone."""

from collections import Counter

import numpy as np
import pytest
from flow2onnx_runtime import Options, assigned_nodes
from flow2onnx_runtime.errors import DeviceError, OutOfMemoryError, RunError
from flow2onnx_runtime.model_check import OwnModel
from flow2onnx_runtime.tune import Trial, measure
from flow2onnx_runtime.tuning_file import machine_of
from onnx import parser

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.api.session import current_session
from flow2onnx.engine.refused_forms import with_other_forms
from flow2onnx.errors import ConfigError
from flow2onnx.graph.model import model_bytes
from flow2onnx.graph.types import dtype_of
from tests.gpu import standin
from tests.models.zoo import ROWS

CUDA = "CUDAExecutionProvider"
ON_GPU = Options(((CUDA, {}), "CPUExecutionProvider"))


def opened(job):
    """The model that a job runs, and which nodes are elsewhere than on CUDA."""
    opening = current_session().opening(job.spec.name)
    nodes = assigned_nodes(OwnModel(model_bytes(opening.model)), opening.options)
    return opening.model.graph, Counter(n.op_type for n in nodes if n.provider != CUDA)


def network(config=None, pools=False, stride=2):
    """A train job of two convolutions."""

    @flow.global_function(type="train", function_config=config or flow.function_config())
    def train(x: tp.Numpy.Placeholder((4, 3, 40, 40))) -> tp.Numpy:
        h = flow.layers.conv2d(x, 8, 3, strides=stride, padding="SAME", name="a")
        h = flow.nn.relu(h)
        h = flow.nn.max_pool2d(h, 2, 2, "VALID", data_format="NCHW") if pools else h
        h = flow.layers.conv2d(h, 8, 3, padding="SAME", name="b")
        loss = flow.math.reduce_mean(h)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    return train


def mixed(dtype):
    config = flow.function_config()
    config.enable_auto_mixed_precision(True)
    config.runtime.mixed_precision_dtype(dtype)
    return config


def run(train):
    train(np.ones((4, 3, 40, 40), np.float32))


def convolutions(graph):
    return [n for n in graph if n.op_type in ("Conv", "ConvTranspose")]


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(r, id=r.name, marks=[] if r.name in ("lenet", "alexnet") else pytest.mark.slow)
        for r in ROWS
        if r.name not in ("mlp", "bert", "bert-large", "gpt", "gpt-deep", "wide_deep")
    ],
)
def test_no_convolution_of_the_zoo_is_one_that_cudnn_may_refuse(row):
    train = row.small().train
    graph, elsewhere = opened(train)
    assert convolutions(graph)
    for node in convolutions(graph):
        kernel = tuple(node.inputs[1].shape)[2:]
        assert max(kernel) <= 32, node.name
        dilations = node.attributes.get("dilations")
        assert dilations is None or set(dilations.as_ints()) == {1}, node.name
    assert not elsewhere


def test_gradients_have_the_forms_for_gpus():
    train = network()
    run(train)
    forms = {c.lowering: c.form for c in train.explain().lowerings}
    assert forms["Relu.dX"] == "where"
    assert forms["Conv.dX"] == "conv_transpose"
    assert forms["Conv.dW"] != "swapped_conv"


def test_a_form_asked_for_goes_before_the_rule():
    config = flow.function_config()
    config.runtime.lowering("Relu.dX", "mask_product")
    train = network(config)
    assert {c.form for c in train.explain().lowerings if c.lowering == "Relu.dX"} == {
        "mask_product"
    }


def test_bfloat16_has_convolutions_in_bfloat16():
    train = network(mixed("bfloat16"))
    run(train)
    graph, elsewhere = opened(train)
    types = Counter(dtype_of(n.outputs[0]).name for n in graph if n.op_type == "Conv")
    assert types["bfloat16"] >= 2
    assert "float32" not in types
    assert not elsewhere


def test_bfloat16_that_would_leave_the_gpu_is_told(caplog):
    train = network(mixed("bfloat16"), pools=True)
    run(train)
    graph, elsewhere = opened(train)
    assert {dtype_of(n.outputs[0]).name for n in convolutions(graph)} == {"float32"}
    assert not elsewhere
    assert "MaxPool would run on the CPU: they stay in float32" in caplog.text


def test_float16_has_convolutions_in_float16():
    train = network(mixed("float16"), pools=True)
    run(train)
    graph, elsewhere = opened(train)
    assert {dtype_of(n.outputs[0]).name for n in convolutions(graph)} == {"float16"}
    assert not elsewhere


def test_a_form_that_cudnn_refuses_is_an_error_with_the_others():
    train = network()
    flow.config.gpu_device_num(1)
    flow.sync_default_session()
    current_session().start()
    standin.refuse_work("cudnnBackend")
    with pytest.raises(RunError) as caught:
        run(train)
    told = str(caught.value)
    assert "CUDNN" in told or "cuDNN" in told, told


def test_the_error_of_a_gradient_has_the_other_forms():
    train = network()
    job = current_session().opening(train.spec.name).job
    choice = next(c for c in job.choices if c.question.lowering == "Conv.dX")
    text = f"Non-zero status code returned while running Conv node. Name:'{choice.node}/Conv' no"
    told = with_other_forms(RunError(text, hint="the state is as it was"), job.choices)
    others = [form for form in choice.question.forms if form != choice.form]
    assert others
    for form in others:
        assert f"config.runtime.lowering('Conv.dX', {form!r})" in told.hint
    assert told.hint.endswith("; the state is as it was")
    assert choice.node in told.message


@pytest.mark.parametrize("kind", [OutOfMemoryError, DeviceError])
def test_other_errors_stay_what_they_are(kind):
    train = network()
    job = current_session().opening(train.spec.name).job
    node = f"{job.choices[0].node}/Conv"
    error = kind(f"while running Conv node. Name:'{node}' failed")
    assert with_other_forms(error, job.choices) is error
    plain = RunError("while running Conv node. Name:'a-conv/Conv' failed", hint="x")
    assert with_other_forms(plain, job.choices) is plain


def test_channels_last_is_refused_where_it_would_leave_the_gpu():
    config = flow.function_config()
    config.runtime.prefer_nhwc(True)
    train = network(config)
    with pytest.raises(ConfigError, match=r"transposed convolutions, .* run on the CPU") as caught:
        run(train)
    assert "test_forms.py" in caught.value.source


def test_channels_last_predicts_on_the_gpu():
    config = flow.function_config()
    config.runtime.prefer_nhwc(True)

    @flow.global_function(function_config=config)
    def predict(x: tp.Numpy.Placeholder((4, 3, 40, 40))) -> tp.Numpy:
        return flow.layers.conv2d(x, 8, 3, strides=2, padding="SAME", name="a")

    run(predict)
    assert not opened(predict)[1]


def test_a_machine_is_named_by_its_gpu():
    assert machine_of(ON_GPU).startswith(f"NVIDIA H200 (stand-in), {CUDA}:cuda:0, ")
    assert "threads" in machine_of(Options())


def test_forms_in_bfloat16_are_measured():
    def content(form):
        text = f"g (bfloat16[4,3] x) => (bfloat16[4,3] y) {{ y = {form}(x) }}"
        model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
        return model.SerializeToString()

    standin.reset()
    answer = measure(Trial("which", "Relu", ("Identity", "Relu"), content), ON_GPU, 0.001)
    assert set(answer.ms) == {"Identity", "Relu"}
