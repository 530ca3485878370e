"""Lookups and changes of rows beside numpy, alone and in jobs that update a table in place."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from flow2onnx_native.abi import DOMAIN
from flow2onnx_native.library import NativeLibrary
from flow2onnx_runtime import RunError

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.analysis.in_place import index_origin
from flow2onnx.dtypes import float32, float64, int32, int64
from flow2onnx.engine.session import current_session
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_of
from tests.native.running import both, in_place, rewrite, run, session

DTYPES = {int32: np.int32, int64: np.int64}
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129, 256, 1000, 1024)


@pytest.fixture
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests look up a few rows of a small table, which would not pay."""
    monkeypatch.setattr("flow2onnx_native.gather_scatter.FEWEST_INDICES", 0)
    monkeypatch.setattr("flow2onnx_native.gather_scatter.SMALLEST_TABLE", 0)


pytestmark = pytest.mark.usefixtures("small_tables")


OUTPUTS = {"Rows": "found", "AddRows": "added", "PutRows": "put"}


def lookup(table, indices, dtype=int32, shown=("found", "found_by_column", "added", "put")):
    """A graph that looks rows up, adds to them and puts others there; and what goes in."""
    b = Builder()
    t, i = b.input("t", table.shape, float32), b.input("i", indices.shape, dtype)
    g = b.input("g", indices.shape + table.shape[1:], float32)
    wide = i if dtype == int64 else b.Cast(i, to=int64)
    wrapped = b.Where(b.Less(wide, 0), b.Add(wide, table.shape[0]), wide)
    column = b.Unsqueeze(wrapped, [-1])
    makers = {
        "found": lambda: b.Gather(t, i, axis=0),
        "found_by_column": lambda: b.GatherND(t, column),
        "added": lambda: b.ScatterND(t, column, g, reduction="add"),
        "put": lambda: b.ScatterND(t, column, g),
    }
    for name in shown:
        b.output(makers[name](), name)
    changes = np.random.default_rng(1).standard_normal(indices.shape + table.shape[1:])
    feeds = {"t": table, "i": indices.astype(DTYPES[dtype]), "g": changes.astype(np.float32)}
    return b, feeds


def expected(feeds):
    """The same by numpy; a row that is named twice gets its changes in the order of the indices."""
    table, rows = feeds["t"], feeds["i"].ravel().astype(np.int64)
    changes = feeds["g"].reshape(rows.size, *table.shape[1:])
    added, put = table.copy(), table.copy()
    for row, change in zip(rows, changes, strict=True):
        added[row] += change
        put[row] = change
    found = table[feeds["i"]]
    return {"found": found, "found_by_column": found, "added": added, "put": put}


def check(b, feeds, library, threads=1):
    model, used = rewrite(model_of(b.graph), library.operators, threads)
    assert used == {"Rows": 1, "AddRows": 1, "PutRows": 1}, "both lookups are one"
    assert {n.op_type for n in model.graph} == set(used), "indices are taken as they come"
    made = run(session(model, library, threads), feeds)
    for name, wanted in expected(feeds).items():
        np.testing.assert_array_equal(made[name], wanted, err_msg=name, strict=True)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("width", WIDTHS)
def test_widths(width: int, threads: int, library: NativeLibrary) -> None:
    draw = np.random.default_rng(width)
    table = draw.standard_normal((300, width)).astype(np.float32)
    count = max(65536 // width, 300)  # enough for two tasks and more, with many duplicates
    check(*lookup(table, draw.integers(-300, 300, count)), library, threads)


@pytest.mark.parametrize("dtype", list(DTYPES), ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (0,), (3, 5), (2, 3, 4), (2, 0, 3), (1500,)])
def test_shapes_of_indices(shape, dtype, library: NativeLibrary) -> None:
    draw = np.random.default_rng(0)
    table = draw.standard_normal((9, 5)).astype(np.float32)
    check(*lookup(table, np.asarray(draw.integers(-9, 9, shape)), dtype), library, threads=2)


@pytest.mark.parametrize("shape", [(9,), (9, 1), (9, 2, 3), (9, 0), (1, 4), (9, 2, 2, 2)])
def test_shapes_of_tables(shape, library: NativeLibrary) -> None:
    draw = np.random.default_rng(0)
    table = draw.standard_normal(shape).astype(np.float32)
    check(*lookup(table, draw.integers(-shape[0], shape[0], (4, 3))), library)


@pytest.mark.parametrize("threads", [1, 2])
def test_one_row_named_often(threads: int, library: NativeLibrary) -> None:
    table = np.zeros((50, 16), np.float32)
    check(*lookup(table, np.full(5000, 31)), library, threads)


def test_not_a_number_stays_where_it_is(library: NativeLibrary) -> None:
    table = np.ones((8, 6), np.float32)
    table[3, 2], table[4, 1] = np.nan, np.inf
    b, feeds = lookup(table, np.array([3, 4, 0]))
    feeds["g"][2, 5] = np.nan
    check(b, feeds, library)


@pytest.mark.parametrize("dtype", list(DTYPES), ids=str)
@pytest.mark.parametrize("wrong", [9, -10, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("name", ["Rows", "AddRows", "PutRows"])
def test_an_index_outside_is_named(name, wrong, dtype, library: NativeLibrary) -> None:
    table = np.ones((9, 5), np.float32)
    output = OUTPUTS[name]
    b, feeds = lookup(table, np.arange(8), dtype, [output])
    feeds["i"][6] = wrong
    opened = session(rewrite(model_of(b.graph), {name})[0], library)
    message = f"{name}: index {wrong} at position 6 is outside a table of 9 rows"
    with pytest.raises(Exception, match=message):
        opened.run([output], feeds)


def test_an_index_beyond_32_bits(library: NativeLibrary) -> None:
    b, feeds = lookup(np.ones((9, 5), np.float32), np.arange(8), int64, ["found"])
    feeds["i"][0] = 2**32
    opened = session(rewrite(model_of(b.graph), {"Rows"})[0], library)
    with pytest.raises(Exception, match="index 4294967296 at position 0"):
        opened.run(["found"], feeds)


def tables_graph(heights, width, count, shown=("found", "added", "put")):
    """Lookups in several tables, indices of both types, and updates of all; and what goes in."""
    b, feeds, draw = Builder(), {}, np.random.default_rng(width)
    for i, height in enumerate(heights):
        table = draw.standard_normal((height, width)).astype(np.float32)
        feeds[f"t{i}"], feeds[f"i{i}"] = table, draw.integers(0, height, count)
        feeds[f"g{i}"] = draw.standard_normal((count, width)).astype(np.float32)
        t, g = (b.input(f"{n}{i}", feeds[f"{n}{i}"].shape, float32) for n in "tg")
        dtype = (int32, int64)[i % 2]
        feeds[f"i{i}"] = feeds[f"i{i}"].astype(DTYPES[dtype])
        at = b.input(f"i{i}", (count,), dtype)
        column = b.Unsqueeze(at if dtype == int64 else b.Cast(at, to=int64), [-1])
        makers = {
            "found": lambda t=t, at=at: b.Tanh(b.Gather(t, at, axis=0)),
            "added": lambda t=t, at=column, g=g: b.ScatterND(t, at, g, reduction="add"),
            "put": lambda t=t, at=column, g=g: b.ScatterND(t, at, g),
        }
        for name in shown:
            b.output(makers[name](), f"{name}{i}")
    return b, feeds


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("tables", "count"), [(2, 5), (3, 4000), (20, 1500)])
def test_many_tables_are_one_operator(
    tables: int, count: int, threads: int, library: NativeLibrary
) -> None:
    """With many tables tasks share these, with few the rows of each."""
    b, feeds = tables_graph([300 + 7 * i for i in range(tables)], 20, count)
    model, used = rewrite(model_of(b.graph), library.operators, threads)
    assert used == {"Rows": 1, "AddRows": 1, "PutRows": 1}
    made = run(session(model, library, threads), feeds)
    for i in range(tables):
        wanted = expected({n: feeds[f"{n}{i}"] for n in "tig"})
        for name in ("added", "put"):
            np.testing.assert_array_equal(made[f"{name}{i}"], wanted[name], err_msg=f"{name}{i}")
        np.testing.assert_allclose(made[f"found{i}"], np.tanh(wanted["found"]), rtol=1e-5)


def test_one_wrong_index_of_many_tables_changes_none(library: NativeLibrary) -> None:
    b, feeds = tables_graph([9, 9, 9], 4, 3, ["added"])
    model, _ = rewrite(model_of(b.graph), library.operators)
    feeds["i2"][1] = 9
    binding = (opened := session(model, library)).io_binding()
    tables = [ort.OrtValue.ortvalue_from_numpy(feeds[f"t{i}"].copy()) for i in range(3)]
    for name, value in feeds.items():
        if name.startswith("t"):
            binding.bind_ortvalue_input(name, tables[int(name[1:])])
        else:
            binding.bind_cpu_input(name, value)
    for i, table in enumerate(tables):
        binding.bind_ortvalue_output(f"added{i}", table)
    with pytest.raises(Exception, match="AddRows: index 9 at position 1 is outside a table of 9"):
        opened.run_with_iobinding(binding)
    for i, table in enumerate(tables):
        np.testing.assert_array_equal(table.numpy(), feeds[f"t{i}"])


def neighbours(width, dtype=int32, *, is_seen=False, count=3000, heights=(300, 200)):
    """A graph that adds rows of one table onto those of another; and what goes in."""
    draw, b = np.random.default_rng(width), Builder()
    t, x = (b.input(n, (h, width), float32) for n, h in zip("tx", heights, strict=True))
    to, at = b.input("to", (count,), int32), b.input("at", (count,), dtype)
    found = b.Gather(x, at, axis=0)
    column = b.Unsqueeze(b.Cast(to, to=int64), [-1])
    b.output(b.ScatterND(b.Neg(t), column, found, reduction="add"), "y")
    if is_seen:
        b.output(found, "found")
    tables = {n: draw.standard_normal((h, width)).astype(np.float32)
              for n, h in zip("tx", heights, strict=True)}  # fmt: skip
    rows = {"to": draw.integers(-heights[0], heights[0], count).astype(np.int32),
            "at": draw.integers(-heights[1], heights[1], count).astype(DTYPES[dtype])}  # fmt: skip
    return b, tables | rows


@pytest.mark.parametrize("dtype", list(DTYPES), ids=str)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 3, 16, 64, 65, 200])
def test_rows_are_added_from_where_they_are(width, threads, dtype, library: NativeLibrary) -> None:
    b, feeds = neighbours(width, dtype, count=max(65536 // width, 300))
    model, used = rewrite(model_of(b.graph), library.operators, threads)
    assert used == {"AddNamedRows": 1}
    assert {n.op_type for n in model.graph} == {"Neg", *used}
    wanted = expected({"t": -feeds["t"], "i": feeds["to"], "g": feeds["x"][feeds["at"]]})["added"]
    made = run(session(model, library, threads), feeds)
    np.testing.assert_array_equal(made["y"], wanted)


def test_rows_that_others_read_are_looked_up(library: NativeLibrary) -> None:
    b, feeds = neighbours(5, is_seen=True)
    _, native, used = both(b, feeds, library)
    assert used == {"Rows": 1, "AddRows": 1}
    np.testing.assert_array_equal(native["found"], feeds["x"][feeds["at"]])


def test_rows_of_another_width_are_looked_up(library: NativeLibrary) -> None:
    """Each row that is found is several that are added."""
    b = Builder()
    t, x = b.input("t", (9, 4), float32), b.input("x", (7, 5, 4), float32)
    to, at = b.input("to", (3, 5, 1), int64), b.input("at", (3,), int64)
    b.output(b.ScatterND(b.Neg(t), to, b.Gather(x, at, axis=0), reduction="add"), "y")
    draw = np.random.default_rng(2)
    feeds = {"t": draw.standard_normal((9, 4)).astype(np.float32),
             "x": draw.standard_normal((7, 5, 4)).astype(np.float32),
             "to": draw.integers(0, 9, (3, 5, 1)), "at": draw.integers(0, 7, 3)}  # fmt: skip
    apart, native, used = both(b, feeds, library)
    assert used == {"Rows": 1, "AddRows": 1}
    np.testing.assert_allclose(native["y"], apart["y"], rtol=1e-6)


@pytest.mark.parametrize(("name", "height"), [("to", 300), ("at", 200)])
def test_an_index_outside_either_table_is_named(name, height, library: NativeLibrary) -> None:
    b, feeds = neighbours(5)
    feeds[name][6] = height
    opened = session(rewrite(model_of(b.graph), library.operators)[0], library)
    message = f"AddNamedRows: index {height} at position 6 is outside a table of {height} rows"
    with pytest.raises(Exception, match=message):
        run(opened, feeds)


def test_state_is_updated_behind_a_lookup_that_may_fail(library: NativeLibrary) -> None:
    b = Builder()
    w, x = b.input("w", (5000, 16), float32), b.input("x", (5000, 16), float32)
    i = b.input("i", (3,), int64)
    b.output(b.ScatterND(w, b.Unsqueeze(i, [-1]), b.Gather(x, i), reduction="add"), "next/w")
    model, used = rewrite(model_of(b.graph), library.operators)
    assert used == {"AddRows": 1, "Rows": 1}
    assert in_place(model.graph, ["w"])[0].is_safe


def test_a_job_adds_over_edges_and_learns_the_same(library: NativeLibrary) -> None:
    nodes, edges = 400, 1500

    def train(wish: bool):
        flow.clear_default_session()
        config = flow.function_config()
        config.runtime.native(wish)

        @flow.global_function(type="train", function_config=config)
        def job(
            x: tp.Numpy.Placeholder((nodes, 12)),
            src: tp.Numpy.Placeholder((edges,), flow.int32),
            dst: tp.Numpy.Placeholder((edges,), flow.int32),
        ) -> tp.Numpy:
            first = flow.random_normal_initializer()
            for layer, width in enumerate((20, 16)):
                w = flow.get_variable(f"w{layer}", (x.shape[1], width), initializer=first)
                x = flow.gather(flow.matmul(x, w), src)
                x = flow.math.tanh(flow.math.unsorted_segment_sum(x, dst, nodes))
            loss = flow.math.reduce_mean(flow.math.square(x))
            UPDATES["sgd"](flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
            return loss

        draw = np.random.default_rng(5)
        x = draw.standard_normal((nodes, 12)).astype(np.float32)
        ends = draw.integers(0, nodes, (2, edges)).astype(np.int32)
        return [job(x, *ends) for _ in range(3)], state(), job.explain()

    plain, before, _ = train(wish=False)
    native, after, told = train(wish=True)
    assert told.native["AddNamedRows"] == 4, "two sums and their gradients"
    assert not {"Rows", "AddRows"} & told.native.keys()
    np.testing.assert_allclose(native, plain, rtol=1e-5)
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-4, atol=1e-6)


def native_graph(op_type, inputs, **attributes):
    """A model of one native node, as nobody would make it."""
    values = [ir.val(n, d, s) for n, d, s in inputs]
    made = [ir.AttrInt64s(k, v) if isinstance(v, list) else ir.AttrInt64(k, v)
            for k, v in attributes.items()]  # fmt: skip
    node = ir.Node(DOMAIN, op_type, values, made, num_outputs=1)
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(values, node.outputs, nodes=[node], opset_imports={"": 18, DOMAIN: 1})
    return ir.Model(graph, ir_version=9)


FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


@pytest.mark.parametrize(
    ("op_type", "sizes", "attributes", "message"),
    [
        ("Rows", [(4, 3), (2,)], {"tasks": 1, "shape": [2, 4]}, "2 indices of rows of 3 are not"),
        ("Rows", [(4, 3), (2,)], {"tasks": 1, "shape": [3, 3]}, "not of the shape"),
        ("Rows", [(4, 3), (2,)], {"tasks": 1, "shape": [-2, 3]}, "not of the shape"),
        ("Rows", [(4, 3), (0,)], {"tasks": 1, "shape": [0, -5, 3]}, "not of the shape"),
        ("Rows", [(4, 3), (2,)], {"tasks": 0, "shape": [2, 3]}, "Rows: 0 tasks, wanted are 1 to"),
        ("Rows", [(4, 3), (2,)], {"tasks": 9999, "shape": [2, 3]}, "Rows: 9999 tasks"),
        ("Rows", [(), (2,)], {"tasks": 1, "shape": [2]}, "has 0 dimensions"),
        ("AddRows", [(4, 3), (2,), (2, 4)], {"tasks": 1}, "8 elements of type 1 are not 2 rows"),
        ("AddRows", [(4, 3), (2,), (3, 3)], {"tasks": 1}, "9 elements of type 1 are not 2 rows"),
        ("PutRows", [(4, 3), (2,), (6,)], {"tasks": 1}, "6 elements of type 1 are not 2 rows"),
        ("PutRows", [(0, 3), (2,), (2, 3)], {"tasks": 1}, "outside a table of 0 rows"),
        ("AddNamedRows", [(4, 3), (2,), (5, 4), (2,)], {"tasks": 1}, "2 indices of rows of 4"),
        ("AddNamedRows", [(4, 3), (2,), (5, 3), (3,)], {"tasks": 1}, "3 indices of rows of 3"),
        ("AddNamedRows", [(4, 3), (2,), (), (2,)], {"tasks": 1}, "has 0 dimensions"),
    ],
)
def test_what_does_not_fit(op_type, sizes, attributes, message, library: NativeLibrary) -> None:
    types = (FLOAT, INT64, FLOAT, INT64)
    inputs = [(n, d, s) for n, d, s in zip("tign", types, sizes, strict=False)]
    feeds = {n: np.zeros(s, np.int64 if n in "in" else np.float32) for n, _, s in inputs}
    with pytest.raises(Exception, match=message):
        session(native_graph(op_type, inputs, **attributes), library).run(["y"], feeds)


@pytest.mark.parametrize("op_type", ["Rows", "AddRows", "PutRows"])
def test_no_rows_of_more_than_can_be_counted(op_type, library: NativeLibrary) -> None:
    table = ort.OrtValue.ortvalue_from_shape_and_type([0, 2**40, 2**40], np.float32)
    none = ort.OrtValue.ortvalue_from_numpy(np.zeros(0, np.int64))
    inputs = [("t", FLOAT, None), ("i", INT64, None), ("g", FLOAT, None)]
    feeds = {"t": table, "i": none, "g": table}
    if op_type == "Rows":
        del inputs[2], feeds["g"]
    attributes = {"shape": [0, 2**40, 2**40]} if op_type == "Rows" else {}
    opened = session(native_graph(op_type, inputs, tasks=1, **attributes), library)
    (made,) = opened.run_with_ort_values(["y"], feeds)
    assert made.shape() == [0, 2**40, 2**40]


def test_indices_of_another_type(library: NativeLibrary) -> None:
    model = native_graph("Rows", [("t", FLOAT, (4, 3)), ("i", FLOAT, (2,))], tasks=1, shape=[2, 3])
    feeds = {"t": np.zeros((4, 3), np.float32), "i": np.zeros(2, np.float32)}
    with pytest.raises(Exception, match="the indices are of type 1, not of int32 or int64"):
        session(model, library).run(["y"], feeds)


def test_what_stays(library: NativeLibrary) -> None:
    b = Builder()
    t, i = b.input("t", (6, 5), float32), b.input("i", (3, 2), int64)
    b.output(b.Gather(t, i, axis=1), "columns")
    b.output(b.GatherND(t, i), "numbers")
    b.output(b.Gather(b.input("d", (6, 5), float64), i, axis=0), "doubles")
    b.output(b.Gather(b.input("open", ("n", 5), float32), i, axis=0), "open_rows")
    b.output(b.ScatterND(t, i, b.input("g", (3,), float32), reduction="add"), "sum")
    k, h = b.input("k", (3, 1), int64), b.input("h", (3, 5), float32)
    b.output(b.ScatterND(t, k, h, reduction="max"), "most")
    _, used = rewrite(model_of(b.graph), library.operators)
    assert not {"Rows", "AddRows", "PutRows"} & set(used)


def test_small_lookups_stay(library: NativeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for height, count, pays in ((200_000, 512, True), (100, 512, False), (200_000, 4, False)):
        b = Builder()
        t, i = b.input("t", (height, 16), float32), b.input("i", (count,), int64)
        b.output(b.Gather(t, i, axis=0), "y")
        assert ("Rows" in rewrite(model_of(b.graph), library.operators)[1]) is pays


def test_indices_that_something_else_wrapped(library: NativeLibrary) -> None:
    """Counting from the end of another extent is not what the operator does."""
    b = Builder()
    t, i = b.input("t", (9, 5), float32), b.input("i", (3,), int64)
    column = b.Unsqueeze(b.Where(b.Less(i, 0), b.Add(i, 4), i), [-1])
    assert index_origin(column) == (i, (4,))
    b.output(b.GatherND(t, column), "y")
    table = np.arange(45, dtype=np.float32).reshape(9, 5)
    apart, native, used = both(b, {"t": table, "i": np.array([-1, -4, 8])}, library)
    assert used == {"Rows": 1}
    np.testing.assert_array_equal(native["y"], apart["y"])
    np.testing.assert_array_equal(native["y"], table[[3, 0, 8]])


def test_a_table_that_nobody_needs_any_more_is_not_copied(library: NativeLibrary) -> None:
    b = Builder()
    t, i = b.input("t", (9, 5), float32), b.input("i", (3, 1), int64)
    g = b.input("g", (3, 5), float32)
    b.output(b.Neg(b.ScatterND(b.Tanh(t), i, g, reduction="add")), "y")
    feeds = {"t": np.ones((9, 5), np.float32), "i": np.array([[1], [2], [1]]),
             "g": np.ones((3, 5), np.float32)}  # fmt: skip
    apart, native, used = both(b, feeds, library)
    assert used == {"AddRows": 1}
    np.testing.assert_allclose(native["y"], apart["y"], rtol=1e-6)


@pytest.mark.parametrize("bound", [True, False])
def test_in_place_and_apart(bound: bool, library: NativeLibrary) -> None:
    """Bound to the table itself the sums go there; else the table is as it was."""
    b = Builder()
    t, i = b.input("t", (5000, 16), float32), b.input("i", (3, 1), int64)
    b.output(b.ScatterND(t, i, b.input("g", (3, 16), float32), reduction="add"), "y")
    model, used = rewrite(model_of(b.graph), library.operators)
    assert used == {"AddRows": 1}
    table, rows = np.ones((5000, 16), np.float32), np.array([[3], [3], [-1]])
    wanted = table.copy()
    wanted[[3, -1]] += [[2], [1]]
    binding = (opened := session(model, library)).io_binding()
    held = ort.OrtValue.ortvalue_from_numpy(table.copy())
    made = held if bound else ort.OrtValue.ortvalue_from_numpy(np.empty_like(table))
    binding.bind_ortvalue_input("t", held)
    binding.bind_cpu_input("i", rows)
    binding.bind_cpu_input("g", np.ones((3, 16), np.float32))
    binding.bind_ortvalue_output("y", made)
    opened.run_with_iobinding(binding)
    np.testing.assert_array_equal(made.numpy(), wanted)
    np.testing.assert_array_equal(held.numpy(), wanted if bound else table)


def test_the_verdict_on_native_graphs(library: NativeLibrary) -> None:
    def verdict(height: int, native: bool = True):
        b = Builder()
        w, i = b.input("w", (9, 4), float32), b.input("i", (2,), int32)
        u = b.input("u", (height, 4), float32)
        rows = b.Tanh(b.Gather(u, i, axis=0))
        column = b.Unsqueeze(b.Cast(i, to=int64), [-1])
        b.output(b.ScatterND(w, column, rows, reduction="add"), "next/w")
        model = model_of(b.graph)
        graph = rewrite(model, library.operators)[0].graph if native else model.graph
        return in_place(graph, ["w"])[0]

    for native in (True, False):
        assert verdict(9, native).is_safe
        assert "may fail after the update" in verdict(7, native).reason


ROWS, BATCH = 3000, 64
UPDATES = {
    "sgd": lambda rate: flow.optimizer.SGD(rate, momentum=0),
    "momentum": lambda rate: flow.optimizer.SGD(rate, momentum=0.9),
    "adam": lambda rate: flow.optimizer.LazyAdam(rate),
}


def table_job(update: str, *, wish: bool, by_rows: bool):
    """A job with a table, its batch, and its session afterwards."""
    flow.clear_default_session()
    config = flow.function_config()
    config.runtime.native(wish)
    if by_rows:
        config.indexed_slices_optimizer_conf({"include_op_names": {"op_name": ["table"]}})
    flow.config.compute_thread_pool_size(1)  # with more, ScatterND adds in any order

    @flow.global_function(type="train", function_config=config)
    def job(ids: tp.Numpy.Placeholder((BATCH, 4), flow.int32)) -> tp.Numpy:
        first = flow.random_normal_initializer()
        table = flow.get_variable("table", (ROWS, 16), initializer=first)
        x = flow.reshape(flow.gather(table, ids + 0), (BATCH, 64))  # computed: not checked
        weight = flow.get_variable("weight", (64, 300), initializer=first)
        loss = flow.math.reduce_mean(flow.math.square(flow.math.tanh(flow.matmul(x, weight))))
        UPDATES[update](flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    return job, np.random.default_rng(3).integers(0, ROWS, (BATCH, 4)).astype(np.int32)


def state():
    return {n: v.numpy() for n, v in flow.get_all_variables().items()}


JOBS = [(update, by_rows) for update in UPDATES for by_rows in (False, True)]


@pytest.mark.parametrize(("update", "by_rows"), JOBS)
def test_jobs_learn_the_same_bits_in_place(
    update, by_rows, library: NativeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = NativeLibrary(library.path, tuple(OUTPUTS))
    monkeypatch.setattr("flow2onnx_native.accelerator.open_library", lambda: rows)

    def train(wish: bool):
        job, ids = table_job(update, wish=wish, by_rows=by_rows)
        losses = [job(ids) for _ in range(4)]
        names = {n for e in current_session()._executables.values() for n in e.program.in_place}
        return losses, state(), names, job.explain()

    plain, before, names, _ = train(wish=False)
    native, after, native_names, told = train(wish=True)
    assert told.native["Rows"] > 0
    assert told.native.keys() & {"AddRows", "PutRows"}
    assert "table" in native_names
    assert native_names == names, "as without"
    assert {v.name for v in told.state if v.is_safe} == names
    np.testing.assert_array_equal(native, plain)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)


def test_a_job_of_many_tables_learns_the_same_bits_in_place(library: NativeLibrary) -> None:
    names = [f"table{i}" for i in range(5)]

    def train(wish: bool):
        flow.clear_default_session()
        config = flow.function_config()
        config.runtime.native(wish)

        @flow.global_function(type="train", function_config=config)
        def job(ids: tp.Numpy.Placeholder((BATCH, 5), flow.int32)) -> tp.Numpy:
            first = flow.random_normal_initializer()
            tables = [flow.get_variable(name, (ROWS, 16), initializer=first) for name in names]
            columns = [flow.slice(ids, [None, i], [None, 1]) for i in range(5)]
            rows = [flow.gather(t, c) for t, c in zip(tables, columns, strict=True)]
            loss = flow.math.reduce_mean(flow.math.tanh(flow.concat(rows, axis=1)))
            UPDATES["sgd"](flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
            return loss

        ids = np.random.default_rng(3).integers(0, ROWS, (BATCH, 5)).astype(np.int32)
        losses = [job(ids) for _ in range(3)]
        return losses, state(), job.explain()

    plain, before, _ = train(wish=False)
    native, after, told = train(wish=True)
    assert (told.native["Rows"], told.native["AddRows"]) == (1, 1)
    assert {v.name for v in told.state if v.is_safe} >= set(names)
    np.testing.assert_allclose(native, plain, rtol=1e-6)
    for name in names:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("wrong", [ROWS, -ROWS - 1])
@pytest.mark.parametrize(("update", "by_rows"), JOBS)
def test_a_step_that_fails_changes_nothing(update, by_rows, wrong, library: NativeLibrary) -> None:
    job, ids = table_job(update, wish=True, by_rows=by_rows)
    job(ids)
    assert "Rows" in job.explain().native
    saved = state()
    bad = ids.copy()
    bad[5, 1] = wrong
    with pytest.raises(
        RunError, match=rf"(?s)Rows: index {wrong} at position 21 .*state is as it was"
    ):
        job(bad)
    for name, value in state().items():
        np.testing.assert_array_equal(value, saved[name], err_msg=name)
    job(ids)


def test_exported_models_have_standard_operators(library: NativeLibrary, tmp_path: Path) -> None:
    job, ids = table_job("sgd", wish=True, by_rows=True)
    job(ids)
    assert "AddRows" in job.explain().native
    job.export(tmp_path / "bundle")
    models = [p.read_bytes() for p in (tmp_path / "bundle").rglob("*.onnx")]
    assert models
    assert not any(DOMAIN.encode() in content for content in models)
