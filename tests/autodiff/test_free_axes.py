"""Every gradient rule over sizes known at run time only, beside itself over known sizes."""

import pytest

from tests.autodiff.cases import CASES
from tests.autodiff.free_axes import PAGE, Comparison, every_axis, first_input

FIRST = {case.op_type: case.id for case in reversed(CASES)}
# The data of these operators has sizes that decide on the form of the gradient, or their case
# cannot be built without them.
KNOWN_DATA = {
    **dict.fromkeys(("Det", "Det-one", "Det-batch"), "a row for each element of a minor"),
    "Resize-not_larger": "one factor for all axes",
    "Resize-not_smaller": "one factor for all axes",
    "SequenceAt-split": "as many tensors as there are rows",
    "SequenceAt-split-ones": "as many tensors as there are rows",
    "SequenceAt-split-sizes": "as many tensors as there are rows",
    "Squeeze": "which axes are 1 decides on the rank",
}


def marked(case):
    """A case, quick if it is the first of its operator."""
    marks = [] if FIRST[case.op_type] == case.id else [pytest.mark.slow]
    return pytest.param(case, id=case.id, marks=marks)


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_gradients_over_free_axes_are_equal(case):
    compared = Comparison(case)
    found = compared.outcome(first_input(case))
    assert found.is_right, found
    is_refused = compared.run is not None and found.error is None
    assert is_refused == (case.id in KNOWN_DATA), found
    whole = compared.outcome(every_axis(case))
    assert whole.is_right, whole
    assert whole.error is not None or whole.hint


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_each_axis_alone(case):
    compared = Comparison(case)
    for axis in sorted(every_axis(case)):
        found = compared.outcome(frozenset([axis]))
        assert found.is_right, (axis, found)
        assert found.error is not None or found.hint


def test_the_page_has_every_operator_with_a_gradient():
    rows = PAGE.read_text("utf-8").splitlines()
    shown = {row.split("|")[1].strip() for row in rows if row.startswith("| ")} - {"operator"}
    assert shown == {case.op_type for case in CASES}
