"""Laws of windows: any layout, kernel, stride, padding and dilation gives what the sums say."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

import flow2onnx as flow
from flow2onnx.errors import ArgumentError
from tests.ops.jobs import predict, watched_gradients
from tests.ops.reference import conv, pool

RUNS = settings(max_examples=25, deadline=None, print_blob=True)
NAMES = ("VALID", "SAME", "SAME_LOWER", "SAME_UPPER")
AXES = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def filled(shape, seed=0):
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


def sides(padding, extent, window, stride):
    """Zeros before and after one axis."""
    if padding == "VALID":
        return 0, 0
    total = max(0, (-(-extent // stride) - 1) * stride + window - extent)
    half = total // 2
    return (half, total - half) if padding == "SAME_UPPER" else (total - half, half)


@st.composite
def windows(draw, axes, most=3):
    """Extents, kernel, strides, dilations, padding, and the zeros that it means."""
    per_axis = st.lists(st.integers(1, most), min_size=axes, max_size=axes)
    kernel, strides, dilations = draw(per_axis), draw(per_axis), draw(per_axis)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    extents = [r + draw(st.integers(0, 4)) for r in reach]
    padding = draw(st.sampled_from([*NAMES, None]))
    if padding is None:
        pairs = [tuple(draw(st.integers(0, max(k - 1, 0))) for _ in "ba") for k in kernel]
    else:
        pairs = [sides(padding, *a) for a in zip(extents, reach, strides, strict=True)]
    return extents, kernel, strides, dilations, padding, pairs


def asked(padding, pairs, is_last):
    """The padding as a user writes it."""
    if padding is not None:
        return padding
    return [(0, 0), *pairs, (0, 0)] if is_last else [(0, 0), (0, 0), *pairs]


def moved(x):
    """Channels from second to last."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


@pytest.mark.parametrize("axes", AXES)
@RUNS
@given(data=st.data(), is_last=st.booleans())
def test_convolutions(axes, data, is_last):
    extents, kernel, strides, dilations, padding, pairs = data.draw(windows(axes))
    groups = 1 if is_last else data.draw(st.integers(1, 2))
    x, w = filled((2, 2, *extents)), filled((2, 2 // groups, *kernel), 1)
    wanted = conv(x, w, strides, *zip(*pairs, strict=True), dilations, groups)
    given_x, given_w = (moved(v) if is_last else v for v in (x, w))
    (found,) = predict(
        lambda x, w: getattr(flow.nn, f"conv{axes}d")(
            x, w, strides, asked(padding, pairs, is_last), AXES[axes][is_last], dilations, groups
        ),
        given_x, given_w,
    )  # fmt: skip
    np.testing.assert_allclose(found, moved(wanted) if is_last else wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("axes", [2, 3])
@RUNS
@given(data=st.data(), is_last=st.booleans(), is_ceiled=st.booleans())
def test_pools(axes, kind, data, is_last, is_ceiled):
    extents, kernel, strides, _, padding, pairs = data.draw(windows(axes))
    if padding not in ("VALID", None):
        pairs = [sides(padding, *a) for a in zip(extents, kernel, strides, strict=True)]
    written = pairs
    if is_ceiled and padding is None:
        pairs = [
            (f, a + -(e + f + a - k) % s)
            for (f, a), e, k, s in zip(pairs, extents, kernel, strides, strict=True)
        ]
    x = filled((2, 2, *extents))
    options = {"ceil_mode": True} if is_ceiled and padding is None else {}

    def body(x):
        return getattr(flow.nn, f"{kind}_pool{axes}d")(
            x, kernel, strides, asked(padding, written, is_last), AXES[axes][is_last], **options
        )

    given_x = moved(x) if is_last else x
    if any(max(p) >= k for p, k in zip(pairs, kernel, strict=True)):
        with pytest.raises(ArgumentError, match="wholly in the padding"):
            predict(body, given_x)
        return
    wanted = pool(
        x, np.nanmax if kind == "max" else np.nanmean, kernel, strides, *zip(*pairs, strict=True)
    )
    (found,) = predict(body, given_x)
    np.testing.assert_allclose(found, moved(wanted) if is_last else wanted, 1e-5, 1e-5)


@RUNS
@given(data=st.data())
def test_the_gradient_of_an_average_pool_shares_out(data):
    """Gradients go back whole: each window hands its own to those it averaged."""
    extents, kernel, strides, _, padding, pairs = data.draw(windows(2))
    assume(padding is not None)
    pairs = [sides(padding, *a) for a in zip(extents, kernel, strides, strict=True)]
    assume(all(max(p) < k for p, k in zip(pairs, kernel, strict=True)))
    x = filled((1, 2, *extents))
    shape = pool(x, np.nanmean, kernel, strides, *zip(*pairs, strict=True)).shape
    seed = filled(shape, 3)
    found = watched_gradients(
        lambda x: flow.nn.avg_pool2d(x, kernel, strides, padding), [x], [0], [seed]
    )
    np.testing.assert_allclose(found["in0"].sum(), seed.sum(), 1e-4, 1e-4)
