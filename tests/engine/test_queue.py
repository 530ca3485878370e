"""The queue of calls by itself."""

import threading

import pytest

from flow2onnx.engine.queue import CallQueue
from flow2onnx.errors import ContextError


@pytest.fixture
def queue():
    queue = CallQueue()
    yield queue
    queue.close()


def fail():
    raise KeyError("failed")


def test_runs_in_the_caller_while_nothing_waits(queue):
    assert queue.run(threading.get_ident) == threading.get_ident()
    assert queue.wait(queue.submit(threading.get_ident)) != threading.get_ident()


def test_order(queue):
    seen = []
    with queue._turn:
        for i in range(50):
            queue.submit(lambda i=i: seen.append(i))
            queue.later(lambda i=i: seen.append(-i))
    queue.run(lambda: seen.append("last"))
    assert seen == [x for i in range(50) for x in (i, -i)] + ["last"]


def test_failure_of_a_waiting_caller_is_his_alone(queue):
    def run_and_fail():
        with pytest.raises(KeyError):
            queue.run(fail)

    with queue._turn:
        queue.submit(int)
        thread = threading.Thread(target=run_and_fail)
        thread.start()
        after = queue.submit(lambda: 5)
    thread.join()
    assert queue.wait(after) == 5
    queue.sync()


def test_failure_stops_what_is_behind_until_it_is_raised(queue):
    seen = []
    with queue._turn:
        first = queue.submit(fail)
        second = queue.submit(lambda: seen.append(2))
        queue.later(lambda: seen.append("callback"))
    with pytest.raises(KeyError):
        queue.sync()
    with pytest.raises(KeyError):
        queue.wait(second)
    with pytest.raises(KeyError):
        queue.wait(first)
    queue.sync()
    queue.run(lambda: seen.append(3))
    queue.wait(queue.submit(lambda: seen.append(4)))
    assert seen == ["callback", 3, 4]


def test_second_failure_after_the_first_was_raised(queue):
    for _ in range(3):
        queue.submit(fail)
        with pytest.raises(KeyError):
            queue.sync()
    queue.sync()


def test_failure_comes_up_at_run(queue):
    with queue._turn:
        queue.submit(fail)
    with pytest.raises(KeyError):
        queue.run(int)
    assert queue.run(int) == 0


def test_close_raises_what_nobody_took(queue):
    with queue._turn:
        queue.submit(fail)
    with pytest.raises(KeyError):
        queue.close()
    queue.close()


def test_nested_runs(queue):
    assert queue.run(lambda: queue.run(lambda: queue.run(lambda: 3))) == 3
    nested = queue.submit(lambda: queue.run(lambda: 4))
    assert queue.wait(nested) == 4


def test_waiting_inside_a_run_for_a_later_one(queue):
    def work():
        return queue.wait(queue.submit(int))

    with pytest.raises(ContextError, match="waits for it"):
        queue.run(work)
    queue.sync()


def test_width(queue):
    gate, third = threading.Event(), threading.Event()
    queue.submit(gate.wait, 2)
    queue.submit(int, 2)

    def more():
        queue.submit(int, 2)
        third.set()

    thread = threading.Thread(target=more)
    thread.start()
    assert not third.wait(0.1)
    gate.set()
    assert third.wait(5)
    thread.join()


def test_many_threads(queue):
    total = []

    def work():
        for i in range(100):
            if i % 3:
                queue.run(lambda: total.append(1))
            else:
                queue.submit(lambda: total.append(1), 4)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.sync()
    assert len(total) == 600
