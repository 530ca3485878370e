"""Models that cannot be trained: each with an error that says what to do."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from flow2onnx_runtime import RunError
from onnx import helper

import flow2onnx as flow
from flow2onnx.errors import (
    ArgumentError,
    BundleError,
    DTypeError,
    FlowError,
    ShapeError,
    UnsupportedError,
)
from tests.imported import models


def with_classes():
    model = models.perceptron(4)
    model.graph.node.append(helper.make_node("ArgMax", ["scores"], ["k"], axis=1, keepdims=0))
    model.graph.output.append(models.info("k", [4], models.I))
    return model


CALLS = [
    (dict(loss="mse", trained="fc3*"), ArgumentError, "fc3*' matches no tensor"),
    (dict(loss="crossentropy"), ArgumentError, "did you mean cross_entropy"),
    (dict(loss="mse)("), ArgumentError, "not understood"),
    (dict(loss="mse", optimizer="adan"), ArgumentError, "did you mean adam"),
    (dict(loss="mse", optimizer=3), ArgumentError, "optimizer is 3"),
    (dict(loss=3), ArgumentError, "loss is 3"),
    (dict(loss="mse", lr=-1), ArgumentError, "lr is -1"),
    (dict(loss="mse", optimizer="sgd(lr=0.1)", lr=0.1), ArgumentError, "given twice"),
    (dict(loss="mse", output="score"), ArgumentError, "did you mean scores"),
    (dict(loss="mse", labels="fc1.bias"), ArgumentError, "a value 'fc1.bias' of its own"),
    (dict(loss="mse", precision="fp8"), ArgumentError, "precision is 'fp8'"),
    (dict(loss="mse", inputs={"x": (4, 5)}), ShapeError, "asked for"),
    (dict(loss="mse", inputs={"x": 3}), ArgumentError, "no input has a dimension 'x'"),
    (dict(loss="mse", inputs={"x": "y"}), ArgumentError, "inputs: x is 'y'"),
    (dict(loss="mse", inputs={"x": ((4, 4), flow.int64)}), ArgumentError, "takes float32"),
    (dict(loss="huber(delta=-1)"), ArgumentError, "delta is -1"),
    (dict(loss="cross_entropy(axis=5)"), ShapeError, "no axis 5"),
    (dict(loss="mse", opset=5), UnsupportedError, "opset 5"),
    (dict(loss=lambda nothing: nothing), ArgumentError, "a parameter 'nothing'"),
    (dict(loss=lambda scores: 3), FlowError, "is 3, not a blob"),
    (dict(loss=lambda scores: {"other": scores}), FlowError, "no 'loss'"),
]


@pytest.mark.parametrize(("options", "kind", "text"), CALLS, ids=[c[2] for c in CALLS])
def test_calls(options, kind, text):
    with pytest.raises(kind) as caught:
        flow.make_trainable(models.perceptron(4), **options)
    assert text in str(caught.value)


def test_losses_that_are_whole_numbers():
    with pytest.raises(DTypeError, match="output k is int64"):
        flow.make_trainable(with_classes(), "k")
    with pytest.raises(DTypeError, match="output k is int64"):
        flow.make_trainable(with_classes(), "mse", output="k")


def test_parameters_that_are_whole_numbers():
    node = helper.make_node("Gather", ["w", "i"], ["g"])
    model = models.model(
        [node, helper.make_node("Mul", ["g", "x"], ["y"])],
        [models.info("x", [2, 4])],
        [models.info("y", [2, 4])],
        [models.tensor("w", models.random(0, 3, 4)), models.tensor("i", np.int64([0, 2]))],
    )
    with pytest.raises(DTypeError, match="i is not of a real type"):
        flow.make_trainable(model, "mse", trained="i")


def test_a_loss_that_depends_on_nothing_trainable():
    node = helper.make_node("Tanh", ["x"], ["y"])
    model = models.model([node], [models.info("x", [2])], [models.info("y", [2])])
    with pytest.raises(ArgumentError, match="no output of the model depends on a tensor"):
        flow.make_trainable(model, "mse")
    classes = with_classes()
    classes.graph.node.append(helper.make_node("Cast", ["k"], ["r"], to=1))
    classes.graph.output.append(models.info("r", [4]))
    with pytest.raises(FlowError, match="no loss depends"):
        flow.make_trainable(classes, "r")


def test_which_axis_of_three_are_classes():
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = models.model(
        [node], [models.info("x", [2, 5, 4])], [models.info("y", [2, 5, 3])],
        [models.tensor("w", models.random(0, 4, 3))],
    )  # fmt: skip
    with pytest.raises(ArgumentError, match="which axis are the classes"):
        flow.make_trainable(model, "cross_entropy")
    assert flow.make_trainable(model, "cross_entropy(axis=-1)").trained == ("w",)


def test_sizes_that_are_free():
    model = models.perceptron()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "features"
    free = flow.make_trainable(model, "mse").trainer()
    assert free.manifest.feeds[0].shape == ("batch", "features")
    assert free.step(np.ones((2, 4), np.float32), np.ones((2, 3), np.float32))["loss"] > 0
    with pytest.raises(RunError):  # the weights have four rows
        free.step(np.ones((2, 5), np.float32), np.ones((2, 3), np.float32))
    made = flow.make_trainable(model, "mse", inputs={"features": 4})
    assert made.trainer().manifest.feeds[0].shape == ("batch", 4)


def test_an_input_without_a_shape():
    model = models.perceptron(4)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ShapeError, match="does not say the shape of its input x"):
        flow.make_trainable(model, "mse")


@pytest.mark.parametrize(
    ("domain", "hint"), [("mine", "model-local function"), ("com.microsoft", "as it was before")]
)
def test_operators_of_others(domain, hint):
    model = models.perceptron(4)
    model.graph.node[1].domain = domain
    model.opset_import.append(helper.make_opsetid(domain, 1))
    with pytest.raises(UnsupportedError, match=f"{domain}::Tanh") as caught:
        flow.make_trainable(model, "mse")
    assert hint in str(caught.value)


def test_a_convolution_of_groups_that_do_not_fit():
    model = models.convolutional(4)
    model.graph.node[0].attribute.add(name="group", i=7, type=onnx.AttributeProto.INT)
    with pytest.raises(ShapeError, match="Conv of 7 groups"):
        flow.make_trainable(model, "cross_entropy")


def test_a_cycle():
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    io = [models.info("x", [4])], [models.info("b", [4])]
    with pytest.raises(BundleError, match="topologically sorted"):
        flow.make_trainable(models.model(nodes, *io, checks=False), "b")


def nested(depth):
    """A model whose output is inside `depth` branches of branches."""
    model = models.perceptron(4)
    model.graph.input.append(models.info("yes", [], onnx.TensorProto.BOOL))
    model.graph.output[0].name = f"y{depth}"
    graph = model.graph
    for i in range(depth, 0, -1):
        node = graph.node.add(op_type="If", input=["yes"], output=[f"y{i}"])
        other = node.attribute.add(name="else_branch", type=onnx.AttributeProto.GRAPH).g
        other.name = f"else{i}"
        other.node.add(op_type="Neg", input=["scores"], output=[f"e{i}"])
        other.output.append(models.info(f"e{i}", [4, 3]))
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        graph.name = f"then{i}"
        graph.output.append(models.info(f"y{i - 1}", [4, 3]))
    graph.node.add(op_type="Exp", input=["scores"], output=["y0"])
    return model


def test_branches_in_branches():
    assert flow.make_trainable(nested(8), "y8").trained
    with pytest.raises(BundleError, match="nodes in graphs inside each other"):
        flow.make_trainable(nested(200), "y200")


def test_files_that_are_cut_off(tmp_path):
    content = models.perceptron(4).SerializeToString()
    for length in (0, 1, 10, len(content) // 2, len(content) - 1):
        path = tmp_path / f"{length}.onnx"
        path.write_bytes(content[:length])
        with pytest.raises(BundleError):
            flow.make_trainable(path, "mse")
    with pytest.raises(BundleError, match="cannot be read"):
        flow.make_trainable(tmp_path / "none.onnx", "mse")


def test_what_is_no_model():
    with pytest.raises(ArgumentError, match="int is no model"):
        flow.make_trainable(3, "mse")


@pytest.mark.parametrize("change", ["gone", "short", "outside"])
def test_external_files_that_are_wrong(change, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(
        models.perceptron(4), folder / "m.onnx", save_as_external_data=True, location="w.bin",
        size_threshold=0,
    )  # fmt: skip
    if change == "gone":
        (folder / "w.bin").unlink()
    elif change == "short":
        (folder / "w.bin").write_bytes(b"1234")
    else:
        model = onnx.load(folder / "m.onnx", load_external_data=False)
        for tensor in model.graph.initializer:
            tensor.external_data[0].value = "../w.bin"
        (folder / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(BundleError, match=r"w\.bin"):
        flow.make_trainable(folder / "m.onnx", "mse")


def test_a_model_that_is_no_file_names_no_files(tmp_path, monkeypatch):
    onnx.save(
        models.perceptron(4), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin",
        size_threshold=0,
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    proto = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    with pytest.raises(BundleError, match="no folder: it was given as bytes"):
        flow.make_trainable(proto, "mse")
    model = ir.load(tmp_path / "m.onnx")
    assert flow.make_trainable(model, "mse").trained
    for value in model.graph.initializers.values():
        value.const_value = moved(value.const_value, "../w.bin")
    with pytest.raises(BundleError, match=r"'\.\./w\.bin', which is no path inside its folder"):
        flow.make_trainable(model, "mse")


def moved(tensor: ir.ExternalTensor, location: str) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        location, tensor.offset, tensor.length, tensor.dtype, shape=tensor.shape,
        name=tensor.name, base_dir=tensor.base_dir,
    )  # fmt: skip


def test_a_batch_that_must_be_fixed_is_named():
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["p"]),
        helper.make_node("RandomUniformLike", ["p"], ["r"], "noise"),
        helper.make_node("Shape", ["x"], ["s"], end=1),
        helper.make_node("Cast", ["s"], ["t"], to=1),
        helper.make_node("Pow", ["t", "cube"], ["c"], "cubed"),
        helper.make_node("Mul", ["p", "c"], ["y"]),
    ]
    tensors = [models.tensor("w", models.random(0, 4)), models.tensor("cube", np.float32(3))]
    model = models.model(nodes, [models.info("x", ["n", 4])], [models.info("y", ["n", 4])], tensors)
    with pytest.raises(UnsupportedError, match="depends on the batch") as caught:
        flow.make_trainable(model, "mse")
    assert "inputs={'x': (8, 4)}" in str(caught.value)
    assert flow.make_trainable(model, "mse", inputs={"x": (8, 4)}).trained == ("w",)
