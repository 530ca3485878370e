"""Steps that leave nothing to the processor where onnxruntime-web trains on a GPU."""

import numpy as np
import onnx
import pytest
from flow2onnx_runtime import Options, Trainer
from onnx import TensorProto, helper

import flow2onnx as flow
from tests.imported import models


def made(webgpu, optimizer="adam", **options):
    network = models.perceptron()
    (classes,) = [d.dim_value for d in network.graph.output[0].type.tensor_type.shape.dim[1:]]
    shape = {"x": (4, network.graph.input[0].type.tensor_type.shape.dim[1].dim_value)}
    return flow.make_trainable(
        network, "cross_entropy(probabilities=True)", optimizer, lr=0.05, inputs=shape,
        webgpu=webgpu, schedule="cosine(total_steps=20)", **options,
    ), (4, shape["x"][1]), classes  # fmt: skip


@pytest.mark.parametrize("optimizer", ["adam", "sgd(momentum=0.9)"])
def test_the_losses_are_those_of_float64(tmp_path, optimizer):
    losses = {}
    for webgpu in (False, True):
        model, shape, classes = made(webgpu, optimizer)
        model.save(tmp_path / str(webgpu), verify=False)
        trainer = Trainer(tmp_path / str(webgpu), Options(intra_op_threads=1))
        random = np.random.default_rng(0)
        x = random.normal(size=shape).astype(np.float32)
        shares = np.eye(classes, dtype=np.float32)[random.integers(0, classes, 4)]
        losses[webgpu] = [float(trainer.step(x, shares)["loss"]) for _ in range(20)]
        assert trainer.steps == 20
    np.testing.assert_allclose(losses[True], losses[False], rtol=1e-4)
    assert losses[True][-1] < losses[True][0]


def test_no_node_needs_what_a_gpu_of_a_browser_lacks(tmp_path):
    model, _, _ = made(True)
    model.save(tmp_path / "bundle", verify=False)
    step = onnx.load(tmp_path / "bundle" / "step.onnx", load_external_data=False)
    assert not {"LogSoftmax", "Size"} & {node.op_type for node in step.graph.node}
    typed = onnx.shape_inference.infer_shapes(step).graph
    wide = {TensorProto.DOUBLE, TensorProto.INT64}
    found = {v.name for v in (*typed.value_info, *typed.input, *typed.output)
             if v.type.tensor_type.elem_type in wide}  # fmt: skip
    constants = {tensor.name for tensor in step.graph.initializer}
    folded = {o for n in step.graph.node if n.op_type == "Identity" for o in n.output}
    assert found <= constants | folded, "numbers of a GPU are float32 or int32"


def test_numbers_of_float64_are_refused():
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    x, y = (helper.make_tensor_value_info(n, TensorProto.DOUBLE, (4, 3)) for n in "xy")
    weight = helper.make_tensor("w", TensorProto.DOUBLE, (3,), [1.0, 2.0, 3.0])
    graph = helper.make_graph([node], "wide", [x], [y], [weight])
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(flow.errors.UnsupportedError, match=r"webgpu: .*x.* float64"):
        flow.make_trainable(network, "mse", "sgd", webgpu=True)
