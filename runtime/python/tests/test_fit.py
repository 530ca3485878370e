"""fit: epochs, data of each kind, validation, callbacks, checkpoints, interrupts, errors."""

import csv
import itertools
import logging
import math
import re
import signal

import numpy as np
import pytest

from flow2onnx_runtime import (
    BestCheckpoint,
    BundleError,
    Callback,
    CSVLog,
    EarlyStopping,
    FeedError,
    History,
    NonFiniteError,
    Options,
    OptionsError,
    ReduceOnPlateau,
    StateError,
    TensorBoardLog,
    Trainer,
)
from flow2onnx_runtime.event_files import Event
from flow2onnx_runtime.interrupts import BrokenOffError
from flow2onnx_runtime.progress_bar import ProgressBar

OPTIONS = Options(intra_op_threads=1)
RNG = np.random.default_rng(3)
X = RNG.standard_normal((20, 3)).astype(np.float32)
Y = (X @ np.float32([[1.0], [-2.0], [0.5]]) + 0.25).astype(np.float32)
BATCHES = [(X[i : i + 4], Y[i : i + 4]) for i in range(0, 20, 4)]


@pytest.fixture
def trainer(bundle):
    return Trainer(bundle, OPTIONS)


@pytest.fixture
def opened(bundle):
    return lambda: Trainer(bundle, OPTIONS)


def same(first, second):
    return all((v == second[n]).all() for n, v in first.items())


def plain(history):
    """The rows without the time."""
    return [{n: v for n, v in row.items() if n != "seconds"} for row in history]


class Failure(Callback):
    """Raises after some batches in all."""

    def __init__(self, after, error):
        self.left, self.error = after, error

    def on_batch_end(self, loop, results):
        self.left -= 1
        if not self.left:
            raise self.error


def test_an_epoch_is_a_step_for_each_batch(trainer, opened):
    other = opened()
    history = trainer.fit(BATCHES, 2)
    losses = [float(other.step(*batch)["loss"]) for batch in BATCHES * 2]
    assert trainer.steps == 10
    assert same(trainer.state_dict(), other.state_dict())
    assert history["loss"] == pytest.approx([np.mean(losses[:5]), np.mean(losses[5:])], rel=1e-6)
    assert history["epoch"] == [1, 2]
    assert history["step"] == [5, 10]


SAME_DATA = {
    "list": lambda: BATCHES,
    "dicts": lambda: [dict(x=x, y=y) for x, y in BATCHES],
    "function": lambda: lambda: iter(BATCHES),
    "generator": lambda: (batch for batch in BATCHES),
    "numbers": lambda: [[x.tolist(), y.tolist()] for x, y in BATCHES],
}


@pytest.mark.parametrize("kind", SAME_DATA)
def test_data_of_each_kind(kind, trainer, opened):
    expected = opened()
    expected.fit(BATCHES)
    trainer.fit(SAME_DATA[kind]())
    assert same(trainer.state_dict(), expected.state_dict())


@pytest.mark.parametrize("data", [(X, Y), {"x": X, "y": Y}, (X.tolist(), Y.tolist())])
def test_arrays_are_cut_to_batches(data, trainer, opened):
    expected = opened()
    expected.fit(BATCHES)
    trainer.fit(data, shuffle=False)
    assert same(trainer.state_dict(), expected.state_dict())


def test_the_order_of_rows_is_the_seeds(opened):
    def seen(seed, epochs=2):
        found, rows = [], np.arange(20, dtype=np.float32)

        class Look(Callback):
            def on_batch_end(self, loop, results):
                found.append(float(results["loss"]))

        marked = np.stack([rows, rows, rows], -1) / 20
        opened().fit((marked, Y), epochs, seed=seed, callbacks=Look())
        return found

    assert seen(1) == seen(1)
    assert seen(1) != seen(2)
    first, second = seen(1)[:5], seen(1)[5:]
    assert first != second


def test_every_row_comes_once_in_each_epoch(opened):
    from flow2onnx_runtime.batch_sources import Batching, open_source

    source = open_source((X, Y), opened().feeds, Batching(shuffles=True, seed=5))
    for epoch in (1, 2):
        rows = np.concatenate([x for x, _ in source.epoch(epoch, 0)])
        np.testing.assert_array_equal(np.sort(rows, 0), np.sort(X, 0))
        late = np.concatenate([x for x, _ in source.epoch(epoch, 2)])
        np.testing.assert_array_equal(late, rows[8:])


def test_rows_that_fill_no_batch_are_told_of(trainer, caplog):
    with caplog.at_level(logging.WARNING, "flow2onnx_runtime.fit"):
        trainer.fit((X[:18], Y[:18]))
    assert trainer.steps == 4
    assert "the last 2 of 18 rows" in caplog.text


def test_validation_and_metrics_of_predictions(trainer):
    history = trainer.fit(BATCHES, 3, (X[:18], Y[:18]), metrics=["mae", "r2"])
    assert set(history.columns) == {
        "epoch", "step", "loss", "val_loss", "val_mae", "val_r2", "seconds",
    }  # fmt: skip
    z = trainer.predict(X[:18])["z"]
    assert history["val_mae"][-1] == pytest.approx(np.abs(z - Y[:18]).mean(), rel=1e-5)
    # the loss is of whole batches: the step takes no others
    losses = [trainer.evaluate(x, y)["loss"] for x, y in BATCHES[:4]]
    assert history["val_loss"][-1] == pytest.approx(np.mean(losses), rel=1e-5)


def test_validation_changes_nothing(trainer, opened):
    expected = opened()
    expected.fit(BATCHES, 2)
    trainer.fit(BATCHES, 2, BATCHES, metrics="mae")
    assert same(trainer.state_dict(), expected.state_dict())


@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("after", [3, 5, 7, 13])
@pytest.mark.parametrize("data", ["rows", "generator"])
def test_a_resumed_training_is_the_undisturbed_one(after, every, data, opened, tmp_path):
    """Whatever it was ended by, and wherever: state, history and callbacks go on bit for bit."""

    def parts():
        batches = (X, Y) if data == "rows" else itertools.cycle(BATCHES)
        options = dict(steps=5) if data == "generator" else dict(seed=7)
        callbacks = [EarlyStopping("loss", 50, restore_best=True), BestCheckpoint(tmp_path / "s")]
        return batches, options, callbacks

    whole = opened()
    batches, options, callbacks = parts()
    expected = whole.fit(batches, 3, BATCHES[:2], [*callbacks, Failure(0, None)], **options)
    place = dict(checkpoint=tmp_path / "c", every=every)
    batches, options, callbacks = parts()
    with pytest.raises(OSError, match="the disk"):
        opened().fit(
            batches, 3, BATCHES[:2], [*callbacks, Failure(after, OSError("the disk"))],
            **options, **place,
        )  # fmt: skip
    resumed = opened()
    batches, options, callbacks = parts()
    found = resumed.fit(
        batches, 3, BATCHES[:2], [*callbacks, Failure(0, None)], resume=True, **options, **place
    )
    assert plain(found) == plain(expected)
    assert same(resumed.state_dict(), whole.state_dict())


def test_a_finished_training_is_not_gone_on_with(opened, tmp_path):
    place = dict(checkpoint=tmp_path / "c", resume=True)
    first = opened()
    first.fit(BATCHES, 2, **place)
    again = opened()
    assert len(again.fit(BATCHES, 2, **place)) == 2
    assert again.steps == 10
    assert same(again.state_dict(), first.state_dict())
    assert again.fit(BATCHES, 3, **place)["epoch"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(seed=8), r"seed 7.*seed 8"),
        (dict(callbacks=[]), "callbacks EarlyStopping"),
        (dict(batches=BATCHES), "other data|steps"),
    ],
)
def test_another_training_is_not_resumed(changes, message, opened, tmp_path):
    given = dict(
        batches=(X, Y), seed=7, callbacks=[EarlyStopping()], checkpoint=tmp_path / "c", resume=True
    )
    opened().fit(**given)
    trainer = opened()
    before = trainer.state_dict()
    with pytest.raises(OptionsError, match=message):
        trainer.fit(**given | changes)
    assert same(trainer.state_dict(), before)


@pytest.mark.parametrize("damage", ["{", "[]", '{"format": "x", "version": 1}', "missing"])
def test_a_damaged_checkpoint_is_refused(damage, opened, tmp_path):
    opened().fit(BATCHES, checkpoint=tmp_path / "c")
    if damage == "missing":
        (tmp_path / "c" / "loop.json").unlink()
    else:
        (tmp_path / "c" / "loop.json").write_text(damage)
    with pytest.raises(BundleError):
        opened().fit(BATCHES, checkpoint=tmp_path / "c", resume=True)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_the_state_of_a_whole_step(opened, tmp_path, monkeypatch):
    """One that comes while a step is made waits for its end; the checkpoint is of then."""
    trainer, real, count = opened(), Trainer.step_prepared, itertools.count(1)

    def interrupted(self, batch):
        if self is trainer and next(count) == 7:
            signal.raise_signal(signal.SIGINT)
        return real(self, batch)

    monkeypatch.setattr(Trainer, "step_prepared", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit((X, Y), 3, checkpoint=tmp_path / "c")
    assert trainer.steps == 7
    whole, resumed = opened(), opened()
    expected = whole.fit((X, Y), 3)
    found = resumed.fit((X, Y), 3, checkpoint=tmp_path / "c", resume=True)
    assert plain(found) == plain(expected)
    assert same(resumed.state_dict(), whole.state_dict())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_a_second_interrupt_keeps_the_checkpoint_before(opened, tmp_path, monkeypatch):
    """It breaks a step off: what is kept is of whole steps, and the state now may not be."""
    trainer, real, count = opened(), Trainer.step_prepared, itertools.count(1)

    def interrupted(self, batch):
        found = real(self, batch)
        if self is trainer and next(count) == 7:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.setattr(Trainer, "step_prepared", interrupted)
    with pytest.raises(BrokenOffError):
        trainer.fit((X, Y), 3, checkpoint=tmp_path / "c", every=1)
    whole, resumed = opened(), opened()
    expected = whole.fit((X, Y), 3)
    found = resumed.fit((X, Y), 3, checkpoint=tmp_path / "c", every=1, resume=True)
    assert plain(found) == plain(expected)
    assert same(resumed.state_dict(), whole.state_dict())


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("hook", ["on_epoch_end", "on_batch_end", "on_fit_begin"])
def test_an_interrupt_anywhere_leaves_what_can_be_resumed(hook, opened, tmp_path):
    class Interrupt(Callback):
        def interrupt(self, loop, *_):
            if loop.epoch == 2 or hook == "on_fit_begin":
                signal.raise_signal(signal.SIGINT)

    setattr(Interrupt, hook, Interrupt.interrupt)
    place = dict(checkpoint=tmp_path / "c")
    with pytest.raises(KeyboardInterrupt):
        opened().fit((X, Y), 3, BATCHES, Interrupt(), **place)
    setattr(Interrupt, hook, getattr(Callback, hook))
    whole, resumed = opened(), opened()
    expected = whole.fit((X, Y), 3, BATCHES)
    found = resumed.fit((X, Y), 3, BATCHES, Interrupt(), resume=True, **place)
    assert plain(found) == plain(expected)
    assert same(resumed.state_dict(), whole.state_dict())


def test_what_a_callback_raises_ends_the_training_in_order(trainer):
    ended = []

    class Last(Callback):
        def on_fit_end(self, loop):
            ended.append((loop.is_broken, loop.step))

    with pytest.raises(RuntimeError, match="mine"):
        trainer.fit(BATCHES, 2, callbacks=[Failure(2, RuntimeError("mine")), Last()])
    assert ended == [(True, 2)]
    assert trainer.steps == 2
    assert not trainer.finite_losses
    assert trainer.fit(BATCHES)["step"] == [7]


@pytest.mark.parametrize(
    ("batches", "options", "message"),
    [
        ([], {}, "epoch 1 has no batches"),
        ((X[:0], Y[:0]), {}, "epoch 1 has no batches"),
        ((X,), {}, "1 arrays for 2 inputs"),
        ((X, Y[:8]), {}, "different numbers of rows: x 20, y 8"),
        ([X, Y], {}, "a tuple"),
        (X, {}, "1 arrays for 2 inputs"),
        ([*BATCHES[:2], (X[:3], Y[:3])], {}, "batch 3 of epoch 1: .* x has shape"),
        ([BATCHES[0], (X[:4].astype(float), Y[:4])], {}, "batch 2 of epoch 1: .* got float64"),
        ([dict(x=X[:4], z=Y[:4])], {}, "batch 1 of epoch 1: .* has no y and has z"),
        ([BATCHES[0], BATCHES[0][0]], {}, "batch 2 of epoch 1: the batch has 1 arrays"),
        ([([[1.0, 2.0], [3.0]], Y[:4])], {}, "batch 1 of epoch 1: x is no array"),
        ([(["a", "b"], Y[:4])], {}, "batch 1 of epoch 1: x is no array of numbers"),
        (iter(BATCHES), dict(epochs=2), "an iterator goes once"),
        (iter(BATCHES), dict(epochs=2, steps=4), "ended after 1 of epoch 2, which should have 4"),
        (BATCHES, dict(steps=9), "ended after 5 of epoch 1, which should have 9"),
        (lambda: 3, {}, "the function returned int"),
        (BATCHES, dict(batch_size=4), "list has batches already"),
        ((X, Y), dict(batch_size=5), "the model takes batches of 4"),
        ((X, Y), dict(validation=[]), "the validation has no batches"),
        ((X, Y), dict(validation=[BATCHES[0][:1]]), "batch 1 of the validation: the batch has 1"),
        (3, {}, "int holds no batches"),
    ],
)  # fmt: skip
def test_data_that_do_not_fit_are_told_of_by_batch(batches, options, message, trainer):
    with pytest.raises(FeedError, match=message):
        trainer.fit(batches, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(epochs=0), "epochs is 0"),
        (dict(accumulate=True), "accumulate is True"),
        (dict(steps=1.5), "steps is 1.5"),
        (dict(seed=-1), "seed is -1"),
        (dict(non_finite="stop"), "'skip'"),
        (dict(resume=True), "say where: checkpoint="),
        (dict(every=2), "say where: checkpoint="),
        (dict(callbacks=EarlyStopping), "give objects"),
        (dict(callbacks=[3]), "no callback"),
        (dict(metrics="mae"), "give validation="),
        (dict(predict="nobody"), "it has predict_job, baked_job"),
        (dict(validation=BATCHES, metrics="mae", output="q"), "there are z"),
        (dict(validation=BATCHES, metrics="mae", labels="q"), "say which with labels="),
        (dict(callbacks=EarlyStopping("val_loss")), "rows have epoch"),
        (dict(callbacks=ReduceOnPlateau()), r"ReduceOnPlateau\(lr=0.01\)"),
    ],
)
def test_settings_that_do_not_fit(options, message, trainer):
    with pytest.raises(OptionsError, match=message):
        trainer.fit(**dict(batches=BATCHES) | options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EarlyStopping(patience=0), "patience is 0"),
        (lambda: EarlyStopping(mode="up"), "'min', 'max' or 'auto'"),
        (lambda: EarlyStopping(min_delta=-1), "min_delta is -1"),
        (lambda: ReduceOnPlateau(factor=1.5), "between 0 and 1"),
        (lambda: TensorBoardLog("x", every=0), "every is 0"),
    ],
)
def test_callbacks_that_cannot_be(make, message):
    with pytest.raises(OptionsError, match=message):
        make()


def test_what_a_generator_raises_says_at_which_batch(trainer):
    def batches():
        yield BATCHES[0]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone") as caught:
        trainer.fit(batches())
    assert caught.value.__notes__ == ["raised where batch 2 of epoch 1 was made"]
    assert trainer.steps == 1


BAD = (np.full((4, 3), np.nan, np.float32), Y[:4])


def test_a_loss_that_is_not_finite_is_refused(trainer):
    with pytest.raises(NonFiniteError, match=r"batch 3 of epoch 1: .* the state is kept"):
        trainer.fit([*BATCHES[:2], BAD, BATCHES[2]])
    assert trainer.steps == 2
    assert all(np.isfinite(v).all() for v in trainer.state_dict().values())


def test_batches_whose_loss_is_not_finite_can_be_passed_over(trainer, opened):
    expected = opened()
    expected.fit(BATCHES[:3])
    history = trainer.fit([BATCHES[0], BAD, *BATCHES[1:3]], non_finite="skip")
    assert same(trainer.state_dict(), expected.state_dict())
    assert history["skipped"] == [1]
    assert math.isfinite(history["loss"][0])
    assert not trainer.finite_losses


def test_or_ignored(trainer):
    history = trainer.fit([BATCHES[0], BAD], non_finite="ignore")
    assert math.isnan(history["loss"][0])
    assert trainer.steps == 2


def test_early_stopping(opened, monkeypatch):
    values = iter([5.0, 3.0, 4.0, 3.0, 2.0])
    from flow2onnx_runtime.learner import BundleLearner

    monkeypatch.setattr(
        BundleLearner, "evaluate", lambda *_: ({"loss": np.float32(next(values))}, {})
    )
    trainer = opened()
    history = trainer.fit(BATCHES, 9, BATCHES[:1], EarlyStopping(patience=2, restore_best=True))
    assert history["val_loss"] == [5.0, 3.0, 4.0, 3.0]
    assert history.stopped == "no improvement since epoch 2"
    assert trainer.steps == 10  # the state is the best epoch's


def test_the_best_state_is_kept(opened, tmp_path, monkeypatch):
    trainer, losses = opened(), {}

    def keep(loop):
        losses[loop.history.last["val_loss"]] = trainer.state_dict()

    trainer.fit(
        [(X[:4], Y[:4] * 50)], 6, BATCHES, [keep, BestCheckpoint(tmp_path / "best.safetensors")]
    )
    best = opened()
    best.load(tmp_path / "best.safetensors")
    assert same(best.state_dict(), losses[min(losses)])


def test_functions_are_called_after_each_epoch(trainer):
    seen = []
    trainer.fit(BATCHES, 2, callbacks=lambda loop: seen.append((loop.epoch, loop.step)))
    assert seen == [(1, 5), (2, 10)]


def test_a_loop_that_is_stopped_within_an_epoch_can_go_on(opened, tmp_path):
    class Enough(Callback):
        limit = 7

        def on_batch_end(self, loop, results):
            if loop.step == self.limit:
                loop.stop("the time is up")

    given = dict(epochs=3, callbacks=Enough(), checkpoint=tmp_path / "c", resume=True)
    first = opened()
    history = first.fit((X, Y), **given)
    assert (first.steps, history.stopped, len(history)) == (7, "the time is up", 1)
    Enough.limit = None
    resumed, whole = opened(), opened()
    found = resumed.fit((X, Y), **given)
    assert plain(found) == plain(whole.fit((X, Y), 3))
    assert found.stopped is None
    assert same(resumed.state_dict(), whole.state_dict())


def test_a_log_of_rows(trainer, tmp_path):
    history = trainer.fit(BATCHES, 2, BATCHES, CSVLog(tmp_path / "log.csv"))
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["val_loss"]) for row in rows] == history["val_loss"]


def events(path):
    data, at = path.read_bytes(), 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        yield Event.FromString(data[at + 12 : at + 12 + size])
        at += 16 + size


def test_a_log_for_tensorboard(trainer, tmp_path):
    history = trainer.fit(BATCHES, 2, BATCHES, TensorBoardLog(tmp_path / "logs", every=2))
    (path,) = (tmp_path / "logs").iterdir()
    found = [(v.tag, e.step, v.simple_value) for e in events(path) for v in e.summary.value]
    assert [s for t, s, _ in found if t == "batch/loss"] == [2, 4, 7, 9]
    losses = [(s, pytest.approx(v)) for t, s, v in found if t == "val_loss"]
    assert losses == list(zip([5, 10], history["val_loss"], strict=True))


def test_a_plot_at_the_end(trainer, tmp_path):
    pytest.importorskip("matplotlib")
    trainer.fit(BATCHES, 2, BATCHES, plot=tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_along_a_column(tmp_path):
    pytest.importorskip("matplotlib")
    history = History([{"epoch": 1, "step": 5, "loss": 2.0, "val_loss": float("nan")}])
    history.plot(tmp_path / "curves.svg", over="step", curves=("loss",))
    assert "<!-- step -->" in (tmp_path / "curves.svg").read_text()  # matplotlib notes its texts
    with pytest.raises(KeyError, match="hours: there are epoch, step, loss, val_loss"):
        history.plot(tmp_path / "curves.svg", over="hours")


def test_a_plot_has_no_ticks_between_steps(tmp_path):
    pytest.importorskip("matplotlib")
    History([{"step": n, "loss": 20 / n} for n in (1, 2)]).plot(tmp_path / "few.svg", over="step")
    ticks = re.findall("<!-- ([0-9.]+) -->", (tmp_path / "few.svg").read_text())
    assert {"1", "2"}.issubset(ticks)
    assert [tick for tick in ticks if 1 < float(tick) < 2] == []


def test_a_plot_without_matplotlib_says_so_before_the_first_step(trainer, tmp_path, monkeypatch):
    import flow2onnx_runtime.curves as home

    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(home.importlib, "import_module", missing)
    with pytest.raises(OptionsError, match="pip install matplotlib"):
        trainer.fit(BATCHES, plot=tmp_path / "curves.png")
    assert trainer.steps == 0


def test_the_bar(trainer, capsys):
    trainer.fit(BATCHES, 2, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    trainer.fit(BATCHES)
    assert capsys.readouterr().err == ""


def test_the_bar_on_a_terminal():
    import io

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    bar = ProgressBar(stream)
    bar.begin("epoch 1/1", 0, 4)
    bar.show(2, "loss 1")
    bar.end("loss 0.5")
    drawn = stream.getvalue().split("\r\x1b[K")
    assert "[============            ] 2/4" in drawn[1]
    assert drawn[-1] == "epoch 1/1  loss 0.5\n"


def test_histories_are_short_to_look_at(trainer):
    history = trainer.fit(BATCHES, 2)
    assert len(repr(history)) < 80
    assert history.last == history[-1]
    with pytest.raises(KeyError, match="there are epoch"):
        history["nothing"]
    assert repr(History()) == "<0 epochs>"


def test_a_bundle_without_halves_cannot_accumulate(trainer):
    with pytest.raises(BundleError, match="accumulate=True"):
        trainer.fit(BATCHES, accumulate=2)


def test_a_rate_that_cannot_be_set_says_what_to_do(trainer):
    with pytest.raises(StateError, match="on_device=True"):
        trainer.fit(BATCHES, callbacks=ReduceOnPlateau(lr=0.1))


def test_a_checkpoint_replaces_no_other_folder(trainer, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match=r"thesis.txt.* would be lost"):
        trainer.fit(BATCHES, checkpoint=tmp_path / "home")
    assert trainer.steps == 0
    trainer.fit(BATCHES, checkpoint=tmp_path / "c", callbacks=EarlyStopping(restore_best=True))
    trainer.fit(BATCHES, checkpoint=tmp_path / "c")
    (tmp_path / "c" / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"notes.txt.* would be lost"):
        trainer.fit(BATCHES, checkpoint=tmp_path / "c")
    assert (tmp_path / "c" / "notes.txt").read_text() == "mine"
