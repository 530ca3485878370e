"""Variables from outside: loading, checkpoints, snapshots."""

import os
from pathlib import Path

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import CheckpointError, ContextError, JobError
from tests.api.support import f32, raises, rate, sgd, values, variable

X = tp.Numpy.Placeholder((4, 3))
DATA = [np.random.default_rng(i).standard_normal((4, 3)).astype(np.float32) for i in range(8)]


def define(optimizer):
    @flow.global_function(type="train")
    def train(x: X) -> tp.Numpy:
        y = flow.layers.dense(
            x, 5, activation=flow.nn.relu, name="hidden",
            kernel_initializer=flow.random_normal_initializer(0.0, 1.0),
        )  # fmt: skip
        loss = flow.nn.dropout(flow.layers.dense(
            y, 2, name="out", kernel_initializer=flow.random_normal_initializer(0.0, 1.0)
        ), rate=0.0)  # fmt: skip
        loss = loss * loss
        optimizer().minimize(loss)
        return loss

    return train


def everything():
    return {name: v.numpy() for name, v in flow.get_all_variables().items()}


def same(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert first[name].dtype == second[name].dtype
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


SCHEDULE = ([1, 4], [0.05, 0.02, 0.01])
OPTIMIZERS = {
    "sgd": lambda: sgd(0.05),
    "momentum": lambda: flow.optimizer.SGD(
        flow.optimizer.PiecewiseConstantScheduler(*SCHEDULE), momentum=0.9
    ),
    "adam": lambda: flow.optimizer.Adam(
        flow.optimizer.PiecewiseConstantScheduler(*SCHEDULE), do_bias_correction=True
    ),
}


class TestRoundTrip:
    @pytest.mark.parametrize("name", OPTIMIZERS)
    @pytest.mark.parametrize("target", ["folder", "state.safetensors"])
    def test_continued_training_equals_undisturbed_training(self, name, target, tmp_path):
        path = tmp_path / target
        train = define(OPTIMIZERS[name])
        for x in DATA[:3]:
            train(x)
        flow.checkpoint.save(path)
        losses = [train(x) for x in DATA[3:]]
        end = everything()
        flow.clear_default_session()

        train = define(OPTIMIZERS[name])
        flow.config.random_seed(99)  # whatever the first values are
        flow.load_variables(flow.checkpoint.get(path), ignore_mismatch=False)
        for x, loss in zip(DATA[3:], losses, strict=True):
            np.testing.assert_array_equal(train(x), loss)
        same(everything(), end)

    def test_all_spellings_of_save_and_load(self, tmp_path):
        train = define(OPTIMIZERS["momentum"])
        flow.train.CheckPoint().init()
        train(DATA[0])
        saved = everything()
        flow.train.CheckPoint().save(tmp_path / "a")
        flow.checkpoint.save(str(tmp_path / "b"))
        flow.save(flow.get_all_variables(), tmp_path / "c")
        flow.checkpoint.save(tmp_path / "d", everything())
        for folder in "abcd":
            train(DATA[1])
            assert not np.array_equal(everything()["out-weight"], saved["out-weight"])
            if folder == "a":
                flow.train.CheckPoint().load(tmp_path / folder)
            else:
                flow.load_variables(flow.load(str(tmp_path / folder)))
            same(everything(), saved)

    def test_layout(self, tmp_path):
        define(OPTIMIZERS["momentum"])
        flow.checkpoint.save(tmp_path / "a")
        names = sorted(os.listdir(tmp_path / "a"))
        assert names == [
            "System-Train-TrainStep-train", "hidden-bias", "hidden-bias-momentum", "hidden-weight",
            "hidden-weight-momentum", "out-bias", "out-bias-momentum", "out-weight",
            "out-weight-momentum", "snapshot_done",
        ]  # fmt: skip
        raw = np.fromfile(tmp_path / "a" / "hidden-weight" / "out", "<f4").reshape(5, 3)
        np.testing.assert_array_equal(raw, values("hidden-weight")[0])

    def test_single_variable(self, tmp_path):
        define(OPTIMIZERS["sgd"])
        flow.checkpoint.save(tmp_path / "a")
        one = flow.checkpoint.get(tmp_path / "a" / "out-bias")
        assert (one.shape, one.dtype) == ((2,), flow.float32)
        flow.load_variables({"out-bias": one})
        with raises(CheckpointError, AssertionError, "is one variable", at="CheckPoint().load"):
            flow.train.CheckPoint().load(tmp_path / "a" / "out-bias")

    def test_checkpoint_of_the_first_releases_has_no_meta(self, tmp_path):
        train = define(OPTIMIZERS["momentum"])
        train(DATA[0])
        saved = everything()
        flow.checkpoint.save(tmp_path / "a")
        for meta in Path(tmp_path / "a").glob("*/meta"):
            meta.unlink()
        train(DATA[1])
        flow.train.CheckPoint().load(tmp_path / "a")
        same(everything(), saved)

    def test_bfloat16_and_integers(self, tmp_path):
        @flow.global_function()
        def job() -> tp.Numpy:
            flow.get_variable(
                "b", (3,), flow.bfloat16, flow.constant_initializer(1.5, flow.bfloat16)
            )
            return flow.get_variable(
                "n", (2,), flow.int64, flow.constant_initializer(2**40, flow.int64)
            )

        before = everything()
        assert before["b"].dtype == flow.bfloat16.numpy
        assert before["b"].astype(np.float32).tolist() == [1.5] * 3
        flow.checkpoint.save(tmp_path / "a")
        flow.load_variables({"b": np.zeros(3, flow.bfloat16.numpy), "n": np.zeros(2, np.int64)})
        assert values("b")[0].astype(np.float32).tolist() == [0] * 3
        flow.load_variables(flow.checkpoint.get(tmp_path / "a"))
        same(everything(), before)

    def test_saving_is_a_snapshot_of_one_moment(self, tmp_path):
        @flow.global_function(type="train")
        def train() -> tp.Callback[tp.Numpy]:
            loss = variable("a", (20_000,), value=0.0) + variable("b", (20_000,), value=0.0)
            sgd(20_000.0).minimize(loss)
            return loss

        for i in range(5):
            for _ in range(7):
                train()
            flow.checkpoint.save(tmp_path / str(i))
        for i in range(5):
            found = flow.checkpoint.get(tmp_path / str(i))
            assert found["a"].numpy()[0] == found["b"].numpy()[-1] == -7 * (i + 1)
            assert found["System-Train-TrainStep-train"].numpy() == [7 * (i + 1)]


class TestLoadVariables:
    @pytest.fixture(autouse=True)
    def job(self):
        @flow.global_function()
        def job() -> tp.Bundle[tp.Numpy]:
            return [variable("a", (2, 3), value=1.0), variable("b", (2,), value=2.0)]

        return job

    def test_arrays_and_blobs(self, job):
        flow.load_variables({"a": np.full((2, 3), 5, np.float32)})
        flow.load_variables({"b": flow.get_all_variables()["b"]})
        assert [v.flat[0] for v in job()] == [5, 2]

    def test_strided_array(self, job):
        given = np.arange(6, dtype=np.float32).reshape(3, 2).T
        flow.load_variables({"a": given})
        np.testing.assert_array_equal(job()[0], given)

    def test_unknown_names(self, job):
        flow.load_variables({"zzz": f32(1), "b": f32(7, 8)})
        assert job()[1].tolist() == [7, 8]
        with raises(CheckpointError, RuntimeError, '"zzz" is not a variable name',
                    at="flow.load_variables("):  # fmt: skip
            flow.load_variables({"b": f32(0, 0), "zzz": f32(1)}, ignore_mismatch=False)
        assert job()[1].tolist() == [7, 8]

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (np.ones((3, 3), np.float32), "(2, 3) vs (3, 3)"),
            (np.ones((6,), np.float32), "(2, 3) vs (6,)"),
            (np.ones((2, 3), np.float64), "oneflow.float32 vs oneflow.float64"),
            ([[1.0] * 3] * 2, "no array"),
        ],
    )
    def test_all_or_none(self, job, value, text):
        with raises(CheckpointError, AssertionError, text, at="flow.load_variables("):
            flow.load_variables({"b": f32(0, 0), "a": value})
        assert [v.flat[0] for v in job()] == [1, 2]

    def test_checkpoint_of_another_model(self, job, tmp_path):
        flow.checkpoint.save(tmp_path / "a", {"b": f32(0, 0), "a": np.ones((3, 3), np.float32)})
        with raises(CheckpointError, AssertionError, "(2, 3) vs (3, 3)"):
            flow.train.CheckPoint().load(tmp_path / "a")
        (tmp_path / "a" / "a" / "meta").unlink()
        with raises(CheckpointError, AssertionError, "36 bytes"):
            flow.train.CheckPoint().load(tmp_path / "a")
        assert [v.flat[0] for v in job()] == [1, 2]

    def test_saving_over_a_checkpoint(self, tmp_path):
        flow.checkpoint.save(tmp_path / "a")
        with raises(CheckpointError, AssertionError, "is a file or non-empty directory!"):
            flow.checkpoint.save(tmp_path / "a")

    def test_missing_checkpoint(self, tmp_path):
        with raises(CheckpointError, AssertionError, "doesn't exist!"):
            flow.checkpoint.get(tmp_path / "nowhere")

    def test_saving_what_is_no_array(self, tmp_path):
        with raises(CheckpointError, AssertionError, "no array", at="flow.checkpoint.save("):
            flow.checkpoint.save(tmp_path / "a", {"a": [1.0]})


def test_without_a_job():
    for use in (flow.get_all_variables, flow.train.CheckPoint().init):
        with raises(JobError, AssertionError, "no job function is defined"):
            use()


def test_variables_of_a_cleared_session():
    @flow.global_function()
    def job() -> tp.Numpy:
        return variable()

    old = flow.get_all_variables()["w"]
    flow.clear_default_session()
    with raises(JobError, AssertionError, "session that was cleared"):
        old.numpy()


def test_loading_inside_a_job():
    @flow.global_function()
    def job() -> tp.Numpy:
        flow.load_variables({})  # here
        return variable()

    with raises(ContextError, NotImplementedError, at="# here", job="job"):
        job()


def test_snapshots(tmp_path):
    train = define(lambda: flow.optimizer.SGD(rate(0.1)))
    manager = flow.train.SimpleCheckPointManager(tmp_path / "root" / "all")
    assert manager.list_checkpoints() == []
    assert manager.latest_checkpoint() is None
    manager.initialize_or_restore()
    first = everything()
    train(DATA[0])
    second = everything()
    manager.save()
    train(DATA[1])
    manager.initialize_or_restore()
    same(everything(), second)
    names = manager.list_checkpoints()
    assert len(names) == 2
    assert manager.latest_checkpoint() == names[-1] == max(names)
    assert all(n.startswith("snapshot_") for n in names)
    (tmp_path / "root" / "all" / names[1] / "snapshot_done").unlink()
    assert manager.list_checkpoints() == names[:1]
    manager.initialize_or_restore()
    same(everything(), first)
    other = flow.train.SimpleCheckPointManager(str(tmp_path / "root" / "all"), prefix="other_")
    assert other.latest_checkpoint() is None
