"""`indexed_slices_optimizer_conf`: only the rows of a table that were looked up move."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.compile import compile_job
from flow2onnx.engine.session import current_session
from flow2onnx.errors import ConfigError, UnsupportedError
from tests.api.support import raises, rate

V, D = 7, 3
TABLE = np.linspace(-1, 1, V * D, dtype=np.float32).reshape(V, D)
BATCHES = [np.array(i, np.int32) for i in ([[0, 2], [2, 5]], [[1, 2], [1, 1]], [[6, 0], [5, -1]])]
SEEDS = [np.random.default_rng(i).normal(size=(2, 2, D)).astype(np.float32) for i in range(3)]


def config(*names):
    made = flow.function_config()
    if names:
        made.indexed_slices_optimizer_conf(
            {"enable": True, "include_op_names": {"op_name": list(names)}}
        )
    return made


def table():
    return flow.get_variable("table", (V, D), initializer=flow.zeros_initializer())


def train(optimizer, configuration, *, twice=False):
    """The table, and the optimizer's slots, after three steps."""
    flow.clear_default_session()

    @flow.global_function(type="train", function_config=configuration)
    def job(
        i: tp.Numpy.Placeholder((2, 2), flow.int32), seed: tp.Numpy.Placeholder((2, 2, D))
    ) -> tp.Numpy:
        y = flow.gather(table(), i)
        if twice:
            y = y + flow.gather(table(), flow.slice(i, [0, 0], [2, 1]))
        loss = flow.math.reduce_sum(y * seed)
        optimizer().minimize(loss)
        return loss

    flow.load_variables({"table": TABLE})
    for i, seed in zip(BATCHES, SEEDS, strict=True):
        job(i, seed)
    return {n: v.numpy() for n, v in flow.get_all_variables().items() if n.startswith("table")}


def gradients():
    """The gradient of each step, and the rows it touches."""
    for i, seed in zip(BATCHES, SEEDS, strict=True):
        g = np.zeros((V, D), np.float32)
        np.add.at(g, i, seed)
        yield g, np.unique(i % V)


def sgd(**options):
    return lambda: flow.optimizer.SGD(rate(0.1), **options)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("options", [
    {"momentum": 0},
    {"momentum": 0, "grad_clipping": flow.optimizer.grad_clipping.by_global_norm(0.5)},
    {"momentum": 0, "loss_scale_factor": 8.0},
    {"momentum": 0, "loss_scale_policy": flow.optimizer.loss_scale.dynamic_loss_scale(16.0)},
], ids=["plain", "clipped", "scaled", "dynamic"])  # fmt: skip
def test_without_state_it_is_the_dense_update(options, twice):
    dense = train(sgd(**options), config(), twice=twice)
    rows = train(sgd(**options), config("table"), twice=twice)
    assert not np.array_equal(dense["table"], TABLE)
    np.testing.assert_allclose(rows["table"], dense["table"], rtol=1e-5, atol=1e-6)


def test_momentum():
    w, v = TABLE.copy(), np.zeros_like(TABLE)
    for g, touched in gradients():
        v[touched] = 0.9 * v[touched] - 0.1 * g[touched]
        w[touched] += v[touched]
    found = train(sgd(momentum=0.9), config("table"))
    np.testing.assert_allclose(found["table-momentum"], v, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["table"], w, rtol=1e-5, atol=1e-6)
    assert not np.allclose(train(sgd(momentum=0.9), config())["table"], w, atol=1e-3)


@pytest.mark.parametrize("kind", ["Adam", "LazyAdam"])
def test_adam_takes_the_rate_uncorrected(kind):
    w, m, v = TABLE.copy(), np.zeros_like(TABLE), np.zeros_like(TABLE)
    for g, i in gradients():
        m[i] = 0.9 * m[i] + 0.1 * g[i]
        v[i] = 0.999 * v[i] + 0.001 * g[i] ** 2
        w[i] -= 0.1 * m[i] / (np.sqrt(v[i]) + 1e-8)
    found = train(lambda: getattr(flow.optimizer, kind)(rate(0.1)), config("table"))
    np.testing.assert_allclose(found["table-m"], m, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["table-v"], v, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(found["table"], w, rtol=2e-4, atol=2e-4)
    untouched = np.setdiff1d(np.arange(V), np.concatenate([i.ravel() % V for i in BATCHES]))
    np.testing.assert_array_equal(found["table"][untouched], TABLE[untouched])


def test_decay_is_of_the_rows_too():
    found = train(
        lambda: flow.optimizer.SGDW(rate(0.1), momentum=0, weight_decay=0.5), config("table")
    )
    w = TABLE.copy()
    for g, i in gradients():
        w[i] -= 0.1 * (g[i] + 0.5 * w[i])
    np.testing.assert_allclose(found["table"], w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["LAMB", "RMSProp", "LARS"])
def test_other_optimizers_update_every_row(kind):
    def make():
        return getattr(flow.optimizer, kind)(rate(0.1))

    dense, rows = train(make, config()), train(make, config("table"))
    np.testing.assert_array_equal(rows["table"], dense["table"])


@pytest.mark.parametrize("name", [
    "sgd(momentum=0.9)", "sgd(momentum=0.9, nesterov=True, weight_decay=0.1)", "adam", "adamw",
    "rmsprop(centered=True, momentum=0.5)", "adagrad(weight_decay=0.1, lr_decay=0.1)", "adadelta",
    "nadam", "radam", "adamax", "lion",
])  # fmt: skip
def test_optimizers_by_name_move_rows_as_they_move_all(name, monkeypatch):
    monkeypatch.setattr(f"{__name__}.BATCHES", BATCHES[:1] * 3)

    def make():
        return flow.optimizer.named(name, 0.1)

    dense, rows = train(make, config()), train(make, config("table"))
    read = np.unique(BATCHES[0])
    for slot, values in dense.items():
        np.testing.assert_allclose(rows[slot][read], values[read], rtol=1e-6, atol=1e-7)
    others = np.setdiff1d(np.arange(V), read)
    np.testing.assert_array_equal(rows["table"][others], TABLE[others])


@pytest.mark.parametrize("name", ["lamb", "lars", "muon"])
def test_optimizers_by_name_that_need_all_rows(name):
    def make():
        return flow.optimizer.named(name, 0.1)

    dense, rows = train(make, config()), train(make, config("table"))
    np.testing.assert_array_equal(rows["table"], dense["table"])


def test_no_dense_gradient_is_made():
    def body(i: tp.Numpy.Placeholder((4,), flow.int32)) -> tp.Numpy:
        loss = flow.gather(table(), i)
        flow.optimizer.SGD(rate(0.1), momentum=0).minimize(loss)
        return loss

    kinds = {}
    for names in ((), ("table",)):
        flow.clear_default_session()
        flow.global_function(type="train", function_config=config(*names))(body)
        model = compile_job(current_session().spec("body")).model
        kinds[names] = sorted(node.op_type for node in model.graph)
    assert kinds["table",].count("ScatterND") == 1
    assert "ConstantOfShape" not in kinds["table",]
    assert "Unique" not in kinds["table",]


def body_with(read):
    def body(i: tp.Numpy.Placeholder((4,), flow.int32)) -> tp.Numpy:
        loss = flow.math.reduce_sum(read(table(), i))
        flow.optimizer.SGD(rate(0.1)).minimize(loss)
        return loss

    return body


@pytest.mark.parametrize("read", [
    lambda w, i: flow.math.relu(w),
    lambda w, i: flow.gather(w, flow.slice(i, [0], [2]), axis=1),
    lambda w, i: flow.gather(w, i) + flow.math.reduce_sum(w),
])  # fmt: skip
def test_a_table_that_is_read_otherwise(read):
    flow.clear_default_session()
    job = flow.global_function(type="train", function_config=config("table"))(body_with(read))
    with raises(UnsupportedError, NotImplementedError, "lists table, which", job="body"):
        job(np.zeros(4, np.int32))


def test_a_name_that_is_no_variable():
    flow.clear_default_session()
    body = body_with(lambda w, i: flow.gather(w, i))
    job = flow.global_function(type="train", function_config=config("tabel"))(body)
    with raises(ConfigError, ValueError, "lists tabel, which is no variable", job="body") as info:
        job(np.zeros(4, np.int32))
    assert info.value.hint == "did you mean table?"


def test_switched_off():
    conf = flow.function_config()
    conf.indexed_slices_optimizer_conf(
        {"enable": False, "include_op_names": {"op_name": ["table"]}}
    )
    found = train(sgd(momentum=0.9), conf)
    np.testing.assert_array_equal(found["table"], train(sgd(momentum=0.9), config())["table"])


def test_a_regularizer_makes_the_gradient_dense():
    flow.clear_default_session()

    @flow.global_function(type="train", function_config=config("w"))
    def job(i: tp.Numpy.Placeholder((1,), flow.int32)) -> tp.Numpy:
        w = flow.get_variable("w", (2, 1), initializer=flow.ones_initializer(),
                              regularizer=flow.regularizers.l2(1.0))  # fmt: skip
        loss = flow.gather(w, i)
        flow.optimizer.SGD(rate(0.5), momentum=0).minimize(loss)
        return loss

    job(np.zeros(1, np.int32))
    np.testing.assert_allclose(flow.get_all_variables()["w"].numpy(), [[0.0], [0.5]])


ROWS = 1 << 15
CLIPPING = flow.optimizer.grad_clipping.by_global_norm(0.5)


def _large_job(optimizer, *, regularizer=None, reads_whole=False):
    """Losses and table after three steps on a large table, and the operators of a step."""
    flow.clear_default_session()

    @flow.global_function(type="train")
    def job(
        i: tp.Numpy.Placeholder((2, 2), flow.int32), seed: tp.Numpy.Placeholder((2, 2, D))
    ) -> tp.Numpy:
        large = flow.get_variable("table", (ROWS, D), initializer=flow.zeros_initializer(),
                                  regularizer=regularizer)  # fmt: skip
        y = flow.gather(large, i)
        loss = flow.math.reduce_sum(y * y * seed)
        if reads_whole:
            loss = loss + flow.math.reduce_sum(large)
        optimizer().minimize(loss)
        return loss

    flow.load_variables({"table": np.resize(TABLE, (ROWS, D))})
    losses = [job(i, seed).item() for i, seed in zip(BATCHES, SEEDS, strict=True)]
    nodes = current_session().opening("job").job.model.graph
    return losses, flow.get_all_variables()["table"].numpy(), list(nodes)


@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_adagrad_of_a_large_table_is_exact_on_its_rows(clip_norm, monkeypatch):
    def make():
        return flow.optimizer.named("adagrad", lr=0.1, clip_norm=clip_norm)

    losses, made, nodes = _large_job(make)
    assert _largest(nodes) == {"ScatterND"}
    monkeypatch.setattr("flow2onnx.optim.training.exact_lookups", lambda *_: {})
    dense_losses, dense, _ = _large_job(make)
    np.testing.assert_allclose(losses, dense_losses, rtol=1e-6)
    check = np.testing.assert_array_equal if clip_norm is None else np.testing.assert_allclose
    check(made, dense)


def _largest(nodes):
    """The operators that make a value as large as the table."""
    made = [(n.op_type, v) for n in nodes for v in n.outputs]
    return {kind for kind, v in made if v.shape is not None and ROWS in list(v.shape)}


@pytest.mark.parametrize("optimizer", [
    sgd(momentum=0, grad_clipping=CLIPPING),
    sgd(momentum=0, loss_scale_factor=8.0, grad_clipping=CLIPPING),
    lambda: flow.optimizer.named("sgd", lr=0.1, clip_norm=0.5),
], ids=["clipped", "scaled", "named"])  # fmt: skip
def test_a_clipped_step_of_a_large_table_is_one_of_its_rows(optimizer, monkeypatch):
    losses, made, nodes = _large_job(optimizer)
    assert _largest(nodes) == {"ScatterND"}
    monkeypatch.setattr("flow2onnx.optim.training.exact_lookups", lambda *_: {})
    dense_losses, dense, nodes = _large_job(optimizer)
    assert len(_largest(nodes)) > 1
    np.testing.assert_allclose(losses, dense_losses, rtol=1e-6)
    np.testing.assert_allclose(made, dense, rtol=1e-6, atol=1e-7)
    assert not np.array_equal(made, np.resize(TABLE, (ROWS, D)))


@pytest.mark.parametrize("case", ["momentum", "decay", "regularizer", "read whole"])
def test_what_moves_all_rows_stays_dense(case):
    momentum, decay = 0.9 * (case == "momentum"), 0.1 * (case == "decay")
    _, _, nodes = _large_job(
        lambda: flow.optimizer.SGDW(
            rate(0.1), momentum=momentum, weight_decay=decay, grad_clipping=CLIPPING
        ),
        regularizer=flow.regularizers.l2(0.1) if case == "regularizer" else None,
        reads_whole=case == "read whole",
    )
    assert len(_largest(nodes)) > 1
