"""job.fit: the runtime's loop over jobs of a session."""

import inspect

import numpy as np
import pytest
from flow2onnx_runtime import Callback, EarlyStopping, FeedError, OptionsError, ReduceOnPlateau
from flow2onnx_runtime import Trainer as RuntimeTrainer

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, CheckpointError, ConfigError, UnsupportedError

RNG = np.random.default_rng(2)
X = RNG.standard_normal((22, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int32)
BATCHES = [(X[i : i + 4], Y[i : i + 4]) for i in range(0, 20, 4)]


def jobs(drops=False):
    """A train job on four rows, and a predict job that shares its weights, in a new session."""
    flow.clear_default_session()

    def scores(x):
        init = flow.random_uniform_initializer(-0.5, 0.5)
        return flow.layers.dense(x, 2, kernel_initializer=init, name="fc")

    @flow.global_function(type="train")
    def train(
        x: tp.Numpy.Placeholder((4, 3)), y: tp.Numpy.Placeholder((4,), dtype=flow.int32)
    ) -> tp.Numpy:
        x = flow.nn.dropout(x, 0.5) if drops else x
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, scores(x))
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
        return loss

    @flow.global_function(type="predict")
    def predict(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return scores(x)

    return train, predict


def values(job):
    return job.session.snapshot(list(job.session.variables))


def assert_same(first, second):
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


def plain(history):
    return [{n: v for n, v in row.items() if n != "seconds"} for row in history]


def test_options_are_those_of_bundles():
    ours = inspect.signature(type(jobs()[0]).fit).parameters
    theirs = inspect.signature(RuntimeTrainer.fit).parameters
    assert list(ours) == list(theirs)
    for name, parameter in ours.items():
        assert parameter.kind == theirs[name].kind
        assert parameter.default == theirs[name].default or name == "batches"


def test_an_epoch_is_a_call_for_each_batch():
    train, _ = jobs()
    losses = [train(*batch).mean() for batch in BATCHES * 2]
    expected = values(train)
    train, _ = jobs()
    history = train.fit((X, Y), 2, shuffle=False)
    assert_same(values(train), expected)
    assert history["loss"] == pytest.approx([np.mean(losses[:5]), np.mean(losses[5:])], rel=1e-6)
    assert history["step"] == [5, 10]


def test_validation_by_a_predict_job():
    train, predict = jobs()
    history = train.fit(
        BATCHES, 9, (X, Y), EarlyStopping("val_accuracy", patience=8), predict=predict,
        metrics="accuracy",
    )  # fmt: skip
    scores = np.concatenate([predict(X[i : i + 4]) for i in range(0, 20, 4)])
    rest = predict(np.concatenate([X[20:], X[21:], X[21:]]))[:2]
    right = np.concatenate([scores, rest]).argmax(-1) == Y
    assert history["val_accuracy"][-1] == right.mean()
    assert "val_loss" not in history.columns


@pytest.mark.parametrize("after", [2, 5, 8])
def test_a_resumed_training_is_the_undisturbed_one(after, tmp_path):
    class Failure(Callback):
        left = after

        def on_batch_end(self, loop, results):
            Failure.left -= 1
            if not Failure.left:
                raise OSError("the disk")

    train, _ = jobs()
    expected = train.fit((X, Y), 3, callbacks=Callback())
    whole = values(train)
    train, _ = jobs()
    place = dict(checkpoint=tmp_path / "c", every=1)
    with pytest.raises(OSError, match="disk"):
        train.fit((X, Y), 3, callbacks=Failure(), **place)
    train, _ = jobs()
    found = train.fit((X, Y), 3, callbacks=Failure(), resume=True, **place)
    assert plain(found) == plain(expected)
    assert_same(values(train), whole)


def test_draws_that_cannot_be_resumed_are_told_of(tmp_path, caplog):
    train, _ = jobs(drops=True)
    train.fit(BATCHES, checkpoint=tmp_path / "c")
    train, _ = jobs(drops=True)
    train.fit(BATCHES, 2, checkpoint=tmp_path / "c", resume=True)
    assert "random draws go on otherwise" in caplog.text


def test_a_checkpoint_of_other_jobs_is_refused(tmp_path):
    train, _ = jobs()
    train.fit(BATCHES, checkpoint=tmp_path / "c")
    flow.clear_default_session()

    @flow.global_function(type="train")
    def other(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        loss = flow.layers.dense(x, 1, name="other")
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(rate, momentum=0).minimize(loss)
        return loss

    with pytest.raises(CheckpointError, match="other variables"):
        other.fit([x for x, _ in BATCHES], checkpoint=tmp_path / "c", resume=True)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(batches=[*BATCHES[:1], (X[:3], Y[:3])]), ValueError, "batch 2 of epoch 1: "),
        (dict(batches=[(X[:4].astype(float), Y[:4])]), TypeError, "batch 1 of epoch 1: "),
        (dict(batches=[(X[:4], Y[:4], Y[:4])]), FeedError, "batch 1 of epoch 1: .* 3 arrays"),
        (dict(validation=BATCHES), ArgumentError, "type='predict'"),
        (dict(accumulate=2), UnsupportedError, "accumulate=True"),
        (dict(callbacks=ReduceOnPlateau(lr=0.1)), UnsupportedError, "on_device=True"),
        (dict(non_finite="skip"), ConfigError, "stop_on_non_finite"),
        (dict(batches=None), ArgumentError, "takes x, y"),
        (dict(metrics="accuracy"), OptionsError, "give validation="),
    ],
)
def test_what_does_not_fit(options, error, message):
    train, _ = jobs()
    with pytest.raises(error, match=message):
        train.fit(**dict(batches=BATCHES) | options)


def test_only_train_jobs_that_return_a_loss():
    _, predict = jobs()
    with pytest.raises(ArgumentError, match="predict job"):
        predict.fit([x for x, _ in BATCHES])
    flow.clear_default_session()

    @flow.global_function(type="train")
    def silent(x: tp.Numpy.Placeholder((4, 3))) -> None:
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(rate, momentum=0).minimize(flow.layers.dense(x, 1, name="fc"))

    with pytest.raises(ArgumentError, match="return what minimize"):
        silent.fit([x for x, _ in BATCHES])


def test_metrics_of_what_a_step_returns(tmp_path):
    flow.clear_default_session()

    @flow.global_function(type="train")
    def train(
        x: tp.Numpy.Placeholder((4, 3)), y: tp.Numpy.Placeholder((4,), dtype=flow.int32)
    ) -> tuple[tp.Numpy, tp.Numpy]:
        scores = flow.layers.dense(x, 2, name="fc")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, scores)
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.0])
        flow.optimizer.SGD(rate, momentum=0).minimize(loss)
        return loss, scores

    class Failure(Callback):
        def on_batch_end(self, loop, results):
            if loop.batch == 3 and loop.epoch == 1 and not (tmp_path / "failed").exists():
                (tmp_path / "failed").touch()
                raise OSError("the disk")

    scores = np.concatenate([train(*batch)[1] for batch in BATCHES])
    given = dict(metrics=["accuracy"], output="out/1", callbacks=Failure())
    place = dict(checkpoint=tmp_path / "c", every=1)
    with pytest.raises(OSError, match="the disk"):
        train.fit(BATCHES, **given, **place)
    history = train.fit(BATCHES, resume=True, **given, **place)
    assert history["accuracy"] == [(scores.argmax(-1) == Y[:20]).mean()]
