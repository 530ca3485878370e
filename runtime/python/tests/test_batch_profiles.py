"""Shapes of batches that a provider plans for, read from a model's bytes or its file."""

import pytest

from flow2onnx_runtime import Options, OptionsError, open_session
from flow2onnx_runtime.batch_profiles import with_profile
from flow2onnx_runtime.providers import PROVIDERS

TENSORRT, CUDA, CPU = (PROVIDERS[tag].name for tag in ("tensorrt", "cuda", "cpu"))
SEVERAL = (
    "g (float[N,3,4] x, int64[N] ids, float[2] fixed) => (float[N,3,4] y) "
    "<float[1] w = {1.0}> { y = Mul(x, w) }"
)


def planned(model, rows=(1, 8, 32), given=None):
    (found,) = with_profile(model, [(TENSORRT, given or {})], rows)
    return found if isinstance(found, str) else found[1]


def test_each_input_with_free_rows_has_a_shape_for_every_size(onnx_model):
    found = planned(onnx_model(SEVERAL), given={"device_id": "0"})
    assert found == {
        "device_id": "0",
        "trt_profile_min_shapes": "x:1x3x4,ids:1",
        "trt_profile_opt_shapes": "x:8x3x4,ids:8",
        "trt_profile_max_shapes": "x:32x3x4,ids:32",
    }
    for option, value in found.items():
        PROVIDERS["tensorrt"].check_option(option, value)


def test_a_file_is_read_as_its_bytes_are(onnx_model, tmp_path):
    (tmp_path / "m.onnx").write_bytes(onnx_model(SEVERAL))
    assert planned(tmp_path / "m.onnx") == planned(onnx_model(SEVERAL))


def test_a_model_of_fixed_sizes_needs_none(onnx_model):
    model = onnx_model("g (float[300,1] x) => (float[300,1] y) { y = Neg(x) }")
    assert planned(model, given={"device_id": "1"}) == {"device_id": "1"}


def test_a_provider_that_plans_nothing_keeps_its_options(onnx_model):
    providers = [(CUDA, {"use_tf32": "0"}), CPU]
    assert with_profile(onnx_model(SEVERAL), providers, (1, 2, 3)) == providers
    session = open_session(onnx_model(SEVERAL), Options(batch_profile=(1, 2, 3)))
    assert session.get_providers() == [CPU]


def test_a_second_free_axis_is_refused(onnx_model):
    model = onnx_model("g (float[N,L] x) => (float[N,L] y) { y = Neg(x) }")
    with pytest.raises(OptionsError, match=r"axis 1 of x is free too\n.*trt_profile_min_shapes"):
        planned(model)


def test_a_free_axis_that_is_not_the_first_is_refused(onnx_model):
    model = onnx_model("g (float[3,L] x) => (float[3,L] y) { y = Neg(x) }")
    with pytest.raises(OptionsError, match="axis 1 of x is free too"):
        planned(model)


def test_a_name_that_no_option_holds_is_refused(onnx_model):
    import onnx

    model = onnx.load_from_string(onnx_model("g (float[N,2] x) => (float[N,2] y) { y = Neg(x) }"))
    model.graph.input[0].name = model.graph.node[0].input[0] = "x:0"
    with pytest.raises(OptionsError, match="'x:0' has a name that a shape profile cannot hold"):
        planned(model.SerializeToString())


def test_shapes_are_not_given_twice(onnx_model):
    with pytest.raises(OptionsError, match="batch_profile is given, and trt_profile_opt_shapes"):
        planned(onnx_model(SEVERAL), given={"trt_profile_opt_shapes": "x:1"})


@pytest.mark.parametrize("rows", [(0, 1, 2), (2, 1, 3), (1, 3, 2), (1, 2), "123", 8, (1.0, 2, 3)])
def test_rows_that_are_no_profile_are_refused(rows):
    with pytest.raises(OptionsError, match=r"batch_profile is .*\n.*such as \(1, 8, 32\)"):
        Options(batch_profile=rows)


def test_what_is_no_onnx_model_is_refused():
    with pytest.raises(OptionsError, match="reads the inputs of an ONNX model, and this is none"):
        planned(b"\x3a\xff\xff\x03 no model")
