"""Bundles for devices: a rate that can be set, accumulation, draws that resume, what goes along."""

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from click.testing import CliRunner
from flow2onnx_runtime import Manifest, Predictor, Trainer

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.cli.app import app
from flow2onnx.engine.session import clear_default_session
from flow2onnx.errors import ArgumentError, UnsupportedError
from tests.export.jobs import BATCH, batch, define

WEIGHT = "hidden-weight"


def shipped(path, momentum=0.9, with_dropout=False, **options):
    train_job, predict_job = define(momentum=momentum, with_dropout=with_dropout)
    report = train_job.export(path, predict=predict_job, on_device=True, **options)
    assert report.ok, str(report)
    return Trainer(path)


def moved(trainer, act):
    """How far `act` moves the weights."""
    before = trainer.state_dict()
    act()
    return trainer.delta(before)


def test_the_schedule_holds_until_a_rate_is_set(tmp_path):
    plain_job, _ = define(momentum=0)
    plain_job.export(tmp_path / "plain")
    plain = Trainer(tmp_path / "plain")
    clear_default_session()
    trainer = shipped(tmp_path / "b", momentum=0)
    trainer.load_state_dict(
        {n: plain.state_dict().get(n, v) for n, v in trainer.state_dict().items()}
    )
    assert trainer.learning_rate is None
    for i in range(4):  # the schedule changes at 2
        for name, value in moved(trainer, lambda i=i: trainer.step(*batch(i))).items():
            assert np.abs(value).max() > 0, name
        plain.step(*batch(i))
        for name, value in plain.state_dict().items():
            np.testing.assert_allclose(trainer.state_dict()[name], value, rtol=1e-5, atol=1e-7)


def test_a_rate_that_is_set_holds_and_is_saved(tmp_path):
    trainer = shipped(tmp_path / "b", momentum=0)
    scheduled = moved(trainer, lambda: trainer.evaluate(*batch(0)))
    assert not any(v.any() for v in scheduled.values())
    start = trainer.state_dict()
    by_schedule = moved(trainer, lambda: trainer.step(*batch(0)))  # at 0.1
    trainer.load_state_dict(start)
    trainer.learning_rate = 0.2
    twice = moved(trainer, lambda: trainer.step(*batch(0)))
    for name, value in twice.items():
        np.testing.assert_allclose(value, 2 * by_schedule[name], rtol=1e-3, atol=1e-6)
    trainer.save(tmp_path / "s")
    again = Trainer(tmp_path / "b")
    again.load(tmp_path / "s")
    assert again.learning_rate == pytest.approx(0.2)
    again.learning_rate = 0.0
    assert not any(v.any() for v in moved(again, lambda: again.step(*batch(1))).values())
    again.learning_rate = None
    assert again.learning_rate is None


def test_accumulated_batches_count_as_their_mean(tmp_path):
    trainer = shipped(tmp_path / "b", momentum=0, accumulate=True)
    start = trainer.state_dict()
    alone = []
    for i in range(3):
        alone.append(moved(trainer, lambda i=i: trainer.step(*batch(i))))
        trainer.load_state_dict(start)
    losses = [trainer.accumulate(*batch(i))["out/0"] for i in range(3)]
    assert trainer.accumulated == 3
    assert not any(v.any() for v in trainer.delta(start).values())
    trainer.update()
    assert (trainer.accumulated, trainer.steps) == (0, 1)
    for name, value in trainer.delta(start).items():
        mean = np.mean([one[name] for one in alone], axis=0)
        np.testing.assert_allclose(value, mean, rtol=1e-4, atol=1e-6)
    for i in range(3):
        trainer.load_state_dict(start)
        np.testing.assert_array_equal(losses[i], trainer.step(*batch(i))["out/0"])


def test_one_batch_accumulated_is_a_step(tmp_path):
    halves, whole = (shipped(tmp_path / "b", accumulate=True), Trainer(tmp_path / "b"))
    for i in range(4):
        halves.accumulate(*batch(i))
        halves.update()
        whole.step(*batch(i))
    for name, value in whole.state_dict().items():
        np.testing.assert_allclose(halves.state_dict()[name], value, rtol=1e-4, atol=1e-6)


def test_sums_of_gradients_are_saved(tmp_path):
    trainer = shipped(tmp_path / "b", accumulate=True)
    trainer.accumulate(*batch(0))
    trainer.save(tmp_path / "s")
    again = Trainer(tmp_path / "b")
    again.load(tmp_path / "s")
    for one in (trainer, again):
        one.accumulate(*batch(1))
        one.update()
    for name, value in trainer.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name], value)


def test_dropout_goes_on_where_it_was(tmp_path):
    whole = shipped(tmp_path / "b", with_dropout=True, accumulate=True)
    losses = [whole.step(*batch(0))["out/0"] for _ in range(6)]
    assert len({loss.tobytes() for loss in losses}) == 6
    first = Trainer(tmp_path / "b")
    for _ in range(3):
        first.step(*batch(0))
        first.evaluate(*batch(1))  # draws too, and changes nothing
    first.save(tmp_path / "s")
    second = Trainer(tmp_path / "b")
    second.load(tmp_path / "s")
    np.testing.assert_array_equal(second.evaluate(*batch(0))["out/0"], losses[3])
    for i in range(3, 6):
        np.testing.assert_array_equal(second.step(*batch(0))["out/0"], losses[i])
    for name, value in whole.state_dict().items():
        np.testing.assert_array_equal(second.state_dict()[name], value)
    # batches of one update drop differently
    parts = [second.accumulate(*batch(0))["out/0"].tobytes() for _ in range(3)]
    assert len(set(parts)) == 3


def test_notes_go_along(tmp_path):
    trainer = shipped(tmp_path / "b", accumulate=True)
    text = (tmp_path / "b" / "README.md").read_text()
    for name in (*trainer.manifest.files, "required_operators.config", WEIGHT, "momentum"):
        assert name in text
    config = (tmp_path / "b" / "required_operators.config").read_text()
    domain, opset, operators = config.strip().split(";")
    assert (domain, opset) == ("ai.onnx", "21")
    assert {"Gemm", "Where"} <= set(operators.split(","))
    assert trainer.manifest.accumulate.count in trainer.state
    # an earlier one may be replaced, a foreign file may not
    clear_default_session()
    shipped(tmp_path / "b")


def test_models_in_the_runtimes_format(tmp_path):
    trainer = shipped(tmp_path / "b", ort_format=True)
    made = {n for n in trainer.manifest.files if n.endswith(".ort")}
    assert made == {"init.ort", "step.ort", "predict.ort"}
    assert (tmp_path / "b" / "required_operators.config").read_text().startswith("ai.onnx;")
    found = Predictor(tmp_path / "b" / "predict.ort")(batch(0)[0])["out/0"]
    np.testing.assert_allclose(found, trainer.predict(batch(0)[0])["out/0"], rtol=1e-5, atol=1e-7)
    state = trainer.state_dict()
    session = ort.InferenceSession(tmp_path / "b" / "step.ort")
    images, labels = batch(0)
    feeds = {"images": images, "labels": labels, **state}
    feeds = {i.name: feeds[i.name] for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    results = dict(zip(names, session.run(None, feeds), strict=True))
    trainer.step(images, labels)
    for name, value in trainer.state_dict().items():
        if f"next/{name}" in results:
            np.testing.assert_allclose(results[f"next/{name}"], value, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_shipped(tmp_path):
    _, predict_job = define()
    for name in ("on_device", "accumulate", "ort_format"):
        with pytest.raises(ArgumentError, match=f"{name} is for train jobs"):
            predict_job.export(tmp_path / "p.onnx", **{name: True})


def test_models_that_cannot_be_converted(tmp_path, monkeypatch):
    train_job, _ = define()
    monkeypatch.setattr("flow2onnx.export.device._CONVERTER", "flow2onnx.no_such_converter")
    with pytest.raises(flow.errors.BundleError, match=r"cannot be converted to \.ort files"):
        train_job.export(tmp_path / "b", ort_format=True)
    assert not (tmp_path / "b").exists()


def test_tables_updated_by_rows_have_no_halves(tmp_path):
    config = flow.function_config()
    config.indexed_slices_optimizer_conf(dict(include_op_names=dict(op_name=["table"])))

    @flow.global_function(type="train", function_config=config)
    def train_job(words: tp.Numpy.Placeholder((BATCH,), dtype=flow.int32)) -> tp.Numpy:
        table = flow.get_variable(
            "table", (5, 3), flow.float, flow.random_normal_initializer(stddev=1.0)
        )
        loss = flow.math.reduce_mean(flow.math.square(flow.gather(table, words)))
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(rate, momentum=0).minimize(loss)
        return loss

    with pytest.raises(UnsupportedError, match="cannot accumulate gradients"):
        train_job.export(tmp_path / "b", accumulate=True)


def test_slots_name_their_variable(tmp_path):
    shipped(tmp_path / "b")
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    owners = {s["name"]: s["of"] for s in manifest["state"]}
    assert owners[f"{WEIGHT}-momentum"] == WEIGHT
    assert owners[WEIGHT] is None
    assert Manifest.read(tmp_path / "b").learning_rate in owners


SCRIPT = """
import flow2onnx as flow
import flow2onnx.typing as tp

def net(x):
    return flow.layers.dense(x, 3, kernel_initializer=flow.random_normal_initializer(), name="d")

@flow.global_function(type="train")
def train_job(x: tp.Numpy.Placeholder((4, 5)), y: tp.Numpy.Placeholder((4,), dtype=flow.int32)):
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, net(x))
    flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
    return loss

@flow.global_function(type="predict")
def predict_job(x: tp.Numpy.Placeholder((4, 5))):
    return net(x)
"""


def test_the_command(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    target = [f"{tmp_path}/train.py:train_job", "--predict", "predict_job"]
    done = CliRunner().invoke(
        app, ["export", *target, "--on-device", f"{tmp_path}/b", "--accumulate", "--json"]
    )
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    names = {Path(name).name: size for name, size in facts["files"].items()}
    assert {"gradients.onnx", "update.onnx", "README.md", "required_operators.config"} <= set(names)
    assert names["step.onnx"] == (tmp_path / "b" / "step.onnx").stat().st_size
    assert Trainer(tmp_path / "b").learning_rate is None


@pytest.mark.parametrize("places", [[], ["-o", "a", "--on-device", "b"]])
def test_the_command_needs_one_place(tmp_path, places):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = CliRunner().invoke(app, ["export", f"{tmp_path}/train.py:train_job", *places])
    assert done.exit_code == 2
    assert "give one of -o OUT, --on-device DIR and --triton REPO" in done.output
