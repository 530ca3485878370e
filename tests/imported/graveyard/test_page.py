"""The page of requests against what is trained here."""

import re

import pytest

from tests.imported.graveyard.requests import REQUESTS
from tests.imported.graveyard.score import PAGE, ours


def rows():
    lines = PAGE.read_text().split("|---|---|---|\n")[1].splitlines()
    return {cells[1].strip(): cells[2:4] for cells in (line.split("|") for line in lines)}


def test_every_request_is_on_the_page():
    assert list(rows()) == [make().asked for make in REQUESTS.values()]


@pytest.mark.parametrize("name", ["gemm", "atan"])
def test_the_losses_on_the_page_are_those_of_today(name):
    request = REQUESTS[name]()
    told = [float(v) for v in re.findall(r"\d+\.\d+", rows()[request.asked][0])]
    assert told == pytest.approx(ours(request), abs=1e-3)


def test_what_both_packages_train_they_train_alike():
    assert not any("differs" in cells[1] for cells in rows().values())
