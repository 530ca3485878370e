"""The pipeline: order, seeds, errors, and threads that end."""

import gc
import itertools
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from flow2onnx.data.decoding import random_of
from flow2onnx.data.pipeline import Pipeline
from flow2onnx.dtypes import float32, int64, tensor_buffer
from flow2onnx.errors import ArgumentError, DataError
from flow2onnx.trace.host import HostNode, HostPlan, HostType, HostValue

BATCH = 4
NUMBERS = HostType((BATCH,), int64)


def counting(stop=None):
    """Batches of consecutive numbers; one of them may be an error."""

    def run():
        for start in itertools.count(0, BATCH):
            if stop is not None and start >= stop:
                raise ValueError(f"no more after {stop}")
            yield (list(range(start, start + BATCH)),)

    return HostNode("numbers", "source", run, source="job.py:3")


def plan(*values):
    nodes = []

    def visit(node):
        for value in node.inputs:
            visit(value.node)
        if node not in nodes:
            nodes.append(node)

    for value in values:
        visit(value.node)
    return HostPlan(tuple(nodes), values)


def sample(run, *inputs, type=NUMBERS, name="work"):
    node = HostNode(name, "sample", run, inputs, "job.py:5")
    return HostValue(node, 0, type)


def numbers(stop=None):
    return HostValue(counting(stop), 0, NUMBERS)


def threads():
    return [t for t in threading.enumerate() if t.name.startswith("flow2onnx-data")]


@pytest.fixture
def pipeline():
    made = []

    def make(*values, workers=3):
        made.append(Pipeline(plan(*values), workers))
        return made[-1]

    yield make
    for one in made:
        one.close()
    assert threads() == []


def test_batches_come_in_order(pipeline):
    def work(key, n):
        time.sleep(0.002 * ((7 * n) % 3))
        return (n * n,)

    source = numbers()
    made = pipeline(sample(work, source), source)
    for start in range(0, 40, BATCH):
        squares, plain = made.next()
        assert plain.tolist() == list(range(start, start + BATCH))
        np.testing.assert_array_equal(squares, plain**2)
        assert squares.dtype == np.int64


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_draws_do_not_depend_on_threads(pipeline, workers):
    def work(key, n):
        time.sleep(0.001 * (n % 2))
        return (random_of(9, key).random(3, np.float32),)

    made = pipeline(sample(work, numbers(), type=HostType((BATCH, 3), float32)), workers=workers)
    found = np.stack([made.next()[0] for _ in range(4)])
    expected = [
        [random_of(9, (b, s)).random(3, np.float32) for s in range(BATCH)] for b in range(4)
    ]
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found)) == found.size


def test_batch_nodes_see_all_samples(pipeline):
    source = numbers()
    doubled = sample(lambda key, n: (2 * n,), source)
    total = HostNode("total", "batch", lambda b, ns: ([sum(ns)] * len(ns),), (doubled,))
    after = sample(lambda key, n, t: (t - n,), source, HostValue(total, 0, NUMBERS))
    made = pipeline(after, doubled)
    rest, twice = made.next()
    assert (rest.tolist(), twice.tolist()) == ([12, 11, 10, 9], [0, 2, 4, 6])


def test_sources_of_different_sizes(pipeline):
    def pairs():
        while True:
            yield ([5, 6],)

    short = HostValue(HostNode("pairs", "source", pairs), 0, HostType((2,), int64))
    plus = lambda key, n: (n + 1,)  # noqa: E731
    made = pipeline(sample(plus, numbers()), sample(plus, short, type=HostType((2,), int64)))
    assert [a.tolist() for a in made.next()] == [[1, 2, 3, 4], [6, 7]]


def test_an_error_of_a_sample_comes_with_its_batch(pipeline):
    def work(key, n):
        if n == 6:
            raise ZeroDivisionError("six")
        return (n,)

    made = pipeline(sample(work, numbers()))
    assert made.next()[0].tolist() == [0, 1, 2, 3]
    for _ in range(3):
        with pytest.raises(
            DataError, match="sample 2 of the batch: ZeroDivisionError: six"
        ) as caught:
            made.next()
        assert (caught.value.op, caught.value.source) == ("work", "job.py:5")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_errors_of_ours_keep_their_kind(pipeline):
    def work(key, n):
        raise ArgumentError("not this")

    made = pipeline(sample(work, numbers()))
    with pytest.raises(ArgumentError, match="not this") as caught:
        made.next()
    assert caught.value.op == "work"


def test_what_was_read_before_an_error_is_delivered(pipeline):
    made = pipeline(sample(lambda key, n: (n,), numbers(stop=12)))
    assert [made.next()[0][0] for _ in range(3)] == [0, 4, 8]
    with pytest.raises(DataError, match="numbers: ValueError: no more after 12"):
        made.next()


def test_shapes_are_checked(pipeline):
    made = pipeline(sample(lambda key, n: (np.zeros(2),), numbers()))
    with pytest.raises(DataError, match=r"gave \(2,\) where \(\) is due"):
        made.next()


def test_threads_read_only_a_little_ahead(pipeline):
    read = []

    def run():
        for start in itertools.count(0, BATCH):
            read.append(start)
            yield ([start] * BATCH,)

    source = HostValue(HostNode("numbers", "source", run), 0, NUMBERS)
    made = pipeline(sample(lambda key, n: (n,), source))
    assert read == []
    made.next()
    time.sleep(0.1)
    assert len(read) <= 7


def test_nothing_starts_before_the_first_batch(pipeline):
    pipeline(numbers())
    assert threads() == []


def test_files_are_closed(pipeline):
    closed = threading.Event()

    def run():
        try:
            while True:
                yield ([1] * BATCH,)
        finally:
            closed.set()

    made = pipeline(HostValue(HostNode("numbers", "source", run), 0, NUMBERS))
    made.next()
    made.close()
    assert closed.is_set()
    with pytest.raises(DataError, match="closed"):
        made.next()


def test_close_while_a_sample_is_slow(pipeline):
    made = pipeline(sample(lambda key, n: (time.sleep(0.05 * (n > 3)) or n,), numbers()))
    made.next()
    made.close()
    assert threads() == []


def test_threads_end_with_a_forgotten_pipeline():
    made = Pipeline(plan(sample(lambda key, n: (n,), numbers())), 2)
    made.next()
    assert threads()
    del made
    gc.collect()
    for thread in threads():
        thread.join(5)
    assert threads() == []


def test_an_interrupted_consumer_loses_nothing(pipeline):
    made = pipeline(sample(lambda key, n: (time.sleep(0.3) or n,), numbers()), workers=BATCH)

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            made.next()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [made.next()[0].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_many_consumers_share_the_batches(pipeline):
    made, found, lock = pipeline(sample(lambda key, n: (n,), numbers())), [], threading.Lock()

    def consume():
        for _ in range(10):
            batch = made.next()[0].tolist()
            with lock:
                found.extend(batch)

    consumers = [threading.Thread(target=consume) for _ in range(4)]
    for consumer in consumers:
        consumer.start()
    for consumer in consumers:
        consumer.join()
    assert sorted(found) == list(range(40 * BATCH))


SCRIPT = """
    import flow2onnx as flow
    import flow2onnx.typing as tp

    @flow.global_function()
    def job() -> tp.Callback[tp.Numpy]:
        read = flow.data.ofrecord_reader({folder!r}, batch_size=2)
        return flow.data.OFRecordRawDecoder(read, "n", shape=(), dtype=flow.int32)

    def show(x):
        print(*x, flush=True)
        {after}

    for i in range(3):
        job()(show)
    {end}
"""


@pytest.mark.parametrize(
    ("after", "end", "shown", "code"),
    [
        ("", "", ["0 1", "2 3", "4 5"], 0),
        ("", "flow.clear_default_session()", ["0 1", "2 3", "4 5"], 0),
        ("", "raise KeyboardInterrupt", ["0 1", "2 3", "4 5"], None),
        ("import os; os._exit(7)", "", ["0 1"], 7),
    ],
)
def test_the_process_ends(tmp_path, after, end, shown, code):
    from tests.data.files import numbered, write_parts

    folder = write_parts(tmp_path / "d", [numbered(10)])
    script = textwrap.dedent(SCRIPT).format(folder=folder, after=after, end=end)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split("\n")[:-1] == shown, done.stderr
    assert code is None or done.returncode == code
    assert "Fatal" not in done.stderr


def test_buffers_do_not_go_into_a_plan_of_arrays():
    assert not HostType((2,), tensor_buffer).is_dense
    assert HostType((2,), int64).is_dense
