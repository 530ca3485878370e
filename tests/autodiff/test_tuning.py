"""Autotune: what is measured once is kept in a file, and taken from there."""

import itertools
import json
import logging
import subprocess
import sys

import numpy as np
import pytest
from flow2onnx_runtime import tune as measuring
from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.options import Options
from flow2onnx_runtime.tuning_file import Answer, machine_of, recall

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.session import SESSION, Session
from flow2onnx.engine.tuning import emit_trials, fastest_forms, measure_lowerings
from flow2onnx.errors import ArgumentError, ConfigError
from flow2onnx.graph.model import model_bytes

X, Y = (
    np.linspace(-1, 1, 2 * 5 * 6 * 6, dtype=np.float32).reshape(2, 5, 6, 6),
    np.array([0, 2], np.int32),
)


@pytest.fixture(autouse=True)
def _session(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    token = SESSION.set(Session())
    yield
    SESSION.reset(token)


@pytest.fixture
def clock(monkeypatch):
    """Runs take as long as the test says: by default the later a form is named, the less."""
    taken = {}

    def seconds(runner):
        return taken.get(runner.form, 1.0)

    class Known(measuring._Runner):
        def __init__(self, content, options, fed):
            super().__init__(content, options, fed)
            self.form = forms[content]

    forms = {}
    real = measuring._runners

    def named(trial, options):
        forms.update({trial.model(f): f for f in trial.forms})
        return real(trial, options)

    monkeypatch.setattr(measuring, "_runners", named)
    monkeypatch.setattr(measuring, "_Runner", Known)
    monkeypatch.setattr(Known, "seconds", seconds)
    return taken


def job(how=None, path=None, forms=()):
    """A train job with a convolution, which asks several questions."""
    config = flow.function_config()
    if how is not None:
        config.runtime.autotune = how
    if path is not None:
        config.runtime.tuning_cache_path = str(path)
    for name, form in forms:
        config.runtime.lowering(name, form)

    @flow.global_function(type="train", function_config=config)
    def step(
        x: tp.Numpy.Placeholder((2, 5, 6, 6)), y: tp.Numpy.Placeholder((2,), dtype=flow.int32)
    ) -> tp.Numpy:
        one = flow.random_uniform_initializer(-0.1, 0.1)
        h = flow.layers.conv2d(x, 4, 3, padding="SAME", kernel_initializer=one, name="first")
        h = flow.layers.conv2d(flow.nn.relu(h), 3, 3, kernel_initializer=one, name="second")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(
            y, flow.math.reduce_mean(h, axis=[2, 3])
        )
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(rate, momentum=0).minimize(loss)
        return loss

    return step


def taken(step):
    return {(c.lowering, c.form, c.why) for c in step.explain().lowerings}


def of(name, step):
    return [(c.form, c.why) for c in step.explain().lowerings if c.lowering == name]


# --- in a job ------------------------------------------------------------------------------------
def test_off_by_default_nothing_is_measured_or_written(tmp_path):
    assert {why for _, _, why in taken(job())} == {"static rule"}
    assert not (tmp_path / "cache").exists()


def test_the_fastest_form_is_taken_and_kept(clock, tmp_path):
    clock["swapped_conv"] = 0.5
    step = job(True)
    assert of("Conv.dW", step) == [("swapped_conv", "tuned")] * 2
    kept = json.loads((tmp_path / "cache" / "flow2onnx" / "lowerings.json").read_text())
    (machine,) = kept["machines"]
    assert "onnxruntime" in machine
    assert "CPUExecutionProvider" in machine


def test_a_second_job_measures_nothing(clock, tmp_path, monkeypatch):
    clock["swapped_conv"] = 0.5
    job(True, tmp_path / "t.json").explain()
    monkeypatch.setattr(measuring, "measure", lambda *_: pytest.fail("measured again"))
    SESSION.set(Session())
    assert of("Conv.dW", job(True, tmp_path / "t.json")) == [("swapped_conv", "tuned")] * 2
    SESSION.set(Session())
    cached = job("only cache", tmp_path / "t.json")
    assert of("Conv.dW", cached) == [("swapped_conv", "tuned")] * 2
    SESSION.set(Session())
    empty = job("only cache", tmp_path / "none.json")
    assert {why for _, _, why in taken(empty)} == {"static rule"}
    assert not (tmp_path / "none.json").exists()


def test_results_are_the_same_whatever_is_picked(clock, tmp_path):
    clock.update(swapped_conv=0.5, conv=0.5, where=0.5, at_once=0.5, reduce_sum=0.5)
    plain = job()
    wanted = [plain(X, Y) for _ in range(3)]
    SESSION.set(Session())
    tuned = job(True, tmp_path / "t.json")
    assert {why for _, _, why in taken(tuned)} == {"tuned"}
    np.testing.assert_allclose([tuned(X, Y) for _ in range(3)], wanted, rtol=1e-5)


def test_a_form_asked_for_goes_before_and_is_not_measured(clock, tmp_path):
    clock["swapped_conv"] = 0.5
    step = job(True, tmp_path / "t.json", [("Conv.dW", "im2col")])
    assert of("Conv.dW", step) == [("im2col", "asked")] * 2
    kept = (tmp_path / "t.json").read_text()
    assert "Conv.dX" in kept
    assert "Conv.dW" not in kept


def test_an_unknown_form_is_refused():
    with pytest.raises(ArgumentError, match=r"Conv\.dW has no form 'quick'"):
        job(forms=[("Conv.dW", "quick")]).explain()
    with pytest.raises(ConfigError, match="True, False or 'only cache'"):
        job("always")


def test_a_gradient_that_nobody_needs_is_not_measured():
    step = job()
    assert len(of("Conv.dX", step)) == 1  # the first layer's input is data


def test_what_cannot_be_kept_is_used_and_said(clock, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    clock["swapped_conv"] = 0.5
    with caplog.at_level(logging.WARNING, "flow2onnx"):
        step = job(True, tmp_path / "file" / "t.json")
        assert of("Conv.dW", step) == [("swapped_conv", "tuned")] * 2
    assert "measured lowerings cannot be kept" in caplog.text


def test_a_clear_win_is_needed(clock):
    clock["swapped_conv"] = 0.97
    assert [form for form, _ in of("Conv.dW", job(True))] == ["im2col_by_image", "nhwc_taps"]


# --- trials --------------------------------------------------------------------------------------
def trials():
    step = job()
    opening = step.session.opening("step")
    return opening.job, opening.options


def test_each_trial_is_measured_for_real(tmp_path):
    compiled, options = trials()
    found = measure_lowerings(compiled, options, tmp_path / "t.json", seconds=0)
    assert {t.question.lowering for t in found} >= {"Conv.dX", "Conv.dW", "Relu.dX"}
    for t in found:
        assert set(t.answer.ms) == set(t.question.forms)
        assert all(ms > 0 for ms in t.answer.ms.values())
        assert t.rule in t.question.forms
    forms = fastest_forms(compiled, options, tmp_path / "t.json", measures=False)
    assert forms == {t.question.key: t.answer.form for t in found}


def test_a_target_measures_with_the_runtime_alone(tmp_path, capsys):
    compiled, _ = trials()
    count = emit_trials(compiled, tmp_path / "m.zip")
    code = (
        "import sys; sys.modules['flow2onnx'] = sys.modules['onnx'] = None\n"
        "from flow2onnx_runtime.tune import main; sys.exit(main(sys.argv[1:]))"
    )
    paths = [str(tmp_path / "m.zip"), "-o", str(tmp_path / "tuned.json")]
    run = subprocess.run(
        [sys.executable, "-c", code, *paths, "--seconds", "0", "--threads", "1"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"tuned.json: {count} lowerings" in run.stdout
    assert f"0 of {count} measured" in run.stderr


def test_an_export_takes_the_forms_of_its_target(tmp_path):
    compiled, _ = trials()
    keys = [c.question.key for c in compiled.choices if c.question.lowering == "Conv.dW"]
    path = tmp_path / "tuned.json"
    answers = {key: {"form": "swapped_conv", "ms": {}} for key in keys}
    path.write_text(json.dumps({"format": 1, "machines": {"a phone": answers}}))
    step = job_of("step")
    assert step.export(tmp_path / "plain").ok
    assert step.export(tmp_path / "tuned", tuning=path).ok
    plain, tuned = ((tmp_path / n / "step.onnx").read_bytes() for n in ("plain", "tuned"))
    assert plain != tuned
    path.write_text(json.dumps({"format": 1, "machines": {"a": {}, "b": {}}}))
    with pytest.raises(BundleError, match="2 machines: a; b"):
        step.export(tmp_path / "more", tuning=path)
    with pytest.raises(BundleError, match=r"none\.json cannot be read"):
        step.export(tmp_path / "more", tuning=tmp_path / "none.json")


def job_of(name):
    from flow2onnx.api.job import JobFunction

    session = SESSION.get()
    return JobFunction(session.spec(name), session)


def test_the_same_job_compiles_to_the_same_model_without_tuning():
    models = []
    for _ in range(2):
        SESSION.set(Session())
        compiled, _ = trials()
        models.append(model_bytes(compiled.model))
    assert models[0] == models[1]


def test_an_interrupted_measurement_keeps_what_it_has(tmp_path, monkeypatch):
    compiled, options = trials()
    count = itertools.count()

    def interrupted(trial, options, seconds):
        if next(count) == 2:
            raise KeyboardInterrupt
        return Answer(trial.forms[-1], dict.fromkeys(trial.forms, 1.0))

    monkeypatch.setattr(measuring, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure_lowerings(compiled, options, tmp_path / "t.json")
    assert len(recall(tmp_path / "t.json", machine_of(options))) == 2


def test_a_form_that_this_runtime_cannot_run_is_left_out():
    key, good = "q", model_bytes(trials()[0].model)
    trial = measuring.Trial(key, "a", ("a", "b"), {"a": good, "b": b"no model"}.__getitem__, 3)
    assert measuring.measure(trial, Options(), 0) is None
