"""`Options(free_dimensions=…)`: sizes for axes that a model leaves free."""

import numpy as np
import pytest

from flow2onnx_runtime import Options, OptionsError, Predictor, RunError, open_session

DOUBLE = (
    "g (float[batch,3] x, int64[batch] ids) => (float[batch,3] y, int64[batch] z) "
    "{ y = Add(x, x)  z = Neg(ids) }"
)


def test_axes_have_the_sizes_that_are_given(onnx_model, tmp_path):
    model = onnx_model(DOUBLE)
    (tmp_path / "m.onnx").write_bytes(model)
    for source in (model, tmp_path / "m.onnx"):
        session = open_session(source, Options(free_dimensions={"batch": 2}))
        assert [arg.shape for arg in session.get_inputs()] == [[2, 3], [2]]
        assert session.get_outputs()[0].shape == [2, 3]


def test_a_predictor_takes_no_other_sizes(onnx_model):
    predictor = Predictor(onnx_model(DOUBLE), Options(free_dimensions={"batch": 2}))
    two = np.ones((2, 3), np.float32), np.arange(2)
    np.testing.assert_array_equal(predictor(*two)["y"], 2 * two[0])
    with pytest.raises((ValueError, RunError), match=r"\(3, 3\).*\(2, 3\)|2, 3"):
        predictor(np.ones((3, 3), np.float32), np.arange(3))


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"batch": 0}, "free_dimensions has 'batch': 0\n.*at least 1"),
        ({"batch": -1}, "free_dimensions has 'batch': -1"),
        ({"batch": True}, "free_dimensions has 'batch': True"),
        ({"batch": "2"}, "free_dimensions has 'batch': '2'"),
        ({3: 2}, "free_dimensions has 3: 2"),
    ],
)
def test_wrong_sizes_are_named(sizes, says):
    with pytest.raises(OptionsError, match=says):
        Options(free_dimensions=sizes)


def test_names_that_a_model_has_not_are_refused(onnx_model):
    with pytest.raises(OptionsError, match=r"'rows', which no input has\n.*inputs have batch"):
        open_session(onnx_model(DOUBLE), Options(free_dimensions={"rows": 2}))
    fixed = onnx_model("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    with pytest.raises(OptionsError, match="inputs have no free dimensions"):
        open_session(fixed, Options(free_dimensions={"batch": 2}))


def test_kept_graphs_are_of_one_size(onnx_model, tmp_path):
    model, folder = onnx_model(DOUBLE), str(tmp_path)
    for size in (2, 5, 2):
        options = Options(free_dimensions={"batch": size}, graph_cache=folder)
        assert open_session(model, options).get_inputs()[1].shape == [size]
