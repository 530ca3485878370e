"""make_trainable: its signature, one vocabulary with the command, and what each option does."""

import inspect
import typing

import numpy as np
import pytest
from click.testing import CliRunner
from flow2onnx_runtime import Manifest, StateError, Trainer
from onnx import helper

import flow2onnx as flow
from flow2onnx.cli.app import app
from flow2onnx.cli.commands.make_trainable import make_trainable as command
from flow2onnx.errors import ArgumentError, ConfigError
from tests.imported import models

X = models.random(10, 6, 4)
Y = np.int64([0, 2, 1, 1, 0, 2])


def parameters(function):
    return inspect.signature(function).parameters


@pytest.mark.parametrize(
    "name", ["make_trainable", "grad", "vjp", "jvp", "hvp", "jacobian", "from_training_info"]
)
def test_signatures_are_written_out(name):
    for parameter in parameters(getattr(flow, name)).values():
        assert parameter.kind is not parameter.VAR_KEYWORD
        assert parameter.annotation is not parameter.empty


def test_every_option_is_described():
    text = inspect.getdoc(flow.make_trainable)
    for name in parameters(flow.make_trainable):
        assert name in text


def test_the_command_has_the_same_vocabulary():
    own = {"folder", "ort_format", "training_info", "no_verify"}  # of `save`
    names = (
        {p.name for p in command.params}
        - own
        - {"as_json", "show_traceback", "traceback", "details"}
    )
    assert names == set(parameters(flow.make_trainable)) - {"trainable"}
    for option in command.params:
        if option.name in names - {"model"}:
            assert f"--{option.name.replace('_', '-')}" in option.opts


def test_the_command_passes_everything_on(tmp_path):
    models_path, folder = tmp_path / "m.onnx", tmp_path / "bundle"
    models_path.write_bytes(models.perceptron().SerializeToString())
    given = [
        "--loss", "cross_entropy", "--labels", "target", "--accumulate", "--ema", "0.5",
        "--recompute", "2", "--no-in-place", "--name", "job", "--seed", "3",
        "--metadata", "author=me", "--freezable", "0", "--frozen", "fc1.*", "--on-device",
        "--schedule", "one_cycle(total_steps=10)", "--clip-norm", "1", "--clip-value", "0.5",
        "--groups", "*.bias: optimizer='lion', lr=1e-4",
        "--no-verify",
    ]  # fmt: skip
    result = CliRunner().invoke(
        app, ["make-trainable", str(models_path), "-o", str(folder), *given]
    )
    assert result.exit_code == 0, result.output
    manifest = Manifest.read(folder)
    assert manifest.job == "job"
    assert [f.name for f in manifest.feeds] == ["x", "target"]
    assert manifest.accumulate is not None
    assert manifest.metadata["author"] == "me"
    assert "fc2.weight-ema" in [s.name for s in manifest.state]
    assert "fc1.weight-ema" not in [s.name for s in manifest.state]
    assert "fc2.weight-v" in [s.name for s in manifest.state]
    assert "fc2.bias-v" not in [s.name for s in manifest.state]
    assert (folder / "README.md").exists()
    assert not manifest.in_place


def test_the_rate_can_be_set_at_run_time():
    trainer = flow.make_trainable(models.perceptron(), "cross_entropy", "sgd", lr=0.5).trainer()
    assert trainer.learning_rate is None
    before = trainer.state_dict()["fc2.weight"]
    trainer.learning_rate = 0.0
    trainer.step(X, Y)
    np.testing.assert_array_equal(trainer.state_dict()["fc2.weight"], before)
    trainer.learning_rate = None
    trainer.step(X, Y)
    assert (trainer.state_dict()["fc2.weight"] != before).any()


@pytest.mark.parametrize("shapes", [None, {"x": (3, 4)}], ids=["free", "fixed"])
def test_accumulated_batches_are_one_large_one(shapes):
    def opened(batch):
        inputs = {"x": batch} if shapes else None
        return flow.make_trainable(
            models.perceptron(), "cross_entropy", "adam", lr=0.1, accumulate=True, inputs=inputs
        ).trainer()

    parts, whole = opened((3, 4)), opened((6, 4))
    for _ in range(2):
        parts.accumulate(X[:3], Y[:3])
        parts.accumulate(X[3:], Y[3:])
        parts.update()
        whole.step(X, Y)
    assert parts.steps == whole.steps == 2
    expected = whole.state_dict()
    for name, value in parts.state_dict().items():
        if name in expected:
            np.testing.assert_allclose(value, expected[name], rtol=2e-5, atol=2e-7, err_msg=name)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_averages_follow_their_formula(optimizer, tmp_path):
    made = flow.make_trainable(models.perceptron(), "cross_entropy", optimizer, lr=0.1, ema=0.75)
    made.save(tmp_path / "b", verify=False)
    trainer = Trainer(tmp_path / "b")
    average = trainer.state_dict()["fc1.weight"]
    np.testing.assert_array_equal(trainer.state_dict()["fc1.weight-ema"], average)
    for i in range(4):
        trainer.step(X, Y)
        w = trainer.state_dict()["fc1.weight"]
        average = 0.75 * average + 0.25 * w if i else w
    state = trainer.state_dict()
    np.testing.assert_allclose(state["fc1.weight-ema"], average, rtol=1e-5)
    averages = {n: state[f"{n}-ema"] for n in state if f"{n}-ema" in state}
    found = trainer.predict(X, job="ema")["scores"]
    trainer.load_state_dict(state | averages)
    np.testing.assert_allclose(found, trainer.predict(X)["scores"], rtol=1e-6)


def test_the_optimizer_takes_what_is_given_beside_it():
    """Options of make_trainable are those of flow.optimizer.named."""
    options = {
        "lr": 0.1, "schedule": "linear(total_steps=4)", "clip_norm": 0.5, "clip_value": 0.2,
        "groups": {("*.bias", "fc2.weight"): {"lr": 0.01, "optimizer": "sgd"}},
    }  # fmt: skip
    named = flow.optimizer.named("adamw(weight_decay=0.1)", **options)
    states = []
    for optimizer, given in (("adamw(weight_decay=0.1)", options), (named, {})):
        made = flow.make_trainable(models.perceptron(), "cross_entropy", optimizer, **given)
        trainer = made.trainer()
        for _ in range(3):
            trainer.step(X, Y)
        states.append(trainer.state_dict())
    assert "fc1.weight-m" in states[0]
    assert "fc1.bias-m" not in states[0]
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name])


def test_frozen_groups_are_constants():
    made = flow.make_trainable(
        models.perceptron(), "cross_entropy", groups={"fc1.*": {"frozen": True}}
    )
    assert made.trained == ("fc2.weight", "fc2.bias")
    assert {p.reason for p in made.parameters if p.name.startswith("fc1")} == {"frozen"}
    assert "fc1.weight" not in made.trainer().state_dict()


def test_groups_know_every_name_of_a_weight():
    """A weight that is used under two names, as torch's older exporter says by an Identity."""
    nodes = [
        helper.make_node("Identity", ["first"], ["second"]),
        helper.make_node("MatMul", ["x", "first"], ["h"]),
        helper.make_node("MatMul", ["h", "second"], ["y"]),
    ]
    tensors = [models.tensor("first", models.random(0, 4, 4))]
    model = models.model(nodes, [models.info("x", [6, 4])], [models.info("y", [6, 4])], tensors)
    made = flow.make_trainable(model, "mse", "sgd", groups={"sec*": {"optimizer": "lion"}})
    assert "first-m" in made.trainer().state_dict()


WRONG = [
    ({"groups": {"fc3*": {"lr": 1}}}, "'fc3*' matches nothing that is trained"),
    ({"groups": {"fc1*": {"frozen": True}, "*.bias": {"lr": 1}}}, "fc1.bias is in two of them"),
    ({"groups": {"fc1*": {"lr": 1}}, "frozen": "fc1*"}, "'fc1*' matches nothing"),
    ({"optimizer": flow.optimizer.named("sgd"), "schedule": "constant"}, "schedule= is for"),
    ({"optimizer": flow.optimizer.named("sgd"), "clip_norm": 1.0}, "clip_norm= is for"),
    ({"optimizer": flow.optimizer.named("sgd", ema=0.5), "ema": 0.5}, "ema is given twice"),
    ({"schedule": "cosin(total_steps=3)"}, "did you mean cosine"),
    ({"clip_norm": -1.0}, "clip_norm is a positive number"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[w[1] for w in WRONG])
def test_wrong_options_of_the_optimizer(options, message):
    with pytest.raises(ArgumentError) as caught:
        flow.make_trainable(models.perceptron(), "cross_entropy", **options)
    assert message in str(caught.value)


@pytest.mark.parametrize("decay", [-0.1, 1, 2.0, True, "0.9", float("nan")])
def test_a_decay_of_averages_is_a_share(decay):
    with pytest.raises(ArgumentError, match="from 0 to below 1"):
        flow.make_trainable(models.perceptron(), "cross_entropy", ema=decay)


def test_recomputed_activations_change_no_bit():
    def losses(**options):
        made = flow.make_trainable(models.perceptron(), "cross_entropy", "adam", **options)
        trainer = made.trainer()
        return made, [trainer.step(X, Y)["loss"].tobytes() for _ in range(3)]

    _, plain = losses()
    for recompute in (True, 3):
        made, found = losses(recompute=recompute)
        assert found == plain
        assert made.step.spec.config.value("runtime.recompute") == recompute
    with pytest.raises(ConfigError, match="nowhere"):
        losses(recompute=["nowhere"])


def test_operators_without_a_rule_are_computed_again_too():
    nodes, tensors, x = [], [], "x"
    for i in range(4):  # Gelu has no rule: others stand for it, where it stood
        tensors.append(models.tensor(f"layers.{i}.weight", models.random(i, 8, 8)))
        product, y = f"layers.{i}/MatMul", f"layers.{i}/Gelu"
        nodes.append(helper.make_node("MatMul", [x, f"layers.{i}.weight"], [product], product))
        nodes.append(helper.make_node("Gelu", [product], [y], y, approximate="tanh"))
        x = y
    model = models.model(
        nodes, [models.info("x", [6, 8])], [models.info(x, [6, 8])], tensors, opset=20
    )

    def losses(**options):
        made = flow.make_trainable(model, "mse", "sgd", **options)
        trainer, rows = made.trainer(), models.random(9, 6, 8)
        return made, [trainer.step(rows, rows)["loss"].tobytes() for _ in range(3)]

    made, found = losses(recompute=[f"layers.{i}" for i in range(3)])
    assert found == losses()[1]
    assert all(s.nodes for s in made.step.recomputed)


def test_state_keeps_two_buffers_if_asked(tmp_path):
    node = helper.make_node("Gather", ["table", "i"], ["rows"])
    table = models.tensor("table", models.random(0, 5000, 4))
    inputs, outputs = [models.info("i", ["n"], models.I)], [models.info("rows", ["n", 4])]
    model = models.model([node], inputs, outputs, [table])
    for name, asked in (("one", True), ("two", False)):
        made = flow.make_trainable(model, "mse", "sgd", inputs={"i": (6,)}, in_place=asked)
        made.save(tmp_path / name, verify=False)
    assert Manifest.read(tmp_path / "one").in_place
    assert not Manifest.read(tmp_path / "two").in_place


def test_a_bundle_without_the_other_half_says_so():
    trainer = flow.make_trainable(models.perceptron(), "cross_entropy").trainer()
    with pytest.raises(ValueError, match="accumulate=True"):
        trainer.accumulate(X, Y)
    with pytest.raises(StateError, match="at least 0"):
        trainer.learning_rate = -1


def test_literals_of_the_signature_are_those_accepted():
    (choice,) = typing.get_args(parameters(flow.make_trainable)["precision"].annotation)[:1]
    for name in typing.get_args(choice):
        flow.make_trainable(models.perceptron(), "cross_entropy", precision=name)


@pytest.mark.parametrize("shapes", [None, {"x": (6, 4)}], ids=["free", "fixed"])
def test_draws_on_devices_depend_on_the_step_alone(shapes, tmp_path):
    """A training that goes on from a saved state is the one that was not interrupted."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Dropout", ["h", "half"], ["y"]),
    ]
    tensors = [models.tensor("w", models.random(0, 4, 3)), models.tensor("half", np.float32(0.5))]
    model = models.model(nodes, [models.info("x", ["n", 4])], [models.info("y", ["n", 3])], tensors)
    made = flow.make_trainable(
        model, "cross_entropy", "sgd", training_mode=True, on_device=True, inputs=shapes
    )
    made.save(tmp_path / "b", verify=False)
    whole, first = Trainer(tmp_path / "b"), Trainer(tmp_path / "b")
    losses = [whole.step(X, Y)["loss"].item() for _ in range(4)]
    for _ in range(2):
        first.step(X, Y)
    first.save(tmp_path / "state.safetensors")
    resumed = Trainer(tmp_path / "b")
    resumed.load(tmp_path / "state.safetensors")
    assert [resumed.step(X, Y)["loss"].item() for _ in range(2)] == losses[2:]
    assert len(set(losses)) == 4


def test_the_report_reads_in_five_lines():
    made = flow.make_trainable(tied_layers(), "mse", "adam", frozen="fc1.bias", inputs={"batch": 4})
    lines = made.report.lines()
    assert list(lines) == ["trained", "not trained", "import", "kernels", "memory"]
    assert lines["trained"] == "2 tensors, 20 numbers, 1 shared: fc1.weight"
    assert lines["not trained"] == "1 frozen, 4 numbers; 1 constant: a single number"
    assert lines["import"].startswith("differs from the model itself by")
    nodes = len(list(made.step.model.graph.all_nodes()))
    assert lines["kernels"] == f"all {nodes} nodes of the step have one in the onnxruntime here"
    assert str(made.report).count("\n") == 4
    state = sum(v.nbytes * 2 for v in made.step.variables.values() if v.name != RATE_STATE)
    held = made.report.memory["weights"] + made.report.memory["optimizer state"]
    assert held == state + 4  # nothing changes the rate, which has one buffer
    assert made.report.memory["activations"] > 0
    assert not made.report.is_free


def test_the_report_tells_of_one_row_where_the_batch_is_free():
    free = flow.make_trainable(models.perceptron(), "cross_entropy", "sgd").report
    one = flow.make_trainable(
        models.perceptron(), "cross_entropy", "sgd", inputs={"batch": 1}
    ).report
    assert free.is_free
    assert "a row of the batch" in str(free)
    assert 0 < free.memory["activations"] <= 2 * one.memory["activations"]


RATE_STATE = "System-Train-Rate-train"


def tied_layers():
    """A layer that is used twice, an offset, and a number."""
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], "first"),
        helper.make_node("Gemm", ["h", "fc1.weight", "fc1.bias"], ["i"], "second"),
        helper.make_node("Mul", ["i", "two"], ["j"], "twice"),
        helper.make_node("MatMul", ["j", "shift"], ["y"], "shifted"),
    ]
    tensors = [
        models.tensor("fc1.weight", models.random(0, 4, 4)),
        models.tensor("fc1.bias", models.random(1, 4)),
        models.tensor("two", np.float32(2)),
        models.tensor("shift", models.random(2, 4, 1)),
    ]
    return models.model(
        nodes, [models.info("x", ["batch", 4])], [models.info("y", ["batch", 1])], tensors
    )


def test_what_is_shown_of_things_is_short():
    made = flow.make_trainable(models.perceptron(), "cross_entropy")
    shown = [made, made.report, made.trainer()]
    assert [len(repr(thing)) < 120 and "\n" not in repr(thing) for thing in shown] == [True] * 3
    assert repr(made) == "<TrainableModel train: 4 of 4 tensors trained; feeds x, labels>"
    assert repr(shown[2]).startswith("<Trainer train: step 0; feeds x: float32[batch, 4]")


@pytest.mark.slow
def test_editors_know_the_signature(tmp_path):
    """A type checker finds in a program what an editor shows."""
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(
        "import flow2onnx as flow\n"
        'made = flow.make_trainable("m.onnx", "mse", lr=0.1, trained=["a"])\n'
        "reveal_type(made.report)\n"
        'flow.make_trainable("m.onnx", "mse", ema="0.9")\n'
        "flow.nn.relu\n"
    )
    found, errors, _ = api.run(["--cache-dir", str(tmp_path / "cache"), str(program)])
    assert not errors
    assert "flow2onnx.imported.report.TrainingReport" in found
    assert 'Argument "ema" to "make_trainable" has incompatible type "str"' in found
    assert "Found 1 error" in found
