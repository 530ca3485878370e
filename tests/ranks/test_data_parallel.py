"""Several processes train as one does on the whole batch, and all of them the same."""

import numpy as np
import pytest

from tests.ranks import cases
from tests.ranks.ranks import ends, start_ranks

# Steps of Adam and LAMB divide by roots of small numbers; in those of LARS norms do.
LIMITS = dict.fromkeys(
    ("adam", "lamb", "slices", "segments", "zero_adam", "zero_lamb_and_norm", "zero_slices",
     "zero_in_segments", "zero_averages", "stages", "both_layers_split", "lamb_of_all_kinds",
     "table_split"), 2e-6,
) | {"float16": 2e-3, "zero_float16_in_segments": 2e-3, "bfloat16": 2e-2}  # fmt: skip
FAST = [name for name in cases.CASES if name not in cases.SLOW]


def trained_by(count, engine, folder, names=(), module="tests.ranks.cases"):
    """What each rank has in the end, and what each printed."""
    results = ends(start_ranks(count, ["-m", module, str(folder), *names], engine))
    assert all(status == 0 for status, _, _ in results), results
    arrays = [dict(np.load(folder / f"{rank}.npz")) for rank in range(count)]
    return arrays, [out for _, out, _ in results]


def check(name, whole, ranks):
    """Equal to one process within the limit, and to each other to the bit."""
    keys = [key for key in ranks[0] if key.startswith(f"{name}/")]
    assert keys
    for key in keys:
        for other in ranks[1:]:
            np.testing.assert_array_equal(ranks[0][key], other[key], key)
        np.testing.assert_allclose(
            ranks[0][key], whole[key], rtol=0, atol=LIMITS.get(name, 1e-6), err_msg=key
        )


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return trained_by(2, "torch", tmp_path_factory.mktemp("ranks"), FAST)


@pytest.mark.parametrize("name", FAST)
def test_two_ranks_train_as_one_process(two, name, capsys):
    ranks, _ = two
    check(name, cases.run([name]), ranks)


def test_what_is_shown_is_shown_once(two):
    _, outputs = two
    shown = [out.count("the mean loss is") for out in outputs]
    assert shown == [cases.STEPS, 0]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "count"), [("torch", 2), ("torch", 4), ("mpi", 2), ("mpi", 4)])
def test_ranks_of_every_engine_train_as_one_process(engine, count, tmp_path, monkeypatch):
    ranks, _ = trained_by(count, engine, tmp_path)
    monkeypatch.setattr(cases, "DEVICES", count)
    for name in cases.CASES:
        check(name, cases.run([name]), ranks)
