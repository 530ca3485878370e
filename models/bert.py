"""BERT (Devlin and others, arXiv:1810.04805) with both of its pre-training tasks."""

from dataclasses import dataclass

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.optim.base import Optimizer
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.initializers import Initializer
from models.jobs import Jobs
from models.transformer import affine, attended, dropout, layer_norm, scores


@dataclass(frozen=True)
class Config:
    """The sizes of a BERT; `positions` is the longest sequence, `segments` the kinds of one."""

    vocabulary: int = 30522
    units: int = 768
    layers: int = 12
    heads: int = 12
    positions: int = 512
    segments: int = 2
    dropout: float = 0.1
    stddev: float = 0.02

    @property
    def kernel(self) -> Initializer:
        """How weights start."""
        return flow.truncated_normal(self.stddev)


# 110,106,428 and 336,226,108 parameters: BertForPreTraining of Hugging Face's transformers, whose
# bert-base-uncased and bert-large-uncased have them.
BASE = Config()
LARGE = Config(units=1024, layers=24, heads=16)


def bert(ids: Blob, mask: Blob, segments: Blob, config: Config = BASE) -> tuple[Blob, Blob]:
    """The states, shape (batch * length, units), of tokens (batch, length); and the word table.

    `mask` is 0 where a sequence has ended. Variables are called
    ``bert-encoder-layer_0-attention-self-query-weight``, as in the zoo.
    """
    with flow.scope.namespace("bert"):
        with flow.scope.namespace("embeddings"):
            x, table = _embedded(ids, segments, config)
        with flow.scope.namespace("encoder"):
            visible = flow.reshape(flow.cast(mask, flow.float), (-1, 1, 1, mask.shape[1]))
            penalty = (visible - 1.0) * 10000.0
            for i in range(config.layers):
                with flow.scope.namespace(f"layer_{i}"):
                    x = _layer(x, penalty, config)
    return x, table


def _embedded(ids: Blob, segments: Blob, config: Config) -> tuple[Blob, Blob]:
    """The sum of what word, segment and position say, normalised; and the table of words."""
    units, kernel = config.units, config.kernel
    table = flow.get_variable("word_embeddings", (config.vocabulary, units), initializer=kernel)
    kinds = flow.get_variable("token_type_embeddings", (config.segments, units), initializer=kernel)
    places = flow.get_variable(
        "position_embeddings", (1, config.positions, units), initializer=kernel
    )
    places = flow.slice(places, [None, 0, 0], [None, ids.shape[1], -1])
    x = layer_norm(flow.gather(table, ids) + flow.gather(kinds, segments) + places)
    return flow.reshape(dropout(x, config.dropout), (-1, units)), table


def _layer(x: Blob, penalty: Blob, config: Config) -> Blob:
    """Attention and a hidden layer, each added to its input and normalised."""
    with flow.scope.namespace("attention"):
        with flow.scope.namespace("self"):
            y = _attention(x, penalty, config)
        x = _output(y, x, config)
    with flow.scope.namespace("intermediate"):
        y = flow.math.gelu(affine(x, 4 * config.units, "dense", config.kernel))
    return _output(y, x, config)


def _output(y: Blob, x: Blob, config: Config) -> Blob:
    with flow.scope.namespace("output"):
        y = dropout(affine(y, config.units, "dense", config.kernel), config.dropout)
        return layer_norm(y + x)


def _attention(x: Blob, penalty: Blob, config: Config) -> Blob:
    queries, keys, values = (_heads(x, name, penalty, config) for name in ("query", "key", "value"))
    shares = flow.nn.softmax(scores(queries, keys) + penalty)
    return attended(dropout(shares, config.dropout), values)


def _heads(x: Blob, name: str, penalty: Blob, config: Config) -> Blob:
    """An affine map of the tokens by heads: (batch, heads, length, units / heads)."""
    y = affine(x, config.units, name, config.kernel)
    y = flow.reshape(y, (-1, penalty.shape[-1], config.heads, config.units // config.heads))
    return flow.transpose(y, perm=[0, 2, 1, 3])


def pooled(x: Blob, length: int, config: Config = BASE) -> Blob:
    """A dense layer of the first token of each sequence, shape (batch, units)."""
    with flow.scope.namespace("bert-pooler"):
        first = flow.slice(flow.reshape(x, (-1, length, config.units)), [None, 0, 0], [None, 1, -1])
        first = flow.reshape(first, (-1, config.units))
        return flow.math.tanh(affine(first, config.units, "dense", config.kernel))


def masked_words(
    x: Blob, table: Blob, places: Blob, words: Blob, weights: Blob, length: int, config: Config
) -> Blob:
    """The loss of guessing `words` at `places` of each sequence, shape (batch,).

    `weights` is 0 for places that only fill up. The sum of each sequence is divided by the mean
    number of places, as in the zoo: the mean over the batch is then that over all places.
    """
    sequences = flow.reshape(x, (-1, length, config.units))
    count = flow.math.reduce_sum(weights) / float(weights.shape[0])
    with flow.scope.namespace("cls-predictions"):
        x = flow.gather(sequences, places, axis=1, batch_dims=1)
        x = flow.reshape(x, (-1, config.units))
        with flow.scope.namespace("transform"):
            x = layer_norm(flow.math.gelu(affine(x, config.units, "dense", config.kernel)))
        bias = flow.get_variable(
            "output_bias", (config.vocabulary,), initializer=flow.ones_initializer()
        )
        logits = flow.nn.bias_add(flow.matmul(x, table, transpose_b=True), bias)
    losses = flow.nn.sparse_softmax_cross_entropy_with_logits(flow.reshape(words, (-1,)), logits)
    weighted = flow.reshape(losses, weights.shape) * weights
    return flow.math.reduce_sum(weighted, axis=[-1]) / (count + 1e-5)


def next_sentence(first: Blob, labels: Blob, config: Config) -> Blob:
    """The loss of telling from pooled states whether the second part follows, shape (batch,)."""
    with flow.scope.namespace("cls-seq_relationship"):
        weight = flow.get_variable("output_weights", (2, config.units), initializer=config.kernel)
        bias = flow.get_variable("output_bias", (2,), initializer=flow.zeros_initializer())
        logits = flow.nn.bias_add(flow.matmul(first, weight, transpose_b=True), bias)
    return flow.nn.sparse_softmax_cross_entropy_with_logits(flow.reshape(labels, (-1,)), logits)


def adam(steps: int = 1_000_000, rate: float = 1e-4, warmup: float = 0.1) -> Optimizer:
    """The zoo's optimizer: decay 0.01 but of biases and norms, a rate that falls to 0."""
    rising = flow.optimizer.warmup.linear(int(steps * warmup), 0)
    return flow.optimizer.AdamW(
        flow.optimizer.PolynomialScheduler(rate, steps, 0.0, warmup=rising), epsilon=1e-6,
        weight_decay=0.01, weight_decay_excludes=["bias", "LayerNorm", "layer_norm"],
        grad_clipping=flow.optimizer.grad_clipping.by_global_norm(1.0),
    )  # fmt: skip


def jobs(
    batch: int = 32, length: int = 128, predictions: int = 20, config: Config = BASE,
    optimizer: Optimizer | None = None,
) -> Jobs:  # fmt: skip
    """The jobs: `train` and `evaluate` give the losses total, words, next; `predict` the states.

    Their inputs are called as in the zoo's records. `predict` returns states, (batch, length,
    units), and pooled states, (batch, units).
    """
    tokens = tp.Numpy.Placeholder((batch, length), dtype=flow.int32)
    words = tp.Numpy.Placeholder((batch, predictions), dtype=flow.int32)
    weights = tp.Numpy.Placeholder((batch, predictions), dtype=flow.float)
    answers = tp.Numpy.Placeholder((batch, 1), dtype=flow.int32)
    losses = tuple[tp.Numpy, tp.Numpy, tp.Numpy]
    chosen = optimizer or adam()

    def losses_of(
        ids: Blob, mask: Blob, segments: Blob, *masked: Blob, labels: Blob
    ) -> tuple[Blob, Blob, Blob]:
        x, table = bert(ids, mask, segments, config)
        guessed = flow.math.reduce_mean(masked_words(x, table, *masked, length, config))
        first = pooled(x, length, config)
        order = flow.math.reduce_mean(next_sentence(first, labels, config))
        return guessed + order, guessed, order

    @flow.global_function(type="train")
    def train_job(
        input_ids: tokens, input_mask: tokens, segment_ids: tokens, masked_lm_positions: words,
        masked_lm_ids: words, masked_lm_weights: weights, next_sentence_labels: answers,
    ) -> losses:  # fmt: skip
        result = losses_of(
            input_ids, input_mask, segment_ids, masked_lm_positions, masked_lm_ids,
            masked_lm_weights, labels=next_sentence_labels,
        )  # fmt: skip
        chosen.minimize(result[0])
        return result

    @flow.global_function(type="predict")
    def eval_job(
        input_ids: tokens, input_mask: tokens, segment_ids: tokens, masked_lm_positions: words,
        masked_lm_ids: words, masked_lm_weights: weights, next_sentence_labels: answers,
    ) -> losses:  # fmt: skip
        return losses_of(
            input_ids, input_mask, segment_ids, masked_lm_positions, masked_lm_ids,
            masked_lm_weights, labels=next_sentence_labels,
        )  # fmt: skip

    @flow.global_function(type="predict")
    def predict_job(
        input_ids: tokens, input_mask: tokens, segment_ids: tokens
    ) -> tuple[tp.Numpy, tp.Numpy]:
        x, _ = bert(input_ids, input_mask, segment_ids, config)
        return flow.reshape(x, (-1, length, config.units)), pooled(x, length, config)

    return Jobs(train_job, eval_job, predict_job)
