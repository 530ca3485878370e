"""Which forms of a convolution's gradients are measured, and who stands beside standard graphs."""

import pytest

from benchmarks import standard_operators
from benchmarks.convolution_forms import Row, forms_of, grid, layers
from benchmarks.convolution_worker import PASSES, Standard


def test_layers_are_those_of_the_networks():
    found = list(layers(["ResNet-50", "U-Net"]))
    assert {shape.net for shape in found} == {"ResNet-50", "U-Net"}
    assert {shape.images for shape in found} == {8}
    assert [s.groups for s in layers(["MobileNetV2"])][:2] == [32, 96]


@pytest.mark.parametrize(
    ("net", "text", "input_form", "weight_form"),
    [
        ("ResNet-18", "32x256>512@8 k3 s2 p1", "phases", "nhwc_taps"),
        ("MobileNetV2", "16x960>960@3 k3 p1 g960", "toeplitz", "toeplitz"),
        ("U-Net", "8x64>32@64 k3 p1", "conv", "row_stack"),
    ],
)
def test_the_form_that_the_rule_picks_is_one_of_the_valid(net, text, input_form, weight_form):
    (shape,) = (s for s in layers([net]) if s.text == text)
    for which, wanted in zip(PASSES, ("Conv", input_form, weight_form), strict=True):
        picked, forms = forms_of(shape, which)
        assert picked == wanted
        assert picked in forms


def test_a_pass_is_computed_in_the_form_that_is_asked_for():
    (shape,) = (s for s in layers(["MobileNetV2"]) if s.text.startswith("16x960>960@3"))
    steps = [Standard(1).prepare(shape, f"{PASSES[1]}: {form}") for form in ("conv", "toeplitz")]
    assert ["Conv" in how for _, how in steps] == [True, False]
    first, second = (step()() for step, _ in steps)
    assert abs(first - second).max() < 1e-5


def test_the_table_says_what_other_forms_take():
    forms = {"conv": 4.0, "phases": 1.0, "conv_transpose": 3.0}
    row = Row("net", "1x2>3@4 k3", PASSES[1], 1, "phases", 2.0, forms)
    assert grid([row], 1).lines == [
        ["net", "1x2>3@4 k3", "input gradient", "2.00", "1.00", "2.00", "phases",
         "conv_transpose 3.00, conv 4.00"],
    ]  # fmt: skip


def test_nobody_beside_standard_graphs_compiles_or_is_native():
    peers = [c.peer for c in standard_operators.contestants("unet", "", takes_all=False)]
    assert peers[0] == "flow2onnx"
    assert set(peers[1:]) == {"torch", "torch:channels_last"}
