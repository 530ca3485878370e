"""Attention on CUDA beside float64, thinned out by counted draws too: run thread by thread here."""

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_native.abi import DRAW_PRIME, MOST_DRAWN, AttentionShape
from flow2onnx_native.cuda_pipeline import rewrite_for_cuda
from flow2onnx_native.library import NativeLibrary

from flow2onnx.dtypes import DType, bfloat16, bool_, float16, float32, int64
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from flow2onnx.passes.counter_based_random import CounterBasedRandom
from tests.native.attention_graphs import (
    RATE,
    SEED,
    attention,
    attention_in_float64,
    numbers,
    triangle,
)
from tests.native.one_node import one_node
from tests.native.running import ANALYSIS, Array, run, session


def fifth_power(x: int) -> int:
    """x^5 modulo the prime, of products of 64 bits with a sign."""

    def product(a: int, b: int) -> int:
        return ((a * b + 2**63) % 2**64 - 2**63) % DRAW_PRIME

    square = product(x, x)
    return product(product(square, square), x)


def is_kept(shape: tuple[int, ...], counters: tuple[int, ...], rate: float = RATE) -> Array:
    """The places that a draw keeps, in Python's whole numbers."""
    key = (SEED * 48271 + 1) % DRAW_PRIME
    for counter in counters:
        key = fifth_power(key + counter % DRAW_PRIME)
    second = fifth_power(key + 48271)
    places = range(int(np.prod(shape)))
    found = [fifth_power(fifth_power(place + key) + second) for place in places]
    return np.reshape(np.array(found) >= round(rate * DRAW_PRIME), shape)


ATTENTIONS = {
    "plain": ((1, 2, 37, 16), 45, None),
    "causal": ((2, 1, 40, 8), 40, triangle(40)),
    "padded": ((2, 2, 9, 24), 33, np.where(np.arange(33) < 20, 0, -1e4).astype("f")),
    "of one head": ((3, 5, 64), 7, (numbers((3, 1, 7)) > 0) | (np.arange(7) == 0)),
    "wide": ((1, 1, 18, 128), 20, numbers((1, 1, 18, 20))),
}


def check(
    b: Builder, name: str, library: NativeLibrary, counters: dict[str, int], kept: Array | float,
    *, is_precise: bool = True, tolerance: float = 4e-6,
) -> None:  # fmt: skip
    """See that a graph becomes two operators that compute what float64 does."""
    shape, keys, mask = ATTENTIONS[name]
    model, used = rewrite_for_cuda(
        model_of(b.graph), library.operators, ANALYSIS, is_precise=is_precise
    )
    assert {n: c for n, c in used.items() if "Attention" in n} == {
        "Attention": 1, "AttentionGradient": 1,
    }  # fmt: skip
    left = {n.op_type for n in model.graph if n.domain == ""}
    assert left <= {"Transpose", "Cast"}, "nothing of the matrix of scores is left"
    other = (*shape[:-2], keys, shape[-1])
    feeds = {"q": numbers(shape), "k": numbers(other, 1), "v": numbers(other, 2),
             "slope": numbers(shape, 3)}  # fmt: skip
    feeds = {n: x.astype(ml_dtypes.bfloat16).astype(np.float32) for n, x in feeds.items()}
    wanted = attention_in_float64(*feeds.values(), mask, kept)
    given = feeds | ({} if mask is None else {"mask": mask})
    given |= {counter: np.array([count]) for counter, count in counters.items()}
    found = run(session(model, library), given)
    for part, expect in zip(("result", "dq", "dk", "dv"), wanted, strict=True):
        atol = tolerance * np.max(abs(expect))
        np.testing.assert_allclose(found[part], expect, atol=atol, err_msg=part)


def costly(*values: object) -> object:
    """A case whose kernels take seconds to compile for the host."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "is_precise"),
    [("causal", True), ("causal", False), ("of one head", True), costly("plain", True),
     costly("padded", True), costly("wide", True)],
)  # fmt: skip
def test_attention(name: str, is_precise: bool, cuda_on_host: NativeLibrary) -> None:
    check(attention(*ATTENTIONS[name]), name, cuda_on_host, {}, 1.0, is_precise=is_precise,
          tolerance=4e-6 if is_precise else 4e-3)  # fmt: skip


@pytest.mark.parametrize(
    ("half", "tolerance", "rate"),
    [(float16, 2e-3, RATE), costly(float16, 2e-3, 0.0), costly(bfloat16, 6e-3, RATE),
     costly(bfloat16, 6e-3, 0.0)],
)  # fmt: skip
def test_attention_in_halves(
    half: DType, tolerance: float, rate: float, cuda_on_host: NativeLibrary
) -> None:
    shape, keys, mask = ATTENTIONS["causal"]
    b = attention(shape, keys, mask, rate=rate, half=half)
    kept = is_kept((*shape[:-1], keys), (3,)) / (1 - RATE) if rate else 1.0
    counters = {"step": 3} if rate else {}
    check(b, "causal", cuda_on_host, counters, kept, tolerance=tolerance)


@pytest.mark.parametrize(
    ("name", "counts", "is_chosen"),
    [costly("plain", (3,), True), ("causal", (0, 2**40 + 5), False),
     costly("padded", (2**31,), False), ("of one head", (-4,), True), costly("wide", (1,), False)],
)  # fmt: skip
def test_attention_that_is_thinned_out(
    name: str, counts: tuple[int, ...], is_chosen: bool, cuda_on_host: NativeLibrary
) -> None:
    shape, keys, mask = ATTENTIONS[name]
    counters = dict(zip(("step", "batch"), counts, strict=False))
    b = attention(shape, keys, mask, rate=RATE, counters=tuple(counters), is_chosen=is_chosen)
    kept = is_kept((*shape[:-1], keys), counts)
    assert abs(kept.mean() - (1 - RATE)) < 0.1
    check(b, name, cuda_on_host, counters, kept / (1 - RATE))


def test_attention_that_predicts_is_thinned_out_alone(cuda_on_host: NativeLibrary) -> None:
    b = attention((1, 2, 6, 8), 6, None, rate=RATE)
    for name in ("dq", "dk", "dv"):
        value = next(v for v in b.graph.outputs if v.name == name)
        b.graph.outputs.remove(value)
    model = model_of(b.graph)
    ir.passes.common.RemoveUnusedNodesPass()(model)
    _, used = rewrite_for_cuda(model, cuda_on_host.operators, ANALYSIS)
    assert used == {"Attention": 1}


@pytest.mark.parametrize(("which", "rate"), [("Softmax", 0.0), ("Softmax", RATE), ("Where", RATE)])
def test_attention_that_somebody_else_reads_stays(
    which: str, rate: float, cuda_on_host: NativeLibrary
) -> None:
    b = attention((1, 2, 6, 8), 6, None, rate=rate)
    shares = next(n for n in b.graph if n.op_type == which).outputs[0]
    b.output(b.Transpose(shares, perm=[1, 0, 2, 3]), "shares")
    _, used = rewrite_for_cuda(model_of(b.graph), cuda_on_host.operators, ANALYSIS)
    assert "Attention" not in used


@pytest.mark.parametrize("width", [12, 136])
def test_heads_of_other_widths_stay(width: int, cuda_on_host: NativeLibrary) -> None:
    b = attention((1, 2, 6, width), 6, None)
    _, used = rewrite_for_cuda(model_of(b.graph), cuda_on_host.operators, ANALYSIS)
    assert "Attention" not in used


@pytest.mark.parametrize("shape", [(5,), (3, 70, 11), (2, 1, 4000)], ids=str)
def test_a_draw_is_the_one_in_standard_operators(
    shape: tuple[int, ...], cuda_on_host: NativeLibrary
) -> None:
    b = Builder()
    x = b.input("x", shape, float32)
    for name in ("step", "batch"):
        b.input(name, (1,), int64)
    y, mask = b.several("Dropout", x, np.float32(RATE), b.const(True, bool_), seed=float(SEED),
                        outputs=2)  # fmt: skip
    b.output(y, "y")
    b.output(mask, "mask")
    CounterBasedRandom(("step", "batch")).run(b.graph)
    model, used = rewrite_for_cuda(model_of(b.graph), cuda_on_host.operators, ANALYSIS)
    assert used == {"Draw": 1, "Fused": 1}
    assert len(list(model.graph)) == 2
    feeds = {"x": numbers(shape), "step": np.array([2**33 + 1]), "batch": np.array([6])}
    found, plain = (run(s, feeds) for s in
                    (session(model, cuda_on_host), session(model_of(b.graph))))  # fmt: skip
    np.testing.assert_array_equal(found["mask"], is_kept(shape, (2**33 + 1, 6)))
    for name in ("mask", "y"):
        np.testing.assert_array_equal(found[name], plain[name])


SOUND = {"shape": [3, 4], "draw": [5, 6, 7, 1]}


@pytest.mark.parametrize(
    ("attributes", "counter", "words"),
    [
        ({"draw": [5, 6, 7]}, [1], "the draw is none that it makes"),
        ({"draw": [DRAW_PRIME, 6, 7, 1]}, [1], "the draw is none that it makes"),
        ({"draw": [5, 6, DRAW_PRIME + 1, 1]}, [1], "the draw is none that it makes"),
        ({"draw": [5, 6, 7, 5]}, [1], "the draw is none that it makes"),
        ({"draw": [5, 6, 7, 0]}, [1], "wanted are one counter or more"),
        ({"shape": [MOST_DRAWN]}, [1], "a shape of fewer than"),
        ({"shape": [1 << 20, 1 << 20]}, [1], "a shape of fewer than"),
        ({"shape": [0]}, [1], "a shape of fewer than"),
        ({}, [1, 2], "counter 0 has 2 elements"),
    ],
)
def test_draws_that_are_none_are_refused(
    attributes: dict[str, list[int]], counter: list[int], words: str, cuda_on_host: NativeLibrary
) -> None:
    feeds = {"c": np.array(counter)}
    model = one_node("Draw", feeds, 1, **(SOUND | attributes))
    model.graph.outputs[0].type = ir.TensorType(ir.DataType.BOOL)
    with pytest.raises(Exception, match=words):
        run(session(model, cuda_on_host), feeds)


def test_a_draw_of_attention_that_is_none_is_refused(cuda_on_host: NativeLibrary) -> None:
    shape = AttentionShape(1, 1 << 10, 1 << 10, 1 << 10, 8, 0, 0, 0, 0, 0, 1, 1)
    feeds = {name: numbers((1,)) for name in "qkv"} | {"step": np.array([1])}
    model = one_node("Attention", feeds, 2, shape=[*shape], draw=[1, 1, 1, 1],
                     values=[1.0, 0.0, 1.5])  # fmt: skip
    with pytest.raises(Exception, match="Attention: the shape is none that it computes"):
        session(model, cuda_on_host)
