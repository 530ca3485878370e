"""Names that are not below `flow`: errors that say what is there in their place."""

import importlib

import pytest

import flow2onnx as flow
from flow2onnx.api.modules import UnknownNameError
from flow2onnx.api.other_names import ELSEWHERE
from flow2onnx.api.surface import NAMES
from tests.api.support import raises

ASKED = [
    (lambda: flow.nn.Linear, "flow.nn has no 'Linear'", "flow.layers.dense(x, units)"),
    (lambda: flow.softmax, "flow has no 'softmax'", "flow.nn.softmax"),
    (lambda: flow.nn.Conv2d, "flow.nn has no 'Conv2d'", "flow.nn.conv2d"),
    (lambda: flow.layers.lstm, "flow.layers has no 'lstm'", "flow.nn.LSTM"),
    (lambda: flow.optimizer.Adadelta, "flow.optimizer has no 'Adadelta'", "named('adadelta')"),
    (lambda: flow.no_grad, "flow has no 'no_grad'", 'type="predict"'),
    (lambda: flow.tensor, "flow has no 'tensor'", "flow.constant"),
    (lambda: flow.losses.zzz, "flow.losses has no 'zzz'", "dir(flow.losses) lists"),
    (lambda: flow.zzz, "flow has no 'zzz'", "dir(flow) lists"),
]


@pytest.mark.parametrize(("ask", "text", "hint"), ASKED, ids=[row[1] for row in ASKED])
def test_the_error_names_what_there_is(ask, text, hint):
    with raises(UnknownNameError, AttributeError, text, at=text.split("'")[1]) as caught:
        ask()
    assert hint in caught.value.hint


def test_what_asks_whether_a_name_is_there_goes_on():
    assert not hasattr(flow, "nonsense")
    assert not hasattr(flow.nn, "__wrapped__")
    assert getattr(flow.nn, "nonsense", 3) == 3
    with pytest.raises(ImportError, match="nonsense"):
        importlib.import_module("flow2onnx.nonsense")
    with pytest.raises(ImportError, match="nonsense"):
        exec("from flow2onnx import nonsense")


def test_names_that_come_on_demand_still_come():
    assert flow.grad is not None
    assert flow.make_trainable is not None


def test_the_table_names_what_exists():
    """Each name of flow in the table is one, and none hides a name that exists."""
    for text in ELSEWHERE.values():
        for word in text.replace("(", " ").replace(",", " ").split():
            dotted = word.removeprefix("flow.").strip("()'…")
            if word.startswith("flow.") and dotted not in ("layers", "nn", "math"):
                assert dotted in NAMES or dotted == "config.random_seed", text
