"""Each stress program of this folder, with small counts; docs/reliability.md has the large ones."""

import pytest

from tests.reliability import racing_savers


@pytest.mark.parametrize("kind", racing_savers.KINDS)
@pytest.mark.parametrize("saves", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_racing_savers_all_succeed(kind, saves):
    found = racing_savers.race(kind, saves)
    assert found["failed"] == 0, found
    assert found["last is whole"]
    assert found["left over"] == 0
    assert kind == "model" or found["mixed reads"] == 0  # two files cannot be read at one moment
