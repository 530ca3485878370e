"""Write the bundle that examples/loop.cpp trains: python runtime/cpp/examples/prepare.py FOLDER.

Four kinds of motion in twenty readings; the step's results are its loss and the scores.
"""

import sys
from pathlib import Path

import flow2onnx as flow
import flow2onnx.typing as tp

BATCH, VALUES, KINDS = 8, 20, 4


@flow.global_function(type="train")
def learn(
    readings: tp.Numpy.Placeholder((BATCH, VALUES)),
    kinds: tp.Numpy.Placeholder((BATCH,), dtype=flow.int32),
) -> tuple[tp.Numpy, tp.Numpy]:
    """Loss and scores of a perceptron with one hidden layer."""
    init = flow.random_normal_initializer(stddev=0.3)
    hidden = flow.layers.dense(readings, 16, flow.math.tanh, kernel_initializer=init, name="hidden")
    scores = flow.layers.dense(hidden, KINDS, kernel_initializer=init, name="scores")
    loss = flow.math.reduce_mean(flow.nn.sparse_softmax_cross_entropy_with_logits(kinds, scores))
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.2])
    flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
    return loss, scores


if __name__ == "__main__":
    learn.export(Path(sys.argv[1]), on_device=True).raise_if_failed()
