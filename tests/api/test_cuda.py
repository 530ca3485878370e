"""Jobs on a CUDA device: the same numbers as on the CPU, captured as graphs or not."""

import numpy as np
import pytest
from flow2onnx_runtime import usable_providers

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.session import current_session

CUDA = "CUDAExecutionProvider"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(CUDA not in usable_providers(), reason="needs a usable CUDA provider"),
]
STEPS = 6


def losses(tag, captured=False):
    """The losses of a small convolutional network, step by step."""
    flow.clear_default_session()
    flow.config.enable_tensor_float_32_compute(False)
    config = flow.function_config()
    config.default_placement_scope(flow.scope.placement(tag, "0:0"))
    if captured:
        config.runtime.enable_cuda_graph()

    @flow.global_function(type="train", function_config=config)
    def job(
        x: tp.Numpy.Placeholder((8, 1, 12, 12)), y: tp.Numpy.Placeholder((8,), dtype=flow.int32)
    ) -> tp.Numpy:
        start = flow.random_uniform_initializer(-0.1, 0.1)
        h = flow.layers.conv2d(
            x, 8, 3, activation=flow.nn.relu, kernel_initializer=start, name="conv"
        )
        h = flow.reshape(flow.nn.max_pool2d(h, 2, 2, "VALID"), (8, -1))
        z = flow.layers.dense(h, 10, kernel_initializer=start, name="dense")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, z)
        schedule = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(schedule, momentum=0.9).minimize(loss)
        return loss

    rng = np.random.default_rng(0)
    x = rng.random((8, 1, 12, 12), np.float32)
    y = rng.integers(0, 10, 8).astype(np.int32)
    found = [job(x, y).mean() for _ in range(STEPS)]
    if tag == "gpu":
        (executable,) = current_session()._executables.values()
        assert executable.program.session.get_providers()[0] == CUDA
    return found


@pytest.mark.parametrize("captured", [False, True])
def test_training_on_cuda_loses_what_it_loses_on_the_cpu(captured):
    np.testing.assert_allclose(losses("gpu", captured), losses("cpu"), rtol=1e-3)


def test_everything_runs_on_cuda():
    losses("gpu")
    name = current_session().job_names()[0]
    from flow2onnx.engine.explain_job import explain

    session = current_session()
    found = explain(session.opening(name), session.settings, session.device)
    assert [nodes.provider for nodes in found.nodes] == [CUDA]
    assert found.fallbacks == ()
