"""flow2onnx-native: a job trains on native operators as it does without them."""

import numpy as np
from common import arguments, check_installed

import flow2onnx as flow
import flow2onnx.typing as tp

_ROWS, _STEPS = 64, 10


def losses(native: bool) -> tuple[list[float], dict[str, int]]:
    """The losses of some steps, and how many native operators took part, by kind."""
    flow.clear_default_session()
    config = flow.FunctionConfig()
    config.runtime.native(native)

    @flow.global_function(type="train", function_config=config)
    def job(
        points: tp.Numpy.Placeholder((_ROWS, 32)),
        classes: tp.Numpy.Placeholder((_ROWS,), dtype=flow.int32),
    ) -> tp.Numpy:
        init = flow.random_normal_initializer(0, 0.1)
        hidden = flow.layers.dense(points, 64, kernel_initializer=init, name="hidden")
        scores = flow.layers.dense(flow.math.gelu(hidden), 8, kernel_initializer=init, name="last")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(classes, scores)
        flow.optimizer.Adam(flow.optimizer.PiecewiseConstantScheduler([], [0.01])).minimize(loss)
        return loss

    draw = np.random.default_rng(0)
    points = draw.standard_normal((_ROWS, 32), np.float32)
    classes = draw.integers(0, 8, _ROWS).astype(np.int32)
    return [float(job(points, classes).mean()) for _ in range(_STEPS)], dict(job.explain().native)


def main() -> None:
    """Compare the two."""
    number, _, _ = arguments()
    check_installed(number, "flow2onnx_native", "flow2onnx", "flow2onnx_runtime")
    native, kinds = losses(True)
    plain, none = losses(False)
    assert kinds.get("Fused", 0) > 0, kinds
    assert none == {}, none
    np.testing.assert_allclose(native, plain, rtol=1e-4)
    assert native[-1] < native[0]
    print(
        f"{_STEPS} steps as without, {sum(kinds.values())} native operators of {len(kinds)} kinds"
    )


main()
