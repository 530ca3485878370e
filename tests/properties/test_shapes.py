"""Laws of shapes: what numpy says of any shape, axis and slice, a job says too."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import flow2onnx as flow
from flow2onnx.engine.session import current_session
from flow2onnx.errors import ArgumentError, DTypeError, FlowError, ShapeError
from flow2onnx.trace.trace import trace
from tests.ops.jobs import define, predict, watched_gradients

RUNS = settings(max_examples=20, deadline=None, print_blob=True)
# tracing alone is fast
TRACES = settings(max_examples=60, deadline=None, print_blob=True)

BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "less": np.less,
    "equal": np.equal,
    "squared_difference": lambda x, y: (x - y) ** 2,
}
REDUCE = {"reduce_sum": np.sum, "reduce_mean": np.mean, "reduce_max": np.max, "reduce_min": np.min}

shapes = hnp.array_shapes(min_dims=1, max_dims=4, max_side=4)


def filled(shape, seed=0):
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


def traced(body, *arrays):
    """The shape that a job's tracing gives `body`, without running anything."""
    flow.clear_default_session()
    define(body, arrays)
    return tuple(trace(current_session().spec("job")).results[0].shape)


def close(found, wanted):
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted.astype(found.dtype), rtol=1e-5, atol=1e-5)


pairs = hnp.mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=4, max_side=4)


@pytest.mark.parametrize("name", BINARY)
@RUNS
@given(chosen=pairs)
def test_two_operands_broadcast(name, chosen):
    x, y = (filled(s, i) for i, s in enumerate(chosen.input_shapes))
    (found,) = predict(lambda x, y: getattr(flow.math, name)(x, y), x, y)
    close(found, BINARY[name](x, y))


@pytest.mark.parametrize("name", ["add", "multiply", "subtract"])
@RUNS
@given(chosen=pairs)
def test_gradients_of_broadcasts_sum(name, chosen):
    x, y = (filled(s, i) for i, s in enumerate(chosen.input_shapes))
    g = filled(chosen.result_shape, 2)
    call = getattr(flow.math, name)
    found = watched_gradients(lambda x, y: call(x, y), [x, y], (0, 1), [g])
    parts = {"add": (g, g), "subtract": (g, -g), "multiply": (g * y, g * x)}[name]
    for i, (part, like) in enumerate(zip(parts, (x, y), strict=True)):
        lead = part.ndim - like.ndim
        wanted = part.sum(tuple(range(lead)))
        ones = tuple(a for a, d in enumerate(like.shape) if d == 1)
        close(found[f"in{i}"], wanted.sum(ones, keepdims=True).reshape(like.shape))


@TRACES
@given(shapes, shapes)
def test_what_numpy_cannot_broadcast_is_refused(first, second):
    x, y = filled(first), filled(second)
    try:
        wanted = np.broadcast_shapes(first, second)
    except ValueError:
        with pytest.raises(ShapeError):
            traced(lambda x, y: x + y, x, y)
    else:
        assert traced(lambda x, y: x + y, x, y) == wanted


@st.composite
def shape_and_axes(draw):
    shape = draw(shapes)
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    named = [draw(st.sampled_from([a, a - len(shape)])) for a in sorted(axes)]
    return shape, named


@pytest.mark.parametrize("name", REDUCE)
@RUNS
@given(chosen=shape_and_axes(), keepdims=st.booleans())
def test_reductions(name, chosen, keepdims):
    shape, axes = chosen
    x = filled(shape)
    call = getattr(flow.math, name)
    (found,) = predict(lambda x: call(x, axis=axes, keepdims=keepdims), x)
    wanted = REDUCE[name](x, axis=tuple(axes), keepdims=keepdims)
    close(found, wanted.reshape(wanted.shape or (1,)))


@st.composite
def parts_and_axis(draw):
    shape = list(draw(shapes))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    parts = []
    for size in sizes:
        shape[axis] = size
        parts.append(tuple(shape))
    return parts, axis


@RUNS
@given(parts_and_axis())
def test_concat(chosen):
    parts, axis = chosen
    arrays = [filled(s, i) for i, s in enumerate(parts)]
    (found,) = predict(lambda *x: flow.concat(list(x), axis=axis), *arrays)
    close(found, np.concatenate(arrays, axis))


@RUNS
@given(st.data())
def test_stack(data):
    shape = data.draw(shapes)
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    arrays = [filled(shape, i) for i in range(2)]
    (found,) = predict(lambda *x: flow.stack(list(x), axis=axis), *arrays)
    close(found, np.stack(arrays, axis))


@RUNS
@given(st.data())
def test_gather(data):
    shape = data.draw(shapes)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    picked = data.draw(
        hnp.arrays(
            data.draw(st.sampled_from([np.int32, np.int64])),
            data.draw(hnp.array_shapes(max_dims=2, max_side=3)),
            elements=st.integers(0, shape[axis] - 1),
        )
    )
    x = filled(shape)
    (found,) = predict(lambda x, i: flow.gather(x, i, axis=axis), x, picked)
    close(found, np.take(x, picked, axis))


@RUNS
@given(st.data())
def test_softmax(data):
    shape = data.draw(shapes)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = filled(shape)
    (found,) = predict(lambda x: flow.nn.softmax(x, axis), x)
    e = np.exp(x - x.max(axis, keepdims=True))
    close(found, e / e.sum(axis, keepdims=True))


@st.composite
def cuts(draw):
    """A shape and a non-empty (start, stop, step) for some leading axes."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=5))
    cut = []
    for extent in shape[: draw(st.integers(1, len(shape)))]:
        ends = st.none() | st.integers(-extent, extent - 1)
        step = st.sampled_from([None, 1, 2, 3, -1, -2])
        one = draw(
            st.tuples(ends, ends, step).filter(
                lambda t, extent=extent: len(range(*slice(*t).indices(extent)))
            )
        )
        cut.append(one)
    return shape, cut


@RUNS
@given(cuts())
def test_slice_v2_and_its_gradient(chosen):
    shape, cut = chosen
    x, where = filled(shape), tuple(slice(*t) for t in cut)
    (found,) = predict(lambda x: flow.slice_v2(x, cut), x)
    close(found, x[where])
    g = filled(found.shape, 1)
    wanted = np.zeros_like(x)
    wanted[where] = g
    close(watched_gradients(lambda x: flow.slice_v2(x, cut), [x], (0,), [g])["in0"], wanted)


@RUNS
@given(st.data())
def test_slice(data):
    shape = data.draw(shapes)
    begin = [data.draw(st.none() | st.integers(-d, d - 1)) for d in shape]
    first = [0 if s is None else s % d for s, d in zip(begin, shape, strict=True)]
    rooms = [d - f for d, f in zip(shape, first, strict=True)]
    size = [data.draw(st.sampled_from([None, -1, *range(1, r + 1)])) for r in rooms]
    where = tuple(
        slice(f, None if n in (None, -1) else f + n) for f, n in zip(first, size, strict=True)
    )
    x = filled(shape)
    (found,) = predict(lambda x: flow.slice(x, begin, size), x)
    close(found, x[where])


@RUNS
@given(st.data())
def test_transpose_and_its_gradient(data):
    shape = data.draw(shapes)
    order = data.draw(st.permutations(range(len(shape))))
    perm = [data.draw(st.sampled_from([a, a - len(shape)])) for a in order]
    x = filled(shape)
    (found,) = predict(lambda x: flow.transpose(x, perm), x)
    close(found, x.transpose(order))
    g = filled(found.shape, 1)
    dx = watched_gradients(lambda x: flow.transpose(x, perm), [x], (0,), [g])["in0"]
    close(dx, g.transpose(np.argsort(order)))


@st.composite
def factored(draw):
    """A shape, and another of as many elements in which one dimension may be -1."""
    primes = draw(st.lists(st.sampled_from([2, 3]), max_size=4))

    def grouped(order):
        dims = [1] * draw(st.integers(1, 4))
        for p in order:
            dims[draw(st.integers(0, len(dims) - 1))] *= p
        return dims

    shape, other = grouped(primes), grouped(primes)
    if draw(st.booleans()):
        other[draw(st.integers(0, len(other) - 1))] = -1
    return tuple(shape), other


@RUNS
@given(factored())
def test_reshape(chosen):
    shape, other = chosen
    x = filled(shape)
    (found,) = predict(lambda x: flow.reshape(x, other), x)
    close(found, x.reshape(other))


@TRACES
@given(shapes, st.lists(st.integers(-2, 6), min_size=1, max_size=4))
def test_reshape_refuses_what_does_not_fit(shape, other):
    x = filled(shape)
    fits = all(d > 0 or d == -1 for d in other)
    try:
        wanted = x.reshape(other).shape if fits else None
    except ValueError:
        wanted = None
    if wanted is None:
        with pytest.raises(ShapeError):
            traced(lambda x: flow.reshape(x, other), x)
    else:
        assert traced(lambda x: flow.reshape(x, other), x) == wanted


AXIS = {
    "math.reduce_sum": lambda x, a: flow.math.reduce_sum(x, a),
    "math.argmax": lambda x, a: flow.math.argmax(x, a),
    "nn.softmax": lambda x, a: flow.nn.softmax(x, a),
    "nn.logsoftmax": lambda x, a: flow.nn.logsoftmax(x, a),
    "concat": lambda x, a: flow.concat([x, x], axis=a),
    "flatten": lambda x, a: flow.flatten(x, a),
    "squeeze": lambda x, a: flow.squeeze(x, [a]),
}


@pytest.mark.parametrize("name", AXIS)
@TRACES
@given(shape=shapes, beyond=st.integers(0, 3), is_negative=st.booleans())
def test_axes_out_of_range_are_refused(name, shape, beyond, is_negative):
    axis = -len(shape) - 1 - beyond if is_negative else len(shape) + beyond
    with pytest.raises(ArgumentError) as info:
        traced(lambda x: AXIS[name](x, axis), filled(shape))
    assert info.value.op == name
    assert "test_shapes.py" in info.value.source


@TRACES
@given(
    st.sampled_from(["float32", "float64", "float16", "int32", "int64", "int8"]),
    st.sampled_from(["float32", "float64", "float16", "int32", "int64", "int8"]),
)
def test_element_types_are_not_promoted(first, second):
    x, y = np.ones((2, 3), first), np.ones((3,), second)
    if first == second:
        assert traced(lambda x, y: x + y, x, y) == (2, 3)
    else:
        with pytest.raises(DTypeError, match=f"{first} and {second}") as info:
            traced(lambda x, y: x + y, x, y)
        assert isinstance(info.value, TypeError)


def test_an_error_leaves_no_job_behind():
    with pytest.raises(FlowError):
        traced(lambda x: flow.reshape(x, (5,)), filled((2, 2)))
    assert traced(lambda x: x, filled((2, 2))) == (2, 2)
