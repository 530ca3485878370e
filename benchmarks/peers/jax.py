"""JAX: one jitted function for the whole step, which gives its arguments' memory to its results.

Images are kept as NHWC and kernels as HWIO, which is what XLA is fastest with on processors.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.peers import Array, Data, Options, Step, Values
from benchmarks.workloads import Update, Workload

VERSIONS = ("jax", "jaxlib", "numpy")
Tree = dict[str, jax.Array]
_HALVES = {"float16": jnp.float16, "bfloat16": jnp.bfloat16}
_LAYOUT = ("NHWC", "HWIO", "NHWC")


class _Ops:
    """The operations on a dictionary of arrays; statistics that moved are kept in `moved`.

    Convolutions and products are computed in `half` where there is one.
    """

    def __init__(self, values: Tree, half: Any = None) -> None:
        self.values, self.half = values, half
        self.moved: Tree = {}

    def dense(self, x: jax.Array, name: str, inputs: int, units: int) -> jax.Array:
        y = self._narrow(x) @ self._narrow(self.values[f"{name}-weight"]).T
        return y + self._narrow(self.values[f"{name}-bias"])

    def conv(
        self, x: jax.Array, name: str, inputs: int, channels: int, size: int, stride: int,
        bias: bool,
    ) -> jax.Array:  # fmt: skip
        pad = (size // 2, size // 2)
        y = lax.conv_general_dilated(
            self._narrow(x), self._narrow(self.values[f"{name}-weight"]), (stride, stride),
            (pad, pad), dimension_numbers=_LAYOUT,
        )  # fmt: skip
        return y + self._narrow(self.values[f"{name}-bias"]) if bias else y

    def wide_conv(
        self, x: jax.Array, name: str, inputs: int, channels: int, size: int, stride: int,
        groups: int, dilation: int,
    ) -> jax.Array:  # fmt: skip
        border = dilation * (size // 2)
        return lax.conv_general_dilated(
            self._narrow(x), self._narrow(self.values[f"{name}-weight"]), (stride, stride),
            ((border, border),) * 2, rhs_dilation=(dilation, dilation),
            dimension_numbers=_LAYOUT, feature_group_count=groups,
        )  # fmt: skip

    def transposed_conv(
        self, x: jax.Array, name: str, inputs: int, channels: int, size: int, stride: int
    ) -> jax.Array:
        # kept as the kernel of the convolution that it is the gradient of
        kernel = jnp.flip(self._narrow(self.values[f"{name}-weight"]), (0, 1)).swapaxes(2, 3)
        border = size - 1 - (size - stride) // 2
        return lax.conv_general_dilated(
            self._narrow(x), kernel, (1, 1), ((border, border),) * 2,
            lhs_dilation=(stride, stride), dimension_numbers=_LAYOUT,
        )  # fmt: skip

    def patches(self, x: jax.Array, name: str, inputs: int, units: int, size: int) -> jax.Array:
        y = lax.conv_general_dilated(
            self._narrow(x), self._narrow(self.values[f"{name}-weight"]), (size, size), "VALID",
            dimension_numbers=_LAYOUT,
        )  # fmt: skip
        y = y + self._narrow(self.values[f"{name}-bias"])
        return y.reshape(y.shape[0], -1, units)

    def norm(self, x: jax.Array, name: str, channels: int) -> jax.Array:
        wide = x.astype(jnp.float32)
        mean, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
        for role, now in (("moving_mean", mean), ("moving_variance", variance)):
            self.moved[f"{name}-{role}"] = 0.9 * self.values[f"{name}-{role}"] + 0.1 * now
        return self._scaled(wide, mean, variance, name).astype(x.dtype)

    def layer_norm(self, x: jax.Array, name: str, units: int) -> jax.Array:
        wide = x.astype(jnp.float32)
        mean, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
        return self._scaled(wide, mean, variance, name).astype(x.dtype)

    def table(self, ids: jax.Array, name: str, rows: int, width: int) -> jax.Array:
        return self.values[f"{name}-table"][ids]

    def positions(self, x: jax.Array, name: str, length: int, units: int) -> jax.Array:
        return x + self.values[f"{name}-table"]

    def relu(self, x: jax.Array) -> jax.Array:
        return jax.nn.relu(x)

    def relu6(self, x: jax.Array) -> jax.Array:
        return jax.nn.relu6(x)

    def gelu(self, x: jax.Array) -> jax.Array:
        return jax.nn.gelu(x, approximate=False)

    def add(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x + y

    def max_pool(self, x: jax.Array, size: int, stride: int, pad: int) -> jax.Array:
        window, strides = (1, size, size, 1), (1, stride, stride, 1)
        border = ((0, 0), (pad, pad), (pad, pad), (0, 0))
        return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, border)

    def mean_pool(self, x: jax.Array) -> jax.Array:
        return x.mean((1, 2))

    def attention(
        self, q: jax.Array, k: jax.Array, v: jax.Array, batch: int, length: int, heads: int,
        causal: bool,
    ) -> jax.Array:  # fmt: skip
        q, k, v = (x.reshape(batch, length, heads, -1) for x in (q, k, v))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=causal)
        return y.reshape(batch * length, -1)

    def scores(self, x: jax.Array, name: str, rows: int, width: int) -> jax.Array:
        return self._narrow(x) @ self._narrow(self.values[f"{name}-table"]).T

    def flat(self, x: jax.Array) -> jax.Array:
        x = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
        return x.reshape(x.shape[0], -1)

    def tokens(self, x: jax.Array) -> jax.Array:
        return x.reshape(-1, x.shape[-1])

    def mean_tokens(self, x: jax.Array, batch: int, length: int) -> jax.Array:
        return x.reshape(batch, length, -1).mean(1)

    def concat(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.concatenate([x, y], -1)

    def join_channels(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.concatenate([x, y], -1)

    def image(self, x: jax.Array, channels: int, side: int) -> jax.Array:
        return x.reshape(-1, channels, side, side).transpose(0, 2, 3, 1)

    def pixels(self, x: jax.Array, channels: int) -> jax.Array:
        return x.reshape(-1, channels)

    def lstm(
        self, x: jax.Array, name: str, length: int, inputs: int, units: int, in_cells: bool
    ) -> jax.Array:
        values = {k: self.values[f"{name}-{k}_l0"]
                  for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}  # fmt: skip
        made = self._narrow(x) @ self._narrow(values["weight_ih"]).T
        made = made + values["bias_ih"] + values["bias_hh"]
        recurrent = self._narrow(values["weight_hh"]).T

        def cell(state: Any, own: jax.Array) -> Any:
            h, c = state
            enter, keep, new, leave = jnp.split(own + self._narrow(h) @ recurrent, 4, 1)
            c = jax.nn.sigmoid(keep) * c + jax.nn.sigmoid(enter) * jnp.tanh(new)
            h = jax.nn.sigmoid(leave) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((x.shape[0], units), made.dtype)
        return lax.scan(cell, (start, start), made.transpose(1, 0, 2))[1].transpose(1, 0, 2)

    def coupled_cells(
        self, x: jax.Array, name: str, length: int, inputs: int, units: int
    ) -> jax.Array:
        weight = self._narrow(self.values[f"{name}-weight"]).T

        def cell(state: Any, word: jax.Array) -> Any:
            h, c = state
            made = self._narrow(jnp.concatenate([word, h], 1)) @ weight
            enter, leave, new = jnp.split(made, 3, 1)
            enter = jax.nn.sigmoid(enter)
            c = (1 - enter) * c + enter * jnp.tanh(new)
            h = jax.nn.sigmoid(leave) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((x.shape[0], units), x.dtype)
        return lax.scan(cell, (start, start), x.transpose(1, 0, 2))[1].transpose(1, 0, 2)

    def column(self, x: jax.Array, index: int) -> jax.Array:
        return x[:, index]

    def exchange(self, x: jax.Array, matrices: int, columns: int) -> jax.Array:
        y = x.reshape(matrices, -1, columns).transpose(0, 2, 1)
        return y.reshape(matrices * columns, -1)

    def sum_neighbours(self, x: jax.Array, sources: jax.Array, targets: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(x[sources], targets, num_segments=x.shape[0])

    def dots(self, vectors: Sequence[jax.Array], width: int) -> jax.Array:
        x = jnp.stack(list(vectors), 1)
        i, j = np.tril_indices(len(vectors), -1)
        return (x @ x.transpose(0, 2, 1))[:, i, j]

    def _narrow(self, x: jax.Array) -> jax.Array:
        return x.astype(self.half) if self.half is not None else x

    def _scaled(self, x: jax.Array, mean: Any, variance: Any, name: str) -> jax.Array:
        gamma, beta = self.values[f"{name}-gamma"], self.values[f"{name}-beta"]
        return (x - mean) * (lax.rsqrt(variance + 1e-5) * gamma) + beta


def training(work: Workload, values: Values, data: Data, options: Options) -> Step:
    """A step is one call of the jitted function; on a GPU it copies the batch there."""
    _begin(options)
    half = _HALVES.get(options.precision)
    scale = 2.0**10 if options.precision == "float16" else 1.0

    def loss_of(weights: Tree, state: Tree, batch: list[jax.Array]) -> tuple[jax.Array, Any]:
        ops = _Ops(weights | state, half)
        logits = work.network(ops, *batch[:-1]).astype(jnp.float32)
        shares = jax.nn.log_softmax(logits)
        loss = -jnp.take_along_axis(shares, batch[-1][:, None], 1).mean()
        return loss * scale, (ops.moved, loss)

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(weights: Tree, slots: Any, state: Tree, count: Any, batch: list[jax.Array]) -> Any:
        gradients, (moved, loss) = jax.grad(loss_of, has_aux=True)(weights, state, batch)
        gradients = jax.tree.map(lambda g: g / scale, gradients) if scale != 1 else gradients
        weights, slots = _updated(work.update, weights, slots, gradients, count)
        return weights, slots, moved, loss

    weights = {n: jnp.asarray(_kernel(v)) for n, v in values.items()}
    slots = [{n: jnp.zeros_like(w) for n, w in weights.items()} for _ in range(work.update.slots)]
    kept = [weights, slots, {n: jnp.asarray(v) for n, v in work.state().items()}]
    batches: list[list[Any]] = [[_image(a) for a in batch] for batch in data]
    if options.device == "cpu":
        batches = [[jnp.asarray(a) for a in batch] for batch in batches]
    taken = 0

    def run(i: int) -> float:
        nonlocal taken
        taken += 1
        *kept[:], loss = step(*kept, np.float32(taken), batches[i % len(batches)])
        return float(loss)

    return run


def _begin(options: Options) -> None:
    if options.device == "cuda" and jax.default_backend() != "gpu":
        raise SystemExit("jax: no GPU backend; pip install 'jax[cuda13]' in its environment")
    precision = "tensorfloat32" if options.precision == "tf32" else "float32"
    jax.config.update("jax_default_matmul_precision", precision)


def _updated(update: Update, weights: Tree, slots: Any, gradients: Tree, count: Any) -> Any:
    rate = update.rate
    if update.kind == "sgd":
        return {n: w - rate * gradients[n] for n, w in weights.items()}, slots
    if update.kind == "momentum":
        moved = {n: 0.9 * slots[0][n] + g for n, g in gradients.items()}
        return {n: w - rate * moved[n] for n, w in weights.items()}, [moved]
    m = {n: 0.9 * slots[0][n] + 0.1 * g for n, g in gradients.items()}
    v = {n: 0.999 * slots[1][n] + 0.001 * g * g for n, g in gradients.items()}
    rate, bias = rate / (1 - 0.9**count), jnp.sqrt(1 - 0.999**count)
    return {n: w - rate * m[n] / (jnp.sqrt(v[n]) / bias + 1e-8) for n, w in weights.items()}, [m, v]


def _kernel(value: Array) -> Array:
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value


def _image(array: Array) -> Array:
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if array.ndim == 4 else array
