"""Attention of native operators, beside float64."""

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_native.abi import DOMAIN, AttentionLayout, AttentionShape
from flow2onnx_native.library import NativeLibrary
from flow2onnx_native.pipeline import rewrite_prediction

from flow2onnx.dtypes import float16
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from flow2onnx.graph.types import dims
from tests.native.attention_graphs import (
    RATE,
    attention,
    attention_in_float64,
    numbers,
    triangle,
)
from tests.native.one_node import disturbed, each_case, is_refusal, one_node, outcome
from tests.native.running import Array, rewrite, run, session

PARTS = ("result", "dq", "dk", "dv")
TOLERANCE = 4e-6  # of the largest value
LOWEST = float(np.finfo(np.float32).min)


def padding(lengths: list[int], keys: int, other: float) -> Array:
    """A mask that is added: the first keys of each example are seen."""
    seen = np.arange(keys) < np.array(lengths)[:, None]
    return np.where(seen, 0, other).astype(np.float32)[:, None, None, :]


def window(count: int, before: int) -> Array:
    """Each query sees itself and some keys before it."""
    distance = np.arange(count)[:, None] - np.arange(count)
    return (distance >= 0) & (distance <= before)


@dataclass(frozen=True)
class Case:
    """An attention: the shape of queries, the number of keys, and what masks scores."""

    shape: tuple[int, ...]
    keys: int
    mask: Array | None = None
    fill: float = -np.inf
    feeds: dict[str, Array] = field(init=False)

    def __post_init__(self) -> None:
        other = (*self.shape[:-2], self.keys, self.shape[-1])
        feeds = {"q": numbers(self.shape), "k": numbers(other, 1), "v": numbers(other, 2),
                 "slope": numbers(self.shape, 3)}  # fmt: skip
        object.__setattr__(self, "feeds", feeds)

    def graph(self, *, in_rows: bool = False) -> Builder:
        """What a job computes."""
        return attention(self.shape, self.keys, self.mask, fill=self.fill, in_rows=in_rows)

    def given(self, *, in_rows: bool = False) -> dict[str, Array]:
        """What goes into it."""
        feeds = self.feeds
        if in_rows:
            feeds = {n: np.ascontiguousarray(x.swapaxes(1, 2)) for n, x in feeds.items()}
        return feeds | ({} if self.mask is None else {"mask": self.mask})

    def wanted(self) -> list[Array]:
        """What comes out, in float64."""
        return attention_in_float64(*self.feeds.values(), self.mask, fill=self.fill)


CASES = {
    "plain": Case((1, 2, 37, 16), 45),
    "of odd widths": Case((2, 2, 70, 21), 33),
    "narrow": Case((1, 1, 5, 2), 3),
    "wide": Case((1, 1, 18, 200), 20, numbers((1, 1, 18, 20))),
    "of one query": Case((2, 3, 1, 64), 140),
    "of one head": Case((3, 5, 64), 7, (numbers((3, 1, 7)) > 0) | (np.arange(7) == 0)),
    "causal": Case((2, 1, 200, 8), 200, triangle(200)),
    "causal in blocks": Case((1, 2, 400, 16), 400, triangle(400)),
    "causal by a number": Case((1, 2, 150, 16), 150, triangle(150), -1e4),
    "windows": Case((1, 2, 300, 16), 300, window(300, 20)),
    "added at random": Case((2, 2, 90, 24), 130, numbers((2, 1, 90, 130), 5)),
    "padded": Case((3, 2, 9, 24), 133, padding([20, 133, 64], 133, -1e4)),
    "padded by the lowest": Case((3, 2, 70, 24), 200, padding([20, 200, 64], 200, LOWEST)),
    "padded by infinity": Case((3, 2, 70, 24), 200, padding([20, 200, 64], 200, -np.inf)),
    "padded in front": Case((1, 1, 9, 16), 200, np.arange(200) >= 150),
    "padded in front by a number": Case((1, 1, 9, 16), 200, np.arange(200) >= 150, LOWEST),
    "seeing nothing but a number": Case((1, 1, 9, 16), 100, np.zeros((9, 100), bool), -1e4),
}  # fmt: skip


def check(found: dict[str, Array], case: Case, *, in_rows: bool = False) -> None:
    """See that outputs are those of float64."""
    for part, expect in zip(PARTS, case.wanted(), strict=True):
        expect = expect.swapaxes(1, 2) if in_rows else expect
        atol = TOLERANCE * np.max(abs(expect))
        np.testing.assert_allclose(found[part], expect, rtol=0, atol=atol, err_msg=part)


@pytest.mark.parametrize("name", CASES)
def test_attention(name: str, library: NativeLibrary) -> None:
    case = CASES[name]
    model, used = rewrite(model_of(case.graph().graph), library.operators)
    assert used == {"Attention": 1, "AttentionGradient": 1}
    assert {n.op_type for n in model.graph if n.domain == ""} <= {"Transpose"}
    check(run(session(model, library), case.given()), case)


@pytest.mark.parametrize("name", ["of odd widths", "causal", "padded by infinity", "of one query"])
def test_heads_within_rows_are_not_transposed(name: str, library: NativeLibrary) -> None:
    case = CASES[name]
    model, _ = rewrite(model_of(case.graph(in_rows=True).graph), library.operators)
    assert [n.op_type for n in model.graph] == ["Attention", "AttentionGradient"]
    sizes = [int(np.prod(dims(v))) for n in model.graph for v in n.outputs]
    assert max(sizes) == max(x.size for x in case.feeds.values()), "no matrix of scores is there"
    found = run(session(model, library), case.given(in_rows=True))
    check(found, case, in_rows=True)


@pytest.mark.parametrize("name", ["causal in blocks", "of odd widths", "padded in front"])
def test_results_do_not_depend_on_threads(name: str, library: NativeLibrary) -> None:
    case = CASES[name]
    alone, *others = (
        run(session(rewrite(model_of(case.graph().graph), library.operators, threads)[0], library,
                    min(threads, 3)), case.given())
        for threads in (1, 2, 3, 64)
    )  # fmt: skip
    for found in others:
        for part in PARTS:
            np.testing.assert_array_equal(found[part], alone[part])


def test_a_result_that_another_attention_reads_is_laid_out_for_it(library: NativeLibrary) -> None:
    case, b = CASES["plain"], CASES["plain"].graph()
    result = next(v for v in b.graph.outputs if v.name == "result")
    b.output(b.Transpose(result, perm=[0, 2, 1, 3]), "in_rows")
    model, _ = rewrite(model_of(b.graph), library.operators)
    found = run(session(model, library), case.given())
    np.testing.assert_array_equal(found["in_rows"], found["result"].swapaxes(1, 2))
    check(found, case)


@pytest.mark.parametrize("is_added", [False, True])
@pytest.mark.parametrize("seen", [slice(0, 64), slice(128, 200)], ids=["behind", "in front"])
def test_what_whole_tiles_mask_is_not_looked_at(
    seen: slice, is_added: bool, library: NativeLibrary
) -> None:
    mask = np.zeros(200, bool)
    mask[seen] = True
    added = np.where(mask, 0, -np.inf).astype(np.float32)
    case = Case((1, 1, 4, 16), 200, added if is_added else mask)
    case.feeds["v"][..., ~mask, :] = np.nan
    case.feeds["k"][..., ~mask, :] = np.inf
    model, _ = rewrite(model_of(case.graph().graph), library.operators)
    found = run(session(model, library), case.given())
    assert all(np.isfinite(found[part]).all() for part in PARTS)
    assert not found["dk"][..., ~mask, :].any()
    assert not found["dv"][..., ~mask, :].any()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_stays_in_its_rows(value: float, library: NativeLibrary) -> None:
    case = Case((1, 1, 100, 16), 100)
    case.feeds["q"][..., 3, 2] = value
    model, _ = rewrite(model_of(case.graph().graph), library.operators)
    found = run(session(model, library), case.given())
    assert np.isnan(found["result"][..., 3, :]).all()
    assert np.isfinite(np.delete(found["result"], 3, axis=2)).all()


def test_a_query_that_sees_nothing_is_no_number(library: NativeLibrary) -> None:
    mask = triangle(100)
    mask[5] = False
    case = Case((1, 2, 100, 16), 100, mask)
    model, _ = rewrite(model_of(case.graph().graph), library.operators)
    found = run(session(model, library), case.given())
    assert np.isnan(found["result"][..., 5, :]).all()
    assert np.isfinite(np.delete(found["result"], 5, axis=2)).all()


def predicting(case: Case, *, in_rows: bool = False) -> ir.Model:
    """The attention of a case without its gradients."""
    b = case.graph(in_rows=in_rows)
    for value in [v for v in b.graph.outputs if v.name != "result"]:
        b.graph.outputs.remove(value)
    b.graph.inputs.remove(next(v for v in b.graph.inputs if v.name == "slope"))
    model = model_of(b.graph)
    ir.passes.common.RemoveUnusedNodesPass()(model)
    return model


def test_a_model_that_predicts_has_attention_alone(library: NativeLibrary) -> None:
    case = CASES["causal"]
    model = predicting(case, in_rows=True)
    assert rewrite_prediction(model, library.operators, 2, avx512=False) == {"Attention": 1}
    feeds = case.given(in_rows=True)
    found = run(session(model, library, 2), {n: feeds[n] for n in ("q", "k", "v", "mask")})
    expect = case.wanted()[0].swapaxes(1, 2)
    np.testing.assert_allclose(found["result"], expect, rtol=0, atol=TOLERANCE * expect.max())


@pytest.mark.parametrize(("opset", "used"), [(12, {}), (13, {"Attention": 1})])
def test_a_softmax_of_no_axis_is_over_what_its_opset_says(
    opset: int, used: dict[str, int], library: NativeLibrary
) -> None:
    model = predicting(Case((3, 5, 64), 7))
    model.graph.opset_imports[""] = opset
    del next(n for n in model.graph if n.op_type == "Softmax").attributes["axis"]
    assert rewrite_prediction(model, library.operators, 1, avx512=False) == used


@pytest.mark.parametrize(
    ("shape", "keys"), [((2, 0, 8), 4), ((2, 4, 8), 0), (((1 << 20) + 1, 1, 8), 1)]
)
def test_attention_of_no_rows_or_too_many_examples_stays(
    shape: tuple[int, ...], keys: int, library: NativeLibrary
) -> None:
    _, used = rewrite(model_of(attention(shape, keys, None).graph), library.operators)
    assert "Attention" not in used


def test_attention_that_is_thinned_out_or_of_halves_stays(library: NativeLibrary) -> None:
    thinned = attention((1, 2, 6, 8), 6, None, rate=RATE)
    halves = attention((1, 2, 6, 8), 6, None, half=float16)
    for b in (thinned, halves):
        _, used = rewrite(model_of(b.graph), library.operators)
        assert "Attention" not in used


@dataclass
class Drawn:
    """A node of random sizes, and what it computes."""

    draw: np.random.Generator

    def __post_init__(self) -> None:
        sizes = [int(n) for n in self.draw.integers(1, 4, 2)]
        rows = [int(n) for n in self.draw.choice([1, 2, 15, 64, 65, 130], 2)]
        self.width = int(self.draw.choice([1, 3, 8, 16, 33]))
        self.batch, self.heads, self.queries, self.keys = *sizes, *rows
        self.kind = int(self.draw.integers(0, 3))
        spread = [int(n) for n in self.draw.integers(0, 2, 4)]
        extents = (self.batch, self.heads, self.queries, self.keys)
        self.mask_shape = [n if s else 1 for n, s in zip(extents, spread, strict=True)]
        self.flags = [int(n) for n in self.draw.integers(0, 2, 8)]

    def shape(self) -> list[int]:
        """The attribute of that name."""
        steps, step = list[int](), 1
        for size in reversed(self.mask_shape):
            steps.append(0 if size == 1 else step)
            step *= size
        return [*AttentionShape(self.batch, self.heads, self.queries, self.keys, self.width,
                                self.kind, *(steps[::-1] if self.kind else [0] * 4), 0,
                                int(ir.DataType.FLOAT))]  # fmt: skip

    def layout(self) -> list[int]:
        """The attribute of that name."""
        return [*AttentionLayout(*self.flags, tasks=int(self.draw.integers(1, 9)))]

    def mask(self) -> Array | None:
        """A mask in which every query sees a key."""
        if self.kind == 0:
            return None
        if self.kind == 1:
            return numbers(tuple(self.mask_shape), int(self.draw.integers(9)))
        seen = self.draw.random(self.mask_shape) < 0.5
        seen[..., 0] = True
        return np.asarray(seen)

    def tensor(self, rows: int, in_rows: int, of: Array | None = None) -> Array:
        """Drawn numbers, or what is given, as it lies in memory."""
        if of is None:
            of = numbers((self.batch, self.heads, rows, self.width), int(self.draw.integers(99)))
        return np.ascontiguousarray(of.swapaxes(1, 2)) if in_rows else of


def a_case(library: NativeLibrary, draw: np.random.Generator) -> bool:
    """True if a drawn node computes what it should; False if it refuses what cannot be."""
    one, which = Drawn(draw), int(draw.integers(0, 2))
    shape, layout, mask = one.shape(), one.layout(), one.mask()
    heads = [numbers((one.batch, one.heads, n, one.width), i)
             for i, n in enumerate((one.queries, one.keys, one.keys, one.queries))]  # fmt: skip
    result, dq, *_ = attention_in_float64(*heads, mask)
    flags = one.flags
    q, k, v = (one.tensor(0, flag, of) for flag, of in zip(flags[:3], heads, strict=False))
    given = {"q": q, "k": k, "v": v}
    scale = float(np.float32(1 / np.sqrt(one.width)))
    if which == 1:
        scores = scale * heads[0].astype(float) @ heads[1].swapaxes(-1, -2)
        if mask is not None:
            scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
        most = scores.max(-1)
        sums = np.exp(scores - most[..., None]).sum(-1)
        given = {"slope": one.tensor(0, flags[4], heads[3]), **given,
                 "o": one.tensor(0, flags[3], result.astype(np.float32)),
                 "kept": np.stack([most, 1 / sums]).astype(np.float32)}  # fmt: skip
    if mask is not None:
        given["mask"] = mask
    numbers_of = [*shape, *layout]
    is_sound = draw.random() < 0.5
    if not is_sound:
        numbers_of = disturbed(numbers_of, draw)
    at = len(AttentionShape._fields)
    name = ("Attention", "AttentionGradient")[which]
    found = outcome(library, int(draw.integers(1, 4)), name, given, outputs=(2, 4)[which],
                    shape=numbers_of[:at], layout=numbers_of[at:] or [1], draw=[0, 0, 0, 0],
                    values=[scale, float(-np.inf), 1.0])  # fmt: skip
    if isinstance(found, str):
        assert not is_sound or "bad allocation" in found, found
        assert is_refusal(name, found), found
        return False
    if is_sound:
        expect = (result, dq)[which]
        expect = expect.swapaxes(1, 2) if flags[3 if which == 0 else 5] else expect
        np.testing.assert_allclose(found, expect, rtol=0, atol=1e-5 * max(1, abs(expect).max()))
    return True


@pytest.mark.parametrize("tasks", [1, 7])
@pytest.mark.parametrize("group", [1, 2, 6])
@pytest.mark.parametrize("in_rows", [0, 1])
def test_heads_that_share_keys(
    library: NativeLibrary, tasks: int, group: int, in_rows: int
) -> None:
    batch, heads, queries, keys, width = 2, 6, 70, 70, 16
    shared = (batch, heads // group, keys, width)
    q, g = (numbers((batch, heads, queries, width), i) for i in (1, 2))
    k, v = (numbers(shared, i) for i in (3, 4))
    mask = triangle(queries)
    every = (np.repeat(x, group, axis=1) for x in (k, v))
    expected = attention_in_float64(q, *every, g, mask)
    result, dq, *of_keys = expected
    dk, dv = (x.reshape(batch, heads // group, group, keys, width).sum(2) for x in of_keys)
    shape = AttentionShape(batch, heads, queries, keys, width, 2, 0, 0, keys, 1, 0,
                           int(ir.DataType.FLOAT), group)  # fmt: skip
    attributes = {"shape": [*shape], "layout": [*AttentionLayout(*[in_rows] * 8, tasks)],
                  "draw": [0] * 4, "values": [width**-0.5, float(-np.inf), 1.0]}  # fmt: skip

    def laid_out(x: Array) -> Array:
        return np.ascontiguousarray(x.swapaxes(1, 2)) if in_rows else x

    feeds = {n: laid_out(x) for n, x in (("q", q), ("k", k), ("v", v))} | {"mask": mask}
    forward = one_node("Attention", feeds, 2, **attributes)
    y, kept = run(session(forward, library), feeds).values()
    *operands, mask = feeds.values()
    names = ("slope", "q", "k", "v", "o", "kept", "mask")
    given = dict(zip(names, (laid_out(g), *operands, y, kept, mask), strict=True))
    back = one_node("AttentionGradient", given, 4, **attributes)
    found = [y, *run(session(back, library), given).values()]
    for value, wanted in zip(found, (result, dq, dk, dv), strict=False):
        wanted = laid_out(wanted)
        np.testing.assert_allclose(value, wanted, atol=TOLERANCE * max(1, abs(wanted).max()))


def test_attention_of_any_shape(library: NativeLibrary) -> None:
    assert each_case(31, lambda draw: a_case(library, draw)) > 0


@pytest.mark.parametrize(
    ("changes", "draw", "words"),
    [
        ({"width": 0}, [0, 0, 0, 0], "the shape is none that it computes"),
        ({"width": 1025}, [0, 0, 0, 0], "the shape is none that it computes"),
        ({"element": 10}, [0, 0, 0, 0], "the shape is none that it computes"),
        ({"batch": 1 << 20, "heads": 1 << 20}, [0, 0, 0, 0], "the shape is none that it computes"),
        ({"group": 0}, [0, 0, 0, 0], "the shape is none that it computes"),
        ({"heads": 3, "group": 2}, [0, 0, 0, 0], "the shape is none that it computes"),
        ({"group": 2}, [0, 0, 0, 0], "the shape is none that it computes"),
        ({}, [1, 2, 3, 1], "the shape is none that it computes"),
        ({}, [0, 0, 0], "the shape is none that it computes"),
        ({"keys": 5}, [0, 0, 0, 0], "input 1 has 32 elements of type 1, wanted are 40 of type 1"),
    ],
)
def test_attention_that_is_none_is_refused(
    changes: dict[str, int], draw: list[int], words: str, library: NativeLibrary
) -> None:
    shape = AttentionShape(1, 1, 4, 4, 8, 0, 0, 0, 0, 0, 0, 1)._replace(**changes)
    feeds = {name: numbers((1, 1, 4, 8)) for name in "qkv"}
    model = one_node("Attention", feeds, 2, shape=[*shape], layout=[0] * 8 + [1], draw=draw,
                     values=[1.0, 0.0, 1.0])  # fmt: skip
    with pytest.raises(Exception, match=f"Attention: {words}"):
        run(session(model, library), feeds)


def test_nodes_have_a_layout(library: NativeLibrary) -> None:
    model, _ = rewrite(model_of(CASES["plain"].graph().graph), library.operators, threads=3)
    layouts = [list(n.attributes["layout"].as_ints()) for n in model.graph if n.domain == DOMAIN]
    assert layouts == [[0] * 8 + [3]] * 2
