"""The line protocol of worker processes, spoken with small ones that keep to it and do not."""

import sys
from contextlib import closing

import pytest

from benchmarks.worker_process import PeerError, WorkerProcess

ECHO = "for line in __import__('sys').stdin: print(line.strip()[::-1], flush=True)"


@pytest.fixture
def worker():
    """Starts Python on a text; all that was started is closed at the end."""
    workers = []

    def start(text, **settings):
        workers.append(WorkerProcess([sys.executable, "-c", text], **settings))
        return workers[-1]

    yield start
    for one in workers:
        one.close()


def test_lines_are_answered_one_by_one(worker):
    one = worker(ECHO)
    one.tell("abc")
    one.tell("12")
    assert (one.line(), one.numbers(1)) == ("cba", [21.0])


def test_lines_that_come_together_are_read_apart(worker):
    one = worker("print('1.5 2\\n{\"a\": 3}\\nrest')")
    assert one.numbers(2) == [1.5, 2.0]
    assert one.record() == {"a": 3}
    assert one.line() == "rest"


@pytest.mark.parametrize(("text", "says"), [
    ("raise KeyError('weight')", "rank 1 ended: KeyError: 'weight'"),
    ("print('half a line', end='')", "rank 1 ended: without a word"),
    ("import os; os._exit(3)", "rank 1 ended: without a word"),
    ("import sys; sys.exit('no GPU here\\n  at a place')", "rank 1 ended: no GPU here"),
])  # fmt: skip
def test_one_that_ends_says_why(worker, text, says):
    one = worker(text, name="rank 1")
    with pytest.raises(PeerError) as caught:
        one.line()
    assert str(caught.value) == says


def test_one_that_is_silent_is_not_waited_for(worker):
    one = worker("import time; print('x', end='', flush=True); time.sleep(600)", patience=0.2)
    with pytest.raises(PeerError, match=r"^gave no answer in 0\.2 s$"):
        one.line()


def tell_on_and_on(worker):
    """Tell lines until the system knows that nobody reads them."""
    while True:
        worker.tell("run 1")


def test_one_that_reads_no_more(worker):
    one = worker("import sys; sys.exit('full up')", name="torch")
    with pytest.raises(PeerError, match=r"^torch ended: full up$"):
        one.line()
    with pytest.raises(PeerError, match=r"^torch ended: full up$"):
        tell_on_and_on(one)


@pytest.mark.parametrize(("wrote", "ask", "says"), [
    ("Hello", lambda w: w.record(), "wrote 'Hello' in place of a record"),
    ("[1]", lambda w: w.record(), r"wrote '\[1\]' in place of a record"),
    ("1 2", lambda w: w.numbers(1), "wrote '1 2' in place of 1 numbers"),
    ("one", lambda w: w.numbers(1), "wrote 'one' in place of 1 numbers"),
])  # fmt: skip
def test_answers_of_another_kind(worker, wrote, ask, says):
    with pytest.raises(PeerError, match=says):
        ask(worker(f"print('{wrote}')"))


def test_one_that_cannot_be_started(tmp_path):
    with pytest.raises(PeerError, match=r"ours cannot be started: .*nothing"):
        WorkerProcess([str(tmp_path / "nothing")], name="ours")


def test_a_stopped_one_goes_on_or_is_closed():
    with closing(WorkerProcess([sys.executable, "-c", ECHO])) as one:
        one.signal("SIGSTOP")
        one.tell("ab")
        one.signal("SIGCONT")
        assert one.line() == "ba"
        one.signal("SIGSTOP")
        one.signal("SIGNOTHING")  # a name that this system does not have
