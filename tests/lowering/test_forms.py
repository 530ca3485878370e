"""Lowerings with several forms: all give the same, and what picks among them."""

from functools import cache

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flow2onnx.autodiff  # noqa: F401  # imported for the lowerings it registers
from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import by_name, float16, float32
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.lowering.forms import (
    BY_RULE,
    Picks,
    check_form_names,
    choose_forms,
    lowering,
    lowerings,
    trial_bytes,
)
from flow2onnx.lowering.sums import row_sum
from tests.autodiff.cases import CASES
from tests.autodiff.graphs import as_tuple, differentiate

NUMPY = {"tensor(float)": "float32", "tensor(double)": "float64"}


def results(question, form, seed=0):
    """The results of a form for operands that depend on the seed alone."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(trial_bytes(question, form), options, ["CPUExecutionProvider"])
    limit, rng = lowering(question.lowering).limit, np.random.default_rng(seed)
    fed = {}
    for info in session.get_inputs():
        kind = np.dtype(NUMPY.get(info.type, info.type[7:-1]))
        if kind.kind == "i":
            fed[info.name] = rng.integers(0, limit(question.at), info.shape).astype(kind)
        else:
            # quarters: equal elements occur, which is where forms could differ
            fed[info.name] = (rng.integers(-12, 13, info.shape) / 4).astype(kind)
    return session.run(None, fed)


def assert_forms_agree(question):
    first, *others = question.forms
    wanted = results(question, first)
    for form in others:
        found, where = results(question, form), f"{question.key} in the form {form}"
        for w, f in zip(wanted, found, strict=True):
            assert (w.shape, w.dtype) == (f.shape, f.dtype), where
            scale = np.abs(w).max(initial=1.0)
            np.testing.assert_allclose(f, w, rtol=0, atol=3e-5 * scale, err_msg=where)


def questions_of(cases):
    """Every different question with a choice that the gradients of the cases ask."""
    found = {}
    for case in cases:
        with choose_forms() as record:
            differentiated_graph(case)
        found |= {
            c.question.key: c.question
            for c in record
            if c.question.is_static and len(c.question.forms) > 1
        }
    return list(found.values())


def differentiated_graph(case):
    b = Builder(case.opset)
    inputs = [b.input(f"x{i}", s, float32) for i, s in enumerate(case.shapes)]
    outputs = as_tuple(case.make(b, *inputs))
    seeds = [b.input(f"dy{i}", dims(y), dtype_of(y)) for i, y in enumerate(outputs)]
    gradients(b, dict(zip(outputs, seeds, strict=True)), inputs)


@cache
def questions():
    """Those of all cases; asked for by a test, as many processes import this module."""
    return questions_of(c for c in CASES if "float32" in c.dtypes)


@pytest.mark.parametrize("name", lowerings())
def test_forms_give_the_same(name):
    for question in questions():
        if question.lowering == name:
            assert_forms_agree(question)


def test_every_form_is_compared():
    compared = {(q.lowering, form) for q in questions() for form in q.forms}
    assert compared == {(name, form) for name in lowerings() for form in lowering(name).forms}


@st.composite
def convolutions(draw):
    """A convolution of two axes with any strides, dilations, uneven pads and groups."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    per_in, per_out = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    two = st.tuples(st.integers(1, 3), st.integers(1, 3))
    kernel, strides, dilations = draw(two), draw(two), draw(two)
    pads = [draw(st.integers(0, 2)) for _ in range(4)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    sizes = [r + draw(st.integers(0, 5)) for r in reach]
    x = (draw(st.integers(1, 3)), groups * per_in, *sizes)
    attributes = {
        "strides": list(strides), "dilations": list(dilations), "pads": pads, "group": groups,
    }  # fmt: skip
    return x, (groups * per_out, per_in, *kernel), attributes


@settings(max_examples=60, deadline=None)
@given(convolutions())
def test_forms_of_any_convolution_give_the_same(drawn):
    x_shape, w_shape, attributes = drawn
    b = Builder()
    x, w = b.input("x", x_shape, float32), b.input("w", w_shape, float32)
    y = b.emit("Conv", (x, w), attributes)[0]
    with choose_forms() as record:
        gradients(b, {y: b.input("g", dims(y), float32)}, [x, w])
    assert len(record) == 2
    for choice in record:
        assert_forms_agree(choice.question)


# --- what picks ----------------------------------------------------------------------------------
def chosen(picks=BY_RULE, shape=(4, 3), dtype=float32):
    b = Builder()
    with choose_forms(picks) as record:
        row_sum(b, 1, b.input("x", shape, dtype))
    (choice,) = record
    return choice


def test_the_static_rule_picks_where_nothing_else_does():
    assert (chosen().form, chosen().why) == ("ones_product", "static rule")


def test_what_was_measured_goes_before_the_rule():
    key = chosen().question.key
    found = chosen(Picks(tuned={key: "reduce_sum"}))
    assert (found.form, found.why) == ("reduce_sum", "tuned")
    other = chosen(Picks(tuned={key: "reduce_sum"}), shape=(5, 3))
    assert (other.form, other.why) == ("ones_product", "static rule")


def test_what_is_asked_for_goes_before_what_was_measured():
    key = chosen().question.key
    picks = Picks({"Sum.rows": "ones_product"}, {key: "reduce_sum"})
    assert (chosen(picks).form, chosen(picks).why) == ("ones_product", "asked")


def test_a_form_that_is_not_valid_is_not_picked():
    key = chosen(dtype=float16).question.key
    for picks in (Picks({"Sum.rows": "ones_product"}), Picks(tuned={key: "ones_product"})):
        found = chosen(picks, dtype=float16)
        assert (found.form, found.why) == ("reduce_sum", "static rule")
        assert found.question.forms == ("reduce_sum",)


def test_a_shape_known_at_run_time_only_follows_the_rule():
    found = chosen(shape=("batch", 3))
    assert (found.form, found.question.is_static) == ("reduce_sum", False)


@pytest.mark.parametrize("name", ["float32", "float16"])
def test_the_rule_is_a_function_of_the_shape(name):
    conv = [c for c in CASES if c.op_type in ("Conv", "MaxPool", "LayerNormalization")]

    def forms(case):
        with choose_forms() as record:
            differentiate(case, by_name(name))
        return [(c.question.key, c.form) for c in record]

    assert [forms(c) for c in conv[:12]] == [forms(c) for c in conv[:12]]


def test_equal_questions_have_equal_keys_and_others_do_not():
    assert chosen().question.key == chosen().question.key == "Sum.rows: 1; float32[4,3]"
    assert chosen(shape=(3, 4)).question.key != chosen().question.key


def test_what_is_asked_for_is_known():
    check_form_names({"Sum.rows": "reduce_sum", "Conv.dW": "im2col"})
    with pytest.raises(ArgumentError, match=r"'Sum\.row' is no lowering") as caught:
        check_form_names({"Sum.row": "reduce_sum"})
    assert "Conv.dW" in caught.value.hint
    with pytest.raises(ArgumentError, match=r"Conv\.dW has no form 'fast'") as caught:
        check_form_names({"Conv.dW": "fast"})
    assert "nhwc_taps" in caught.value.hint
