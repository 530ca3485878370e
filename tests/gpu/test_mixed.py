"""Mixed precision on CUDA: what is half between products, and how often weights are cast."""

from collections import Counter

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.api.session import current_session
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.passes.mixed_precision import CLEAR
from tests.models.zoo import ROWS


def half_graph(name):
    """The graph that a network of the zoo trains with in float16."""
    train = next(row for row in ROWS if row.name == name).small().train
    train.spec.config.enable_auto_mixed_precision(True)
    opening = current_session().opening(train.spec.name)
    assert opening.capture.is_on
    return opening


@pytest.mark.parametrize("name", ["bert", "gpt", pytest.param("resnet50", marks=pytest.mark.slow)])
def test_a_weight_is_cast_once_a_step(name):
    opening = half_graph(name)
    weights = {n for n, v in opening.job.variables.items() if v.role == "variable"}
    casts = Counter(
        root for n in opening.model.graph if n.op_type == "Cast" if (root := origin(n)) in weights
    )
    assert casts
    assert set(casts.values()) == {1}


def origin(node):
    """The name of what a node reads, behind other shapes of it."""
    value = node.inputs[0]
    while (maker := value.producer()) is not None and maker.op_type in CLEAR:
        value = maker.inputs[0]
    return value.name


@pytest.mark.slow
def test_images_between_normalizations_and_convolutions_are_half():
    found = Counter(
        (n.op_type, dtype_of(n.outputs[0]).name)
        for n in half_graph("resnet50").model.graph
        if n.outputs[0].shape is not None and len(dims(n.outputs[0])) == 4
    )
    for op_type in ("Conv", "ConvTranspose", "MaxPool"):
        assert {kind for op, kind in found if op == op_type} == {"float16"}, op_type
    assert found["Relu", "float32"] == 1, "the last, of which a mean is taken"
    assert found["Relu", "float16"] == 48


def test_a_chain_behind_a_normalization_is_half():
    config = flow.function_config()
    config.enable_auto_mixed_precision(True)

    @flow.global_function(type="train", function_config=config)
    def train(x: tp.Numpy.Placeholder((4, 8))) -> tp.Numpy:
        start = flow.random_normal_initializer(stddev=0.1)
        w, v = (flow.get_variable(n, (8, 8), initializer=start) for n in "wv")
        h = flow.layers.layer_norm(flow.matmul(x, w), name="n")
        y = flow.matmul(flow.math.tanh(flow.math.gelu(h)), v)
        loss = flow.math.reduce_mean(y)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    train(np.ones((4, 8), np.float32))
    graph = current_session().opening("train").model.graph
    kinds = {dtype_of(n.outputs[0]).name for n in graph if n.op_type == "Tanh"}
    assert kinds == {"float16"}


@pytest.mark.parametrize(("asked", "said"), [(None, "TF32"), (True, "TF32"), (False, "in float32")])
def test_how_products_round_is_told(asked, said):
    config = flow.function_config()
    if asked is not None:
        config.runtime.use_tf32(asked)

    @flow.global_function(function_config=config)
    def predict(x: tp.Numpy.Placeholder((4, 8))) -> tp.Numpy:
        return flow.matmul(x, x, transpose_b=True)

    assert said in predict.explain().products
    assert predict.explain().products in str(predict.explain())


def test_tf32_is_within_what_is_said_of_it():
    def rounded(x):
        """To the 10 bits behind the point that TF32 has, ties to even."""
        bits = x.view(np.uint32)
        return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~np.uint32(0x1FFF)).view(np.float32)

    rng = np.random.default_rng(0)
    for depth in (16, 1024, 8192):
        x, y = (rng.normal(size=s).astype(np.float32) for s in ((32, depth), (depth, 32)))
        exact = x.astype(np.float64) @ y.astype(np.float64)
        made = rounded(x).astype(np.float64) @ rounded(y).astype(np.float64)
        assert np.abs(made - exact).max() <= 1e-3 * np.abs(exact).max()
