"""Versions that come, fail, are replaced and taken back, without a network."""

import asyncio
import gc
import os
import weakref

import numpy as np
import pytest
from flow2onnx_runtime import Predictor, save_safetensors
from flow2onnx_runtime.model_config import read_config
from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.metrics import Metrics
from flow2onnx_serve.repository import Repository
from flow2onnx_serve.settings import Settings

from tests.serving import models
from tests.serving.models import MLP_CONFIG, WIDTH, mlp, place

X = np.random.default_rng(7).standard_normal((2, WIDTH)).astype(np.float32)


@pytest.fixture
def path(tmp_path):
    place(tmp_path, "m", mlp(1))
    return tmp_path


def drive(path, scenario, **settings):
    async def main():
        repository = Repository(Settings(path, **settings), Metrics())
        try:
            await repository.refresh(at_once=True)
            await scenario(repository)
        finally:
            repository.close()

    asyncio.run(main())


async def settle(repository):
    """Two looks: files that are new at the first are at rest at the second."""
    await repository.refresh()
    await repository.refresh()


async def answer(repository, version=""):
    live = repository.find("m", version)
    return (await live.batcher.submit([X], 30))[0]


def rows(repository):
    return {r["version"]: (r["state"], r["reason"]) for r in repository.index()}


def check(folder, seed, name="check.safetensors", apart=0.0):
    """Store the results of a model of that seed, perhaps wrong ones."""
    tensors = {
        "feeds/x": X,
        "results/out/0": Predictor(mlp(seed))(x=X)["out/0"] + np.float32(apart),
    }
    if name.endswith("npz"):
        np.savez(folder / name, **tensors)
    else:
        save_safetensors(folder / name, tensors)


def test_a_new_version_takes_over(path):
    async def scenario(repository):
        old = await answer(repository)
        check(place(path, "m", mlp(2), 2), 2)
        await repository.refresh()
        np.testing.assert_array_equal(await answer(repository), old)  # not at rest yet
        await repository.refresh()
        np.testing.assert_array_equal(await answer(repository), Predictor(mlp(2))(x=X)["out/0"])
        assert list(rows(repository)) == ["2"]
        assert "the check passed" in rows(repository)["2"][1]
        with pytest.raises(RequestError, match="no version '1' ready"):
            repository.find("m", "1")

    drive(path, scenario)


def truncated(path):
    place(path, "m", mlp(2)[:-100], 2)


def not_a_model(path):
    place(path, "m", b"\0" * 1000, 2)


def empty(path):
    place(path, "m", b"", 2)


def missing(path):
    (path / "m" / "2").mkdir()


def other_inputs(path):
    place(path, "m", mlp(2, width=WIDTH + 1), 2)


def no_batch(path):
    place(path, "m", mlp(2, batch=4), 2)


def another_model(path):
    place(path, "m", models.lookup(), 2)


def failing_check(path):
    check(place(path, "m", mlp(2), 2), 2, apart=0.5)


def check_of_another(path):
    check(place(path, "m", mlp(2), 2), 1, "check.npz")


def broken_check(path):
    (place(path, "m", mlp(2), 2) / "check.safetensors").write_bytes(b"\0" * 40)


def broken_npz(path):
    (place(path, "m", mlp(2), 2) / "check.npz").write_bytes(b"PK\3\4nonsense")


def pickled_check(path):
    np.savez(place(path, "m", mlp(2), 2) / "check.npz", **{"feeds/x": np.array([{}], object)})


def empty_check(path):
    save_safetensors(place(path, "m", mlp(2), 2) / "check.safetensors", {"feeds/x": X})


def dangling(path):
    (path / "m" / "2").mkdir()
    os.symlink(path / "nowhere.onnx", path / "m" / "2" / "model.onnx")


FAULTS = {
    truncated: "cannot be opened", not_a_model: "cannot be opened", empty: "cannot be opened",
    missing: "is not there", dangling: "is not there",
    other_inputs: "differ from version 1: x FP32 [-1, 17] instead of x FP32 [-1, 16]",
    no_batch: "differ from version 1", another_model: "differ from version 1",
    failing_check: "the check fails: out/0 differs by up to 0.5",
    check_of_another: "the check fails", broken_check: "check.safetensors",
    broken_npz: "check.npz cannot be read", pickled_check: "check.npz cannot be read",
    empty_check: "results/NAME for outputs",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_version_that_is_not_fit_leaves_the_old_one_answering(path, fault, caplog):
    async def scenario(repository):
        old = await answer(repository)
        fault(path)
        await settle(repository)
        await settle(repository)
        np.testing.assert_array_equal(await answer(repository), old)
        state, reason = rows(repository)["2"]
        assert (state, rows(repository)["1"][0]) == ("UNAVAILABLE", "READY")
        assert FAULTS[fault] in reason
        failures = [r for r in caplog.records if r.message == "a version was not loaded"]
        assert [(r.model, r.version, r.reason) for r in failures] == [("m", 2, reason)]
        assert failures[0].still_answering == [1]
        place(path, "m", mlp(3), 2)
        for name in ("check.safetensors", "check.npz"):
            (path / "m" / "2" / name).unlink(missing_ok=True)
        await settle(repository)
        np.testing.assert_array_equal(await answer(repository), Predictor(mlp(3))(x=X)["out/0"])

    drive(path, scenario)


def test_files_replaced_by_worse_ones(path):
    async def scenario(repository):
        old = await answer(repository)
        place(path, "m", b"broken", 1)
        await settle(repository)
        np.testing.assert_array_equal(await answer(repository), old)
        state, reason = rows(repository)["1"]
        assert state == "READY"
        assert reason.startswith("kept as it was: ")

    drive(path, scenario)


def test_a_version_in_the_making_is_left_alone(path):
    async def scenario(repository):
        old = await answer(repository)
        whole = mlp(2)
        for size in (100, 900, len(whole)):
            place(path, "m", whole[:size], 2)
            await repository.refresh()
            np.testing.assert_array_equal(await answer(repository), old)
            assert list(rows(repository)) == ["1"]
        await repository.refresh()
        assert list(rows(repository)) == ["2"]

    drive(path, scenario)


def test_taking_a_version_back(path):
    async def scenario(repository):
        old = await answer(repository)
        place(path, "m", mlp(2), 2)
        await settle(repository)
        await repository.load("m", 1)
        np.testing.assert_array_equal(await answer(repository), old)
        await settle(repository)
        assert list(rows(repository)) == ["1"]  # it keeps to it
        await repository.load("m")
        assert list(rows(repository)) == ["2"]
        for file in (path / "m" / "2").iterdir():
            file.unlink()
        (path / "m" / "2").rmdir()
        await settle(repository)  # so does removing it
        np.testing.assert_array_equal(await answer(repository), old)

    drive(path, scenario)


def test_unloading_and_loading(path):
    async def scenario(repository):
        await repository.unload("m")
        await settle(repository)
        with pytest.raises(RequestError, match="not ready") as caught:
            repository.find("m")
        assert caught.value.status == 503
        assert repository.is_ready  # as asked for
        assert rows(repository) == {"": ("UNAVAILABLE", "unloaded")}
        place(path, "m", mlp(2, width=WIDTH + 1), 2)
        await repository.load("m")  # other inputs: nobody relies on the old ones any more
        assert list(rows(repository)) == ["2"]
        with pytest.raises(RequestError, match="version 9"):
            await repository.load("m", 9)
        place(path, "m", b"broken", 3)
        with pytest.raises(RequestError, match=r"version 3: .*cannot be opened"):
            await repository.load("m")
        assert repository.find("m").version.number == 2

    drive(path, scenario)


def test_requests_of_a_version_that_retires_are_finished(path):
    async def scenario(repository):
        live = repository.find("m")
        waiting = asyncio.create_task(live.batcher.submit([X], 30))
        place(path, "m", mlp(2), 2)
        await settle(repository)
        np.testing.assert_array_equal((await waiting)[0], Predictor(mlp(1))(x=X)["out/0"])
        late = (await live.batcher.submit([X], 30))[0]  # who had found it just before
        np.testing.assert_array_equal(late, (await waiting)[0])

    drive(path, scenario)


def test_a_broken_newest_version_at_the_start(path):
    place(path, "m", b"broken", 2)

    async def scenario(repository):
        assert repository.find("m").version.number == 1
        assert rows(repository)["2"][0] == "UNAVAILABLE"

    drive(path, scenario)


@pytest.mark.parametrize(("policy", "ready"), [
    ("", ["3"]), ("latest { num_versions: 2 }", ["2", "3"]), ("all {}", ["1", "2", "3"]),
    ("specific { versions: [1, 2, 9] }", ["1", "2"]),
])  # fmt: skip
def test_version_policies(path, policy, ready):
    for number in (2, 3):
        place(path, "m", mlp(number), number)
    (path / "m" / "config.pbtxt").write_text(f"version_policy {{ {policy} }}" if policy else "")

    async def scenario(repository):
        assert list(rows(repository)) == ready
        assert repository.find("m").version.number == int(ready[-1])

    drive(path, scenario)


def test_models_come_and_go(path):
    async def scenario(repository):
        place(path, "new", mlp(3))
        (path / ".hidden").mkdir()
        (path / "empty").mkdir()
        await settle(repository)
        assert repository.names() == ["m", "new"]
        (path / "new" / "1" / "model.onnx").unlink()
        (path / "new" / "1").rmdir()
        (path / "new").rmdir()
        await settle(repository)
        with pytest.raises(RequestError, match="unknown model: 'new'"):
            repository.find("new")

    drive(path, scenario)


CONFIGS = [
    ("nonsense {", "config.pbtxt cannot be read"),
    ('backend: "python"', "asks for python"),
    ('platform: "tensorrt_plan"', "asks for tensorrt_plan"),
    ('default_model_filename: "../../m/1/model.onnx"', "default_model_filename"),
    ("max_batch_size: -1", "max_batch_size is -1"),
    ("ensemble_scheduling {}", "asks for ensemble_scheduling"),
    ('input { name: "x" reshape { shape: 1 } }', "asks for reshape"),
    ('input { name: "y" data_type: TYPE_FP32 dims: [-1, 16] }', "declares the inputs ['y']"),
    ('input { name: "x" data_type: TYPE_FP64 dims: [-1, 16] }', "as FP64"),
    ('input { name: "x" data_type: TYPE_FP32 dims: [16] }', "as FP32 [16]"),
    (MLP_CONFIG.replace("dims: 5", "dims: 6"), "declares output out/0 as FP32 [-1, 6]"),
    (MLP_CONFIG.replace("labels.txt", "../labels.txt"), "label_filename"),
    (MLP_CONFIG, "labels.txt cannot be read"),
    ('model_warmup { name: "w" inputs { key: "x" value { dims: [2, 17] } } }', "warm-up fails"),
]


@pytest.mark.parametrize(("text", "reason"), CONFIGS, ids=[r for _, r in CONFIGS])
def test_configurations_that_cannot_be_served(path, text, reason):
    (path / "m" / "config.pbtxt").write_text(text)

    async def scenario(repository):
        with pytest.raises(RequestError, match="not ready"):
            repository.find("m")
        assert reason in rows(repository)["1"][1]
        assert not repository.is_ready

    drive(path, scenario)


def test_what_a_configuration_says(path):
    text = """max_batch_size: 8 instance_group { count: 2 } instance_group { count: 1 }
        dynamic_batching { max_queue_delay_microseconds: 500
          default_queue_policy { max_queue_size: 7 } }
        optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }
        parameters { key: "unknown to us" value { string_value: "ignored" } }
        model_warmup { batch_size: 4 inputs { key: "x" value { dims: 16 } } }"""
    (path / "m" / "config.pbtxt").write_text(text)
    config = read_config(path / "m" / "config.pbtxt")
    assert config.accelerators == ("tensorrt",)
    assert config.warmups == ({"x": (4, 16)},)

    async def scenario(repository):
        limits = repository.find("m").batcher.limits
        assert (limits.rows, limits.delay, limits.queue, limits.instances) == (8, 0.0005, 7, 3)

    drive(path, scenario)


def test_declared_inputs_may_change_with_the_version(path):
    async def scenario(repository):
        place(path, "m", mlp(2, width=17), 2, MLP_CONFIG.replace("dims: 16", "dims: 17")
              .replace('label_filename: "labels.txt"', "").replace('"mlp"', '"m"'))  # fmt: skip
        await settle(repository)
        assert repository.find("m").version.inputs["x"].shape == (-1, 17)

    drive(path, scenario)


def test_one_file(tmp_path):
    (tmp_path / "net.onnx").write_bytes(mlp(1))
    (tmp_path / "net.check.npz").write_bytes(b"")
    check(tmp_path, 1, "net.check.npz")

    async def scenario(repository):
        assert repository.index()[0] | {"reason": ""} == {
            "name": "net", "version": "1", "state": "READY", "reason": "",
        }  # fmt: skip
        assert "the check passed" in repository.index()[0]["reason"]

    drive(tmp_path / "net.onnx", scenario)


def test_batching_needs_rows_that_do_not_depend_on_each_other(tmp_path):
    for make in (mlp, models.centred, models.lookup, models.slow, models.types):
        place(tmp_path, make.__name__, make())

    async def scenario(repository):
        found = {n: repository.find(n) for n in repository.names()}
        assert {n: live.batcher.limits.rows for n, live in found.items()} == {
            "centred": 1, "lookup": 32, "mlp": 32, "slow": 1, "types": 1,
        }  # fmt: skip
        assert "do not all begin with one free batch" in found["slow"].version.notes[0]

    drive(tmp_path, scenario)


def test_quick_models_run_on_the_event_loop(tmp_path, monkeypatch):
    """Those of fixed work; what a value can make long, never."""
    for limit in ("_QUICK", "_INLINE"):  # however busy the machine is
        monkeypatch.setattr(f"flow2onnx_serve.inline.{limit}", 60.0)
    for make in (mlp, models.centred, models.lookup, models.slow, models.scalar):
        place(tmp_path, make.__name__, make())

    async def scenario(repository):
        found = {n: repository.find(n).batcher.limits.inline for n in repository.names()}
        assert (found["slow"], found["centred"]) == (0, 0)
        assert found["mlp"] > 0
        assert found["scalar"] == 1

    drive(tmp_path, scenario)


def test_a_replaced_model_is_freed_at_once(path, monkeypatch):
    """Not only when garbage is looked for."""
    monkeypatch.setattr("flow2onnx_serve.repository._TRIM_DELAY", 600)

    async def scenario(repository):
        old = weakref.ref(repository.find("m").version.program)
        await answer(repository)
        place(path, "m", mlp(2), 2)
        gc.disable()
        try:
            await settle(repository)
            await answer(repository)
            for _ in range(200):  # the thread that loaded may just be letting go
                if old() is None:
                    break
                await asyncio.sleep(0.02)
            assert old() is None
        finally:
            gc.enable()

    drive(path, scenario)
