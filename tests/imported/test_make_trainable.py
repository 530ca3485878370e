"""make_trainable: losses, parameters, inputs, forms of models, what is written."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from flow2onnx_runtime import Manifest, Predictor, Trainer
from onnx import helper

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, BundleError
from tests.imported import models

X = models.random(10, 5, 4)
Y = np.int64([0, 2, 1, 1, 0])


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def scores(model, x):
    session = ort.InferenceSession(model.SerializeToString())
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def test_the_bundle_holds_the_model_as_it_was(tmp_path):
    model = models.perceptron()
    made = flow.make_trainable(model, "cross_entropy", "sgd", lr=0.5)
    report = made.save(tmp_path / "bundle")
    assert report.ok
    assert {p.name for p in (tmp_path / "bundle").iterdir()} == {
        "eval.onnx", "init.onnx", "manifest.json", "predict.onnx", "step.onnx",
        "weights.safetensors",
    }  # fmt: skip
    (found,) = Predictor(tmp_path / "bundle" / "predict.onnx")(x=X).values()
    np.testing.assert_allclose(found, scores(model, X), rtol=1e-5)
    manifest = Manifest.read(tmp_path / "bundle")
    assert [f.name for f in manifest.feeds] == ["x", "labels"]
    assert manifest.feeds[0].shape == ("batch", 4)
    assert manifest.losses == ("loss",)
    assert [e.file for e in manifest.predict] == ["predict.onnx", "eval.onnx"]


def test_the_init_model_gives_the_models_weights(tmp_path):
    flow.make_trainable(models.perceptron(), "cross_entropy").save(tmp_path / "b", verify=False)
    session = ort.InferenceSession(tmp_path / "b" / "init.onnx")
    names = [o.name for o in session.get_outputs()]
    values = dict(zip(names, session.run(None, {}), strict=True))
    np.testing.assert_array_equal(values["fc1.weight"], models.random(0, 4, 6))
    assert not values["fc1.weight-m"].any()


def test_a_step_takes_any_batch_and_lowers_the_loss():
    trainer = flow.make_trainable(models.perceptron(), "cross_entropy", "sgd", lr=0.5).trainer()
    losses = [trainer.step(X[:n], Y[:n])["loss"].item() for n in (5, 1, 3, 5, 5, 5)]
    assert losses[-1] < losses[0]
    evaluated = trainer.predict(X, Y, job="eval")
    assert evaluated["loss"] == trainer.evaluate(X, Y)["loss"]
    assert evaluated["scores"].shape == (5, 3)


@pytest.mark.parametrize("form", ["path", "proto", "ir"])
def test_models_in_each_form(form, tmp_path):
    model = models.perceptron()
    onnx.save(model, tmp_path / "m.onnx")
    given = {"path": tmp_path / "m.onnx", "proto": model, "ir": ir.from_proto(model)}[form]
    trainer = flow.make_trainable(given, "cross_entropy", "sgd").trainer()
    expected = -np.log(softmax(scores(model, X))[range(5), Y]).mean()
    assert trainer.evaluate(X, Y)["loss"] == pytest.approx(expected, rel=1e-5)


def test_weights_in_other_files(tmp_path):
    onnx.save(
        models.perceptron(), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0
    )
    made = flow.make_trainable(tmp_path / "m.onnx", "cross_entropy", frozen="fc1.*")
    assert made.save(tmp_path / "bundle").ok
    expected = scores(models.perceptron(), X)
    for file in tmp_path.glob("m.onnx*"):
        file.unlink()  # the bundle does not need them
    found = Trainer(tmp_path / "bundle").predict(X)["scores"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


P = np.float32([[0.2, 0.9, 0.0], [0.5, 0.1, 1.0]])
T = np.float32([[0.0, 1.0, 0.5], [0.25, 0.0, 0.75]])
D = P - T
REFERENCES = {
    "mse": lambda: (D**2).mean(),
    "l1": lambda: np.abs(D).mean(),
    "huber(delta=0.2)": lambda: np.where(np.abs(D) < 0.2, D**2 / 2, 0.2 * (np.abs(D) - 0.1)).mean(),
    "smooth_l1(beta=0.2)": lambda: np.where(np.abs(D) < 0.2, D**2 / 0.4, np.abs(D) - 0.1).mean(),
    "bce": lambda: (
        -(
            T * np.maximum(np.log(np.maximum(P, 1e-45)), -100)
            + (1 - T) * np.maximum(np.log(np.maximum(1 - P, 1e-45)), -100)
        ).mean()
    ),
    "bce_with_logits": lambda: (np.log1p(np.exp(P)) - P * T).mean(),
    "hinge": lambda: np.maximum(0, 1 - P * T).mean(),
    "kl": lambda: (np.where(T > 0, T * np.log(np.where(T > 0, T, 1)), 0) - T * P).sum() / 2,
}


def shifted(opset=21):
    """x (batch, 3) plus an offset of zeros: a model whose output is known."""
    node = helper.make_node("Add", ["x", "offset"], ["y"])
    offset = models.tensor("offset", np.zeros(3, np.float32))
    return models.model(
        [node], [models.info("x", ["n", 3])], [models.info("y", ["n", 3])], [offset], opset
    )


@pytest.mark.parametrize("name", REFERENCES)
def test_losses_are_their_formulas(name):
    trainer = flow.make_trainable(shifted(), name, "sgd", lr=0.1).trainer()
    with np.errstate(divide="ignore"):
        expected = REFERENCES[name]()
    if name == "bce":  # the logarithm of 0 counts as -100
        assert trainer.evaluate(P, T)["loss"] == pytest.approx(
            -np.where(np.isfinite(P), 0, 0).mean()
            + -(T * np.clip(np.log(P, where=P > 0, out=np.full_like(P, -100)), -100, 0)
                + (1 - T) * np.clip(np.log(1 - P, where=P < 1, out=np.full_like(P, -100)), -100, 0)
                ).mean(),
            rel=1e-5,
        )  # fmt: skip
        return
    assert trainer.evaluate(P, T)["loss"] == pytest.approx(expected, rel=1e-5)


def test_cross_entropy_leaves_out_what_is_ignored_and_smooths():
    text = "cross_entropy(ignore_index=7, label_smoothing=0.3)"
    trainer = flow.make_trainable(shifted(), text, "sgd", lr=0.1).trainer()
    logs = np.log(softmax(P))
    expected = -(0.7 * logs[0, 2] + 0.3 * logs[0].mean())
    got = trainer.evaluate(P, np.int64([2, 7]))["loss"]
    assert got == pytest.approx(expected, rel=1e-5)


def test_nll_takes_logarithms():
    trainer = flow.make_trainable(shifted(), "nll", "sgd", lr=0.1).trainer()
    assert trainer.evaluate(P, np.int64([1, 0]))["loss"] == pytest.approx(-0.7, rel=1e-5)


def test_an_output_can_be_the_loss():
    trainer = flow.make_trainable(shifted(), "y", "sgd", lr=1.0).trainer()
    assert trainer.step(P)["loss"] == pytest.approx(P.mean(), rel=1e-5)
    np.testing.assert_allclose(trainer.state_dict()["offset"], np.full(3, -1 / 3), rtol=1e-5)


def test_a_loss_function_sees_inputs_outputs_and_what_it_declares():
    def loss(y, x, weight: flow.typing.Numpy.Placeholder((3,))):
        part = flow.math.reduce_sum((y - x * 2.0) * weight)
        return {"loss": part * part, "part": part}

    made = flow.make_trainable(shifted(), loss, "sgd", lr=0.1, inputs={"x": (2, 3)})
    results = made.trainer().step(P, np.float32([1, 2, 3]))
    part = (-P * [1, 2, 3]).sum()
    assert results["loss"] == pytest.approx(part**2, rel=1e-5)
    assert results["loss/1"] == pytest.approx(part, rel=1e-5)


def test_schedules_and_optimizers_of_flow():
    rate = flow.optimizer.PiecewiseConstantScheduler([1], [1.0, 0.0])
    optimizer = flow.optimizer.SGD(rate, momentum=0)
    trainer = flow.make_trainable(shifted(), "y", optimizer).trainer()
    offsets = [trainer.step(P) and trainer.state_dict()["offset"][0] for _ in range(4)]
    assert offsets[0] == pytest.approx(-1 / 3)
    assert offsets[2] == offsets[3]
    named = flow.make_trainable(shifted(), "y", "sgd", lr=rate).trainer()
    named.step(P)
    assert named.state_dict()["offset"][0] == pytest.approx(-1 / 3)


def test_patterns_choose_and_freeze():
    made = flow.make_trainable(
        models.perceptron(), "cross_entropy", "sgd", trained=["fc*"], frozen="*.bias"
    )
    assert made.trained == ("fc1.weight", "fc2.weight")
    reasons = {p.name: p.reason for p in made.parameters}
    assert reasons["fc1.bias"] == "frozen"
    assert set(made.trainer().state_dict()) == {
        "fc1.weight", "fc2.weight", "System-Train-Rate-train", "System-Train-TrainStep-train",
    }  # fmt: skip


def test_large_frozen_weights_become_state():
    wide = models.tensor("wide", models.random(0, 4, 400))
    narrow = models.tensor("narrow", models.random(1, 400, 3))
    nodes = [
        helper.make_node("MatMul", ["x", "wide"], ["h"]),
        helper.make_node("MatMul", ["h", "narrow"], ["y"]),
    ]
    model = models.model(
        nodes, [models.info("x", ["n", 4])], [models.info("y", ["n", 3])], [wide, narrow]
    )
    made = flow.make_trainable(model, "mse", "sgd", frozen="wide", freezable=1000)
    trainer = made.trainer()
    trainer.step(X, np.zeros((5, 3), np.float32))
    np.testing.assert_array_equal(trainer.state_dict()["wide"], models.random(0, 4, 400))
    assert not next(s for s in trainer.manifest.state if s.name == "wide").trainable


@pytest.mark.slow
def test_weights_above_two_gigabytes(tmp_path):
    rows = 2_300_000_000 // 1024
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["e"]),
        helper.make_node("MatMul", ["e", "w"], ["y"]),
    ]
    model = models.model(
        nodes, [models.info("i", ["n"], models.I)], [models.info("y", ["n", 3])],
        [models.tensor("w", models.random(0, 256, 3))], checks=False,
    )  # fmt: skip
    table = model.graph.initializer.add(name="table", data_type=1, dims=[rows, 256])
    table.data_location = onnx.TensorProto.EXTERNAL
    places = {"location": "zeros.bin", "offset": "0", "length": str(rows * 1024)}
    for key, text in places.items():
        table.external_data.add(key=key, value=text)
    with (tmp_path / "zeros.bin").open("wb") as file:
        file.truncate(rows * 1024)  # takes no space on the disk
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    made = flow.make_trainable(tmp_path / "m.onnx", "mse", "sgd", lr=0.1, frozen="table")
    made.save(tmp_path / "bundle", verify=False)
    sizes = {p.name: p.stat().st_size for p in (tmp_path / "bundle").iterdir()}
    assert sizes.pop("weights.safetensors") > 2_300_000_000 - 2048
    assert max(sizes.values()) < 10_000
    with pytest.raises(BundleError, match="too many for one"):
        made.save_training_info(tmp_path / "one.onnx")
    session = ort.InferenceSession(tmp_path / "bundle" / "predict.onnx")
    assert not session.run(None, {"i": np.int64([1, rows - 1])})[0].any()
    for file in [tmp_path / "zeros.bin", *(tmp_path / "bundle").iterdir()]:
        file.unlink()


def test_training_form_on_request():
    model = models.convolutional()
    x, y = models.random(0, 6, 1, 6, 6), np.int64([0, 1, 2, 0, 1, 2])
    plain = flow.make_trainable(model, "cross_entropy", "sgd", lr=0.1)
    plain_losses = {plain.trainer().evaluate(x, y)["loss"].item() for _ in range(2)}
    assert len(plain_losses) == 1
    made = flow.make_trainable(model, "cross_entropy", "sgd", lr=0.1, training_mode=True)
    trainer = made.trainer()
    before = trainer.state_dict()["bn.mean"]
    losses = {trainer.evaluate(x, y)["loss"].item() for _ in range(4)}
    assert len(losses) > 1  # it drops
    trainer.step(x, y)
    assert not np.array_equal(trainer.state_dict()["bn.mean"], before)
    used = {trainer.predict(x)["scores"].tobytes() for _ in range(3)}
    assert len(used) == 1


def test_a_fixed_batch_and_named_sizes():
    made = flow.make_trainable(models.perceptron(), "cross_entropy", inputs={"x": (5, 4)})
    assert made.trainer().manifest.feeds[0].shape == (5, 4)
    made = flow.make_trainable(models.perceptron(), "cross_entropy", inputs={"batch": 2})
    assert made.trainer().manifest.feeds[1].shape == (2,)


def test_an_old_model_is_brought_to_a_newer_opset():
    node = [
        helper.make_node("Mul", ["x", "w"], ["p"]),
        helper.make_node("ReduceMean", ["p"], ["y"], axes=[1], keepdims=0),
    ]
    weight = models.tensor("w", models.random(0, 4))
    model = models.model(
        node, [models.info("x", ["n", 4])], [models.info("y", ["n"])], [weight], opset=11
    )
    made = flow.make_trainable(model, "mse", "sgd", lr=0.1)
    expected = scores(model, X)
    np.testing.assert_allclose(made.trainer().predict(X)["y"], expected, rtol=1e-5)


def test_functions_of_the_model_are_expanded():
    body = [helper.make_node("Mul", ["a", "b"], ["p"]), helper.make_node("Tanh", ["p"], ["c"])]
    function = helper.make_function(
        "mine", "Squash", ["a", "b"], ["c"], body, [helper.make_opsetid("", 21)]
    )
    node = helper.make_node("Squash", ["x", "w"], ["y"], domain="mine")
    model = models.model(
        [node], [models.info("x", ["n", 4])], [models.info("y", ["n", 4])],
        [models.tensor("w", models.random(0, 4))], domains=["mine"], functions=[function],
    )  # fmt: skip
    made = flow.make_trainable(model, "mse", "sgd", lr=0.1)
    assert made.trained == ("w",)
    np.testing.assert_allclose(
        made.trainer().predict(X)["y"], np.tanh(X * models.random(0, 4)), rtol=1e-5
    )


def test_outputs_that_something_foreign_computes_are_left_out():
    model = models.perceptron()
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    model.graph.node.append(
        helper.make_node("Binarizer", ["scores"], ["chosen"], domain="ai.onnx.ml")
    )
    model.graph.output.append(models.info("chosen", ["batch", 3]))
    made = flow.make_trainable(model, "cross_entropy", "sgd")
    assert made.notes == ("output chosen is left out: ai.onnx.ml::Binarizer computes it",)
    assert list(made.trainer().predict(X)) == ["scores"]


def test_mixed_precision_stays_near():
    plain = flow.make_trainable(models.perceptron(), "cross_entropy", "sgd", lr=0.1).trainer()
    made = flow.make_trainable(
        models.perceptron(), "cross_entropy", "sgd", lr=0.1, precision="fp16"
    )
    trainer = made.trainer()
    for _ in range(3):
        expected = plain.step(X, Y)["loss"]
        assert trainer.step(X, Y)["loss"] == pytest.approx(expected, rel=1e-2)
    assert "System-Train-LossScale-train" in trainer.state_dict()


def test_a_new_variable_in_a_loss_function_is_trained_too():
    def loss(y):
        scale = flow.get_variable("scale", (1,), initializer=flow.constant_initializer(2.0))
        return flow.math.reduce_mean(y * scale)

    trainer = flow.make_trainable(shifted(), loss, "sgd", lr=0.1).trainer()
    trainer.step(P)
    assert trainer.state_dict()["scale"] == pytest.approx(2 - 0.1 * P.mean(), rel=1e-5)


def test_adagrad_divides_by_the_root_of_all_squares():
    trainer = flow.make_trainable(shifted(), "y", "adagrad(eps=0.1)", lr=0.5).trainer()
    x, total = np.float32([[1, -2, 3]]), np.zeros(3)
    shift = trainer.state_dict()["offset"].copy()
    for _ in range(3):
        gradient = np.float32([1, 1, 1]) / 3
        trainer.step(x)
        total += gradient**2
        shift -= 0.5 * gradient / (np.sqrt(total) + 0.1)
        np.testing.assert_allclose(trainer.state_dict()["offset"], shift, rtol=1e-6)


def test_named_optimizers_check_their_settings():
    with pytest.raises(ArgumentError, match="has no setting 'momentun'"):
        flow.make_trainable(shifted(), "y", "sgd(momentun=0.9)")


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 25, reason="onnx has no opset 25 yet")
def test_windows_of_attention_train_and_predict():
    node = helper.make_node("Attention", ["q", "q", "q"], ["y"], q_num_heads=1, kv_num_heads=1,
                            left_window_size=1, right_window_size=0)  # fmt: skip
    scale = helper.make_node("Mul", ["x", "w"], ["q"])
    weight = models.tensor("w", np.ones(4, np.float32))
    x, y = models.info("x", ["n", 3, 4]), models.info("y", ["n", 3, 4])
    made = flow.make_trainable(
        models.model([scale, node], [x], [y], [weight], opset=25), "mse", "sgd"
    )
    trainer = made.trainer()
    given = models.random(0, 2, 3, 4)
    found = trainer.predict(given)["y"]
    np.testing.assert_allclose(found[:, 0], given[:, 0], rtol=1e-5)  # it sees itself alone
    first = trainer.step(given, given)["loss"]
    assert trainer.step(given, given)["loss"] < first
