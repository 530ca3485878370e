"""Which state is updated in its own buffer, and what happens when it should not have been."""

import re

import numpy as np
import onnxruntime
import pytest
from flow2onnx_runtime import Options, Program, RunError, State, StateError, Trainer
from flow2onnx_runtime.in_place_check import verify_in_place

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.analysis.in_place import in_place, late_readers
from flow2onnx.engine.session import current_session
from flow2onnx.graph.model import model_bytes, model_of
from tests.passes.text import graph_of

# the body of a graph that reads w and m and makes the next values n_w, n_m
SAFE = {
    "a moment": "g (float[4,4] m, float[4,4] x) => (float[4,4] n_m) "
    "{ c = Constant<value_floats=[0.9]>()  a = Mul(m, c)  n_m = Add(a, x) }",
    "a table": "g (float[9,4] w, int64[2] i) => (float[9,4] n_w) "
    "{ a = Constant<value_ints=[-1]>()  k = Unsqueeze(i, a)  r = Gather(w, i)  d = Tanh(r)"
    '  n_w = ScatterND<reduction="add">(w, k, d) }',
    "a layer that nothing lies before": "g (float[4,4] w, float[2,4] x) => (float[4,4] n_w) "
    "{ y = MatMul(x, w)  d = Tanh(y)  n_w = Gemm<transA=1>(x, d, w) }",
    "a view read before": "g (float[4,4] w, int64[1] s) => (float[4,4] n_w) "
    "{ v = Reshape(w, s)  t = ReduceSum(v)  n_w = Sub(w, t) }",
    "a step that may be skipped": "g (float[4,4] w, bool ok) => (float[4,4] n_w) "
    "{ n = Tanh(w)  n_w = Where(ok, n, w) }",
    "a value that is read new": "g (float[4,4] m, float[4,4] x) => (float[4,4] n_m, float[4,4] y) "
    "{ n_m = Add(m, x)  y = Sqrt(n_m) }",
}  # fmt: skip
UNSAFE = {
    "the second of two layers": (
        "g (float[4,4] w, float[2,4] x, float[2,4] t) => (float[4,4] n_w, float[2,4] dx) "
        "{ y = MatMul(x, w)  d = Sub(y, t)  wt = Transpose(w)  dx = MatMul(d, wt)"
        "  n_w = Gemm<transA=1>(x, d, w) }",
        "after the update",
    ),
    "a result of the caller": (
        "g (float[4,4] w, float[4,4] x) => (float[4,4] n_w, float[4,4] y) "
        "{ y = Identity(w)  n_w = Add(w, x) }",
        "after the update",
    ),
    "a view read later": (
        "g (float[4,4] w, float[4,4] x, int64[1] s) => (float[4,4] n_w, float[16] y) "
        "{ v = Reshape(w, s)  n_w = Add(w, x)  y = Neg(v) }",
        "after the update",
    ),
    "a view of a view": (
        "g (float[4,4] w, float[4,4] x, int64[1] s) => (float[4,4] n_w, float[16] y) "
        "{ v = Reshape(w, s)  q = Flatten<axis=0>(v)  y = Reshape(q, s)  n_w = Add(w, x) }",
        "after the update",
    ),
    "a branch": (
        "g (float[4,4] w, float[4,4] x, bool c) => (float[4,4] n_w, float[4,4] y) "
        "{ y = If(c) <then_branch = t () => (float[4,4] a) { a = Neg(w) },"
        " else_branch = e () => (float[4,4] b) { b = Abs(x) }>  n_w = Add(w, y) }",
        "inside",
    ),
    "a reader of which only the shape is used": (
        "g (float[4,4] w, float[4,4] x) => (float[4,4] n_w, float[4,4] y) "
        "{ y = Tanh(w)  s = Shape(y)  z = ConstantOfShape<value=float[1] {2.0}>(s)"
        "  n_w = Add(w, z) }",
        "after the update",
    ),
    "a product that writes where it reads": (
        "g (float[4,4] w, float[4,4] x) => (float[4,4] n_w) { n_w = MatMul(w, x) }",
        "before it has read all",
    ),
    "a sum of three": (
        "g (float[4,4] w, float[4,4] x, float[4,4] y) => (float[4,4] n_w) { n_w = Sum(x, y, w) }",
        "before it has read all",
    ),
    "rows put into another table": (
        "g (float[4,4] w, float[4,4] x, int64[4,1] i) => (float[4,4] n_w) "
        "{ n_w = ScatterND(x, i, w) }",
        "before it has read all",
    ),
    "rows of which nobody knows whether they are there": (
        "g (float[9,4] w, int64[2] i, int64[2,1] k) => (float[9,4] n_w) "
        '{ r = Gather(w, i)  d = Tanh(r)  n_w = ScatterND<reduction="add">(w, k, d) }',
        "ScatterND .*may fail after the update",
    ),
    "another table, whose index may be wrong": (
        "g (float[9,4] w, float[7,4] u, int64[2] i, float[9,4] x) => (float[9,4] n_w, float[2,4] y)"
        " { n_w = Add(w, x)  y = Gather(u, i) }",
        "Gather .*may fail after the update",
    ),
    "the same indices on another table": (
        "g (float[9,4] w, float[7,4] u, int64[2] i) => (float[9,4] n_w, float[2,4] y) "
        "{ a = Constant<value_ints=[-1]>()  k = Unsqueeze(i, a)  r = Gather(w, i)  d = Tanh(r)"
        '  n_w = ScatterND<reduction="add">(w, k, d)  y = Gather(u, i) }',
        "Gather .*may fail after the update",
    ),
    "a product that the sum may be drawn into": (
        "g (float[4,4] w, float[4,4] x) => (float[4,4] n_w) "
        "{ t = Transpose(w)  p = MatMul(t, x)  n_w = Add(w, p) }",
        "one node with a reader",
    ),
}  # fmt: skip


def graph(text):
    """A graph whose outputs n_… are next values."""
    made = graph_of(text)
    for value in made.outputs:
        value.name = value.name.replace("n_", "next/", 1)
    return made


def program(made, level="extended"):
    """The graph on a state of random values."""
    state, draw = State(), np.random.default_rng(0)
    for value in made.inputs:
        if value.name in ("w", "m"):
            state.add(value.name, draw.random(tuple(value.shape)).astype(np.float32))
    return Program(model_bytes(model_of(made)), state, Options(optimization=level), name="g")


@pytest.mark.parametrize("level", ["disable", "basic", "extended", "all"])
@pytest.mark.parametrize("name", SAFE)
def test_what_is_proven_is_the_same_bits(name, level):
    made = graph(SAFE[name])
    (found,) = in_place(made, ["w", "m"])
    assert found.is_safe, found.reason
    if "view" not in name:  # its shape input takes no made-up number
        assert verify_in_place(program(made, level), [found.name], 1 << 20) == {found.name}


@pytest.mark.parametrize("name", UNSAFE)
def test_what_is_not_proven_has_two_buffers(name):
    text, reason = UNSAFE[name]
    (found,) = in_place(graph(text), ["w"])
    assert not found.is_safe
    assert re.search(reason, found.reason)


def test_readers_that_may_come_late():
    made = graph(
        "g (float[200,200] w, float[200,200] g, float[4] s, float[4] t)"
        " => (float[200,200] n_w, float[200,200] dx, float[4] n_s, float[4] y) "
        "{ a = Abs(w)  n_w = Add(a, g)  dx = MatMul(g, w)  n_s = Neg(t)  y = Mul(s, t) }"
    )
    ((writer, late),) = late_readers(made)  # the small state is not worth it
    assert writer is made.outputs[0].producer()
    assert [n.op_type for n in late] == ["MatMul"]


def test_a_rehearsal_finds_what_the_runtime_does_wrong():
    broken = program(graph(UNSAFE["the second of two layers"][0]), "disable")
    assert verify_in_place(broken, ["w"], 1 << 20) == frozenset()
    assert verify_in_place(broken, ["w"], 16) == {"w"}, (
        "too large to be copied: it was proven before"
    )


ROWS, BATCH = 3000, 8
OPTIMIZERS = {
    "sgd": lambda rate: flow.optimizer.SGD(rate, momentum=0),
    "momentum": lambda rate: flow.optimizer.SGD(rate, momentum=0.9),
    "adam": lambda rate: flow.optimizer.LazyAdam(rate),
    "lamb": lambda rate: flow.optimizer.LAMB(rate),
    "scaled": lambda rate: flow.optimizer.SGD(
        rate, loss_scale_policy=flow.optimizer.loss_scale.dynamic_loss_scale()
    ),
}


def config(in_place=True, rows=False, **flags):
    made = flow.function_config()
    made.runtime.in_place(in_place)
    made.runtime.native(False)  # what is said here is said of the standard graph
    if rows:
        made.indexed_slices_optimizer_conf({"include_op_names": {"op_name": ["table"]}})
    for name, value in flags.items():
        getattr(made, name)(value)
    return made


def wide(optimizer, function_config):
    """A job with a table, a layer before and one behind, each large enough to count."""

    @flow.global_function(type="train", function_config=function_config)
    def job(
        ids: tp.Numpy.Placeholder((BATCH, 4), flow.int32), x: tp.Numpy.Placeholder((BATCH, 64))
    ) -> tp.Numpy:
        first = flow.random_normal_initializer()
        table = flow.get_variable("table", (ROWS, 16), initializer=first)
        wide = flow.reshape(flow.gather(table, ids + 0), (BATCH, 64))  # computed: not checked
        for i in range(2):
            weight = flow.get_variable(f"w{i}", (64 * (i + 1), 512 // (i + 1)), initializer=first)
            x = flow.math.tanh(flow.matmul(flow.concat([x, wide], 1) if i else x, weight))
            x = flow.slice(x, [0, 0], [BATCH, 64])
        loss = flow.math.reduce_mean(flow.math.square(x))
        OPTIMIZERS[optimizer](flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    return job


def batches(count):
    draw = np.random.default_rng(3)
    for _ in range(count):
        yield (
            draw.integers(0, ROWS, (BATCH, 4)).astype(np.int32),
            draw.random((BATCH, 64), np.float32),
        )


def trained(optimizer, function_config, steps=4):
    """All variables after some steps, and those that are updated in place."""
    flow.clear_default_session()
    job = wide(optimizer, function_config)
    for batch in batches(steps):
        job(*batch)
    values = {n: v.numpy() for n, v in flow.get_all_variables().items()}
    return values, in_place_of(current_session())


def in_place_of(session):
    return {n for e in session._executables.values() for n in e.program.in_place}


@pytest.mark.parametrize(
    ("optimizer", "rows"),
    [*((name, False) for name in OPTIMIZERS), *((n, True) for n in OPTIMIZERS if n != "lamb")],
)
def test_training_in_place_is_the_same_bits(optimizer, rows):
    apart, none = trained(optimizer, config(False, rows))
    together, names = trained(optimizer, config(True, rows))
    assert not none
    assert apart.keys() == together.keys()
    assert all(np.array_equal(apart[n], together[n]) for n in apart)
    slots = {n for n in apart if n.startswith("table-") or n.startswith("w0-")}
    assert names >= slots, "a slot is read by its own update alone"
    assert names >= {"table", "w0"}, "nothing but the loss lies behind what they are read for"
    # its gradient is ready when that of the layer before may still be to come; a norm or a check
    # of all gradients waits for them all
    assert ("w1" in names) == (optimizer == "scaled")


def test_two_jobs_on_one_state():
    """A job that must keep the old value and one that need not, in turn, and one that predicts."""

    def both(in_place):
        flow.clear_default_session()
        step, first = wide("sgd", config(in_place)), flow.random_normal_initializer()

        @flow.global_function(type="train", function_config=config(in_place))
        def other(x: tp.Numpy.Placeholder((ROWS, 16))) -> tp.Numpy:
            table = flow.get_variable("table", (ROWS, 16), flow.float32, first)
            y = flow.matmul(table, flow.matmul(x, table, transpose_a=True)) * 1e-4
            loss = flow.math.reduce_mean(flow.math.square(y))
            rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
            flow.optimizer.SGD(rate, momentum=0).minimize(loss)
            return loss

        @flow.global_function(function_config=config(in_place))
        def look() -> tp.Numpy:
            return flow.get_variable("table", (ROWS, 16), flow.float32, first) * 1.0

        shown = []
        for batch in batches(3):
            step(*batch)
            shown.append(look())
            other(look())
            shown.append(look())
        return shown, in_place_of(current_session())

    (apart, _), (together, names) = both(False), both(True)
    assert "table" in names
    assert all(np.isfinite(a).all() for a in apart)
    assert all(np.array_equal(a, b) for a, b in zip(apart, together, strict=True))


def test_a_loss_that_may_stop_training_keeps_the_old_values():
    flow.config.stop_on_non_finite(True)
    job = wide("sgd", config())
    job(*next(batches(1)))
    assert in_place_of(current_session()) == set()


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_a_step_that_fails_changes_nothing(optimizer, rows):
    job = wide(optimizer, config(rows=rows))
    ids, x = next(batches(1))
    job(ids, x)
    saved = {n: v.numpy() for n, v in flow.get_all_variables().items()}
    wrong = ids.copy()
    wrong[0, 0] = ROWS
    with pytest.raises(RunError, match="the state is as it was"):
        job(wrong, x)
    assert in_place_of(current_session()), "nothing was in place"
    for name, variable in flow.get_all_variables().items():
        assert np.array_equal(variable.numpy(), saved[name]), name
    job(ids, x)


def test_a_step_that_is_stopped_is_not_gone_on_from(monkeypatch):
    job = wide("sgd", config())
    ids, x = next(batches(1))
    for _ in range(2):  # what has two buffers is read from either
        job(ids, x)
    saved = {n: v.numpy() for n, v in flow.get_all_variables().items()}
    (executable,) = current_session()._executables.values()
    stopped = onnxruntime.RunOptions()
    stopped.terminate = True
    for lane in executable.program._lanes.values():
        monkeypatch.setattr(lane, "_run_options", stopped)
    with pytest.raises(RunError, match="updated in place"):
        job(ids, x)
    with pytest.raises(StateError, match="table, w0 were being changed"):
        job(ids, x)
    with pytest.raises(StateError, match="neither the old nor the new"):
        flow.get_all_variables()["table"].numpy()
    flow.load_variables(saved)
    monkeypatch.undo()
    job(ids, x)


def test_with_two_buffers_a_step_that_fails_changes_nothing():
    job = wide("sgd", config(False))
    ids, x = next(batches(1))
    with pytest.raises(RunError, match="the state is as it was"):
        job(np.full_like(ids, ROWS), x)
    job(ids, x)


def test_what_is_explained():
    job = wide("adam", config())
    lines = str(job.explain())
    assert "w1: in two buffers: " in lines
    assert "table-m: in place: every reader comes before it" in lines


def test_a_bundle_says_what_its_trainer_may_update_in_place(tmp_path):
    job = wide("momentum", config())
    given = list(batches(4))
    job(*given[0])
    job.export(tmp_path / "b")
    trainer, plain = Trainer(tmp_path / "b"), Trainer(tmp_path / "b", in_place=False)
    assert set(trainer.in_place) == in_place_of(current_session())
    assert not plain.in_place
    for ids, x in given[1:]:
        mine, theirs, ours = trainer.step(ids, x), plain.step(ids, x), job(ids, x)
        assert np.array_equal(mine["out/0"], theirs["out/0"])
        assert np.array_equal(mine["out/0"], ours)
    values = plain.state_dict()
    assert all(np.array_equal(v, values[n]) for n, v in trainer.state_dict().items())
    assert trainer.state.nbytes() < plain.state.nbytes()


def test_a_job_may_keep_two_buffers_in_its_bundle_too(tmp_path):
    wide("momentum", config(False)).export(tmp_path / "b")
    assert not Trainer(tmp_path / "b").in_place
