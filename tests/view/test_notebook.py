"""What notebooks show: jobs, blobs, variables, reports, bundles; names in it are text."""

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from flow2onnx_runtime import History, Predictor, Trainer
from flow2onnx_runtime.bundle import Bundle
from onnx import helper

import flow2onnx as flow
import flow2onnx.typing as tp
from tests.view.models import hostile, model

BUNDLE = Path(__file__).parents[2] / "runtime" / "conformance" / "lenet" / "bundle"


class Shown(HTMLParser):
    """The elements and the text of HTML whose elements all end."""

    def __init__(self, content):
        super().__init__()
        self.elements, self.open, self.text = [], [], ""
        self.feed(content._repr_html_())
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert not [name for name, _ in attrs if name.startswith("on")]
        self.elements.append(tag)
        if tag not in ("input", "br", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.elements.append(tag)

    def handle_data(self, data):
        self.text += f" {data}"


def a_job():
    blobs = []

    @flow.global_function(type="train")
    def train_job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        hidden = flow.layers.dense(x, 5, flow.nn.relu, name="<script>first</script>")
        loss = flow.math.square(flow.layers.dense(hidden, 2, name="second"))
        blobs.append((repr(loss), Shown(loss)))
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
        return loss

    return train_job, blobs


def test_a_job():
    job, _ = a_job()
    shown = Shown(job)
    assert {"svg", "table", "details"} <= set(shown.elements)
    assert "script" not in shown.elements
    assert "32 parameters" in shown.text
    assert "test_notebook.py" in shown.text
    assert repr(job) == "<train job train_job>"


def test_a_job_that_cannot_be_traced():
    @flow.global_function()
    def broken(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.matmul(x, x)

    assert "matmul" in Shown(broken).text


def test_a_blob_while_its_job_is_traced():
    job, blobs = a_job()
    job(np.zeros((4, 3), np.float32))
    text, shown = blobs[-1]
    assert text.startswith("Blob(square")
    assert "4 × 2" in shown.text
    assert "test_notebook.py" in shown.text


def test_variables():
    job, _ = a_job()
    job(np.zeros((4, 3), np.float32))
    found = flow.get_all_variables()
    assert isinstance(found, dict)
    shown = Shown(found)
    assert "script" not in shown.elements
    assert "second-weight-momentum" in shown.text
    assert "deviation" in Shown(found["second-weight"]).text
    assert "slot" in Shown(found["second-weight-momentum"]).text


def test_explanations():
    job, _ = a_job()
    found = job.explain()
    assert "optimizer state" in Shown(found).text
    assert repr(found) == "<explanation of train job train_job, placed on cpu>"


def test_bundles_of_the_runtime():
    for found in (Bundle(BUNDLE), Trainer(BUNDLE)):
        shown = Shown(found)
        assert "svg" in shown.elements
        assert "dense1-weight" in shown.text
        assert len(repr(found)) < 200


def test_predictors():
    for path in (BUNDLE, BUNDLE / "predict.onnx"):
        shown = Shown(Predictor(path))
        assert "svg" in shown.elements
        assert "CPUExecutionProvider" in shown.text
    alone = model([helper.make_node("Relu", ["x"], ["y"])], [("x", [2])], [("y", [2])])
    assert "svg" not in Shown(Predictor(alone.SerializeToString())).elements


def test_a_hostile_model(tmp_path):
    proto = hostile()
    for node in proto.graph.node:
        del node.attribute[:]  # the runtime refuses those that it does not know
    onnx.save(onnx.shape_inference.infer_shapes(proto), tmp_path / "hostile.onnx")
    shown = Shown(Predictor(tmp_path / "hostile.onnx"))
    assert not {"script", "img"} & set(shown.elements)
    assert "<i>y</i>" in shown.text


def test_a_bundle_whose_model_went_away(tmp_path):
    bundle = Bundle(BUNDLE)
    bundle.folder = tmp_path
    assert "not drawn" in Shown(bundle).text


def test_a_history():
    shown = Shown(History([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25, "val": 1.0}]))
    assert shown.text.count("0.25") == 2
    assert "–" in shown.text


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "model.onnx"
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="/fc/Gemm")]
    weights = [("w", [4, 3]), ("b", [3])]
    onnx.save(model(nodes, [("x", ["n", 4])], [("y", ["n", 3])], weights), path)
    return flow.make_trainable(path, "cross_entropy", "adam", lr=1e-3)


def test_imports(made, tmp_path):
    assert {"svg", "table"} <= set(Shown(made).elements)
    assert "15 numbers" in Shown(made.report).text
    assert "differs from the model itself" in Shown(made.check).text
    assert "passed" in Shown(made.save(tmp_path / "bundle")).text
