"""One network written in the three generations is one graph."""
# ruff: noqa: B008 - a default that is a call is how the first generation declares inputs

from typing import Annotated

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.session import current_session
from flow2onnx.errors import AnnotationError
from flow2onnx.graph.model import model_text

BATCH = 8


def network(images, labels):
    initializer = flow.truncated_normal(0.1)
    pixels = flow.reshape(images, [images.shape[0], -1])
    hidden = flow.layers.dense(
        pixels, 16, activation=flow.nn.relu, kernel_initializer=initializer, name="hidden"
    )
    logits = flow.layers.dense(hidden, 10, kernel_initializer=initializer, name="output")
    return flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits, name="softmax_loss")


def legacy_config(conf):
    config = flow.function_config()
    config.train.primary_lr(0.1)
    config.train.model_update_conf(conf)
    return config


def first(conf, optimizer):
    @flow.function(legacy_config(conf))
    def train_job(
        images=flow.FixedTensorDef((BATCH, 1, 28, 28), dtype=flow.float),
        labels=flow.FixedTensorDef((BATCH,), dtype=flow.int32),
    ):
        loss = network(images, labels)
        flow.losses.add_loss(loss)
        return loss


def second(conf, optimizer):
    with pytest.warns(DeprecationWarning, match="func_config"):

        @flow.global_function(legacy_config(conf))
        def train_job(
            images: tp.Numpy.Placeholder((BATCH, 1, 28, 28), dtype=flow.float),
            labels: tp.Numpy.Placeholder((BATCH,), dtype=flow.int32),
        ):
            loss = network(images, labels)
            flow.losses.add_loss(loss)
            return loss


def third(conf, optimizer):
    @flow.global_function(type="train")
    def train_job(
        images: tp.Numpy.Placeholder((BATCH, 1, 28, 28), dtype=flow.float),
        labels: tp.Numpy.Placeholder((BATCH,), dtype=flow.int32),
    ) -> tp.Numpy:
        loss = network(images, labels)
        optimizer(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss


@pytest.mark.parametrize(
    ("conf", "optimizer"),
    [
        ({"naive_conf": {}}, lambda lr: flow.optimizer.SGD(lr, momentum=0)),
        ({"momentum_conf": {"beta": 0.9}}, lambda lr: flow.optimizer.SGD(lr, momentum=0.9)),
        ({"adam_conf": {}}, lambda lr: flow.optimizer.Adam(lr)),
    ],
    ids=["sgd", "momentum", "adam"],
)
def test_same_step_graph(conf, optimizer):
    texts = []
    for define in (first, second, third):
        define(conf, optimizer)
        texts.append(model_text(current_session().compile("train_job").model))
        flow.clear_default_session()
    assert texts[0] == texts[1] == texts[2]
    assert "softmax_loss" in texts[0]
    assert "next/hidden-weight" in texts[0]


def test_compiled_twice_is_the_same_text():
    third(None, lambda lr: flow.optimizer.SGD(lr))
    session = current_session()
    before = model_text(session.compile("train_job").model)
    session.start()
    assert model_text(session.compile("train_job").model) == before


class TestUnnamedLayers:
    @staticmethod
    def body(x=None):
        x = flow.constant(1.0, flow.float, (2, 3))
        flow.layers.dense(flow.layers.dense(x, 2), 2)
        return x

    def test_numbered_in_the_early_generations(self):
        flow.function()(self.job())
        assert list(flow.get_all_variables()) == [
            "Dense-weight", "Dense-bias", "Dense_1-weight", "Dense_1-bias",
        ]  # fmt: skip

    def test_refused_in_the_last(self):
        flow.global_function()(self.job())
        with pytest.raises(flow.errors.VariableError, match="'Dense-weight' already exists"):
            flow.get_all_variables()

    def job(self):
        def job():
            return self.body()

        return job


@pytest.mark.parametrize(("name", "result"), [("reduce_max", 5), ("reduce_min", 0)])
def test_parameters_by_their_earlier_names(name, result):
    @flow.function(flow.function_config())
    def job(x=flow.FixedTensorDef((2, 3))):
        reduce = getattr(flow.math, name)
        return reduce(x), reduce(input_tensor=x)

    for found in job(np.arange(6, dtype=np.float32).reshape(2, 3)).get():
        assert found.numpy().tolist() == [result]


def test_annotations_that_type_checkers_understand():
    @flow.global_function()
    def job(x: Annotated[flow.Blob, tp.Numpy.Placeholder((2,))]) -> tp.Numpy:
        return x * 2

    assert list(job(np.ones(2, np.float32))) == [2, 2]
    with pytest.raises(AnnotationError, match="names 0 placeholders"):

        @flow.global_function()
        def other(x: Annotated[flow.Blob, "images"]) -> tp.Numpy:
            return x


def test_annotations_of_blobs_alone_are_for_type_checkers():
    @flow.function()
    def job(
        x: flow.Blob = flow.FixedTensorDef((2,)),
    ) -> tuple[flow.Blob, dict[str, list[flow.Blob]]]:
        return x * 2, {"same": [x]}

    doubled, rest = job(np.ones(2, np.float32)).get()
    assert doubled.numpy().tolist() == [2, 2]
    assert rest["same"][0].numpy().tolist() == [1, 1]


@pytest.mark.parametrize("returned", [list, tuple[flow.Blob, tp.Numpy], dict[str, int]])
def test_results_that_are_blobs_in_part(returned):
    def job(x: tp.Numpy.Placeholder((2,))):
        return x

    job.__annotations__["return"] = returned
    with pytest.raises(AnnotationError):
        flow.global_function()(job)


def test_a_blob_without_a_placeholder():
    with pytest.raises(AnnotationError, match="All parameters") as info:

        @flow.global_function()
        def job(x: flow.Blob) -> tp.Numpy:
            return x

    assert "annotate x with tp.Numpy.Placeholder" in info.value.hint
