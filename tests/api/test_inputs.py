"""Placeholders and what a call passes for them."""
# ruff: noqa: B008 - a default that is a call is how the first generation declares inputs

from typing import Tuple  # noqa: UP035

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, CallError, DTypeError, ShapeError
from tests.api.support import doubling_job, f32, values, variable


def test_numpy():
    given = np.arange(6, dtype=np.float32).reshape(2, 3)

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        return x + 1

    np.testing.assert_array_equal(job(given), given + 1)
    np.testing.assert_array_equal(job(np.asfortranarray(given)), given + 1)
    np.testing.assert_array_equal(job(given[:, ::-1]), given[:, ::-1] + 1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "int8",
                                   "uint8"])  # fmt: skip
def test_every_dtype_goes_in_and_out(dtype):
    kind = getattr(flow, dtype)

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((3,), dtype=kind)) -> tp.Numpy:
        assert x.dtype is kind
        return flow.identity(x)

    given = np.array([1, 2, 3], dtype)
    out = job(given)
    assert out.dtype == given.dtype
    np.testing.assert_array_equal(out, given)


def test_bfloat16_goes_in_and_out():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((3,), dtype=flow.bfloat16)) -> tuple[tp.Numpy, tp.Numpy]:
        return flow.identity(x), flow.cast(x, flow.float)

    given = f32(1, 2.5, -3).astype(flow.bfloat16.numpy)
    same, wide = job(given)
    assert same.dtype == given.dtype
    np.testing.assert_array_equal(same.astype(np.float32), [1, 2.5, -3])
    np.testing.assert_array_equal(wide, [1, 2.5, -3])


def test_safe_conversion_of_the_dtype():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,), dtype=flow.float64)) -> tp.Numpy:
        return x * 2

    np.testing.assert_array_equal(job(f32(1, 2)), [2.0, 4.0])


def test_list_numpy():
    @flow.global_function()
    def job(x: tp.ListNumpy.Placeholder((2, 3))) -> tp.ListNumpy:
        assert x.is_dynamic
        assert x.shape == (2, 3)
        return x + 1

    (out,) = job([np.zeros((2, 3), np.float32)])
    np.testing.assert_array_equal(out, np.ones((2, 3)))
    np.testing.assert_array_equal(job((np.zeros((2, 3), np.float32),))[0], np.ones((2, 3)))


def test_list_list_numpy():
    @flow.global_function()
    def job(x: tp.ListListNumpy.Placeholder((2, 3))) -> tp.ListListNumpy:
        return x + 1

    ((out,),) = job([[np.zeros((2, 3), np.float32)]])
    np.testing.assert_array_equal(out, np.ones((2, 3)))


def test_tuples_of_placeholders():
    pair = Tuple[tp.Numpy.Placeholder((2,)), tuple[tp.Numpy.Placeholder((1,), flow.int32)]]  # noqa: UP006

    @flow.global_function()
    def job(a: tp.Numpy.Placeholder((2,)), bc: pair) -> tp.Numpy:
        b, (c,) = bc
        return a + b * flow.cast(c, flow.float)

    np.testing.assert_array_equal(
        job(f32(1, 2), (f32(10, 20), (np.array([3], np.int32),))), [31, 62]
    )
    np.testing.assert_array_equal(
        job(f32(1, 2), [f32(10, 20), [np.array([3], np.int32)]]), [31, 62]
    )


def test_no_parameters():
    @flow.global_function()
    def job() -> tp.Numpy:
        return variable("w", value=5.0)

    np.testing.assert_array_equal(job(), [5, 5])


def test_annotations_written_as_text():
    def job(x: "tp.Numpy.Placeholder((2,))") -> "tp.Numpy":
        return x * 2

    np.testing.assert_array_equal(flow.global_function()(job)(f32(1, 2)), [2, 4])


def test_inputs_may_be_returned_and_twice():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tuple[tp.Numpy, tp.Numpy]:
        return x, x

    given = f32(1, 2)
    first, second = job(given)
    given[:] = 9
    first += 1
    np.testing.assert_array_equal(first, [2, 3])
    np.testing.assert_array_equal(second, [1, 2])


def test_results_are_new_arrays_at_each_call():
    double = doubling_job()
    first = double(f32(1, 2))
    double(f32(5, 5))
    np.testing.assert_array_equal(first, [2, 4])


def test_unused_parameters_are_checked_and_ignored():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,)), unused: tp.Numpy.Placeholder((3,))) -> tp.Numpy:
        return x

    np.testing.assert_array_equal(job(f32(1, 2), f32(1, 2, 3)), [1, 2])


class TestTensorDefs:
    def test_fixed(self):
        @flow.function()
        def job(
            x=flow.FixedTensorDef((2,), dtype=flow.float, batch_axis=0, name="ignored"),
            n=flow.FixedTensorDef((2,), dtype=flow.int32),
        ):
            return x * flow.cast(n, flow.float)

        out = job(f32(1, 2), np.array([3, 4], np.int32)).get()
        np.testing.assert_array_equal(out.ndarray(), [3, 8])

    def test_one_definition_for_two_parameters(self):
        both = flow.FixedTensorDef((2,))

        @flow.function(flow.function_config())
        def job(a=both, b=both):
            return a - b

        np.testing.assert_array_equal(job(f32(3, 2), f32(1, 1)).get(), [2, 1])

    def test_mirrored(self):
        @flow.function()
        def job(x=flow.MirroredTensorDef((4,)), y=flow.MirroredTensorListDef((4,))):
            assert x.is_dynamic
            return x + y

        out = job([f32(1, 2)], [[f32(1, 1)]]).get()
        np.testing.assert_array_equal(out.ndarray_list()[0], [2, 3])

    def test_nested(self):
        one = flow.FixedTensorDef((1,))

        @flow.function()
        def job(parts=[one, (one, one)], named={"a": one, "b": [one]}):  # noqa: B006
            a, (b, c) = parts
            return {"sum": a + b + c, "named": [named["a"], named["b"][0]]}

        out = job([f32(1), (f32(2), f32(3))], {"b": [f32(5)], "a": f32(4)}).get()
        assert float(out["sum"]) == 6
        assert [float(x) for x in out["named"]] == [4, 5]

    def test_with_the_later_decorators(self):
        with pytest.warns(DeprecationWarning, match="func_config"):

            @flow.global_function(flow.function_config())
            def old(x=flow.FixedTensorDef((2,))):
                return x + 1

        @flow.global_function(type="predict")
        def new(x=flow.FixedTensorDef((2,))) -> tp.Numpy:
            return x + 2

        np.testing.assert_array_equal(old(f32(1, 2)).get(), [2, 3])
        np.testing.assert_array_equal(new(f32(1, 2)), [3, 4])


class TestParameterNamedLikeAVariable:
    def test_in_one_job(self):
        @flow.global_function(type="train")
        def job(w: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
            loss = variable("w", value=1.0) * w
            flow.optimizer.SGD(
                flow.optimizer.PiecewiseConstantScheduler([], [1.0]), momentum=0
            ).minimize(loss)
            return loss

        np.testing.assert_array_equal(job(f32(2, 4)), [2, 4])
        np.testing.assert_array_equal(values("w"), [[0, -1]])

    def test_in_two_jobs(self):
        @flow.global_function()
        def first(w: tp.Numpy.Placeholder((2,)), x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
            return w - x

        @flow.global_function()
        def second() -> tp.Numpy:
            return variable("w", (3,), value=7.0)

        np.testing.assert_array_equal(first(f32(1, 2), f32(3, 3)), [-2, -1])
        np.testing.assert_array_equal(second(), [7, 7, 7])


class TestSmallerArrays:
    """ListNumpy: the declared shape is an upper bound."""

    def test_each_shape_is_compiled_and_shares_the_variables(self):
        traced = []

        @flow.global_function()
        def job(x: tp.ListNumpy.Placeholder((4, 2))) -> tp.ListNumpy:
            traced.append(x.shape)
            return x * variable("w", (2,), value=3.0)

        for rows in (4, 2, 3, 2, 4):
            (out,) = job([np.ones((rows, 2), np.float32)])
            np.testing.assert_array_equal(out, np.full((rows, 2), 3.0))
        assert traced == [(4, 2), (2, 2), (3, 2)]
        flow.load_variables({"w": f32(5, 6)})
        np.testing.assert_array_equal(job([np.ones((1, 2), np.float32)])[0], [[5, 6]])

    def test_other_shapes_of_no_more_elements(self):
        @flow.global_function()
        def job(x: tp.ListNumpy.Placeholder((4, 2))) -> tp.ListNumpy:
            return x * 2

        assert job([np.ones((2, 4), np.float32)])[0].shape == (2, 4)

    def test_loss_is_divided_by_the_elements_there_are(self):
        @flow.global_function(type="train")
        def train(x: tp.ListNumpy.Placeholder((4,))) -> tp.ListNumpy:
            loss = x * variable("w", (1,), value=0.0)
            flow.optimizer.SGD(
                flow.optimizer.PiecewiseConstantScheduler([], [1.0]), momentum=0
            ).minimize(loss)
            return loss

        train([f32(1, 2, 3, 6)])
        assert values("w")[0] == [-3]
        train([f32(1, 3)])
        assert values("w")[0] == [-5]
        assert values("System-Train-TrainStep-train")[0] == [2]

    def test_result_may_not_be_annotated_numpy(self):
        @flow.global_function()
        def job(x: tp.ListNumpy.Placeholder((4,))) -> tp.Numpy:
            return flow.concat([x, x], 0)

        with pytest.raises(flow.errors.JobError, match="only fixed shaped blob compatible") as info:
            job([f32(1, 2)])
        assert "ListNumpy" in str(info.value)
        assert info.value.job == "job"

    def test_variables_may_not_depend_on_the_shape(self):
        @flow.global_function()
        def by_name(x: tp.ListNumpy.Placeholder((4,))) -> tp.ListNumpy:
            return x + variable(f"w{x.shape[0]}", (1,))

        by_name([f32(1, 2, 3, 4)])
        with pytest.raises(flow.errors.JobError, match="need other variables: w2"):
            by_name([f32(1, 2)])

    def test_shapes_of_variables_may_not_either(self):
        @flow.global_function()
        def by_shape(x: tp.ListNumpy.Placeholder((4,))) -> tp.ListNumpy:
            return x + variable("w", x.shape)

        by_shape([f32(1, 2, 3, 4)])
        with pytest.raises(flow.errors.VariableError, match=r"shape \(2,\), but \(4,\)"):
            by_shape([f32(1, 2)])


@pytest.mark.parametrize(
    ("declare", "kind", "says"),
    [
        (lambda: flow.FixedTensorDef((4, 0)), ShapeError, "an int above 0. 0 found"),
        (lambda: flow.MirroredTensorDef(5), ShapeError, "should be a tuple. 5 found"),
        (lambda: flow.FixedTensorDef((4,), dtype="flot32"), DTypeError, "float32"),
        (lambda: flow.MirroredTensorListDef((4,), batch_axis=3), ArgumentError, "3 found"),
    ],
)
def test_wrong_definitions_name_their_line(declare, kind, says):
    with pytest.raises(kind, match=says) as caught:
        declare()
    assert "test_inputs.py:" in caught.value.source


def test_definitions_take_lists():
    assert flow.FixedTensorDef([4, 3]).shape == (4, 3)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "missing a required argument: 'shape'"),
        ({"shape": (4,), "size": 3}, "unexpected keyword argument 'size'"),
    ],
)
def test_placeholders_say_what_they_take(arguments, says):
    with pytest.raises(CallError, match=f"Numpy.Placeholder: .*{says}") as caught:
        tp.Numpy.Placeholder(**arguments)
    assert "it takes shape" in caught.value.hint
