"""Hostile models end in words, within two seconds and half a gigabyte, each in its own process."""

import onnx
import pytest
from click.testing import CliRunner

import flow2onnx as flow
from flow2onnx.cli.app import app
from flow2onnx.errors import UnsupportedError
from tests.hostile.attempt import ACTIONS, attempt
from tests.hostile.models import FAMILIES, case

_RECURRENT = list(FAMILIES).index("recurrent")


def test_the_corpus_is_the_same_every_time():
    assert case(5, seed=3) == case(5, seed=3)
    assert len({case(0, seed)[1] for seed in range(9)}) > 1


@pytest.mark.parametrize("action", ["make_trainable", "runtime"])
def test_functions_that_expand_without_end(action):
    outcome = attempt(*case(0), action)
    assert outcome.ok, outcome
    assert "functions" in outcome.error


@pytest.mark.slow
@pytest.mark.parametrize("number", range(50))
def test_a_tenth_of_the_corpus(number):
    made = case(number, seed=1)
    outcomes = [attempt(*made, action) for action in ACTIONS]
    assert all(o.ok for o in outcomes), outcomes


@pytest.mark.parametrize("name", ["computed_sizes", "sequences"])
def test_long_lists_are_not_made_before_a_model_is_opened(name):
    number = list(FAMILIES).index(name)
    for seed in range(6):  # each kind of them
        made = case(number, seed)
        outcome = attempt(*made, "verify")
        assert outcome.ok, outcome


@pytest.mark.parametrize("action", ["make_trainable", "grad"])
@pytest.mark.parametrize(
    ("number", "count"),
    [
        (37, "4611686018427387904 iterations"),
        (65, "40006 nodes in the unrolled loops"),
        (93, "32000004 nodes in the unrolled loops"),
    ],
)
def test_counts_are_refused_before_anything_is_made(number, count, action):
    made = case(number, seed=3)
    outcome = attempt(*made, action)
    assert outcome.ok, outcome
    assert count in outcome.error


def test_a_window_that_no_memory_holds_is_refused_by_its_count():
    outcome = attempt(*case(130, seed=3), "make_trainable")
    assert outcome.ok, outcome
    assert "a constant of 4835705477486170302335793 numbers" in outcome.error


@pytest.mark.parametrize(("number", "word"), [(415, "a Constant has 0 values"), (471, "type 0")])
def test_what_no_operator_takes_is_refused_in_words(number, word):
    outcome = attempt(*case(number, seed=3), "grad")
    assert outcome.ok, outcome
    assert word in outcome.error


def test_a_window_longer_than_its_axis_is_refused():
    outcome = attempt(*case(214, seed=3), "grad")
    assert outcome.ok, outcome
    assert "would have the sizes [1, 2, -1099510627777, 6]" in outcome.error


def test_a_recurrent_layer_over_many_steps():
    model = onnx.ModelProto.FromString(case(_RECURRENT)[1])
    with pytest.raises(UnsupportedError, match=r"over \d+ steps is unrolled to train it; 4096"):
        flow.make_trainable(model, "y", "sgd")


@pytest.mark.parametrize("command", ["info", "verify"])
def test_the_commands_say_it_in_words(command, tmp_path):
    path = tmp_path / "hostile.onnx"
    path.write_bytes(case(0)[1])
    result = CliRunner().invoke(app, [command, str(path)])
    assert result.exit_code == 1
    assert "are the most" in " ".join(result.output.split())
    assert "Traceback" not in result.output
