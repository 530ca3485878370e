"""Steps in the background, batches made beforehand, state in one buffer, nothing left behind."""

import dataclasses
import gc
import itertools
import threading
import tracemalloc

import numpy as np
import pytest

from flow2onnx_runtime import (
    FeedError,
    Manifest,
    NonFiniteError,
    Options,
    RunError,
    StateError,
    Trainer,
)
from flow2onnx_runtime.device_feeds import FeedBuffers
from flow2onnx_runtime.program import Program
from flow2onnx_runtime.state import State

OPTIONS = Options(intra_op_threads=1)


def batch(seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((4, 3), np.float32), rng.standard_normal((4, 1), np.float32)


@pytest.fixture
def in_place(bundle):
    """The bundle, which says that the weights and the momentum may be updated in place."""
    manifest = dataclasses.replace(Manifest.read(bundle), in_place={"step.onnx": ("w", "b", "m")})
    manifest.write(bundle)
    return bundle


def after(trainer, steps=5):
    losses = [float(trainer.step(*batch(i))["loss"]) for i in range(steps)]
    return losses, trainer.state_dict()


def assert_same(a, b):
    assert a[0] == b[0]
    assert all(np.array_equal(a[1][n], b[1][n]) for n in a[1] | b[1])


def test_steps_in_the_background_are_the_same_steps(bundle):
    trainer = Trainer(bundle, OPTIONS)
    futures = [trainer.step_async(*batch(i)) for i in range(5)]
    state = trainer.state_dict()  # waits
    assert all(f.done() for f in futures)
    assert trainer.steps == 5
    losses = [float(f.result()["loss"]) for f in futures]
    assert_same((losses, state), after(Trainer(bundle, OPTIONS)))


def test_a_step_is_begun_and_not_waited_for(bundle, monkeypatch):
    trainer, may_run = Trainer(bundle, OPTIONS), threading.Event()
    run = Program.run
    monkeypatch.setattr(
        Program, "run", lambda self, *a, **k: (may_run.wait(30), run(self, *a, **k))[1]
    )
    first, second = trainer.step_async(*batch(0)), trainer.step_async(*batch(1))
    assert not first.done()
    third = threading.Thread(target=trainer.step_async, args=batch(2))
    third.start()
    third.join(0.2)
    assert third.is_alive(), "two steps ahead are enough"
    may_run.set()
    third.join(30)
    assert not third.is_alive()
    second.result(30)
    assert trainer.steps == 3


def test_a_step_that_fails_takes_those_behind_it_along(bundle, monkeypatch):
    trainer, may_run = Trainer(bundle, OPTIONS, finite_losses=True), threading.Event()
    x, y = batch(0)
    trainer.step_async(x, y).result()
    run = Program.run
    monkeypatch.setattr(
        Program, "run", lambda self, *a, **k: (may_run.wait(30), run(self, *a, **k))[1]
    )
    futures = [trainer.step_async(a, y) for a in (x * np.nan, x)]
    may_run.set()
    for future in futures:
        with pytest.raises(NonFiniteError):
            future.result()
    assert trainer.steps == 1
    assert trainer.step_async(x, y).result()["loss"] > 0
    assert trainer.steps == 2


def test_a_batch_that_does_not_fit_is_refused_at_once(bundle):
    trainer = Trainer(bundle, OPTIONS)
    for _ in range(4):
        with pytest.raises(FeedError, match="got float64"):
            trainer.stream([batch(0), [np.zeros((4, 3)), np.zeros((4, 1))]]).__next__() and next(
                trainer.stream([[np.zeros((4, 3)), np.zeros((4, 1))]])
            )
        with pytest.raises(FeedError, match="takes 2 arrays"):
            trainer.step_async(batch(0)[0])
    trainer.step_async(*batch(0)).result()


@pytest.mark.parametrize("prefetch", [1, 3])
def test_a_stream_takes_batches_ahead(bundle, prefetch):
    made, far = [], threading.Event()

    def batches():
        for i in range(5):
            made.append(i)
            if len(made) > 1:
                far.set()
            yield batch(i) if i % 2 else dict(zip(("x", "y"), batch(i), strict=True))

    trainer = Trainer(bundle, OPTIONS)
    results = trainer.stream(batches(), prefetch)
    losses = [float(next(results)["loss"])]
    assert far.wait(30), "the next batch is made while nobody asks for it"
    assert trainer.steps == 1, "but no step is"
    losses += [float(r["loss"]) for r in results]
    assert_same((losses, trainer.state_dict()), after(Trainer(bundle, OPTIONS)))


def test_what_the_source_raises_comes_behind_its_batches(bundle):
    def batches():
        yield batch(0)
        raise OSError("the disk is gone")

    trainer = Trainer(bundle, OPTIONS)
    with pytest.raises(OSError, match="the disk is gone"):
        list(trainer.stream(batches()))
    assert trainer.steps == 1


def test_whoever_stops_early_ends_the_source(bundle):
    def batches():
        try:
            for i in itertools.count():
                yield batch(i)
        finally:
            over.set()

    over = threading.Event()
    for _ in Trainer(bundle, OPTIONS).stream(batches()):
        break
    assert over.wait(30)


def test_feeds_laid_ready_are_the_same_feeds(bundle):
    step = Program(bundle / "step.onnx", state_of(bundle), OPTIONS)
    plain = Program(bundle / "step.onnx", state_of(bundle), OPTIONS)
    stage = FeedBuffers(step, 2, always=True)
    for i in range(6):
        given = list(batch(i))
        mine = step.run(given if i % 3 == 2 else stage.put(given))
        assert all(map(np.array_equal, mine, plain.run(given)))
    assert FeedBuffers(step, 2).put(given)[0] is given[0], "the host copies nothing"


def state_of(bundle):
    state, first = State(), Trainer(bundle, OPTIONS).state
    for name in first:
        state.add(name, first.read(name))
    return state


def test_training_in_place_is_the_same(in_place):
    trainer, plain = Trainer(in_place, OPTIONS), Trainer(in_place, OPTIONS, in_place=False)
    assert trainer.in_place == ("b", "m", "w")
    assert plain.in_place == Trainer(in_place, OPTIONS, finite_losses=True).in_place == ()
    assert_same(after(trainer), after(plain))
    assert trainer.state.nbytes() < plain.state.nbytes()


def test_evaluating_and_freezing_keep_what_is_updated_in_place(in_place):
    trainer, plain = Trainer(in_place, OPTIONS), Trainer(in_place, OPTIONS, in_place=False)
    for t in (trainer, plain):
        t.step(*batch(0))
        t.evaluate(*batch(1))
        t.freeze("w")
        t.step(*batch(2))
    assert trainer.in_place == ("b", "m")
    assert_same(after(trainer), after(plain))
    trainer.freeze()
    assert trainer.in_place == ("b", "m", "w")


def test_a_step_that_fails_in_place(in_place, monkeypatch):
    trainer = Trainer(in_place, OPTIONS)
    saved = trainer.state_dict()
    trainer.step(*batch(0))
    trainer.step(*batch(0))

    def broken(*_):
        raise MemoryError("no more")

    for lane in trainer._program._lanes.values():
        monkeypatch.setattr(lane, "_call", broken)
    with pytest.raises(RunError, match=r"no more(.|\n)*3 tensors were being updated in place"):
        trainer.step(*batch(1))
    monkeypatch.undo()
    for use in (
        lambda: trainer.step(*batch(1)),
        trainer.state_dict,
        lambda: trainer.state.read("w"),
    ):
        with pytest.raises(StateError, match="neither the old nor the new"):
            use()
    trainer.state.write("w", saved["w"])
    with pytest.raises(StateError, match="b, m were being changed"):
        trainer.step(*batch(1))
    trainer.load_state_dict(saved)
    assert_same(after(trainer), after(Trainer(in_place, OPTIONS)))


@pytest.mark.parametrize("wrong", [{"other.onnx": ("w",)}, {"step.onnx": ("q",)}])
def test_a_manifest_that_names_what_is_not_there(bundle, wrong):
    manifest = Manifest.read(bundle)
    with pytest.raises(ValueError, match="neither a file nor a tensor of the state"):
        dataclasses.replace(manifest, in_place=wrong)


@pytest.mark.parametrize("call", ["step", "evaluate"])
def test_a_call_leaves_nothing_behind(in_place, call):
    trainer, (x, y) = Trainer(in_place, OPTIONS), batch(0)
    run = getattr(trainer, call)
    grown, most, was_frozen = [], 0, gc.get_freeze_count() > 0
    gc.freeze()  # what other tests made is not looked through again and again
    tracemalloc.start()
    try:
        for _ in range(6):  # in some of them numpy's store of small arrays fills up
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            for _ in range(30):
                run(x, y)
            gc.collect()
            left, peak = tracemalloc.get_traced_memory()
            grown.append(left - before)
            most = peak - before
    finally:
        tracemalloc.stop()
        if not was_frozen:
            gc.unfreeze()
    assert min(grown) < 8 * 30, "not so much as a number for each call"
    assert most < 40 * 1024, "a call makes its results, and little besides"
