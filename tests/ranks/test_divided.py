"""Layers on different devices, and split kernels, train as one device does."""

import pytest

from tests.ranks import cases, divided
from tests.ranks.test_data_parallel import check, trained_by

# One of each kind; all of them take their time.
QUICK = ("stages", "norm_of_all_kinds")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return trained_by(2, "torch", tmp_path_factory.mktemp("ranks"), QUICK, "tests.ranks.divided")


@pytest.mark.parametrize("name", QUICK)
def test_two_ranks_train_as_one_process(two, name, monkeypatch):
    monkeypatch.setattr(cases, "DEVICES", 2)
    check(name, cases.run([name], divided.CASES), two[0])


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("engine", ["torch", "mpi", "mpich"])
def test_ranks_of_every_engine_train_as_one_process(engine, count, tmp_path, monkeypatch):
    ranks, _ = trained_by(count, engine, tmp_path, (), "tests.ranks.divided")
    monkeypatch.setattr(cases, "DEVICES", count)
    for name in divided.CASES:
        check(name, cases.run([name], divided.CASES), ranks)
