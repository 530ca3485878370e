"""No step asks more of the GPU than docs/launches.md says."""

from dataclasses import asdict

import pytest

from tests.gpu.launches import QUICK, label, load_of, names, written


@pytest.mark.parametrize(
    ("name", "half"),
    [
        pytest.param(*row, id=label(*row), marks=[] if row[0] in QUICK else pytest.mark.slow)
        for row in names(slow=True)
    ],
)
def test_a_step_asks_no_more_than_is_written(name, half):
    allowed, found = asdict(written()[label(name, half)]), asdict(load_of(name, half))
    grown = {kind: (allowed[kind], n) for kind, n in found.items() if n > allowed[kind]}
    assert not grown, "if that is meant: python -m tests.gpu.launches"
    assert found["launches"] == 1


def test_the_page_has_each_row_once():
    assert list(written()) == [label(*row) for row in names(slow=True)]
