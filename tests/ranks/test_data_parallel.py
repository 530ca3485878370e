"""Several processes train as one does on the whole batch, and all of them the same."""

import pytest

from tests.ranks import cases
from tests.ranks.equality import LIMIT, LIMITS, difference, trained_by

FAST = [name for name in cases.CASES if name not in cases.SLOW]


def check(name, whole, ranks):
    """Equal to one process within the limit, and to each other to the bit."""
    found = difference(name, whole, ranks)
    assert found is not None, f"{name}: the ranks differ"
    assert found <= LIMITS.get(name, LIMIT), name


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return trained_by(2, "torch", tmp_path_factory.mktemp("ranks"), FAST)


@pytest.mark.parametrize("name", FAST)
def test_two_ranks_train_as_one_process(two, name):
    ranks, _ = two
    check(name, cases.run([name]), ranks)


def test_ranks_bound_to_one_processor_train_as_one_process(tmp_path):
    names = ["adam", "segments"]
    ranks, _ = trained_by(2, "torch", tmp_path, names, is_bound=True)
    whole = cases.run(names)
    for name in names:
        check(name, whole, ranks)


def test_what_is_shown_is_shown_once(two):
    _, outputs = two
    shown = [out.count("the mean loss is") for out in outputs]
    assert shown == [cases.STEPS, 0]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("engine", ["torch", "mpi", "mpich"])
def test_ranks_of_every_engine_train_as_one_process(engine, count, tmp_path, monkeypatch):
    ranks, _ = trained_by(count, engine, tmp_path)
    monkeypatch.setattr(cases, "DEVICES", count)
    for name in cases.CASES:
        check(name, cases.run([name]), ranks)
