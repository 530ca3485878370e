"""TrainingInfoProto and ai.onnx.preview.training: written, read, expanded, trained."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import flow2onnx as flow
from flow2onnx.errors import BundleError
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.imported.preview_training import PREVIEW_OPERATORS, preview_handlers
from flow2onnx.onnx_io.append import add_output, append_model, input_dtype, input_shape
from flow2onnx.onnx_io.foreign import foreign_model
from tests.imported import models

X = models.random(10, 5, 4)
Y = np.int64([0, 2, 1, 1, 0])
DOMAIN = "ai.onnx.preview.training"


def expanded(model):
    foreign = foreign_model(model, allowed=PREVIEW_OPERATORS)
    b = Builder(foreign.opset)
    values = {
        str(v.name): b.input(str(v.name), input_shape(v), input_dtype(v)) for v in foreign.inputs
    }
    made = append_model(b, foreign, values, preview_handlers(foreign))
    for name in foreign.outputs:
        add_output(b, made[name], name)
    return ort.InferenceSession(model_bytes(model_of(b.graph)))


def test_a_file_trains_as_the_bundle_does(tmp_path):
    made = flow.make_trainable(models.perceptron(), "cross_entropy", "adam", lr=0.1)
    path = tmp_path / "model.onnx"
    made.save_training_info(path)
    onnx.checker.check_model(onnx.load(path))
    session = ort.InferenceSession(path)  # an inference runtime sees the inference model
    assert [i.name for i in session.get_inputs()] == ["x"]
    first = session.run(None, {"x": X})[0]
    trainer, again = made.trainer(), flow.from_training_info(path).trainer()
    assert again.predict(X)["scores"] == pytest.approx(first)
    for n in (5, 2, 5, 1):
        assert again.step(X[:n], Y[:n]) == trainer.step(X[:n], Y[:n])
    assert again.steps == 4
    assert again.manifest.losses == ("loss",)


def test_the_initialization_gives_the_state_of_the_algorithm(tmp_path):
    made = flow.make_trainable(models.perceptron(), "cross_entropy", "adam")
    made.save_training_info(tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    info = model.training_info[0]
    bound = {b.key: b.value for b in info.initialization_binding}
    assert "fc1.weight-m" in bound
    assert "fc1.weight" not in bound
    graph = helper.make_model(info.initialization, opset_imports=model.opset_import, ir_version=10)
    found = dict(zip(bound, ReferenceEvaluator(graph).run(list(bound.values()), {}), strict=True))
    assert found.pop("System-Train-Rate-train") == -1  # the schedule holds
    assert all(not np.any(array) for array in found.values())


OPTIMIZERS = {
    "Adagrad": (1, dict(decay_factor=0.1, epsilon=1e-5, norm_coefficient=0.01)),
    "Adam": (2, dict(alpha=0.8, beta=0.9, epsilon=1e-5, norm_coefficient_post=0.1)),
    "Momentum": (1, dict(alpha=0.9, beta=0.8, mode="standard", norm_coefficient=0.01)),
    "Nesterov": (1, dict(alpha=0.9, beta=0.8, mode="nesterov", norm_coefficient=0.0)),
}


@pytest.mark.parametrize("step", [0, 1, 7])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_the_standards(name, step):
    kinds, attributes = OPTIMIZERS[name]
    shapes = {"a": [2, 3], "b": [4]}
    tensors = [f"{kind}{x}" for kind in ["x", "g", "s", "t"][: kinds + 2] for x in shapes]
    outputs = [f"{kind}{x}_new" for kind in ["x", "s", "t"][: kinds + 1] for x in shapes]
    node = helper.make_node(
        {"Nesterov": "Momentum"}.get(name, name), ["rate", "step", *tensors], outputs,
        domain=DOMAIN, **attributes,
    )  # fmt: skip
    io = [models.info("rate", []), models.info("step", [], models.I)]
    io += [models.info(n, shapes[n[1:]]) for n in tensors]
    model = models.model(
        [node], io, [models.info(n, shapes[n[1]]) for n in outputs], domains=[DOMAIN]
    )
    feeds = {"rate": np.array(0.1, np.float32), "step": np.array(step)}
    feeds |= {n: abs(models.random(i, *shapes[n[1:]])) for i, n in enumerate(tensors)}
    expected = ReferenceEvaluator(model).run(None, feeds)
    for found, wanted in zip(expanded(model).run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def gradient_model(operands):
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["p"]),
        helper.make_node("Mul", ["p", "a"], ["y"]),
        helper.make_node("Gradient", operands, ["da", "db"], domain=DOMAIN, xs=["a", "b"], y="y"),
    ]
    inputs = [models.info(n, [3]) for n in ("a", "b", "c")]
    outputs = [models.info(n, [3]) for n in ("y", "da", "db")]
    return models.model(nodes, inputs, outputs, domains=[DOMAIN])


@pytest.mark.parametrize("at", ["a", "c"])
def test_gradient_at_its_operands(at):
    arrays = {n: models.random(i, 3) for i, n in enumerate("abc")}
    session = expanded(gradient_model([at, "b"]))
    _, da, db = session.run(None, {i.name: arrays[i.name] for i in session.get_inputs()})
    np.testing.assert_allclose(da, 2 * arrays[at] * arrays["b"], rtol=1e-5)
    np.testing.assert_allclose(db, arrays[at] ** 2, rtol=1e-5)


def foreign_algorithm():
    """A line fitted by Gradient and Momentum, as another tool might write it."""
    model = models.model(
        [helper.make_node("Mul", ["x", "w"], ["y"], "product")],
        [models.info("x", [4])],
        [models.info("y", [4])],
        [models.tensor("w", np.float32([0.5]))],
    )
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    nodes = [
        helper.make_node("Sub", ["y", "target"], ["gap"]),
        helper.make_node("Mul", ["gap", "gap"], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["loss"], keepdims=0),
        helper.make_node("Gradient", ["w"], ["dw"], domain=DOMAIN, xs=["w"], y="loss"),
        helper.make_node(
            "Momentum", ["rate", "count", "w", "dw", "v"], ["w_new", "v_new"], domain=DOMAIN,
            alpha=0.9, beta=1.0, mode="standard", norm_coefficient=0.0,
        ),
        helper.make_node("Add", ["count", "one"], ["count_new"]),
    ]  # fmt: skip
    tensors = [
        models.tensor("v", np.float32([0])),
        models.tensor("rate", np.float32(0.1)),
        models.tensor("count", np.int64(0)),
        models.tensor("one", np.int64(1)),
    ]
    outputs = [
        models.info("loss", []), models.info("w_new", [1]), models.info("v_new", [1]),
        models.info("count_new", [], models.I),
    ]  # fmt: skip
    info = model.training_info.add()
    info.algorithm.CopyFrom(
        helper.make_graph(nodes, "algorithm", [models.info("target", [4])], outputs, tensors)
    )
    for name in ("w", "v", "count"):
        info.update_binding.add(key=name, value=f"{name}_new")
    return model


def test_an_algorithm_of_others_trains():
    trainer = flow.from_training_info(foreign_algorithm()).trainer()
    x, w, v = np.float32([1, 2, 3, 4]), 0.5, 0.0
    for _ in range(5):
        gap = w * x - 2 * x
        assert trainer.step(x, 2 * x)["loss"] == pytest.approx((gap**2).mean(), rel=1e-4)
        v = 0.9 * v + (2 * gap * x).mean()
        w -= 0.1 * v
    assert trainer.state_dict()["w"] == pytest.approx(w, rel=1e-4)
    assert trainer.state_dict()["count"] == 5
    assert trainer.predict(x)["y"] == pytest.approx(w * x, rel=1e-4)


def test_files_without_a_whole_algorithm():
    with pytest.raises(BundleError, match="no training algorithm"):
        flow.from_training_info(models.perceptron(4))
    model = foreign_algorithm()
    model.training_info[0].update_binding[0].value = "gone"
    with pytest.raises(BundleError, match="gone is no output"):
        flow.from_training_info(model)
    model.training_info[0].update_binding[0].key = "none"
    with pytest.raises(BundleError, match="none is no initializer"):
        flow.from_training_info(model)
    del model.training_info[0].update_binding[:]
    with pytest.raises(BundleError, match="updates nothing"):
        flow.from_training_info(model)
    model.training_info.add().algorithm.name = "second"
    with pytest.raises(BundleError, match="2 training algorithms"):
        flow.from_training_info(model)


def test_a_file_of_something_else_is_left_alone(tmp_path):
    made = flow.make_trainable(models.perceptron(4), "mse", "sgd", lr=0.1)
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(BundleError, match=r"notes.txt is there already, and no .onnx file"):
        made.save_training_info(notes)
    assert notes.read_text() == "mine"
