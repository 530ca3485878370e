"""Let the native operators ask for their kernels, as jobs do.

    STANDIN_KERNELS=FOLDER python -m tests.gpu.kernel_texts

It runs over the stand-in for CUDA, with flow2onnx-native installed. The texts are then in FOLDER.
"""

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp
from models import gpt
from tests.gpu import standin
from tests.models.zoo import ROWS


def main() -> None:
    """Train a step of each."""
    if not standin.is_loaded():
        raise SystemExit("the stand-in is not in LD_LIBRARY_PATH")
    (bert,) = (row for row in ROWS if row.name == "bert")
    _train("bert", bert.small().train, *bert.feed())
    _train("gpt", small_gpt(), np.ones((2, 25), np.int64))
    _train("gpt without dropout", small_gpt(dropout=0.0), np.ones((2, 25), np.int64))
    _train("words", _step_of_words(), np.arange(128, dtype=np.int32).reshape(8, 16))
    _train("images", _step_of_images(), np.ones((6, 3, 12, 12), np.float32))


def _train(name: str, train, *feed: np.ndarray) -> None:
    train(*feed)
    print(f"{name}: {dict(train.explain().native)}")


def small_gpt(dropout: float = 0.1):
    """A step of a small GPT."""
    flow.clear_default_session()
    config = gpt.Config(vocabulary=50, units=32, layers=1, heads=2, positions=24, dropout=dropout)
    return gpt.jobs(batch=2, length=24, config=config).train


def _step_of_words():
    """A step that looks up rows of a large table and adds to them, by LAMB."""
    flow.clear_default_session()

    @flow.global_function(type="train")
    def train(words: tp.Numpy.Placeholder((8, 16), dtype=flow.int32)) -> tp.Numpy:
        init = flow.random_normal_initializer(0, 0.1)
        table = flow.get_variable("table", (5000, 40), initializer=init)
        loss = flow.math.reduce_mean(flow.math.square(flow.gather(table, words)))
        flow.optimizer.LAMB(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    return train


def _step_of_images():
    """A step with a normalisation over a batch, by SGD with momentum."""
    flow.clear_default_session()

    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((6, 3, 12, 12))) -> tp.Numpy:
        init = flow.random_normal_initializer(0, 0.1)
        y = flow.layers.conv2d(x, 8, 3, padding="SAME", name="conv", kernel_initializer=init)
        y = flow.nn.relu(flow.layers.batch_normalization(y, axis=1, name="norm"))
        loss = flow.math.reduce_mean(flow.math.square(y))
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
        return loss

    return train


if __name__ == "__main__":
    main()
