"""GPT-2 (Radford and others, 2019): a transformer that guesses the next token."""

import math
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
    """The sizes of a GPT-2; `positions` is the longest text."""

    vocabulary: int = 50257
    units: int = 768
    layers: int = 12
    heads: int = 12
    positions: int = 1024
    dropout: float = 0.1
    stddev: float = 0.02

    @property
    def kernel(self) -> Initializer:
        """How weights start."""
        return flow.random_normal_initializer(stddev=self.stddev)

    @property
    def last_kernel(self) -> Initializer:
        """How weights start whose output is added to the states: smaller the more there are."""
        return flow.random_normal_initializer(stddev=self.stddev / math.sqrt(2 * self.layers))


# 124,439,808 parameters: Hugging Face's gpt2, whose checkpoint has as many. The zoo fills its
# vocabulary up to a multiple of 128: Config(vocabulary=50304).
SMALL = Config()


def gpt(tokens: Blob, config: Config = SMALL) -> Blob:
    """Logits of what follows each token, (batch * length, vocabulary), of tokens (batch, length).

    Variables are called ``model-wte``, ``model-h0-attn-c_attn-weight``, as in the zoo.
    """
    length = tokens.shape[1]
    with flow.scope.namespace("model"):
        places = flow.get_variable(
            "wpe", (config.positions, config.units), initializer=config.kernel
        )
        table = flow.get_variable(
            "wte", (config.vocabulary, config.units), initializer=config.kernel
        )
        x = flow.gather(table, tokens) + flow.slice(places, [0, 0], [length, -1])
        x = flow.reshape(dropout(x, config.dropout), (-1, config.units))
        for i in range(config.layers):
            with flow.scope.namespace(f"h{i}"):
                x = x + _attention(layer_norm(x, "layernorm_1"), length, config)
                x = x + _hidden(layer_norm(x, "layernorm_2"), config)
        return flow.matmul(layer_norm(x, "layernorm_f"), table, transpose_b=True)


def _attention(x: Blob, length: int, config: Config) -> Blob:
    """Each token sees itself and those before; query, key, value of a head lie side by side."""
    with flow.scope.namespace("attn"):
        y = affine(x, 3 * config.units, "c_attn", config.kernel)
        y = flow.reshape(y, (-1, length, config.heads, 3 * config.units // config.heads))
        y = flow.transpose(y, perm=[0, 2, 1, 3])
        queries, keys, values = (_third(y, i) for i in range(3))
        seen = flow.math.fused_scale_tril(scores(queries, keys), fill_value=float("-inf"))
        y = attended(dropout(flow.nn.softmax(seen), config.dropout), values)
        return dropout(affine(y, config.units, "c_proj", config.last_kernel), config.dropout)


def _third(x: Blob, index: int) -> Blob:
    width = x.shape[-1] // 3
    return flow.slice(x, [None, None, None, index * width], [None, None, None, width])


def _hidden(x: Blob, config: Config) -> Blob:
    with flow.scope.namespace("mlp"):
        y = flow.math.gelu(affine(x, 4 * config.units, "c_fc", config.kernel))
        return dropout(affine(y, config.units, "c_proj", config.last_kernel), config.dropout)


def adam(rate: float = 1.5e-4, steps: int = 320_000, warmup: int = 3200) -> Optimizer:
    """The zoo's optimizer: corrected Adam, decay 0.01 but of biases and norms, a cosine."""
    rising = flow.optimizer.warmup.linear(warmup, 0)
    return flow.optimizer.AdamW(
        flow.optimizer.CosineScheduler(rate, steps, alpha=1 / 15, warmup=rising),
        do_bias_correction=True, weight_decay=0.01,
        weight_decay_excludes=["bias", "LayerNorm", "layernorm"],
        grad_clipping=flow.optimizer.grad_clipping.by_global_norm(1.0),
    )  # fmt: skip


def jobs(
    batch: int = 8, length: int = 1024, config: Config = SMALL, optimizer: Optimizer | None = None
) -> Jobs:
    """The jobs: `train` and `evaluate` take texts (batch, length + 1) and give the mean loss.

    `predict` takes tokens (batch, length) and gives logits (batch, length, vocabulary).
    """
    texts = tp.Numpy.Placeholder((batch, length + 1), dtype=flow.int64)
    prompts = tp.Numpy.Placeholder((batch, length), dtype=flow.int64)
    chosen = optimizer or adam()

    def loss_of(text: Blob) -> Blob:
        logits = gpt(flow.slice(text, [None, 0], [None, length]), config)
        labels = flow.reshape(flow.slice(text, [None, 1], [None, length]), (-1,))
        losses = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return flow.math.reduce_mean(losses)

    @flow.global_function(type="train")
    def train_job(text: texts) -> tp.Numpy:
        loss = loss_of(text)
        chosen.minimize(loss)
        return loss

    @flow.global_function(type="predict")
    def eval_job(text: texts) -> tp.Numpy:
        return loss_of(text)

    @flow.global_function(type="predict")
    def predict_job(tokens: prompts) -> tp.Numpy:
        return flow.reshape(gpt(tokens, config), (-1, length, config.vocabulary))

    return Jobs(train_job, eval_job, predict_job)
