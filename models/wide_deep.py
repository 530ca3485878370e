"""Wide & Deep (Cheng and others, arXiv:1606.07792): will this advertisement be clicked?"""

from dataclasses import dataclass

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.config import FunctionConfig
from flow2onnx.optim.base import Optimizer
from flow2onnx.trace.blob import Blob
from models.jobs import Jobs

EMBEDDING = flow.random_uniform_initializer(minval=-0.05, maxval=0.05)
TABLES = ("wide_embedding", "deep_embedding")


@dataclass(frozen=True)
class Config:
    """The sizes of a network; the defaults are the zoo's for the Criteo records."""

    wide_vocabulary: int = 3_200_000
    deep_vocabulary: int = 3_200_000
    width: int = 16
    hidden: tuple[int, ...] = (1024,) * 7
    dense_fields: int = 13
    wide_fields: int = 2
    deep_fields: int = 26
    dropout: float = 0.5


# 61,138,945 parameters, which is what its sizes make: 3,200,000 × (1 + 16) in the tables, the rest
# in dense layers from 26 × 16 + 13 over seven of 1024 units to one. No count is published.
CRITEO = Config()


def wide_deep(dense: Blob, wide: Blob, deep: Blob, config: Config = CRITEO) -> Blob:
    """The logit of a click, shape (batch, 1), of numbers `dense` and of categories, by index.

    The wide part adds up a weight for each of its categories; the deep part is a network of the
    embeddings of its own. Variables are called ``wide_embedding``, ``deep_embedding``,
    ``fc1-weight``, as in the zoo.
    """
    weights = flow.get_variable("wide_embedding", (config.wide_vocabulary, 1),
                                initializer=EMBEDDING)  # fmt: skip
    vectors = flow.get_variable("deep_embedding", (config.deep_vocabulary, config.width),
                                initializer=EMBEDDING)  # fmt: skip
    score = flow.math.reduce_sum(flow.gather(weights, wide), axis=[1])
    embedded = flow.reshape(flow.gather(vectors, deep), (-1, config.deep_fields * config.width))
    x = flow.concat([embedded, dense], axis=1)
    for i, units in enumerate(config.hidden, 1):
        x = flow.nn.dropout(_dense(x, units, i, flow.math.relu), rate=config.dropout)
    return score + _dense(x, 1, len(config.hidden) + 1, None)


def _dense(x: Blob, units: int, index: int, activation: object) -> Blob:
    return flow.layers.dense(
        x, units, activation, kernel_initializer=flow.glorot_uniform_initializer(),
        bias_initializer=flow.zeros_initializer(), name=f"fc{index}",
    )  # fmt: skip


def by_rows() -> FunctionConfig:
    """The configuration of a train job that updates only those rows of the tables it reads."""
    config = flow.FunctionConfig()
    config.indexed_slices_optimizer_conf({"include_op_names": {"op_name": list(TABLES)}})
    return config


def jobs(batch: int = 16384, config: Config = CRITEO, optimizer: Optimizer | None = None) -> Jobs:
    """The jobs: `train` gives the mean loss, `evaluate` loss and probability of each example.

    Labels have shape (batch, 1). The default optimizer is the zoo's, lazy Adam at 0.001.
    """
    labels_type = tp.Numpy.Placeholder((batch, 1), dtype=flow.int32)
    dense_type = tp.Numpy.Placeholder((batch, config.dense_fields), dtype=flow.float)
    wide_type = tp.Numpy.Placeholder((batch, config.wide_fields), dtype=flow.int32)
    deep_type = tp.Numpy.Placeholder((batch, config.deep_fields), dtype=flow.int32)
    rate = flow.optimizer.PiecewiseConstantScheduler([], [1e-3])
    chosen = optimizer or flow.optimizer.LazyAdam(rate)

    def losses_of(labels: Blob, logits: Blob) -> Blob:
        return flow.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    @flow.global_function("train", by_rows())
    def train_job(
        labels: labels_type, dense: dense_type, wide: wide_type, deep: deep_type
    ) -> tp.Numpy:
        loss = losses_of(labels, wide_deep(dense, wide, deep, config))
        chosen.minimize(loss)
        return flow.math.reduce_mean(loss)

    @flow.global_function("predict")
    def eval_job(
        labels: labels_type, dense: dense_type, wide: wide_type, deep: deep_type
    ) -> tuple[tp.Numpy, tp.Numpy]:
        logits = wide_deep(dense, wide, deep, config)
        return losses_of(labels, logits), flow.math.sigmoid(logits)

    @flow.global_function("predict")
    def predict_job(dense: dense_type, wide: wide_type, deep: deep_type) -> tp.Numpy:
        return flow.math.sigmoid(wide_deep(dense, wide, deep, config))

    return Jobs(train_job, eval_job, predict_job)
