"""The trainer besides steps: rates, freezing, accumulation, deltas, predict models."""

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from flow2onnx_runtime import (
    BundleError,
    FeedError,
    Options,
    Predictor,
    RunError,
    StateError,
    Trainer,
    load_safetensors,
)
from flow2onnx_runtime.deltas import add_delta, difference
from flow2onnx_runtime.dtypes import find_element

FOLDER = Path(__file__).parents[2] / "conformance"
OPTIONS = Options(intra_op_threads=1)
FEEDS, _ = load_safetensors(FOLDER / "mlp" / "feeds.safetensors")


def batch(number):
    return {name: values[number % 4] for name, values in FEEDS.items()}


@pytest.fixture
def trainer():
    return Trainer(FOLDER / "mlp" / "bundle", OPTIONS)


def changed(trainer, since):
    return {n for n, v in trainer.state_dict().items() if v.tobytes() != since[n].tobytes()}


@pytest.mark.parametrize("rate", [-0.1, float("nan"), float("inf"), 1e39])
def test_rates_that_are_none(trainer, rate):
    before = trainer.state_dict()
    with pytest.raises(StateError, match=r"learning_rate .*\n.*at least 0, or None"):
        trainer.learning_rate = rate
    assert not changed(trainer, before)


def test_a_bundle_without_rate_and_halves(bundle):
    trainer = Trainer(bundle, OPTIONS)
    assert trainer.learning_rate is None
    assert trainer.accumulated == 0
    with pytest.raises(StateError, match=r"cannot be set\n.*on_device=True"):
        trainer.learning_rate = 0.1
    with pytest.raises(BundleError, match=r"no step in two halves\n.*accumulate=True"):
        trainer.accumulate(np.zeros((4, 3), np.float32), np.zeros((4, 1), np.float32))


def test_a_bundle_without_halves_has_none_to_open_alone(bundle):
    with pytest.raises(BundleError, match=r"no step in two halves\n.*accumulate=True"):
        Trainer(bundle, OPTIONS, accumulates=True)


@pytest.mark.parametrize("earlier", [0, 1])
def test_an_update_that_fails_leaves_no_trace_of_its_batch(earlier, monkeypatch):
    trainer = Trainer(FOLDER / "mlp" / "bundle", OPTIONS, accumulates=True)
    for number in range(2):  # what has two buffers is read from either
        trainer.step(**batch(number))
    for number in range(earlier):
        trainer.accumulate(**batch(number))
    before, update = trainer.state_dict(), trainer._accumulation()[1]

    def fail(*given, **options):
        raise RunError("there is no more memory")

    with monkeypatch.context() as patch:
        patch.setattr(update, "run", fail)
        with pytest.raises(RunError, match="no more memory"):
            trainer.step(**batch(2))
    assert not changed(trainer, before)
    assert (trainer.accumulated, trainer.steps) == (earlier, 2)
    trainer.step(**batch(2))
    assert (trainer.accumulated, trainer.steps) == (0, 3)


def test_a_batch_counts_once_if_what_follows_its_update_fails(monkeypatch):
    trainer = Trainer(FOLDER / "mlp" / "bundle", OPTIONS, accumulates=True)
    trainer.accumulate(**batch(0))
    update = trainer._update

    def lose_a_rank():
        update()
        raise RunError("a rank is gone")

    monkeypatch.setattr(trainer, "_update", lose_a_rank)
    with pytest.raises(RunError, match="a rank is gone"):
        trainer.step(**batch(1))
    assert (trainer.accumulated, trainer.steps) == (0, 1)


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_waits_for_the_second_half_of_a_step(monkeypatch):
    trainer = Trainer(FOLDER / "mlp" / "bundle", OPTIONS, accumulates=True)
    update = trainer._accumulation()[1]
    run = update.run

    def interrupted(*given, **options):
        signal.raise_signal(signal.SIGINT)
        return run(*given, **options)

    monkeypatch.setattr(update, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.step(**batch(0))
    assert (trainer.accumulated, trainer.steps) == (0, 1)


def test_an_update_by_nothing(trainer):
    before = trainer.state_dict()
    with pytest.raises(StateError, match=r"no gradients to update by\n.*accumulate"):
        trainer.update()
    assert not changed(trainer, before)


def test_what_is_frozen_stays_with_its_slots(trainer):
    trainer.step(**batch(0))
    before = trainer.state_dict()
    assert trainer.freeze("hidden-*") == trainer.frozen == ("hidden-weight", "hidden-bias")
    for i in range(3):
        trainer.step(**batch(i))
    moved = changed(trainer, before)
    assert not {name for name in moved if name.startswith("hidden")}
    assert {"output-weight", "output-weight-momentum", trainer.manifest.counter} <= moved
    trainer.accumulate(**batch(0))
    with pytest.raises(StateError, match=r"being accumulated\n.*update"):
        trainer.freeze()
    trainer.update()
    assert not {name for name in changed(trainer, before) if name.startswith("hidden")}
    assert trainer.freeze() == ()
    trainer.step(**batch(1))
    assert {"hidden-weight", "hidden-weight-momentum"} <= changed(trainer, before)


def test_freezing_what_is_not_there(trainer):
    with pytest.raises(StateError, match=r"no variable matches 'conv\*'\n.*hidden-weight"):
        trainer.freeze("hidden-*", "conv*")
    with pytest.raises(StateError, match="no variable matches"):
        trainer.freeze("hidden-weight-momentum")
    assert trainer.frozen == ()


def test_a_delta_leads_from_old_to_new(trainer):
    start = trainer.state_dict()
    for i in range(5):
        trainer.step(**batch(i))
    delta = trainer.delta(start)
    assert delta.keys() == {"hidden-weight", "hidden-bias", "output-weight", "output-bias"}
    end = trainer.state_dict()
    trainer.load_state_dict(start)
    trainer.apply_delta(delta)
    for name in delta:
        np.testing.assert_allclose(trainer.state_dict()[name], end[name], atol=1e-6)
    trainer.apply_delta(delta, -1.0)
    for name in delta:
        np.testing.assert_allclose(trainer.state_dict()[name], start[name], atol=1e-6)
    assert trainer.steps == 0


def test_deltas_that_do_not_fit(trainer):
    delta = trainer.delta(trainer.state_dict())
    before = trainer.state_dict()
    for wrong, says in (
        ({n: v for n, v in delta.items() if n != "hidden-bias"}, "hidden-bias is missing"),
        (delta | {"q": np.zeros(3)}, "holds q, which is no variable"),
        (delta | {"hidden-bias": np.zeros(3)}, r"hidden-bias has shape \(3,\)"),
    ):
        with pytest.raises(StateError, match=says):
            trainer.apply_delta(wrong)
    with pytest.raises(StateError, match="is missing"):
        trainer.delta({})
    assert not changed(trainer, before)


def test_half_precision_rounds_to_the_nearest():
    kinds = {
        "h": find_element("float16"),
        "b": find_element("bfloat16"),
        "d": find_element("float64"),
    }
    assert all(kinds.values())
    values = {
        "h": np.array([1.0, 2.0], np.float16),
        "b": np.array([0x3F80, 0x4000], np.uint16),  # 1 and 2
        "d": np.array([1.0, 2.0]),
    }
    step = np.array([0.0039, 0.012], np.float32)
    moved = add_delta(values, {"h": step, "b": step, "d": step}, 1.0, kinds)
    np.testing.assert_array_equal(moved["h"], (values["h"] + step).astype(np.float16))
    # steps of bfloat16: 1/128 above 1, 1/64 above 2
    np.testing.assert_array_equal(moved["b"], [0x3F80, 0x4001])
    assert moved["d"].dtype == np.float64
    back = difference(moved, values, kinds)
    np.testing.assert_array_equal(back["b"], [0.0, 1 / 64])
    assert back["h"].dtype == np.float32


def test_an_exported_predict_model_has_the_present_weights(trainer, tmp_path):
    images = FEEDS["images"][0]
    for round_ in range(2):  # the second replaces the first
        for i in range(10):
            trainer.step(**batch(i))
        path = trainer.export_predict(tmp_path / "out")
        assert path == tmp_path / "out" / "predict.onnx"
        wanted = trainer.predict(images)["out/0"]
        np.testing.assert_allclose(Predictor(path, OPTIONS)(images)["out/0"], wanted, atol=1e-6)
        stored, _ = load_safetensors(tmp_path / "out" / "weights.safetensors")
        assert set(stored) == {"hidden-weight", "hidden-bias", "output-weight", "output-bias"}
        np.testing.assert_array_equal(
            stored["hidden-weight"], trainer.state_dict()["hidden-weight"]
        )
        assert round_ or wanted.std() > 0
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"mine.txt, which would be lost"):
        trainer.export_predict(tmp_path / "out")


def test_a_model_without_weights_of_its_own_is_not_exported(bundle, tmp_path):
    with pytest.raises(BundleError, match="has no weights in a file of their own"):
        Trainer(bundle, OPTIONS).export_predict(tmp_path / "out")


def test_any_number_of_rows(trainer):
    predict = Predictor(FOLDER / "mlp" / "bundle", OPTIONS)
    images = FEEDS["images"].reshape(-1, 20)
    whole = np.concatenate([predict(images[i : i + 8])["out/0"] for i in range(0, 32, 8)])
    for rows in (1, 7, 8, 9, 32):
        np.testing.assert_allclose(predict.many(images[:rows])["out/0"], whole[:rows], atol=1e-6)
    np.testing.assert_allclose(predict.many(images=images)["out/0"], whole, atol=1e-6)
    wrong = []

    def work():
        for _ in range(20):
            if not np.allclose(predict.many(images)["out/0"], whole, atol=1e-6):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for arrays, options, says in (
        (images[:0], {}, "no common rows"),
        (np.float32(1), {}, "no common rows"),
        (images, {"batch": 5}, r"batches of \[8\], batch is 5"),
        (images, {"batch": 0}, "batch is 0"),
    ):
        with pytest.raises(FeedError, match=says):
            predict.many(arrays, **options)


def test_rows_of_an_open_model(bundle, onnx_model):
    predict = Predictor(bundle, OPTIONS, job="baked_job")
    x = np.arange(21, dtype=np.float32).reshape(7, 3)
    for size in (None, 1, 3, 7, 100):
        np.testing.assert_allclose(predict.many(x, batch=size)["z"], predict(x)["z"], rtol=1e-6)
    total = onnx_model("""total (float[N,3] x) => (float s) { s = ReduceSum<keepdims=0>(x) }""")
    with pytest.raises(FeedError, match="is not one of rows"):
        Predictor(total, OPTIONS).many(x)
