"""Cross entropies as one operator, beside the standard graph and numpy in double precision."""

import numpy as np
import onnx_ir as ir
import pytest
from flow2onnx_native.abi import DOMAIN
from flow2onnx_native.library import NativeLibrary
from flow2onnx_runtime import RunError

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.dtypes import float32, float64, int8, int32, int64
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from tests.native.running import Array, both, in_place, rewrite, run, session

DTYPES = {int32: np.int32, int64: np.int64}
TOLERANCE = 2e-6  # of slopes in units of their factor; of losses beside 1 and themselves


def graph(shape, dtype=int32, factors=(), *, flipped: bool = False, kept: bool = False) -> Builder:
    """Losses and slopes as a train job has them; `factors` is the shape of what comes back."""
    b = Builder()
    logits, labels = b.input("x", shape, float32), b.input("labels", shape[:-1], dtype)
    g = b.input("g", factors, float32)
    column = b.Unsqueeze(b.Cast(labels, to=int32) if dtype == int8 else labels, [-1])
    scores = b.LogSoftmax(logits, axis=-1)
    picked = b.GatherElements(scores, column, axis=-1)
    losses = b.Neg(b.Reshape(picked, list(shape[:-1])))
    b.output(losses, "losses")
    ones = b.Expand(b.const(np.float32(-1)), [*shape[:-1], 1])
    difference = b.ScatterElements(b.Exp(scores), column, ones, axis=-1, reduction="add")
    spread = g if factors else b.Reshape(b.Expand(g, list(shape[:-1])), [*shape[:-1], 1])
    b.output(b.Mul(spread, difference) if flipped else b.Mul(difference, spread), "slopes")
    if kept:
        b.output(scores, "scores")
        b.output(picked, "picked")
    return b


def expected(x: Array, labels: Array, g: Array) -> tuple[Array, Array]:
    wide = x.astype(np.float64)
    shifted = wide - wide.max(-1, keepdims=True)
    powers = np.exp(shifted)
    total = powers.sum(-1, keepdims=True)
    column = labels[..., None].astype(np.int64) % x.shape[-1]
    losses = (np.log(total) - np.take_along_axis(shifted, column, -1))[..., 0]
    slopes = powers / total
    np.put_along_axis(slopes, column, np.take_along_axis(slopes, column, -1) - 1, -1)
    return losses, slopes * g


def feeds_of(shape, dtype=np.int32, factors=(), seed: int = 0):
    draw = np.random.default_rng(seed)
    classes = shape[-1]
    return {
        "x": (5 * draw.standard_normal(shape)).astype(np.float32),
        "labels": np.asarray(
            draw.integers(-min(classes, 128), min(classes, 127), shape[:-1]), dtype
        ),
        "g": np.asarray(draw.standard_normal(factors) if factors else -0.25, np.float32),
    }


def agree(got, feeds, standard) -> None:
    losses, slopes = expected(feeds["x"], feeds["labels"], feeds["g"])
    for name, wanted, unit in (
        ("losses", losses, 1 + abs(losses)),
        ("slopes", slopes, abs(feeds["g"]) + 1e-30),
    ):
        assert got[name].shape == wanted.shape == standard[name].shape
        assert got[name].dtype == np.float32
        assert (abs(got[name] - wanted) / unit).max() <= TOLERANCE, name
        # the runtime adds up 100,000 numbers in single precision, by the processor's vectors
        assert (abs(got[name] - standard[name]) / unit).max() <= 10 * TOLERANCE, name


SHAPES = [
    (4, 1), (512, 2), (3, 5), (100, 10), (7, 15), (7, 16), (7, 17), (33, 100), (5, 4097),
    (2, 100_000), (6,), (2, 3, 4), (2, 2, 2, 19),
]  # fmt: skip


@pytest.mark.parametrize("dtype", list(DTYPES), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("by_row", [False, True])
def test_losses_and_slopes(shape, dtype, by_row: bool, library: NativeLibrary) -> None:
    factors = (*shape[:-1], 1) if by_row else ()
    b, feeds = graph(shape, dtype, factors, flipped=by_row), feeds_of(shape, DTYPES[dtype], factors)
    standard, native, used = both(b, feeds, library)
    assert used == {"CrossEntropy": 1}
    agree(native, feeds, standard)


def test_nothing_else_is_left(library: NativeLibrary) -> None:
    model, _ = rewrite(model_of(graph((4, 3), factors=(4, 1)).graph), ["CrossEntropy"])
    assert [n.op_type for n in model.graph] == ["CrossEntropy"]


def test_labels_are_taken_as_they_come(library: NativeLibrary) -> None:
    b, feeds = graph((6, 5), int8), feeds_of((6, 5), np.int8)
    standard, native, used = both(b, feeds, library)
    assert used == {"CrossEntropy": 1}
    agree(native, feeds, standard)


def test_what_others_read_stays(library: NativeLibrary) -> None:
    b, feeds = graph((6, 5), kept=True), feeds_of((6, 5))
    standard, native, used = both(b, feeds, library)
    assert used == {"CrossEntropy": 1}
    agree(native, feeds, standard)
    for name in ("scores", "picked"):
        np.testing.assert_array_equal(native[name], standard[name])


@pytest.mark.parametrize("shape", [(3000, 7), (300, 100), (5, 40_000)], ids=str)
def test_threads_do_not_change_the_results(shape, library: NativeLibrary) -> None:
    feeds = feeds_of(shape)
    made = []
    for threads in (1, 4):
        model, _ = rewrite(model_of(graph(shape).graph), library.operators, threads)
        made.append(run(session(model, library, threads), feeds))
    for name, alone in made[0].items():
        np.testing.assert_array_equal(alone, made[1][name])


ROWS = {
    "equal": [2.5, 2.5, 2.5, 2.5],
    "far apart": [1e30, -1e30, 0.0, 3.4e38],
    "tiny": [1e-40, -1e-40, 0.0, 1e-45],
    "without one": [-np.inf, 1.0, 2.0, 3.0],
    "with one alone": [-np.inf, -np.inf, 2.0, -np.inf],
    "without any": [-np.inf] * 4,
    "infinite": [np.inf, 1.0, 2.0, -np.inf],
    "none": [1.0, np.nan, 2.0, 3.0],
    "low": [-200.0, -300.0, -200.5, -1000.0],
    "far below": [0.0, -88.0, -103.0, -105.0],
}


@pytest.mark.parametrize("repeats", [1, 9], ids=["few", "many"])
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("label", range(4))
def test_numbers_that_are_none(row, label, repeats: int, library: NativeLibrary) -> None:
    x = np.array([ROWS[row], [0.5, 1.0, -2.0, 3.0]], np.float32)
    x = np.concatenate([x, np.repeat(x[:, 1:2], 4 * repeats - 4, 1)], 1)
    feeds = {"x": x, "labels": np.array([label, 1], np.int32), "g": np.array(0.5, np.float32)}
    standard, native, used = both(graph(x.shape), feeds, library)
    assert used == {"CrossEntropy": 1}
    for name, wanted in standard.items():
        np.testing.assert_array_equal(np.isnan(native[name]), np.isnan(wanted), err_msg=name)
        np.testing.assert_allclose(native[name], wanted, rtol=4e-6, atol=4e-7, err_msg=name)


@pytest.mark.parametrize("dtype", list(DTYPES), ids=str)
@pytest.mark.parametrize("wrong", [5, -6, 2**31 - 1, -(2**31)])
def test_a_label_of_no_class_is_named(wrong, dtype, library: NativeLibrary) -> None:
    feeds = feeds_of((4, 5), DTYPES[dtype])
    feeds["labels"][2] = wrong
    b = graph((4, 5), dtype)
    with pytest.raises(Exception, match=r"(?i)out of (data )?bounds"):
        run(session(model_of(b.graph)), feeds)
    opened = session(rewrite(model_of(b.graph), ["CrossEntropy"])[0], library)
    message = f"CrossEntropy: label {wrong} at position 2 is none of 5 classes"
    with pytest.raises(Exception, match=message):
        run(opened, feeds)


def test_a_factor_that_is_made_of_the_losses(library: NativeLibrary) -> None:
    """The losses then stay with the standard operators: nothing waits for itself."""
    b = Builder()
    x, labels = b.input("x", (6, 5), float32), b.input("labels", (6,), int32)
    column = b.Unsqueeze(labels, [-1])
    scores = b.LogSoftmax(x, axis=-1)
    losses = b.Neg(b.Reshape(b.GatherElements(scores, column, axis=-1), [6]))
    ones = b.Expand(b.const(np.float32(-1)), [6, 1])
    difference = b.ScatterElements(b.Exp(scores), column, ones, axis=-1, reduction="add")
    b.output(losses, "losses")
    b.output(b.Mul(difference, b.Reshape(b.Tanh(losses), [6, 1])), "slopes")
    feeds = feeds_of((6, 5))
    standard, native, used = both(b, {k: feeds[k] for k in ("x", "labels")}, library)
    assert used["CrossEntropy"] == 1
    agree(native, feeds | {"g": np.tanh(standard["losses"])[:, None]}, standard)


def other(b: Builder, **changes) -> None:
    """The pattern with one thing different."""
    dtype = changes.get("dtype", float32)
    x, labels = b.input("x", changes.get("shape", (5, 5)), dtype), b.input("labels", (5, 1), int32)
    at = changes.get("axis", -1)
    scores = b.LogSoftmax(x, axis=at)
    added = b.const(np.full((5, 1), changes.get("added", -1), dtype.numpy))
    powers = b.Sigmoid(scores) if "sigmoid" in changes else b.Exp(scores)
    scattered = b.ScatterElements(
        powers, labels, added, axis=-1, reduction=changes.get("reduction", "add")
    )
    b.output(b.Mul(scattered, b.input("g", changes.get("factors", ()), dtype)), "slopes")


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": float64}, {"added": -2}, {"reduction": "none"}, {"sigmoid": True}, {"axis": 0},
        {"factors": (5,)}, {"factors": (5, 5)}, {"shape": (6, 5)}, {"shape": ("n", 5)},
    ],
    ids=str,
)  # fmt: skip
def test_what_stays(changes, library: NativeLibrary) -> None:
    b = Builder()
    other(b)
    assert rewrite(model_of(b.graph), ["CrossEntropy"])[1] == {"CrossEntropy": 1}
    b = Builder()
    other(b, **changes)
    assert rewrite(model_of(b.graph), ["CrossEntropy"])[1] == {}


FLOAT, INT32 = ir.DataType.FLOAT, ir.DataType.INT32


def native_graph(logits, labels, factors, *, tasks=1, shape=(4,), kind=INT32) -> ir.Model:
    """A model of one native node, as nobody would make it."""
    values = [
        ir.val("x", FLOAT, logits),
        ir.val("labels", kind, labels),
        ir.val("g", FLOAT, factors),
    ]
    attributes = [ir.AttrInt64("tasks", tasks), ir.AttrInt64s("shape", shape)]
    node = ir.Node(DOMAIN, "CrossEntropy", values, attributes, num_outputs=2)
    for output, name in zip(node.outputs, ("losses", "slopes"), strict=True):
        output.name, output.type = name, ir.TensorType(FLOAT)
    graph = ir.Graph(values, node.outputs, nodes=[node], opset_imports={"": 18, DOMAIN: 1})
    return ir.Model(graph, ir_version=9)


@pytest.mark.parametrize(
    ("sizes", "attributes", "message"),
    [
        (((4, 3), (3,), ()), {}, "3 labels of type 6 do not fit 4 rows"),
        (((4, 3), (4, 3), ()), {}, "12 labels of type 6 do not fit 4 rows"),
        (((4, 3), (4,), (3,)), {}, "3 factors of type 1 do not fit 4 rows"),
        (((4, 3), (4,), (0,)), {}, "0 factors of type 1 do not fit 4 rows"),
        (((4, 0), (4,), ()), {}, "floats, of one class or more"),
        (((), (), ()), {}, "have 0 dimensions"),
        (((4, 3), (4,), ()), {"shape": (5,)}, "4 losses are not of the shape"),
        (((4, 3), (4,), ()), {"shape": (2, -2)}, "4 losses are not of the shape"),
        (((4, 3), (4,), ()), {"shape": (2**33, 2**33)}, "4 losses are not of the shape"),
        (((4, 3), (4,), ()), {"shape": (0, 4)}, "4 losses are not of the shape"),
        (((4, 3), (4,), ()), {"shape": (1,) * 9}, "losses of 9 dimensions"),
        (((4, 3), (4,), ()), {"tasks": 0}, "CrossEntropy: 0 tasks"),
        (((4, 3), (4,), ()), {"tasks": 2000}, "CrossEntropy: 2000 tasks"),
        (((4, 3), (4,), ()), {"kind": FLOAT}, "4 labels of type 1 do not fit"),
    ],
    ids=str,
)
def test_what_does_not_fit(sizes, attributes, message, library: NativeLibrary) -> None:
    kind = attributes.get("kind", INT32)
    feeds = {
        name: np.zeros(size, np.int32 if (name, kind) == ("labels", INT32) else np.float32)
        for name, size in zip(("x", "labels", "g"), sizes, strict=True)
    }
    with pytest.raises(Exception, match=message):
        run(session(native_graph(*sizes, **attributes), library), feeds)


def test_no_rows(library: NativeLibrary) -> None:
    feeds = {"x": np.zeros((0, 3), np.float32), "labels": np.zeros(0, np.int32),
             "g": np.array(1, np.float32)}  # fmt: skip
    made = run(session(native_graph((0, 3), (0,), (), shape=(0,)), library), feeds)
    assert (made["losses"].shape, made["slopes"].shape) == ((0,), (0, 3))


def job_of(*, wish: bool, classes: int = 10):
    """A job that classifies rows, and a batch."""
    flow.clear_default_session()
    config = flow.function_config()
    config.runtime.native(wish)

    @flow.global_function(type="train", function_config=config)
    def job(
        x: tp.Numpy.Placeholder((20, 12)), labels: tp.Numpy.Placeholder((20,), dtype=flow.int32)
    ) -> tp.Numpy:
        init = flow.random_normal_initializer(0, 0.3)
        y = flow.layers.dense(x, 16, activation=flow.nn.relu, name="a", kernel_initializer=init)
        y = flow.layers.dense(y, classes, name="b", kernel_initializer=init)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, y)
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(rate, momentum=0).minimize(loss)
        return loss

    draw = np.random.default_rng(4)
    x = draw.standard_normal((20, 12)).astype(np.float32)
    return job, x, draw.integers(0, classes, 20).astype(np.int32)


def test_jobs_learn_the_same(library: NativeLibrary) -> None:
    learned = {}
    for wish in (False, True):
        job, x, labels = job_of(wish=wish)
        learned[wish] = np.array([job(x, labels) for _ in range(6)])
        assert job.explain().native.get("CrossEntropy", 0) == int(wish)
    np.testing.assert_allclose(learned[True], learned[False], rtol=2e-5, atol=1e-6)
    assert learned[True][-1].mean() < 0.9 * learned[True][0].mean()


def test_a_step_that_fails_changes_nothing(
    library: NativeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    # labels of a job are checked before its steps: here the operator is to find the wrong one
    monkeypatch.setattr("flow2onnx.engine.executable.fed_labels", lambda job: ())
    job, x, labels = job_of(wish=True)
    job(x, labels)
    before = {n: v.numpy().copy() for n, v in flow.get_all_variables().items()}
    wrong = labels.copy()
    wrong[7] = 10
    with pytest.raises(RunError, match=r"(?s)label 10 at position 7 .*state is as it was"):
        job(x, wrong)
    for name, value in flow.get_all_variables().items():
        np.testing.assert_array_equal(value.numpy(), before[name], err_msg=name)


def test_it_may_fail_at_a_label() -> None:
    """A state that waits for the slopes is updated where it is, another is not."""
    b = graph((4, 5))
    slopes = next(v for v in b.graph.outputs if v.name == "slopes")
    b.output(b.Add(b.input("w", (4, 5), float32), slopes), "next/w")
    b.output(b.Add(b.input("steps", (1,), float32), b.const(np.float32([1]))), "next/steps")
    model, used = rewrite(model_of(b.graph), ["CrossEntropy"])
    assert used == {"CrossEntropy": 1}
    moved, steps = in_place(model.graph, ["w", "steps"])
    assert moved.is_safe
    assert "may fail after the update" in steps.reason
