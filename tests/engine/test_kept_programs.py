"""Programs known again: an equal trace is not compiled, and what decides on the model is a miss."""

import logging
import os
from types import SimpleNamespace

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.autodiff import registry
from flow2onnx.compile import kept_program, program_key
from flow2onnx.engine import opening_cache
from flow2onnx.engine.session import current_session
from flow2onnx.graph.model import model_bytes

X = np.linspace(-1, 1, 4 * 8, dtype=np.float32).reshape(4, 8)
LABELS = np.array([0, 1, 2, 1], np.int32)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder of its own for each test, for jobs of any size."""
    monkeypatch.setenv("FLOW2ONNX_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(opening_cache, "FEWEST_NODES", 1)
    # an editor may save a module while tests run
    monkeypatch.setattr(program_key, "_sources", lambda: "sources")
    return tmp_path / "kept"


@pytest.fixture(autouse=True)
def built(monkeypatch):
    """The keys of programs that a model was made of."""
    made, build = [], kept_program.build_job
    monkeypatch.setattr(kept_program, "build_job", lambda *a: made.append(a) or build(*a))
    return made


def define(units=5, scale=1.0, rate=0.1, optimizer="SGD", seed=0, clips=False, options=(), **flags):
    """Define the job in a session of its own; `options` are those of the optimizer."""
    flow.clear_default_session()
    flow.config.random_seed(seed)
    config = flow.function_config()
    for name, value in flags.items():
        getattr(config.runtime, name)(*value if isinstance(value, tuple) else (value,))

    @flow.global_function(type="train", function_config=config)
    def job(
        x: tp.Numpy.Placeholder((4, 8)), labels: tp.Numpy.Placeholder((4,), dtype=flow.int32)
    ) -> tp.Numpy:
        y = flow.layers.dense(x * scale, units, activation=flow.nn.relu, name="first")
        y = flow.layers.dense(y, 3, name="last")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, y)
        schedule = flow.optimizer.PiecewiseConstantScheduler([], [rate])
        limit = flow.optimizer.grad_clipping.by_global_norm(1.0) if clips else None
        make = getattr(flow.optimizer, optimizer)
        make(schedule, grad_clipping=limit, **dict(options)).minimize(loss)
        return loss

    return job


def losses(**change):
    """The losses of three steps."""
    job = define(**change)
    return [job(X, LABELS).tolist() for _ in range(3)]


def test_an_equal_program_is_not_compiled(built):
    first = losses(optimizer="Adam")
    assert len(built) == 1
    assert losses(optimizer="Adam") == first
    assert len(built) == 1
    assert not current_session().opening("job").job.model.is_made


def test_a_known_job_is_compiled_when_somebody_looks(built):
    losses(optimizer="Adam")
    before = current_session().opening("job").job
    losses(optimizer="Adam")
    known = current_session().opening("job").job
    assert known.writes == before.writes
    assert list(known.variables.values()) == list(before.variables.values())
    assert (known.feeds, known.results, known.losses) == (
        before.feeds, before.results, before.losses,
    )  # fmt: skip
    assert len(built) == 1
    assert model_bytes(known.model) == model_bytes(before.model)
    assert list(known.choices) == list(before.choices)
    assert list(known.recomputed) == []
    assert len(built) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"units": 6},
        {"scale": 2.0},
        {"rate": 0.2},
        {"optimizer": "Adam"},
        {"options": {"momentum": 0.5}},
        {"options": {"loss_scale_factor": 2.0}},
        {"clips": True},
        {"in_place": False},
        {"lowering": ("Relu.dX", "mask_product")},
        {"seed": 3},
    ],
    ids=str,
)
def test_another_program_is_compiled(built, change):
    losses()
    losses(**change)
    assert len(built) == 2


def test_other_rules_compile_anew(built, monkeypatch):
    losses()
    monkeypatch.setattr(program_key, "_sources", lambda: "others")
    losses()
    monkeypatch.setattr(program_key, "_versions", lambda: ("others",))
    losses()
    monkeypatch.setattr(opening_cache.ort, "__version__", "0.0")
    losses()
    assert len(built) == 4


def test_an_interrupt_of_the_late_compilation_leaves_no_half_model(monkeypatch):
    losses(optimizer="Adam")
    before = model_bytes(current_session().opening("job").job.model)
    losses(optimizer="Adam")
    known, build = current_session().opening("job").job, kept_program.build_job

    def stop(*args):
        build(*args)  # the trace becomes part of what is lost
        raise KeyboardInterrupt

    monkeypatch.setattr(kept_program, "build_job", stop)
    with pytest.raises(KeyboardInterrupt):
        len(known.choices)
    assert model_bytes(known.model) == before
    assert known.writes


@pytest.mark.parametrize(
    "flag", [("enable_auto_mixed_precision", True), ("train.secondary_lr", 0.1)], ids=str
)
def test_flags_that_compiling_warns_of_have_no_key(folder, built, flag):
    name, value = flag
    config = flow.function_config()
    getattr(config.train if "." in name else config, name.split(".")[-1])(value)
    for _ in range(2):
        flow.clear_default_session()

        @flow.global_function(type="train", function_config=config)
        def job(x: tp.Numpy.Placeholder((4, 8))) -> tp.Numpy:
            loss = flow.math.reduce_mean(flow.layers.dense(x, 3))
            schedule = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
            flow.optimizer.SGD(schedule).minimize(loss)
            return loss

        job(X)
    assert len(built) == 2
    assert not list(folder.glob("*.program"))


def test_a_gradient_rule_of_the_program_has_no_key(folder, built, monkeypatch):
    monkeypatch.setitem(registry._RULES, "OfTheProgram", lambda b, n, g: g)
    losses()
    assert not list(folder.glob("*.program"))


def test_rules_that_changed_since_the_process_began_have_no_key(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(program_key, "_PACKAGES", (tmp_path,))
    path = tmp_path / "rule.py"
    path.write_text("1")
    os.utime(path, (0, 0))
    sources = program_key._sources.__wrapped__
    before = sources()
    path.write_text("2")
    os.utime(path, (0, 0))
    assert sources() != before
    os.utime(path, (program_key._IMPORTED + 1,) * 2)
    with pytest.raises(program_key._UnknownError):
        sources()


def test_functions_of_one_line_differ(monkeypatch):
    monkeypatch.setattr(program_key, "_own_name", lambda found: found.__qualname__)
    functions = (lambda x: x + 1), (lambda x: x + 2), (lambda x: x - 1)  # fmt: skip
    job, digests = SimpleNamespace(b=None, spec=None), set()
    for function in functions:
        found = program_key._Description(job)
        found.add(function)
        digests.add(found.hexdigest())
    assert len(digests) == 3


def test_an_opening_that_is_gone_is_made_of_the_known_program(folder, built):
    first = losses()
    for path in folder.glob("*.opening"):
        path.unlink()
    assert losses() == first
    assert len(built) == 2
    assert losses() == first
    assert len(built) == 2


@pytest.mark.parametrize("damage", [lambda c: c[:-3], lambda c: b"", lambda c: c[:-1] + b"\0"])
def test_a_damaged_program_is_compiled_again(folder, built, damage, caplog):
    first = losses()
    (kept,) = folder.glob("*.program")
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    with caplog.at_level(logging.WARNING):
        assert losses() == first
    assert "is damaged, and made again" in caplog.text
    assert len(built) == 2
    assert kept.read_bytes() == whole


def test_a_program_that_lacks_a_fact_is_compiled_again(folder, built):
    first = losses()
    (path,) = folder.glob("*.program")
    path.write_bytes(opening_cache._framed(b'{"job": "job"}', b"", b""))
    assert losses() == first
    assert len(built) == 2


def test_wrong_labels_are_refused_by_a_known_job():
    losses()
    with pytest.raises(flow.errors.ArgumentError) as first:
        current_session().run(current_session().spec("job"), [X, LABELS + 7])
    losses()
    with pytest.raises(flow.errors.ArgumentError) as second:
        current_session().run(current_session().spec("job"), [X, LABELS + 7])
    assert str(first.value) == str(second.value)


def test_a_function_of_the_program_has_no_key(folder, built):
    """It may do anything: read a file, or another variable."""
    for _ in range(2):
        losses(options={"variables": lambda: ["first-weight"]})
    assert len(built) == 2
    assert not list(folder.glob("*.program"))


def test_an_input_named_as_a_variable_is_renamed_in_a_known_job(built):
    def run():
        flow.clear_default_session()

        @flow.global_function(type="train")
        def job(w: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
            v = flow.get_variable("w", (2,), initializer=flow.ones_initializer())
            loss = flow.math.reduce_mean(v * w)
            schedule = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
            flow.optimizer.SGD(schedule).minimize(loss)
            return loss

        return [job(np.ones(2, np.float32)).item() for _ in range(2)]

    assert run() == run()


def test_clearing_removes_programs_too(folder):
    losses()
    assert {path.suffix for path in folder.iterdir()} == {".opening", ".program"}
    assert opening_cache.OpeningCache(folder).clear() == 1
    assert not list(folder.iterdir())
