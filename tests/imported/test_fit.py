"""Trainer.fit on imported models: a free batch, accumulation, averages, other people's data."""

import numpy as np
import pytest
from flow2onnx_runtime import Callback, FeedError, ReduceOnPlateau, Trainer

import flow2onnx as flow
from tests.imported import models

RNG = np.random.default_rng(5)
X = RNG.standard_normal((50, 4)).astype(np.float32)
Y = (X.sum(1) > 0).astype(np.int64) + (X[:, 0] > 1)
MEASURED = dict(batch_size=16, shuffle=False)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "bundle"
    made = flow.make_trainable(
        models.perceptron(), "cross_entropy", "adam", lr=0.05, accumulate=True, ema=0.5
    )
    made.save(folder, verify=False)
    return folder


@pytest.fixture
def trainer(bundle):
    return Trainer(bundle)


@pytest.fixture
def expected(bundle):
    """The state after two epochs of 16, 16, 16 and 2 rows."""
    trainer = Trainer(bundle)
    for _ in range(2):
        for first in range(0, 50, 16):
            trainer.step(X[first : first + 16], Y[first : first + 16])
    return trainer.state_dict()


def assert_same(trainer, expected):
    for name, value in trainer.state_dict().items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_the_last_batch_may_be_smaller(trainer, expected):
    history = trainer.fit((X, Y), 2, (X, Y), metrics="accuracy", **MEASURED)
    assert_same(trainer, expected)
    scores = trainer.predict(X)["scores"]
    assert history["val_accuracy"][-1] == (scores.argmax(-1) == Y).mean()
    whole = trainer.predict(X, Y, job="eval")["loss"]
    assert history["val_loss"][-1] == pytest.approx(float(whole), rel=1e-5)
    assert history["lr"] == [0.05, 0.05]


def test_or_be_left_out(trainer):
    trainer.fit((X, Y), 2, drop_last=True, batch_size=16)
    assert trainer.steps == 6


def test_halves_alone_train_as_beside_a_whole_step(bundle, trainer):
    halves = Trainer(bundle, accumulates=True)
    for each in (trainer, halves):
        each.fit((X, Y), 2, batch_size=10, shuffle=False, accumulate=2)
    trainer.accumulate(X[:10], Y[:10])
    trainer.update()
    halves.step(X[:10], Y[:10])
    assert halves.steps == trainer.steps
    found = halves.state_dict()
    for name, value in trainer.state_dict().items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert halves.evaluate(X[:4], Y[:4]).keys() == trainer.evaluate(X[:4], Y[:4]).keys()
    assert [feed.name for feed in halves.feeds] == [feed.name for feed in trainer.feeds]


def test_batches_are_accumulated(trainer, bundle):
    """Two batches make a step; what is left at the end of an epoch makes one too."""
    other = Trainer(bundle)
    trainer.fit((X, Y), 2, batch_size=10, shuffle=False, accumulate=2)
    for _ in range(2):
        for first in range(0, 50, 20):
            for start in range(first, min(first + 20, 50), 10):
                other.accumulate(X[start : start + 10], Y[start : start + 10])
            other.update()
    assert trainer.steps == 6
    assert_same(trainer, other.state_dict())


@pytest.mark.parametrize("after", [3, 6, 9])
def test_accumulation_is_resumed_within_a_step(after, bundle, tmp_path):
    class Failure(Callback):
        seen = 0

        def on_batch_end(self, loop, results):
            Failure.seen += 1
            if self.seen == after:
                loop.save(tmp_path / "c")
                raise OSError("the disk is gone")

    given = dict(batches=(X, Y), epochs=2, batch_size=10, accumulate=3)
    with pytest.raises(OSError, match="disk"):
        Trainer(bundle).fit(**given, callbacks=Failure())
    resumed, whole = Trainer(bundle), Trainer(bundle)
    found = resumed.fit(**given, callbacks=Failure(), checkpoint=tmp_path / "c", resume=True)
    expected = whole.fit(**given)
    assert found["loss"] == expected["loss"]
    assert_same(resumed, whole.state_dict())


def test_averaged_weights_are_validated(trainer):
    history = trainer.fit((X, Y), 3, (X, Y), metrics="accuracy", predict="ema")
    found = trainer.predict(X, Y, job="ema-eval")
    assert history["val_loss"][-1] == pytest.approx(float(found["loss"]), rel=1e-5)
    assert history["val_accuracy"][-1] == (found["scores"].argmax(-1) == Y).mean()


def rates(trainer, losses, **settings):
    """The rate after each epoch whose validation gives these losses."""
    values = iter(losses)

    class Say(Callback):
        def on_epoch_end(self, loop, row):
            row["val_loss"] = next(values)

    found = []
    trainer.fit(
        [(X, Y)], len(losses),
        callbacks=[Say(), ReduceOnPlateau("val_loss", **settings), lambda loop: found.append(
            loop.learner.rate)],
    )  # fmt: skip
    return found


LOSSES = [5, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3]


def test_rates_are_lowered_on_plateaus(trainer):
    found = rates(trainer, LOSSES, factor=0.5, patience=1, cooldown=1)
    now, expected, waited, resting, best = 0.05, [], 0, 0, float("inf")
    for loss in LOSSES:
        waited, best = (0, loss) if loss < best else (waited + 1, best)
        if resting:
            waited, resting = 0, resting - 1
        if waited > 1:
            now, waited, resting = now * 0.5, 0, 1
        expected.append(now)
    assert found == pytest.approx(expected)
    assert trainer.learning_rate == pytest.approx(expected[-1])


@pytest.mark.parametrize("settings", [{}, dict(cooldown=2), dict(patience=0, min_lr=0.01)])
def test_rates_are_those_of_torch(settings, trainer):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.05)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, threshold=0.0, threshold_mode="abs", eps=0,
        **dict(factor=0.5, patience=1) | settings,
    )  # fmt: skip
    expected = []
    for loss in LOSSES:
        theirs.step(loss)
        expected.append(optimizer.param_groups[0]["lr"])
    found = rates(trainer, LOSSES, **dict(factor=0.5, patience=1) | settings)
    assert found == pytest.approx(expected)


def test_a_loader_of_torch(trainer, expected):
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    loader = torch.utils.data.DataLoader(data, batch_size=16)
    history = trainer.fit(loader, 2, loader, metrics="accuracy")
    assert_same(trainer, expected)
    assert history["val_accuracy"][-1] == (trainer.predict(X)["scores"].argmax(-1) == Y).mean()
    with pytest.raises(FeedError, match="DataLoader"):
        trainer.fit(data)


def test_tensors_with_gradients_and_batches_by_name(trainer, expected):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X).requires_grad_()
    rows = [dict(x=x[i : i + 16], labels=torch.from_numpy(Y[i : i + 16])) for i in (0, 16, 32, 48)]
    trainer.fit(rows, 2)
    assert_same(trainer, expected)


def test_a_data_set_of_hugging_face(trainer, expected, bundle):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"x": X.tolist(), "label": Y.tolist(), "text": ["a"] * 50})
    trainer.fit(data, 2, data, columns={"labels": "label"}, metrics="accuracy", **MEASURED)
    assert_same(trainer, expected)
    shuffled, other = Trainer(bundle), Trainer(bundle)
    shuffled.fit(data.with_format("numpy"), 2, columns={"labels": "label"}, seed=4)
    other.fit((X, Y), 2, seed=4)
    assert_same(shuffled, other.state_dict())
    with pytest.raises(FeedError, match=r"no column 'labels'.*\n.*there are x, label, text"):
        trainer.fit(data)
    with pytest.raises(FeedError, match="splits train, test"):
        trainer.fit(datasets.DatasetDict(train=data, test=data))


def test_a_stream_of_hugging_face(trainer, expected):
    datasets = pytest.importorskip("datasets")
    rows = [dict(x=x, labels=y) for x, y in zip(X.tolist(), Y.tolist(), strict=True)]
    data = datasets.IterableDataset.from_generator(lambda: iter(rows))
    trainer.fit(data, 2, **MEASURED)
    assert_same(trainer, expected)
