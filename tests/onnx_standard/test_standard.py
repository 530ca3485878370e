"""The ONNX project's node tests through our graph, and the page that says what came of them."""

import pytest

from flow2onnx.autodiff import NOT_DIFFERENTIABLE, rule_names
from flow2onnx.autodiff.registry import SEQUENCE_MAKERS, expansion_names
from tests.onnx_standard.cases import standard_cases
from tests.onnx_standard.coverage import PAGE, load, page, standard_operators
from tests.onnx_standard.harness import CRASHED, TOLERANCE, kind_of, outcome
from tests.onnx_standard.opsets import NEWEST

MEASUREMENT = load()
MEASURED = MEASUREMENT.outcomes


def representatives():
    """For each operator the first case whose gradient can be checked, else the first."""
    chosen = {}
    for o in MEASURED.values():
        known = chosen.get(o.operator)
        if known is None or (known.error is None and o.error is not None):
            chosen[o.operator] = o
    return sorted(o.name for o in chosen.values())


def check(name):
    measured, found = MEASURED[name], outcome(standard_cases()[name])
    assert not found.reason.startswith(CRASHED), found.reason
    assert found.error is None or found.error <= TOLERANCE[found.precision]
    if MEASUREMENT.opset != NEWEST:
        return  # another runtime than the one that was measured has other kernels
    assert found.forward == measured.forward
    assert " ".join(found.reason.split()) == measured.reason
    assert (found.error is None) == (measured.error is None)


@pytest.mark.parametrize("name", representatives())
def test_one_case_of_each_operator(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MEASURED))
def test_case(name):
    check(name)


def test_every_case_has_an_error_within_the_tolerance_or_a_reason():
    assert set(MEASURED) == set(standard_cases())
    for o in MEASURED.values():
        assert (o.error is None) == bool(o.reason), o
    assert not MEASUREMENT.wrong
    assert not MEASUREMENT.crashed


def test_so_many_cases_agree_as_the_readme_says():
    readme = (PAGE.parents[1] / "README.md").read_text()
    assert f"gradients of {len(MEASUREMENT.agreeing):,} of the ONNX project's" in readme


def test_the_page_is_current():
    assert PAGE.read_text() == page(MEASUREMENT)


def test_every_operator_has_a_gradient_or_a_reason():
    known = {*rule_names(), *expansion_names(), *NOT_DIFFERENTIABLE, *SEQUENCE_MAKERS}
    for name in standard_operators(MEASUREMENT.opset) - known:
        assert kind_of(name) == "function body"
        cases = [o for o in MEASURED.values() if o.operator == name]
        is_checked = any(o.error is not None for o in cases)
        assert is_checked or all("runtime has no kernel" in o.reason for o in cases), name


def test_what_was_measured_has_the_kind_that_it_has_now():
    for o in MEASURED.values():
        assert o.error is None or o.kind == kind_of(o.operator), o
