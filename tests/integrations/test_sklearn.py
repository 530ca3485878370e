"""Bundles and jobs as estimators of scikit-learn, by scikit-learn's own checks."""

import pickle
import shutil

import numpy as np
import onnx
import pytest
from flow2onnx_runtime import Trainer
from onnx import helper

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import FlowError
from tests.imported import models
from tests.integrations.page import data, needs, run_section, save_bundle

pytestmark = needs("sklearn")


def estimators():
    from flow2onnx.integrations import sklearn

    return sklearn


def test_a_classifier_of_a_bundle():
    rows = data()
    one = estimators().Classifier("bundle", epochs=20, batch_size=16)
    names = np.array(["low", "middle", "high"])[rows["labels"]]
    one.fit(rows["x"], names)
    held = np.array(["low", "middle", "high"])[rows["held_labels"]]
    assert one.score(rows["held_x"], held) > 0.8
    assert set(one.predict(rows["held_x"])) <= {"low", "middle", "high"}
    chances = one.predict_proba(rows["held_x"])
    np.testing.assert_allclose(chances.sum(1), 1)
    trainer = Trainer("bundle")  # the same training by hand: classes are sorted by name
    order = {"high": 0, "low": 1, "middle": 2}
    numbers = np.array([order[name] for name in names])
    trainer.fit((rows["x"], numbers), 20, batch_size=16)
    (scores,) = trainer.predict(rows["held_x"]).values()
    np.testing.assert_array_equal(one.decision_function(rows["held_x"]), scores)
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again.predict(rows["held_x"]), one.predict(rows["held_x"]))


@pytest.mark.slow
def test_what_an_estimator_refuses():
    rows = data()
    one = estimators().Classifier("bundle", epochs=1)
    with pytest.raises(ValueError, match=r"takes rows of shape \(4,\), X has 3 features"):
        one.fit(rows["x"][:, :3], rows["labels"])
    with pytest.raises(ValueError, match="none of the 3 classes"):
        one.fit(rows["x"], np.arange(100) % 5).predict(rows["x"])
    with pytest.raises(FlowError, match="the bundle takes"):
        estimators().Classifier("bundle", labels="nothing").fit(rows["x"], rows["labels"])
    with pytest.raises(FlowError):
        estimators().Classifier("nowhere").fit(rows["x"], rows["labels"])


@pytest.mark.slow
def test_the_rate_is_a_setting(folder):
    shutil.rmtree("bundle")
    save_bundle("bundle", on_device=True)
    rows = data()
    slow = estimators().Classifier("bundle", epochs=2, learning_rate=0.0)
    slow.fit(rows["x"], rows["labels"])
    (first,) = Trainer("bundle").predict(rows["held_x"]).values()
    np.testing.assert_array_equal(slow.decision_function(rows["held_x"]), first)


@pytest.mark.slow
def test_a_search_over_a_grid(capsys):
    names = run_section("scikit-learn")
    assert names["search"].best_params_ == {"epochs": 20}
    assert names["search"].score(names["held_x"], names["held_labels"]) > 0.8


@pytest.mark.slow
def test_a_job_in_a_pipeline():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    @flow.global_function(type="train")
    def train_job(
        x: tp.Numpy.Placeholder((20, 4)), labels: tp.Numpy.Placeholder((20,), dtype=flow.int64)
    ) -> tp.Numpy:
        scores = flow.layers.dense(x, 3, name="scores")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
        return loss

    @flow.global_function(type="predict")
    def predict_job(x: tp.Numpy.Placeholder((20, 4))) -> tp.Numpy:
        return flow.layers.dense(x, 3, name="scores")

    rows = data()
    one = estimators().Classifier(estimators().of_job(train_job, predict_job), epochs=30)
    pipeline = make_pipeline(StandardScaler(), one).fit(rows["x"], rows["labels"])
    assert pipeline.score(rows["held_x"], rows["held_labels"]) > 0.8


def linear(folder, columns, outputs):
    """The bundle of one layer, for any number of columns and classes."""
    tensors = [models.tensor("w", np.zeros((columns, outputs), np.float32)),
               models.tensor("b", np.zeros(outputs, np.float32))]  # fmt: skip
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["scores"], "layer")]
    inputs, results = [models.info("x", ["n", columns])], [models.info("scores", ["n", outputs])]
    model = models.model(nodes, inputs, results, tensors)
    if outputs == 1:
        made = flow.make_trainable(model, "mse", "adam", lr=0.3)
    else:
        made = flow.make_trainable(model, "cross_entropy", "adam", lr=0.3)
    made.save(folder, verify=False)


class Cached:
    """A function that writes a bundle once for each number of columns and classes."""

    def __init__(self, home):
        self.home = home

    def __call__(self, folder, columns, outputs):
        kept = self.home / f"{columns}-{outputs}"
        if not kept.exists():
            linear(kept, columns, outputs)
        shutil.copytree(kept, folder)

    def __deepcopy__(self, memo):
        return self


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Classifier", "Regressor"])
def test_the_checks_of_scikit_learn(kind, tmp_path_factory):
    from sklearn.utils.estimator_checks import check_estimator

    make = Cached(tmp_path_factory.mktemp("bundles"))
    one = getattr(estimators(), kind)(make, epochs=60, batch_size=20)
    found = check_estimator(one, on_fail=None)
    failed = {r["check_name"]: str(r["exception"]) for r in found if r["status"] == "failed"}
    assert not failed
    assert sum(r["status"] == "passed" for r in found) > 30


@pytest.mark.slow
def test_a_saved_model_is_plain_onnx(folder):
    rows = data()
    one = estimators().Classifier("bundle", epochs=1).fit(rows["x"], rows["labels"])
    for name, content in one.model_.items():
        (folder / name).write_bytes(content)
    onnx.checker.check_model(str(folder / one.file_))
