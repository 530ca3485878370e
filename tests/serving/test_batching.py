"""Micro-batching by itself: what is computed together, what waits, what is refused."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from flow2onnx_runtime import RunError
from flow2onnx_serve.batching import Batcher, Limits
from flow2onnx_serve.errors import RequestError


class Seen:
    """Counts, as a server's metrics do."""

    def __init__(self):
        self.rows, self.waits, self.waiting = [], [], 0

    def ran(self, rows, waited, seconds):
        self.rows.append(rows)
        self.waits += waited

    def queued(self, change):
        self.waiting += change


class Gate:
    """A run that begins only when it may, and doubles."""

    def __init__(self, is_open=True):
        self.opened, self.calls = threading.Event(), []
        if is_open:
            self.opened.set()

    def __call__(self, arrays, options):
        assert self.opened.wait(30)
        self.calls.append([a.shape for a in arrays])
        if (arrays[0] < 0).any():
            raise RunError("negative")
        return [2 * a for a in arrays]


def rows(count, value=1.0, width=2):
    return [np.full((count, width), value)]


def drive(scenario, run, **limits):
    """Run a scenario with a batcher; returns what was seen."""
    seen = Seen()
    asked = Limits(**({"rows": 8, "delay": 0.0, "queue": 16} | limits))

    async def main():
        with ThreadPoolExecutor(4) as threads:
            batcher = Batcher(run, threads, asked, seen)
            await scenario(batcher)
            assert batcher.is_idle

    asyncio.run(asyncio.wait_for(main(), 60))
    assert seen.waiting == 0
    return seen


def test_what_comes_together_is_computed_together():
    async def scenario(batcher):
        found = await asyncio.gather(*(batcher.submit(rows(1 + i % 2, i), 30) for i in range(5)))
        for i, (array,) in enumerate(found):
            np.testing.assert_array_equal(array, 2 * rows(1 + i % 2, i)[0])

    gate = Gate()
    seen = drive(scenario, gate)
    assert gate.calls == [[(7, 2)]]
    assert seen.rows == [7]
    assert len(seen.waits) == 5


def test_up_to_the_limit_and_in_order():
    async def scenario(batcher):
        await asyncio.gather(*(batcher.submit(rows(n), 30) for n in (3, 3, 3, 20, 1)))

    gate = Gate()
    drive(scenario, gate)
    assert [shape[0][0] for shape in gate.calls] == [6, 3, 20, 1]


def test_other_shapes_are_computed_apart():
    async def scenario(batcher):
        await asyncio.gather(*(batcher.submit(rows(1, width=w), 30) for w in (2, 2, 3, 2)))

    gate = Gate()
    drive(scenario, gate)
    assert gate.calls == [[(2, 2)], [(1, 3)], [(1, 2)]]


def test_without_batching_nothing_is_concatenated():
    async def scenario(batcher):
        await asyncio.gather(*(batcher.submit([np.float64(i)], 30) for i in range(3)))

    gate = Gate()
    drive(scenario, gate, rows=1)
    assert gate.calls == [[()]] * 3


def test_a_delay_lets_others_join_but_not_for_ever():
    async def scenario(batcher):
        first = asyncio.create_task(batcher.submit(rows(1), 30))
        await asyncio.sleep(0.02)
        await batcher.submit(rows(1), 30)
        await first
        await asyncio.gather(*(batcher.submit(rows(4), 30) for _ in range(2)))

    gate = Gate()
    drive(scenario, gate, delay=0.2)
    assert gate.calls == [[(2, 2)], [(8, 2)]]


def test_one_bad_request_does_not_spoil_the_others():
    async def scenario(batcher):
        asked = [batcher.submit(rows(1, value), 30) for value in (1, -1, 2)]
        one, bad, two = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(bad, RunError)
        assert (one[0][0, 0], two[0][0, 0]) == (2, 4)

    drive(scenario, Gate())


def test_a_fault_of_ours_is_an_answer_too():
    async def scenario(batcher):
        with pytest.raises(RunError, match="ZeroDivisionError"):
            await batcher.submit(rows(1), 30)

    drive(scenario, lambda arrays, options: 1 / 0)


def test_a_full_queue_refuses():
    gate = Gate(is_open=False)

    async def scenario(batcher):
        running = asyncio.create_task(batcher.submit(rows(1), 30))
        await asyncio.sleep(0.05)
        waiting = [asyncio.create_task(batcher.submit(rows(1), 30)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RequestError) as caught:
            await batcher.submit(rows(1), 30)
        assert (caught.value.status, caught.value.retry_after) == (503, 1)
        gate.opened.set()
        await asyncio.gather(running, *waiting)

    drive(scenario, gate, queue=2)


def test_time_runs_out_while_waiting_and_while_running():
    gate = Gate(is_open=False)

    async def scenario(batcher):
        running = asyncio.create_task(batcher.submit(rows(1), 0.1))
        await asyncio.sleep(0.02)
        waiting = asyncio.create_task(batcher.submit(rows(1), 0.05))
        for task in (waiting, running):
            with pytest.raises(RequestError) as caught:
                await task
            assert caught.value.status == 504
        gate.opened.set()
        np.testing.assert_array_equal((await batcher.submit(rows(1), 30))[0], 2 * rows(1)[0])

    drive(scenario, gate)
    assert gate.calls == [[(1, 2)], [(1, 2)]]  # the one that waited was never run


def test_who_leaves_is_not_computed():
    gate = Gate(is_open=False)

    async def scenario(batcher):
        running = asyncio.create_task(batcher.submit(rows(1), 30))
        await asyncio.sleep(0.02)
        leaving = asyncio.create_task(batcher.submit(rows(1), 30))
        await asyncio.sleep(0.02)
        leaving.cancel()
        gate.opened.set()
        await running
        await asyncio.sleep(0.05)

    drive(scenario, gate)
    assert len(gate.calls) == 1


def test_several_instances_run_at_once():
    barrier = threading.Barrier(2)

    def run(arrays, options):
        barrier.wait(30)
        return arrays

    async def scenario(batcher):
        await asyncio.gather(*(batcher.submit(rows(1, width=w), 30) for w in (2, 3)))

    drive(scenario, run, instances=2)


def test_a_quick_run_needs_no_thread():
    loops = []

    def run(arrays, options):
        loops.append(threading.current_thread() is threading.main_thread())
        return [2 * a for a in arrays]

    async def scenario(batcher):
        await asyncio.gather(*(batcher.submit(rows(n), 30) for n in (2, 2, 8)))

    seen = drive(scenario, run, inline=4)
    assert seen.rows == [4, 8]
    assert loops == [True, False]


def test_a_run_is_stopped_once_nobody_waits_for_it():
    """Of two requests in a run, the first that gives up leaves it going, the second ends it."""
    stopped = []

    def run(arrays, options):
        for _ in range(3000):
            if options.terminate:
                stopped.append(len(arrays[0]))
                raise RunError("terminated")
            threading.Event().wait(0.01)
        return arrays

    async def scenario(batcher):
        waiting = [batcher.submit(rows(1), seconds) for seconds in (0.1, 0.4)]
        one, two = (asyncio.create_task(w) for w in waiting)
        with pytest.raises(RequestError, match="time is over"):
            await one
        await asyncio.sleep(0.05)
        assert not stopped
        with pytest.raises(RequestError, match="time is over"):
            await two
        leaving = asyncio.create_task(batcher.submit(rows(3), 30))
        await asyncio.sleep(0.1)
        leaving.cancel()
        while len(stopped) < 2 or not batcher.is_idle:
            await asyncio.sleep(0.01)

    drive(scenario, run)
    assert stopped == [2, 3]


def test_who_retires_lets_go_when_there_is_nothing_to_do():
    released = []

    async def scenario(batcher):
        waiting = asyncio.create_task(batcher.submit(rows(1), 30))
        await asyncio.sleep(0)
        batcher.retire(lambda: released.append(batcher.is_idle))
        assert not released
        await waiting
        assert released == [True]
        await batcher.submit(rows(1), 30)  # who had found it just before
        assert released == [True, True]

    drive(scenario, Gate())
