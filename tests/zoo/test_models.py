"""The page of architectures against what was measured, and some of them measured again."""

import pytest

from tests.zoo.measure import CRASHED, PAGE, TOLERANCE, load, ordered, page, row

ROWS = load()


def test_the_page_is_current():
    assert PAGE.read_text() == page(ordered(ROWS))


def test_all_train_equally_or_have_a_reason():
    for found in ROWS.values():
        assert found.is_equal or found.reason, found
        assert not found.reason.startswith(CRASHED), found


def test_there_are_a_hundred_architectures_that_train_equally():
    assert len({found.key[:2] for found in ROWS.values() if found.is_equal}) >= 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # exporters warn of themselves
@pytest.mark.parametrize("name", ["LeNet", "ReZero", "rotary attention", "group normalisation"])
def test_some_of_torch_again(name):
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    from tests.zoo import torch_nets

    (architecture,) = (a for a in torch_nets.ARCHITECTURES if a.name == name)
    for exporter, origin in torch_nets.origins(architecture):
        found = row(name, "torch", exporter, origin)
        assert found.is_equal, found
        assert found.sgd <= TOLERANCE["sgd"]
