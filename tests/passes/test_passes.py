"""Each pass: what is given, what results, what it leaves alone."""

import pytest

from flow2onnx.passes.common_subexpressions import CommonSubexpressionElimination
from flow2onnx.passes.dead_code import DeadCodeElimination
from flow2onnx.passes.float64_functions import ExpandFloat64Functions
from flow2onnx.passes.fold_update import FoldUpdateIntoGemm
from flow2onnx.passes.fuse_bias import FuseBias
from flow2onnx.passes.pipeline import PIPELINE, run_passes
from flow2onnx.passes.redundant_casts import RemoveRedundantCasts
from flow2onnx.passes.scatter_into_state import ScatterIntoState
from flow2onnx.passes.shared_halves import DivideSharedHalves
from flow2onnx.passes.sink_relu import SinkRelu
from tests.passes.text import body_of, checked, graph_of, interface, lines

# pass, signature of the graph, body given, body that results
REWRITES = {
    "dead node": (
        DeadCodeElimination,
        "g (float[2] x) => (float[2] y)",
        "y = Relu(x)  z = Neg(x)",
        "y = Relu(x)",
    ),
    "dead chain": (
        DeadCodeElimination,
        "g (float[2] x) => (float[2] y)",
        "a = Neg(x)  y = Relu(x)  b = Exp(a)  c = Add(a, b)",
        "y = Relu(x)",
    ),
    "dead branch": (
        DeadCodeElimination,
        "g (bool c, float[2] x) => (float[2] z)",
        "h = Relu(x)  y = If(c) <then_branch = t () => (float[2] a) { a = Neg(h) }, "
        "else_branch = e () => (float[2] b) { b = Abs(h) }>  z = Exp(x)",
        "z = Exp(x)",
    ),
    "dead constant": (
        DeadCodeElimination,
        "g (float[2] x) => (float[2] y) <float[2] c = {1, 2}, float[2] d = {3, 4}>",
        "y = Add(x, c)  z = Add(x, d)",
        "y = Add(x, c)",
    ),
    "double precision": (
        ExpandFloat64Functions,
        "g (double[2] x) => (double[2] y)",
        "y = Tan(x)",
        '"y/Sin" = Sin(x)  "y/Cos" = Cos(x)  y = Div("y/Sin", "y/Cos")',
    ),
    "double precision inside": (
        ExpandFloat64Functions,
        "g (double[2] x) => (double[2] y)",
        "a = Neg(x)  h = Tan(a)  y = Neg(h)",
        'a = Neg(x)  "h/Sin" = Sin(a)  "h/Cos" = Cos(a)  h = Div("h/Sin", "h/Cos")  y = Neg(h)',
    ),
    "half of a gelu and of others": (
        DivideSharedHalves,
        "g (float[2] x, float[2] u, float[2] g) => (float[2] y, float[2] z) "
        "<float half = {0.5}, float one = {1}>",
        "h = Mul(x, half)  t = Tanh(u)  a = Add(t, one)  y = Mul(h, a)  z = Mul(g, h)",
        'h = Div(x, "h/const/0")  t = Tanh(u)  a = Add(t, one)  y = Mul(h, a)  z = Mul(g, h)',
    ),
    "relu before a pool": (
        SinkRelu,
        "g (float[1,1,4] x) => (float[1,1,2] z)",
        "h = Relu(x)  y = MaxPool<kernel_shape=[2], strides=[2]>(h)  z = Neg(y)",
        '"y/before_relu" = MaxPool<kernel_shape=[2], strides=[2]>(x)  y = Relu("y/before_relu")'
        "  z = Neg(y)",
    ),
    "equal nodes": (
        CommonSubexpressionElimination,
        "g (float[2,2] x) => (float[2,2] y)",
        "a = Transpose<perm=[1, 0]>(x)  b = Transpose<perm=[1, 0]>(x)  y = MatMul(a, b)",
        "a = Transpose<perm=[1, 0]>(x)  y = MatMul(a, a)",
    ),
    "equal chains": (
        CommonSubexpressionElimination,
        "g (float[2] x) => (float[2] y)",
        "a = Exp(x)  b = Exp(x)  c = Neg(a)  d = Neg(b)  y = Add(c, d)",
        "a = Exp(x)  c = Neg(a)  y = Add(c, c)",
    ),
    "equal with fewer outputs": (
        CommonSubexpressionElimination,
        "g (float[1,1,4] x) => (float[1,1,2] y, int64[1,1,2] i)",
        "a, j = MaxPool<kernel_shape=[2], strides=[2]>(x)"
        "b = MaxPool<kernel_shape=[2], strides=[2]>(x)"
        "y = Add(a, b)  i = Identity(j)",
        "a, j = MaxPool<kernel_shape=[2], strides=[2]>(x)  y = Add(a, a)  i = Identity(j)",
    ),
    "bias of a product": (
        FuseBias,
        "g (float[2,3] x, float[4,3] w, float[4] b) => (float[2,4] y)",
        "h = Gemm<transB=1>(x, w)  y = Add(h, b)",
        "y = Gemm<transB=1>(x, w, b)",
    ),
    "bias inside a graph": (
        FuseBias,
        "g (float[2,3] x, float[3,4] w, float[4] b) => (float[2,4] y)",
        "h = Gemm<alpha=0.5>(x, w)  s = Add(h, b)  y = Relu(s)",
        "h = Gemm<alpha=0.5>(x, w, b)  y = Relu(h)",
    ),
    "bias of a product that had none to scale": (
        FuseBias,
        "g (float[2,3] x, float[3,4] w, float[4] b) => (float[2,4] y)",
        "h = Gemm<beta=0.5>(x, w)  y = Add(h, b)",
        "y = Gemm(x, w, b)",
    ),
    "bias made after the product": (
        FuseBias,
        "g (float[2,3] x, float[3,4] w, float[4] b) => (float[2,4] y)",
        "h = Gemm(x, w)  c = Neg(b)  y = Add(h, c)",
        "c = Neg(b)  y = Gemm(x, w, c)",
    ),
    "bias of a convolution": (
        FuseBias,
        "g (float[1,2,3,3] x, float[4,2,1,1] w, float[4] b) => (float[1,4,3,3] y)"
        "<int64[3] s = {-1, 1, 1}>",
        "h = Conv(x, w)  r = Reshape(b, s)  y = Add(h, r)",
        "r = Reshape(b, s)  y = Conv(x, w, b)",
    ),
    "update": (
        FoldUpdateIntoGemm,
        "g (float[3,4] w, float[2,3] d, float[2,4] x) => (float[3,4] n)",
        "u = Gemm<transA=1>(d, x)  n = Add(w, u)",
        "n = Gemm<transA=1>(d, x, w)",
    ),
    "scaled update": (
        FoldUpdateIntoGemm,
        "g (float[3,4] w, float[3,2] d, float[2,4] x) => (float[3,4] n)",
        "u = Gemm<alpha=-0.1, beta=3.0>(d, x)  n = Add(w, u)",
        "n = Gemm<alpha=-0.1>(d, x, w)",
    ),
    "update of rows": (
        ScatterIntoState,
        "g (float[9,4] w, int64[2,1] i, float[2,4] d) => (float[9,4] n)",
        "s = Constant<value_ints=[9,4]>()  z = ConstantOfShape(s) "
        'u = ScatterND<reduction="add">(z, i, d)  n = Add(w, u)',
        's = Constant<value_ints=[9,4]>()  n = ScatterND<reduction="add">(w, i, d)',
    ),
    "rows onto another gradient": (
        ScatterIntoState,
        "g (float[9,4] w, int64[2,1] i, float[2,4] d) => (float[9,4] y)",
        "s = Constant<value_ints=[9,4]>()  z = ConstantOfShape(s)  h = Neg(w) "
        'u = ScatterND<reduction="add">(z, i, d)  v = Add(h, u)  y = Neg(v)',
        "s = Constant<value_ints=[9,4]>()  h = Neg(w) "
        'u = ScatterND<reduction="add">(h, i, d)  y = Neg(u)',
    ),
    "half precision by way of single": (
        RemoveRedundantCasts,
        "g (float16[2] x) => (float16[2] y)",
        "h = Neg(x)  w = Cast<to=1>(h)  k = Cast<to=10>(w)  y = Neg(k)",
        "h = Neg(x)  w = Cast<to=1>(h)  y = Neg(h)",
    ),
    "truth by way of int8": (
        RemoveRedundantCasts,
        "g (float[2] x, float[2] y) => (float[2] z)",
        "c = Greater(x, y)  i = Cast<to=3>(c)  d = Cast<to=9>(i)  z = Where(d, x, y)",
        "c = Greater(x, y)  i = Cast<to=3>(c)  z = Where(c, x, y)",
    ),
    "cast to the same": (
        RemoveRedundantCasts,
        "g (float[2] x) => (float[2] y)",
        "a = Cast<to=1>(x)  y = Neg(a)",
        "y = Neg(x)",
    ),
}

# pass, graph that it must not change
KEPT = {
    "half of a gelu alone": (
        DivideSharedHalves,
        "g (float[2] x, float[2] u) => (float[2] y) <float half = {0.5}, float one = {1}> "
        "{ h = Mul(x, half)  t = Tanh(u)  a = Add(t, one)  y = Mul(h, a) }",
    ),
    "half with another axis": (
        DivideSharedHalves,
        "g (float[2] x, float[2] u, float[2] g) => (float[1,2] y, float[1,2] z) "
        "<float[1,1] half = {0.5}, float one = {1}> { h = Mul(x, half)  t = Tanh(u)  "
        "a = Add(t, one)  y = Mul(h, a)  z = Mul(g, h) }",
    ),
    "half of a half": (
        DivideSharedHalves,
        "g (float u, float g) => (float y, float z) <float half = {0.5}, float one = {1}> "
        "{ h = Mul(half, half)  t = Tanh(u)  a = Add(t, one)  y = Mul(h, a)  z = Mul(g, h) }",
    ),
    "half of others": (
        DivideSharedHalves,
        "g (float[2] x, float[2] u, float[2] g) => (float[2] y, float[2] z, float[2] t) "
        "<float half = {0.5}, float one = {1}> { h = Mul(x, half)  t = Tanh(u)  a = Add(t, one)  "
        "y = Mul(h, a)  z = Mul(g, h) }",
    ),
    "an unread input": (
        DeadCodeElimination,
        "g (float[2] x, float[2] u) => (float[2] y) { y = Relu(x) }",
    ),
    "one output of two": (
        DeadCodeElimination,
        "g (float[4] x) => (float[2] y) { y, z = Split<axis=0, num_outputs=2>(x) }",
    ),
    "a constant output": (
        DeadCodeElimination,
        "g (float[2] x) => (float[2] y, float[2] c) <float[2] c = {1, 2}> { y = Relu(x) }",
    ),
    "draws": (
        CommonSubexpressionElimination,
        "g (float[2] x) => (float[2] y) {"
        "a = RandomNormalLike<seed=1.0>(x)  b = RandomNormalLike<seed=1.0>(x)  y = Add(a, b) }",
    ),
    "dropouts": (
        CommonSubexpressionElimination,
        "g (float[2] x) => (float[2] y) <float r = {0.5}, bool t = {1}> {"
        "a = Dropout<seed=1>(x, r, t)  b = Dropout<seed=1>(x, r, t)  y = Add(a, b) }",
    ),
    "two outputs that are equal": (
        CommonSubexpressionElimination,
        "g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x)  z = Relu(x) }",
    ),
    "another attribute": (
        CommonSubexpressionElimination,
        "g (float[2,3] x) => (float[1,1] z) {"
        "a = ReduceSum<keepdims=1>(x)  b = ReduceSum<keepdims=0>(x)  z = Add(a, b) }",
    ),
    "another order": (
        CommonSubexpressionElimination,
        "g (float[2] x, float[2] u) => (float[2] y) {a = Sub(x, u)  b = Sub(u, x)  y = Mul(a, b) }",
    ),
    "single precision": (ExpandFloat64Functions, "g (float[2] x) => (float[2] y) { y = Tan(x) }"),
    "what double precision has": (
        ExpandFloat64Functions,
        "g (double[2] x) => (double[2] y) { y = Tanh(x) }",
    ),
    "a product read twice": (
        FuseBias,
        "g (float[2,3] x, float[3,4] w, float[4] b) => (float[2,4] y, float[2,4] z) {"
        "h = Gemm(x, w)  y = Add(h, b)  z = Neg(h) }",
    ),
    "a product that is an output": (
        FuseBias,
        "g (float[2,3] x, float[3,4] w, float[4] b) => (float[2,4] y, float[2,4] h) {"
        "h = Gemm(x, w)  y = Add(h, b) }",
    ),
    "a product with a bias": (
        FuseBias,
        "g (float[2,3] x, float[3,4] w, float[4] b) => (float[2,4] y) {"
        "h = Gemm(x, w, b)  y = Add(h, b) }",
    ),
    "a column": (
        FuseBias,
        "g (float[2,3] x, float[3,4] w, float[2,1] b) => (float[2,4] y) {"
        "h = Gemm(x, w)  y = Add(h, b) }",
    ),
    "more than a product": (
        FuseBias,
        "g (float[2,3] x, float[3,4] w, float[5,2,4] b) => (float[5,2,4] y) {"
        "h = Gemm(x, w)  y = Add(h, b) }",
    ),
    "a product added to itself": (
        FuseBias,
        "g (float[2,3] x, float[3,4] w) => (float[2,4] y) { h = Gemm(x, w)  y = Add(h, h) }",
    ),
    "a bias on the last axis of an image": (
        FuseBias,
        "g (float[1,2,3,3] x, float[3,2,1,1] w, float[3] b) => (float[1,3,3,3] y) {"
        "h = Conv(x, w)  y = Add(h, b) }",
    ),
    "a change read twice": (
        FoldUpdateIntoGemm,
        "g (float[3,4] w, float[3,2] d, float[2,4] x) => (float[3,4] n, float[3,4] z) {"
        "u = Gemm(d, x)  n = Add(w, u)  z = Neg(u) }",
    ),
    "a sum that repeats the change": (
        FoldUpdateIntoGemm,
        "g (float[3,4] w, float[1,2] d, float[2,4] x) => (float[3,4] n) {"
        "u = Gemm(d, x)  n = Add(w, u) }",
    ),
    "a sum of more axes": (
        FoldUpdateIntoGemm,
        "g (float[5,3,4] w, float[3,2] d, float[2,4] x) => (float[5,3,4] n) {"
        "u = Gemm(d, x)  n = Add(w, u) }",
    ),
    "a sum of what is computed": (
        FoldUpdateIntoGemm,
        "g (float[3,4] w, float[3,2] d, float[2,4] x) => (float[3,4] n) {"
        "v = Neg(w)  u = Gemm(d, x)  n = Add(v, u) }",
    ),
    "rows that replace": (
        ScatterIntoState,
        "g (float[9,4] w, int64[2,1] i, float[2,4] d) => (float[9,4] n) {"
        "s = Constant<value_ints=[9,4]>()  z = ConstantOfShape(s) "
        "u = ScatterND(z, i, d)  n = Add(w, u) }",
    ),
    "rows onto ones": (
        ScatterIntoState,
        "g (float[9,4] w, int64[2,1] i, float[2,4] d) => (float[9,4] n) {"
        "s = Constant<value_ints=[9,4]>()  z = ConstantOfShape<value=float[1] {1}>(s) "
        'u = ScatterND<reduction="add">(z, i, d)  n = Add(w, u) }',
    ),
    "rows read twice": (
        ScatterIntoState,
        "g (float[9,4] w, int64[2,1] i, float[2,4] d) => (float[9,4] n, float[9,4] y) {"
        "s = Constant<value_ints=[9,4]>()  z = ConstantOfShape(s) "
        'u = ScatterND<reduction="add">(z, i, d)  n = Add(w, u)  y = Neg(u) }',
    ),
    "rows onto what something else reads": (
        ScatterIntoState,
        "g (float[9,4] w, int64[2,1] i, float[2,4] d) => (float[9,4] n, float[9,4] y) {"
        "s = Constant<value_ints=[9,4]>()  z = ConstantOfShape(s)  h = Neg(w) "
        'u = ScatterND<reduction="add">(z, i, d)  n = Add(h, u)  y = Neg(h) }',
    ),
    "a cast that is an output": (
        RemoveRedundantCasts,
        "g (float[2] x) => (float[2] y) { y = Cast<to=1>(x) }",
    ),
    "a cast that changes something": (
        RemoveRedundantCasts,
        "g (float[2] x) => (float[2] y) { a = Cast<to=6>(x)  b = Cast<to=1>(a)  y = Neg(b) }",
    ),
    "a relu that something else reads": (
        SinkRelu,
        "g (float[1,1,4] x) => (float[1,1,2] z, float[1,1,4] n) {"
        "h = Relu(x)  y = MaxPool<kernel_shape=[2], strides=[2]>(h)  z = Neg(y)  n = Neg(h) }",
    ),
    "a relu that is an output": (
        SinkRelu,
        "g (float[1,1,4] x) => (float[1,1,2] z, float[1,1,4] h) {"
        "h = Relu(x)  y = MaxPool<kernel_shape=[2], strides=[2]>(h)  z = Neg(y) }",
    ),
    "a pool that is an output": (
        SinkRelu,
        "g (float[1,1,4] x) => (float[1,1,2] y) {"
        "h = Relu(x)  y = MaxPool<kernel_shape=[2], strides=[2]>(h) }",
    ),
    "a pool that tells positions": (
        SinkRelu,
        "g (float[1,1,4] x) => (float[1,1,2] z, int64[1,1,2] i) {"
        "h = Relu(x)  y, i = MaxPool<kernel_shape=[2], strides=[2]>(h)  z = Neg(y) }",
    ),
    "a truth made of a number": (
        RemoveRedundantCasts,
        "g (int8[2] i, float[2] x, float[2] y) => (float[2] z) {"
        "d = Cast<to=9>(i)  z = Where(d, x, y) }",
    ),
}


@pytest.mark.parametrize("name", REWRITES)
def test_rewrites(name):
    kind, signature, given, result = REWRITES[name]
    graph = graph_of(f"{signature} {{ {given} }}")
    before = interface(graph)
    assert kind().run(graph) is True
    assert body_of(graph) == lines(result)
    assert interface(graph) == before
    checked(graph)
    assert kind().run(graph) is False, "a second run finds nothing more"


@pytest.mark.parametrize("name", KEPT)
def test_keeps(name):
    kind, text = KEPT[name]
    graph = graph_of(text)
    before = body_of(graph), interface(graph), list(graph.initializers)
    assert kind().run(graph) is False
    assert (body_of(graph), interface(graph), list(graph.initializers)) == before


def test_dead_constants_go():
    graph = graph_of(
        "g (float[1] x) => (float[1] y) <float[1] c = {1}, float[1] d = {2}> { y = Add(x, c) }"
    )
    assert DeadCodeElimination().run(graph)
    assert list(graph.initializers) == ["c"]


def test_long_tensors_are_compared_in_full():
    first, second = (", ".join("1" * (i == 700) or "0" for i in range(2000)) for _ in range(2))
    second = second[::-1]
    graph = graph_of(
        "g () => (float[2000] y) {"
        f"a = Constant<value = float[2000] {{{first}}}>()"
        f"b = Constant<value = float[2000] {{{second}}}>()"
        f"c = Constant<value = float[2000] {{{first}}}>()"
        "s = Add(a, b)  y = Add(s, c) }"
    )
    assert CommonSubexpressionElimination().run(graph)
    assert [n.op_type for n in graph] == ["Constant", "Constant", "Add", "Add"]


def test_every_pass_has_its_cases():
    for table in (REWRITES, KEPT):
        assert {entry[0] for entry in table.values()} == {*PIPELINE, DivideSharedHalves, SinkRelu}


def test_the_pipeline_sees_through_everything():
    graph = graph_of(
        "g (float[2,3] x, float[3,4] w, float[4] b) => (float[2,4] y) {"
        "h = Gemm(x, w)  s = Add(h, b)  k = Gemm(x, w)  t = Add(k, b)"
        "c = Greater(s, t)  i = Cast<to=3>(c)  d = Cast<to=9>(i)  y = Where(d, s, t) }"
    )
    run_passes(graph)
    assert body_of(graph) == lines("h = Gemm(x, w, b)  c = Greater(h, h)  y = Where(c, h, h)")
