"""Steps in the background, and who may wait for them: locks, callbacks, forks, the guard."""

import multiprocessing
import os
import threading
from concurrent.futures import CancelledError, as_completed, wait

import numpy as np
import pytest

from flow2onnx_runtime import NonFiniteError, Options, Predictor, StateError, Trainer
from flow2onnx_runtime.dtypes import all_finite, element_named
from flow2onnx_runtime.step_queue import StepQueue

OPTIONS = Options(intra_op_threads=1)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def batch(seed=0):
    draws = np.random.default_rng(seed)
    return draws.standard_normal((4, 3), np.float32), draws.standard_normal((4, 1), np.float32)


@pytest.fixture
def blocked():
    """A queue whose work waits for an event, and that event."""
    queue, event = StepQueue("a test", 3), threading.Event()
    yield queue, event
    event.set()
    queue.settle()


def submit(queue, work):
    return queue.submit(lambda: work)


def test_work_is_done_in_order(blocked):
    queue, event = blocked
    done = []
    futures = [submit(queue, lambda i=i: (event.wait(30), done.append(i))) for i in range(3)]
    assert not queue_is_over(futures)
    event.set()
    queue.settle()
    assert done == [0, 1, 2]
    assert queue_is_over(futures)
    assert set(as_completed(futures, 30)) == set(futures)
    assert wait(futures, 30).not_done == set()


def queue_is_over(futures):
    return all(future.done() and not future.running() for future in futures)


def test_waiting_may_take_too_long(blocked):
    queue, event = blocked
    future = submit(queue, lambda: event.wait(30))
    with pytest.raises(TimeoutError):
        future.result(0.01)
    event.set()
    assert future.result(30) is True
    assert future.exception() is None


def test_what_is_cancelled_is_not_begun(blocked):
    queue, event = blocked
    done = []
    first, second, third = (
        submit(queue, lambda i=i: (event.wait(30), done.append(i))) for i in range(3)
    )
    assert second.cancel()
    event.set()
    queue.settle()
    assert not first.cancel()
    assert done == [0, 2]
    assert second.cancelled()
    with pytest.raises(CancelledError):
        second.result()
    assert second in wait([first, second, third], 30).done


def test_a_callback_may_begin_a_step_and_wait_for_the_others(bundle):
    trainer, over = Trainer(bundle, OPTIONS), threading.Event()

    def again(future):
        trainer.state_dict()
        if trainer.steps < 5:
            trainer.step_async(*batch()).add_done_callback(again)
        else:
            over.set()

    trainer.step_async(*batch()).add_done_callback(again)
    assert over.wait(30)


def test_who_holds_the_lock_waits_for_no_step(bundle, tmp_path):
    trainer = Trainer(bundle, OPTIONS)
    with trainer.state.lock:
        other = threading.Thread(target=trainer.step_async, args=batch())
        other.start()
        other.join(30)
        assert trainer.steps == 0, "the step waits for the lock"
        trainer.save(tmp_path / "s.safetensors")
        trainer.freeze("w")
        with pytest.raises(StateError, match="by who holds the state's lock"):
            trainer.step_async(*batch())
    assert trainer.steps == 1


def in_child(work, results):
    try:
        work()
        results.put("done")
    except StateError as error:
        results.put(str(error))


def outcome_of_fork(work):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=in_child, args=(work, results))
    child.start()
    try:
        return results.get(timeout=30)
    finally:
        child.kill()
        child.join()


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told_to_open_its_own(bundle, tmp_path):
    trainer, predictor = Trainer(bundle, OPTIONS), Predictor(bundle, OPTIONS)
    assert outcome_of_fork(lambda: trainer.step_async(*batch()).result(20)) == "done"
    trainer.step_async(*batch()).result()
    x = np.zeros((2, 3), np.float32)
    predictor.submit(x).result()
    for use in (
        lambda: trainer.step_async(*batch()),
        lambda: trainer.step(*batch()),
        lambda: trainer.save(tmp_path / "s"),
        lambda: trainer.steps,
        lambda: predictor.submit(x).result(),
    ):
        assert "cannot be used in a forked process" in outcome_of_fork(use)
    assert trainer.steps == 1


def test_the_guard_is_set_from_a_step_to_the_next(bundle):
    trainer = Trainer(bundle, OPTIONS)
    x, y = batch()
    trainer.step(x, y)
    trainer.finite_losses = True
    before = trainer.state_dict()
    with pytest.raises(NonFiniteError, match=r"the loss loss of batch 2 is not finite at step 1"):
        trainer.step_async(x, np.full_like(y, np.nan)).result()
    assert all(np.array_equal(trainer.state_dict()[name], before[name]) for name in before)
    assert (trainer.batches, trainer.steps, trainer.finite_losses) == (2, 1, True)
    trainer.finite_losses = False
    assert np.isnan(trainer.step(x, np.full_like(y, np.nan))["loss"])


def test_bits_that_are_not_finite():
    element = element_named("bfloat16")
    assert all_finite(np.array([0x3F80, 0x7F7F], np.uint16), element)
    assert not all_finite(np.array([0x3F80, 0x7F80], np.uint16), element)
    assert not all_finite(np.array([0xFFC0], np.uint16), element)
    assert not all_finite(np.array([1, np.inf], np.float16), element_named("float16"))
    assert all_finite(np.array([1], np.int32), element_named("int32"))
