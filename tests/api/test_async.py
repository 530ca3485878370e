"""Asynchronous calls: order, threads, failures, the end of the process."""

import logging
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.session import current_session
from flow2onnx.errors import ContextError, FlowError, NonFiniteError
from tests.api.support import f32, raises, sgd, values, variable

MAIN = threading.main_thread()


def wide():
    """A configuration under which nobody waits for a place in the queue."""
    config = flow.function_config()
    config.concurrency_width(128)
    return config


def counting_jobs():
    """A train job that takes 1 from w at each call and returns w before; with its callback form."""

    def body():
        w = variable("w", (1,), value=0.0)
        loss = w * 1.0
        sgd(1.0).minimize(loss)
        return w

    @flow.global_function(type="train", function_config=wide())
    def later() -> tp.Callback[tp.Numpy]:
        return body()

    @flow.global_function(type="train", function_config=wide())
    def future():
        return body()

    @flow.global_function(type="train", function_config=wide())
    def now() -> tp.Numpy:
        return body()

    return later, future, now


def failing_job(**options):
    """Fails for an input of which the logarithm is not finite."""
    flow.config.stop_on_non_finite()

    def body(x):
        w = variable("w", (1,), value=1.0)
        loss = flow.math.log(x) * w
        sgd(0.0).minimize(loss)
        return loss

    @flow.global_function(type="train", function_config=wide())
    def later(x: tp.Numpy.Placeholder((1,))) -> tp.Callback[tp.Numpy]:
        return body(x)

    @flow.global_function(type="train", function_config=wide())
    def future(x: tp.Numpy.Placeholder((1,))):
        return body(x)

    @flow.global_function(type="train", function_config=wide())
    def now(x: tp.Numpy.Placeholder((1,))) -> tp.Numpy:
        return body(x)

    return later, future, now


GOOD, BAD = f32(1), f32(-1)


class TestOrder:
    def test_callbacks_come_in_order_on_a_worker_thread(self):
        later, future, now = counting_jobs()
        seen = []

        def note(w):
            seen.append((float(w[0]), threading.current_thread() is MAIN))

        for i in range(20):
            if i % 2:
                later()(note)
            else:
                future().async_get(note)
        flow.sync_default_session()
        assert seen == [(-float(i), False) for i in range(20)]
        assert now()[0] == -20

    def test_synchronous_call_runs_after_asynchronous_ones(self):
        later, _, now = counting_jobs()
        for _ in range(10):
            later()
        assert now()[0] == -10

    def test_futures_may_be_asked_in_any_order(self):
        _, future, _ = counting_jobs()
        futures = [future() for _ in range(5)]
        assert [f.get()[0] for f in reversed(futures)] == [-4, -3, -2, -1, 0]

    def test_reading_variables_waits(self):
        later, _, _ = counting_jobs()
        for _ in range(7):
            later()
        assert values("w")[0] == [-7]

    def test_a_callback_sees_the_variables_of_its_step(self):
        later, _, _ = counting_jobs()
        seen = []
        for _ in range(5):
            later()(lambda w: seen.append(values("w")[0][0]))
        flow.sync_default_session()
        assert seen == [-1, -2, -3, -4, -5]

    def test_a_callback_may_call_jobs(self):
        later, future, now = counting_jobs()
        seen = []

        def again(w):
            seen.append(now()[0])
            later()(lambda w: seen.append(w[0]))

        later()(again)
        flow.sync_default_session()
        assert seen == [-1, -2]
        later()(lambda w: seen.append(future().async_get(lambda w: seen.append(w[0]))))
        flow.sync_default_session()
        assert seen == [-1, -2, None, -4]

    def test_a_callback_may_be_registered_late_or_never(self):
        later, _, _ = counting_jobs()
        first, _ = later(), later()
        flow.sync_default_session()
        seen = []
        first(lambda w: seen.append(w[0]))
        flow.sync_default_session()
        assert seen == [0]
        assert values("w")[0] == [-2]

    def test_callback_gets_one_argument_of_the_annotated_form(self):
        @flow.global_function()
        def job(x: tp.Numpy.Placeholder((2,))) -> tp.Callback[tuple[tp.Numpy, tp.ListNumpy]]:
            return x, x * 2

        seen = []
        assert job(f32(1, 2))(seen.append) is None
        flow.sync_default_session()
        ((one, (two,)),) = seen
        assert isinstance(seen[0], tuple)
        assert (one.tolist(), two.tolist()) == ([1, 2], [2, 4])

    def test_inputs_are_copied_at_the_call(self):
        @flow.global_function()
        def job(x: tp.Numpy.Placeholder((100_000,))):
            return x + 1

        given = np.zeros(100_000, np.float32)
        futures = []
        for i in range(5):
            given[:] = i
            futures.append(job(given))
        given[:] = -1
        assert [f.get().min() for f in futures] == [1, 2, 3, 4, 5]

    def test_callbacks_from_several_threads(self):
        later, _, now = counting_jobs()
        seen = []

        def work():
            for _ in range(10):
                later()(lambda w: seen.append(w[0]))

        threads = [threading.Thread(target=work) for _ in range(3)]
        now()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        flow.sync_default_session()
        assert sorted(seen, reverse=True) == [-float(i) for i in range(1, 31)]


class TestWidth:
    def test_calls_in_flight_are_bounded(self):
        config = flow.function_config()
        config.concurrency_width(2)
        entered, release = threading.Event(), threading.Event()

        def hold(array):
            entered.set()
            release.wait(120)

        @flow.global_function("predict", config)
        def job(x: tp.Numpy.Placeholder((1,))) -> tp.Callback[tp.Numpy]:
            flow.watch(x, hold)
            return x

        started = []

        def call():
            for i in range(3):
                job(f32(i))
                started.append(i)

        session = current_session()
        thread = threading.Thread(target=with_session(session, call))
        thread.start()
        assert entered.wait(60)
        end = time.monotonic() + 60
        while len(started) < 2 and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.1)  # a third call would begin now
        assert started == [0, 1]
        release.set()
        thread.join()
        flow.sync_default_session()
        assert started == [0, 1, 2]

    def test_a_callback_is_never_held_up(self):
        config = flow.function_config()
        config.concurrency_width(1)

        @flow.global_function("predict", config)
        def job(x: tp.Numpy.Placeholder((1,))) -> tp.Callback[tp.Numpy]:
            return x

        seen = []

        def more(x):
            for _ in range(3):
                job(x + 1)(lambda y: seen.append(y[0]))

        job(f32(1))(more)
        flow.sync_default_session()
        assert seen == [2, 2, 2]


def with_session(session, function):
    from flow2onnx.engine.session import SESSION

    def run():
        SESSION.set(session)
        function()

    return run


class TestFailures:
    def test_get_raises(self):
        _, future, now = failing_job()
        asked = future(BAD)  # this call
        with raises(NonFiniteError, FloatingPointError, at="# this call", job="future"):
            asked.get()
        flow.sync_default_session()
        assert now(GOOD)[0] == 0

    def test_sync_raises_what_nobody_asked_for(self):
        _, future, now = failing_job()
        future(BAD)
        with pytest.raises(NonFiniteError):
            flow.sync_default_session()
        flow.sync_default_session()  # once
        assert now(GOOD)[0] == 0

    def test_clear_raises_what_nobody_asked_for(self):
        later, _, _ = failing_job()
        later(BAD)
        before = current_session()
        with pytest.raises(NonFiniteError):
            flow.clear_default_session()
        assert current_session() is not before
        flow.sync_default_session()

    def test_callback_is_not_called(self):
        later, future, _ = failing_job()
        later(GOOD)
        seen = []
        later(BAD)(seen.append)
        with pytest.raises(NonFiniteError):
            flow.sync_default_session()
        future_ = future(BAD)
        future_.async_get(seen.append)
        with pytest.raises(NonFiniteError):
            flow.sync_default_session()
        assert seen == []

    @pytest.mark.parametrize("form", [0, 1, 2])
    def test_next_call_raises(self, form):
        jobs = failing_job()
        jobs[0](BAD)(print)
        wait_for_failure()
        with raises(NonFiniteError, FloatingPointError, job="later"):
            jobs[form](GOOD)
        assert jobs[2](GOOD)[0] == 0

    def test_reading_variables_raises(self):
        later, _, _ = failing_job()
        later(BAD)
        with pytest.raises(NonFiniteError):
            values("w")
        assert values("w")[0] == [1]

    def test_runs_behind_a_failure_are_skipped(self):
        _, future, now = failing_job()
        now(GOOD)
        with current_session()._queue._turn:  # nothing runs before all are queued
            asked = [future(x) for x in (GOOD, BAD, GOOD, GOOD)]
            seen = []
            asked[0].async_get(lambda x: seen.append(float(x)))
        with pytest.raises(NonFiniteError, match="step 1"):
            flow.sync_default_session()
        assert seen == [0]
        for later in asked[1:]:
            with pytest.raises(NonFiniteError, match="step 1"):
                later.get()
        assert values("System-Train-TrainStep-future")[0] == [1]
        assert future(GOOD).get()[0] == 0
        assert values("System-Train-TrainStep-future")[0] == [2]

    def test_exceptions_of_callbacks_are_logged_and_stop_nothing(self, caplog):
        later, future, now = counting_jobs()

        def fail(w):
            raise RuntimeError(f"callback {w[0]:g}")

        with caplog.at_level(logging.ERROR, logger="flow2onnx.callback"):
            later()(fail)
            future().async_get(fail)
            later()(lambda w: sys.exit(3))
            flow.sync_default_session()
        texts = [str(r.exc_info[1]) for r in caplog.records]
        assert texts == ["callback 0", "callback -1", "3"]
        assert now()[0] == -3

    def test_waiting_for_a_later_call_in_a_callback_is_refused(self):
        later, future, _ = counting_jobs()
        seen = []

        def wait(w):
            try:
                future().get()
            except FlowError as error:
                seen.append(error)

        later()(wait)
        flow.sync_default_session()
        assert isinstance(seen[0], ContextError)
        assert "waits for it" in str(seen[0])

    def test_sync_in_a_callback_does_not_wait_for_itself(self):
        later, _, _ = counting_jobs()
        seen = []
        later()(lambda w: seen.append(flow.sync_default_session()))
        flow.sync_default_session()
        assert seen == [None]

    def test_callbacks_under_way_may_call_jobs_while_clear_waits(self):
        later, _, now = counting_jobs()
        seen = []
        with current_session()._queue._turn:
            later()(lambda w: seen.append(now()[0]))
            later()(lambda w: later()(lambda w: seen.append(w[0])))
        flow.clear_default_session()
        assert seen == [-1, -3]
        with pytest.raises(flow.errors.JobError, match="cleared"):
            now()

    def test_clear_in_a_callback(self):
        later, _, _ = counting_jobs()
        done = threading.Event()

        def clear(w):
            flow.clear_default_session()
            done.set()

        session = current_session()
        later()(clear)
        assert done.wait(10)
        session._queue.sync()
        with pytest.raises(flow.errors.JobError, match="cleared"):
            later()


def wait_for_failure():
    queue = current_session()._queue
    end = time.monotonic() + 10
    while queue._stop is None and time.monotonic() < end:
        time.sleep(0.001)
    assert queue._stop is not None


class TestWatchHandlersInRuns:
    def test_failure_of_a_handler_is_raised(self):
        def refuse(x):
            raise RuntimeError("handler")

        @flow.global_function()
        def job(x: tp.Numpy.Placeholder((1,))) -> tp.Numpy:
            flow.watch(x, refuse)
            return x

        @flow.global_function()
        def later(x: tp.Numpy.Placeholder((1,))) -> tp.Callback[tp.Numpy]:
            flow.watch(x, refuse)
            return x

        with pytest.raises(RuntimeError, match="handler"):
            job(GOOD)
        later(GOOD)
        with pytest.raises(RuntimeError, match="handler"):
            flow.sync_default_session()

    def test_a_handler_may_call_jobs(self):
        seen = []

        @flow.global_function()
        def inner(x: tp.Numpy.Placeholder((1,))) -> tp.Numpy:
            return x * 2

        @flow.global_function()
        def outer(x: tp.Numpy.Placeholder((1,))) -> tp.Callback[tp.Numpy]:
            flow.watch(x, lambda value: seen.append(inner(value.numpy())[0]))
            return x

        outer(f32(3))
        outer(f32(4))
        flow.sync_default_session()
        assert seen == [6, 8]


def run_script(text, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )


SCRIPT = """
    import time
    import numpy as np
    import flow2onnx as flow
    import flow2onnx.typing as tp

    flow.config.stop_on_non_finite()

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((1,))) -> tp.Callback[tp.Numpy]:
        w = flow.get_variable("w", (1,), initializer=flow.ones_initializer())
        loss = flow.math.log(x) * w
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.0])).minimize(loss)
        return x
"""


def test_end_of_the_process_waits_for_callbacks(tmp_path):
    done = run_script(
        SCRIPT
        + """
    def show(x):
        time.sleep(0.05)
        print("callback", x[0], flush=True)
        if x[0] == 3:
            job(np.array([9], np.float32))(show)

    for i in range(1, 4):
        job(np.array([i], np.float32))(show)
    print("end", flush=True)
    """,
        tmp_path,
    )
    assert done.stderr == ""
    assert done.stdout.split("\n")[:-1] == [
        "end", "callback 1.0", "callback 2.0", "callback 3.0", "callback 9.0",
    ]  # fmt: skip
    assert done.returncode == 0


def test_end_of_the_process_tells_of_failures(tmp_path):
    done = run_script(SCRIPT + "\n    job(np.array([-1], np.float32))(print)\n", tmp_path)
    assert "the loss of step 0 is not finite" in done.stderr
    assert "in job job, script.py:16" in done.stderr.replace(str(tmp_path) + "/", "")
    assert "Traceback" not in done.stderr
