"""Updates of state that wait for its readers: in place, with the results they have apart."""

from typing import Any

import numpy as np
import pytest
from flow2onnx_native.library import NativeLibrary

from flow2onnx.dtypes import float32
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.model import model_of
from tests.native.running import Array, in_place, rewrite, run, session
from tests.native.test_products import encoder_like, numbers, sgd

SIDE = 200  # of a matrix that is worth an update in place


def matrices(b: Builder, *names: str) -> list[Value]:
    return [b.input(name, (SIDE, SIDE), float32) for name in names]


def by_product(b: Builder, w: Value, g: Value, x: Value) -> Value:
    return b.Gemm(g, x, w, transA=1, alpha=-0.01)


def by_program(b: Builder, w: Value, g: Value, x: Value) -> Value:
    y = g
    for _ in range(6):
        y = b.Abs(b.Mul(b.Add(y, x), w))
    return b.Sub(w, y)


UPDATES = [by_product, by_program]


def layer(b: Builder, update: Any) -> None:
    """A gradient that goes on through the weight, beside the weight's update."""
    w, g, x = matrices(b, "w", "g", "x")
    b.output(update(b, w, g, x), "next/w")
    b.output(b.MatMul(g, w), "dx")


def updated_apart_and_in_place(
    b: Builder, library: NativeLibrary, threads: int
) -> tuple[dict[str, Array], dict[str, Array]]:
    model, _ = rewrite(model_of(b.graph), library.operators, threads)
    assert in_place(model.graph, ["w"])[0].is_safe
    opened = session(model, library, threads)
    feeds = {str(v.name): numbers((SIDE, SIDE), i) for i, v in enumerate(b.graph.inputs)}
    apart = run(opened, feeds)
    binding, found = opened.io_binding(), {"next/w": feeds["w"]}
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    for name in apart:
        to = found.setdefault(name, np.zeros((SIDE, SIDE), np.float32))
        binding.bind_output(name, "cpu", 0, np.float32, to.shape, to.ctypes.data)
    opened.run_with_iobinding(binding)
    return apart, found


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("update", UPDATES)
def test_a_gradient_reads_the_weight_first(
    update: Any, threads: int, multiplying: NativeLibrary
) -> None:
    b = Builder()
    layer(b, update)
    assert not in_place(b.graph, ["w"])[0].is_safe
    apart, found = updated_apart_and_in_place(b, multiplying, threads)
    for name, array in apart.items():
        np.testing.assert_array_equal(found[name], array)


def test_programs_wait_for_several_readers(multiplying: NativeLibrary) -> None:
    b = Builder()
    layer(b, by_program)
    w, x = b.graph.inputs[0], b.graph.inputs[2]
    b.output(b.MatMul(w, x), "y")
    apart, found = updated_apart_and_in_place(b, multiplying, 1)
    assert set(apart) == {"next/w", "dx", "y"}
    for name, array in apart.items():
        np.testing.assert_array_equal(found[name], array)


def test_products_wait_for_one_reader_only(multiplying: NativeLibrary) -> None:
    b = Builder()
    layer(b, by_product)
    w, x = b.graph.inputs[0], b.graph.inputs[2]
    b.output(b.MatMul(w, x), "y")
    model, _ = rewrite(model_of(b.graph), multiplying.operators)
    verdict = in_place(model.graph, ["w"])[0]
    assert not verdict.is_safe
    assert "may read it after the update" in verdict.reason


@pytest.mark.parametrize("update", UPDATES)
def test_a_view_is_no_end_of_reading(update: Any, multiplying: NativeLibrary) -> None:
    b = Builder()
    w, g, x = matrices(b, "w", "g", "x")
    b.output(update(b, w, g, x), "next/w")
    flat = b.Reshape(w, b.const(np.array([SIDE * SIDE // 2, 2], np.int64)))
    b.output(b.Softmax(flat, axis=-1), "y")
    model, _ = rewrite(model_of(b.graph), multiplying.operators)
    assert not in_place(model.graph, ["w"])[0].is_safe


@pytest.mark.parametrize("update", UPDATES)
def test_what_reads_the_next_value_is_not_waited_for(
    update: Any, multiplying: NativeLibrary
) -> None:
    b = Builder()
    w, g, x = matrices(b, "w", "g", "x")
    new = update(b, w, g, x)
    b.output(new, "next/w")
    b.output(b.MatMul(b.Transpose(new, perm=[1, 0]), w), "y")
    model, _ = rewrite(model_of(b.graph), multiplying.operators)
    assert not in_place(model.graph, ["w"])[0].is_safe
    feeds = {str(v.name): numbers((SIDE, SIDE), i) for i, v in enumerate(b.graph.inputs)}
    expected = run(session(model_of(b.graph)), feeds)
    got = run(session(model, multiplying), feeds)
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-4 * abs(array).max())


@pytest.mark.parametrize("update", [sgd, None], ids=["sgd", "adam"])
def test_jobs_update_weights_in_place(update: Any, convolving: NativeLibrary) -> None:
    _, job = encoder_like(wish=True, update=update)
    verdicts = {v.name: v for v in job.explain().state}
    assert verdicts["last-weight"].is_safe, verdicts["last-weight"].reason
    assert verdicts["q-weight"].is_safe
