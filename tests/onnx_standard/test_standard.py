"""The ONNX project's node tests through our graph, and the page that says what came of them."""

import pytest

from flow2onnx.autodiff import NOT_DIFFERENTIABLE, rule_names
from flow2onnx.autodiff.registry import SEQUENCE_MAKERS, expansion_names
from tests.onnx_standard.cases import standard_cases
from tests.onnx_standard.coverage import PAGE, load, page, standard_operators
from tests.onnx_standard.harness import TOLERANCE, kind_of, outcome

MEASURED = load()


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
    assert found.forward == measured.forward
    assert " ".join(found.reason.split()) == measured.reason
    if measured.error is not None:
        assert found.error is not None
        assert found.error <= TOLERANCE[found.precision]


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
        assert o.error is None or o.error <= TOLERANCE[o.precision], o


def test_the_page_is_current():
    assert PAGE.read_text() == page(MEASURED.values())


def test_every_operator_has_a_gradient_or_a_reason():
    known = {*rule_names(), *expansion_names(), *NOT_DIFFERENTIABLE, *SEQUENCE_MAKERS}
    for name in standard_operators() - known:
        assert kind_of(name) == "function body"
        assert any(o.error is not None for o in MEASURED.values() if o.operator == name), name


def test_what_was_measured_has_the_kind_that_it_has_now():
    for o in MEASURED.values():
        assert o.error is None or o.kind == kind_of(o.operator), o
