"""The memory that training takes, by the size of the weights."""

import pytest

from benchmarks.import_memory import WIDTH, measure, write_perceptron

BOUND = 2.2  # by plain SGD: the weights, and their next values beside them
LAYERS = 5


@pytest.mark.slow
def test_training_takes_little_more_than_two_times_the_weights(tmp_path):
    size = LAYERS * WIDTH * WIDTH * 4
    peaks = measure(write_perceptron(tmp_path, LAYERS), "sgd")
    assert peaks["make_trainable"] < 0.2 * size  # what lies in another file stays there
    assert size < peaks["steps"] <= BOUND * size


def test_the_check_at_import_holds_the_weights_once(tmp_path):
    layers = 3  # as many bytes as are checked without being asked
    peaks = measure(write_perceptron(tmp_path, layers), "sgd")
    assert peaks["make_trainable"] <= 1.5 * layers * WIDTH * WIDTH * 4
