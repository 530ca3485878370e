"""Every gradient rule against central differences on the runtime itself."""

import zlib

import numpy as np
import pytest

from flow2onnx.autodiff import rule_names
from flow2onnx.autodiff.registry import expansion_names
from flow2onnx.dtypes import by_name
from flow2onnx.lowering.forms import choose_forms, lowering
from tests.autodiff.cases import CASES, CONVOLUTION
from tests.autodiff.graphs import differentiate, forward, slope

# differences do not show what passes straight through: tests of its own
STRAIGHT = {"QuantizeLinear"}
# forms that no shape is known to be fastest in: only a measurement picks them
MEASURED_ONLY = {"nchw_taps", "im2col", "tap_sums"}
TOLERANCE = {"float64": 1e-6, "float32": 2e-3, "float16": 4e-2}
# Half precision of a third of the cases, which their names draw, is fast, the rest is slow.
PAIRS = [
    pytest.param(
        case, dtype, id=f"{case.id}-{dtype}",
        marks=[pytest.mark.slow] * (dtype == "float16" and zlib.crc32(case.id.encode()) % 3 > 0),
    )
    for case in CASES
    for dtype in case.dtypes
]  # fmt: skip


def test_every_rule_has_a_case():
    assert {case.op_type for case in CASES} >= {*rule_names(), *expansion_names()} - STRAIGHT


@pytest.mark.parametrize(("case", "dtype"), PAIRS)
def test_gradient(case, dtype):
    rng = np.random.default_rng(zlib.crc32(f"{case.id} {dtype}".encode()))
    gradient, kinds = differentiate(case, by_name(dtype))
    if dtype in case.lacks and gradient is None:
        return  # the verifier said the same: asserted in `open_graph`
    assert gradient is not None, f"no kernel for the gradient of {case.id} in {dtype}"
    point = case.draw(rng, dtype)
    function, wide = None, "float64"
    if "float64" in case.dtypes:  # what opens may still refuse to run
        function = forward(case, by_name("float64"))
    if function is None:
        function, wide = forward(case, by_name("float32")), "float32"
    start = [np.asarray(x, wide) for x in point]
    outputs = function(*start)
    seeds = [rng.uniform(0.5, 1.5, y.shape).astype(k) for y, k in zip(outputs, kinds, strict=True)]
    found = gradient(*point, *seeds)
    for g, x in zip(found, point, strict=True):
        assert (g.shape, g.dtype) == (x.shape, x.dtype)
    rough = {np.dtype(dtype).name, wide, *(k.name for k in kinds)}
    tolerance = max(TOLERANCE[name] for name in rough)
    for _ in range(2):
        direction = [rng.choice([-1, 1], x.shape) * rng.uniform(0.5, 1, x.shape) for x in point]
        size = 1e-5 if rough <= {"float64", "float16"} and wide == "float64" else case.step
        wanted = slope(function, start, direction, seeds, size)
        parts = [g.astype(np.float64) * d for g, d in zip(found, direction, strict=True)]
        scale = 1 + sum(float(np.abs(p).sum()) for p in parts)
        got = sum(float(p.sum()) for p in parts)
        assert abs(got - wanted) <= tolerance * scale, f"{got}, expected {wanted}"


# --- the forms of a convolution's gradient ----------------------------------------------------


def taken(case):
    """The forms that the gradient of a convolution takes."""
    with choose_forms() as record:
        differentiate(case, by_name("float32"))
    return [c.form for c in record if c.question.lowering.startswith("Conv")]


@pytest.mark.parametrize("case", CONVOLUTION, ids=lambda c: c.note)
def test_convolution_takes_its_forms(case):
    assert taken(case) == list(case.branches)


def test_every_form_that_the_rules_pick_is_taken_by_a_case():
    picked = {form for case in CONVOLUTION for form in case.branches}
    assert picked == {*lowering("Conv.dX").forms, *lowering("Conv.dW").forms} - MEASURED_ONLY
