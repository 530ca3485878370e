"""A job of one's own, measured: what is told of it, and what is said of wrong input."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx_ir as ir
import pytest

from benchmarks import mine, mine_worker
from benchmarks.contest import Row
from benchmarks.mine import Timed, findings, trace_of
from benchmarks.mine_worker import GivenError
from benchmarks.roofline import Ceilings, costs_by_node
from flow2onnx.dtypes import float32, int32

COSTS = {"a": ["Gemm", "float32", 4000, 2_000_000]}
LEAVES = {
    "x": SimpleNamespace(shape=(2, 3), dtype=float32),
    "labels": SimpleNamespace(shape=(2,), dtype=int32),
}
X, LABELS = np.zeros((2, 3), np.float32), np.zeros(2, np.int32)
JOB = """
import oneflow as flow
import oneflow.typing as tp

print("a line of the user's own")

@flow.global_function(type="train")
def train_job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
    open("train.py").close()
    loss = flow.math.reduce_mean(flow.math.square(flow.layers.dense(x, 1, name="fc")))
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(rate, momentum=0).minimize(loss)
    return loss
"""
FAILING_HANDLER = """
calls = []

def fail(value):
    calls.append(value)
    if len(calls) > 3:
        raise OverflowError("no fourth step")
"""
TWIN = """
def twin(values):
    w, b = values["fc-weight"], values["fc-bias"]

    def step(x):
        y = x @ w.T + b
        g = 2 * y / y.size
        w[:], b[:] = w - 0.1 * (g.T @ x), b - 0.1 * g.sum(0)
        return (y * y).mean()

    return step

def other(values):
    return lambda x: 1.0

def failing(values):
    step, done = twin(values), []

    def until(x):
        done.append(x)
        if len(done) > 3:
            raise OverflowError("no fourth step")
        return step(x)

    return until

def nothing(values):
    return None
"""


def test_batches_of_a_file():
    assert len(mine_worker._given(LEAVES, {"x": X, "labels": LABELS})) == 1
    several = {"x": np.stack([X] * 5), "labels": np.stack([LABELS] * 5)}
    batches = mine_worker._given(LEAVES, several)
    assert [[a.shape for a in batch] for batch in batches] == [[(2, 3), (2,)]] * 5


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"x": X}, "the data file has x, and the job is fed x, labels"),
        ({"x": X.astype(float), "labels": LABELS}, "x in the data file is of float64"),
        ({"x": X.T, "labels": LABELS}, r"x in the data file has shape \(3, 2\)"),
        ({"x": np.stack([X, X]), "labels": LABELS}, "numbers of batches: x 2, labels 1"),
    ],
)
def test_data_that_do_not_fit(data, words):
    with pytest.raises(GivenError, match=words):
        mine_worker._given(LEAVES, data)


def test_files_that_are_none(tmp_path):
    with pytest.raises(GivenError, match="does not exist"):
        mine_worker._read(tmp_path / "nothing.npz")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(GivenError, match="is no file of numpy"):
        mine_worker._read(tmp_path / "text.npz")


@pytest.mark.parametrize(
    ("target", "words"),
    [("twins.py", "write it as"), ("none.py:f", "does not exist"), ("json:f", "has no function")],
)
def test_twins_that_are_none(target, words):
    with pytest.raises(GivenError, match=words):
        mine_worker._function(target)


def test_a_trace_leaves_out_the_first_steps(tmp_path):
    events = [{"name": "model_run", "ts": 100 * i, "dur": 90} for i in range(5)]
    for i in range(5):
        took = 1000 if i < 3 else 40
        events.append({"name": "a_kernel_time", "ts": 100 * i + 1, "dur": took,
                       "args": {"op_name": "Gemm"}})  # fmt: skip
    (tmp_path / "trace.json").write_text(json.dumps(events))
    assert trace_of(tmp_path / "trace.json") == [Timed("a", "Gemm", 0.04)]


def about(**more):
    known = {
        "kind": "train",
        "nodes": 3,
        "native": {},
        "has_native": True,
        "updates": [],
        "versions": {},
        "costs": COSTS,
        "opened_costs": COSTS,
    }
    return known | more


def told(nodes, ms=1.0, **more):
    row = Row("job", 1, "flow2onnx", ms=ms, quartiles=(ms, ms))
    ceilings = Ceilings({"float32": 2e10}, 1e10, 1e-6)
    return findings("job", [row], about(**more), nodes, ceilings, 1)


def test_numbers_of_a_step():
    found = told([Timed("fused a", "FusedGemm", 0.9)])
    assert found["arithmetic_ms"] == pytest.approx(0.1)
    (top,) = found["top"]
    assert top["share"] == pytest.approx(0.9)
    assert top["least_ms"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("nodes", "more", "words"),
    [
        ([Timed("a", "Gemm", 0.9)], {}, "small or narrow ones are slow"),
        ([Timed("a", "Gemm", 0.1)], {"ms": 0.11}, "only less arithmetic"),
        ([Timed("a", "Gemm", 0.2)], {}, "not in its nodes but in the call"),
        ([Timed("t", "Transpose", 0.9)], {}, "copies numbers from place to place (Transpose)"),
        ([Timed("u", "Add", 0.9)], {"updates": ["u"]}, "updates variables"),
        ([Timed("u", "Add", 0.9)], {"has_native": False}, "install flow2onnx-native"),
    ],
)
def test_what_to_try(nodes, more, words):
    assert any(words in sentence for sentence in told(nodes, **more)["try"])


def test_products_of_halves_are_computed_in_float32():
    found = told([], costs={"a": ["MatMul", "float16", 4000, 2_000_000]})
    assert found["node_by_node_ms"] == pytest.approx(0.1)


X_SHAPE, W_SHAPE, Y_SHAPE = (2, 4, 9, 9), (8, 2, 3, 3), (2, 8, 5, 5)  # in two groups, stride 2


@pytest.mark.parametrize(
    ("operator", "operands", "result"),
    [
        ("Conv", (X_SHAPE, W_SHAPE), Y_SHAPE),
        ("ConvTranspose", (Y_SHAPE, W_SHAPE), X_SHAPE),
        ("ConvInputGradient", (Y_SHAPE, W_SHAPE), X_SHAPE),
        ("ConvWeightGradient", (X_SHAPE, Y_SHAPE), W_SHAPE),
    ],
)
def test_passes_of_a_convolution_have_the_same_arithmetic(operator, operands, result):
    inputs = [ir.val(f"{i}", ir.DataType.FLOAT, shape) for i, shape in enumerate(operands)]
    output = ir.val("y", ir.DataType.FLOAT, result)
    node = ir.Node("", operator, inputs, outputs=[output], name="n")
    cost = costs_by_node([node])["n"]
    assert cost.flops == 2 * 2 * 8 * 5 * 5 * 2 * 3 * 3
    assert cost.bytes == 4 * (648 + 144 + 400)


@pytest.mark.parametrize(
    ("native", "standard"),
    [("Rows", "GatherND"), ("AddRows", "ScatterND"), ("PutRows", "ScatterND")],
)
def test_rows_of_a_table_are_counted_as_by_standard_operators(native, standard):
    kinds = [((1000, 8), "FLOAT"), ((5, 1), "INT64"), ((5, 8), "FLOAT")]
    values = [ir.val(str(i), ir.DataType[kind], shape) for i, (shape, kind) in enumerate(kinds)]
    inputs, result = (values[:2], (5, 8)) if native == "Rows" else (values, (1000, 8))
    nodes = [
        ir.Node("", name, inputs, outputs=[ir.val(name, ir.DataType.FLOAT, result)], name=name)
        for name in (native, standard)
    ]
    found = costs_by_node(nodes)
    assert found[native].bytes == found[standard].bytes < 1000 * 8


def test_native_nodes_are_counted_where_what_they_do_is_known():
    shape = ir.AttrInt64s("shape", [3, 5, 7, 2, 4, 1, 0, 0, 0, *[0] * 15])
    x, y = (ir.val(name, ir.DataType.FLOAT, (1,)) for name in "xy")
    product = ir.Node("ours", "Product", [x, y], [shape], num_outputs=1, name="product")
    attention = ir.Node("ours", "Attention", [x, y], num_outputs=1, name="attention")
    found = costs_by_node([product, attention])
    assert found["product"].flops == 2 * 3 * 5 * 7 * 2 * 4
    assert "attention" not in found


@pytest.mark.slow
def test_a_job_beside_its_twin(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(JOB)
    Path("twins.py").write_text(TWIN)
    asked = ["--mine", "train.py:train_job", "--quick"]
    mine.main([*asked, "--twin", "twins.py:twin", "--json", "found.json"])
    assert "the losses of three steps are the same" in " ".join(capsys.readouterr().out.split())
    found = json.loads(Path("found.json").read_text())
    assert found["twin"][0]["ratio"] > 0
    assert found["top"]
    mine.main([*asked, "--twin", "twins.py:failing"])
    assert "The twin was ended: OverflowError: no fourth step" in capsys.readouterr().out
    mine.main([*asked, "--twin", "twins.py:other"])
    assert "The twin was not timed: it computes [1.0" in capsys.readouterr().out
    for twin, words in (("nothing", "returned NoneType"), ("unknown", "has no function unknown")):
        with pytest.raises(SystemExit, match=words):
            mine.main([*asked, "--twin", f"twins.py:{twin}"])
    with pytest.raises(SystemExit, match="no job is named other"):
        mine.main(["--mine", "train.py:other", "--quick"])


@pytest.mark.slow
def test_a_job_that_fails_while_it_is_timed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failing = JOB.replace("    return loss", "    flow.watch(loss, fail)\n    return loss")
    Path("train.py").write_text(failing + FAILING_HANDLER)
    with pytest.raises(SystemExit, match="no fourth step"):
        mine.main(["--mine", "train.py:train_job", "--quick"])
