"""OneFlow 0.8, the last with a public runtime of the job functions' engine: an `nn.Graph`."""

import math
from collections.abc import Sequence
from typing import Any

import oneflow as flow
import oneflow.nn.functional as fn

from benchmarks.peers import Data, Options, Step, Values
from benchmarks.workloads import Update, Workload

VERSIONS = ("oneflow", "numpy")
Tensor = Any


class _Ops:
    """The operations on a dictionary of tensors."""

    def __init__(self, values: dict[str, Tensor]) -> None:
        self.values = values

    def dense(self, x: Tensor, name: str, inputs: int, units: int) -> Tensor:
        y = flow.matmul(x, self.values[f"{name}-weight"].transpose(0, 1))
        return y + self.values[f"{name}-bias"]

    def conv(
        self, x: Tensor, name: str, inputs: int, channels: int, size: int, stride: int, bias: bool
    ) -> Tensor:
        values = self.values
        return flow._C.conv2d(
            x, values[f"{name}-weight"], values.get(f"{name}-bias"), stride=[stride] * 2,
            padding=[size // 2] * 2, dilation=[1, 1], groups=1, channel_pos="channels_first",
        )  # fmt: skip

    def wide_conv(
        self, x: Tensor, name: str, inputs: int, channels: int, size: int, stride: int,
        groups: int, dilation: int,
    ) -> Tensor:  # fmt: skip
        return flow._C.conv2d(
            x, self.values[f"{name}-weight"], None, stride=[stride] * 2,
            padding=[dilation * (size // 2)] * 2, dilation=[dilation] * 2, groups=groups,
            channel_pos="channels_first",
        )  # fmt: skip

    def transposed_conv(
        self, x: Tensor, name: str, inputs: int, channels: int, size: int, stride: int
    ) -> Tensor:
        return flow._C.deconv2d(
            x, self.values[f"{name}-weight"], None, channels, [(size - stride) // 2] * 2,
            "channels_first", [size] * 2, [0, 0], [stride] * 2, [1, 1], 1,
        )  # fmt: skip

    def patches(self, x: Tensor, name: str, inputs: int, units: int, size: int) -> Tensor:
        y = flow._C.conv2d(
            x, self.values[f"{name}-weight"], self.values[f"{name}-bias"], stride=[size] * 2,
            padding=[0, 0], dilation=[1, 1], groups=1, channel_pos="channels_first",
        )  # fmt: skip
        return y.flatten(2).transpose(1, 2)

    def norm(self, x: Tensor, name: str, channels: int) -> Tensor:
        roles = ("moving_mean", "moving_variance", "gamma", "beta")
        values = [self.values[f"{name}-{r}"] for r in roles]
        return flow._C.normalization(
            x, *values, axis=1, epsilon=1e-5, momentum=0.9, is_training=True
        )

    def layer_norm(self, x: Tensor, name: str, units: int) -> Tensor:
        # composed: the runtime's own kernel for processors ends the process with "TODO"
        x = x - x.mean(dim=-1, keepdim=True)
        y = x * flow.rsqrt((x * x).mean(dim=-1, keepdim=True) + 1e-5)
        return y * self.values[f"{name}-gamma"] + self.values[f"{name}-beta"]

    def table(self, ids: Tensor, name: str, rows: int, width: int) -> Tensor:
        return flow._C.gather(self.values[f"{name}-table"], ids, axis=0)

    def positions(self, x: Tensor, name: str, length: int, units: int) -> Tensor:
        return x + self.values[f"{name}-table"]

    def relu(self, x: Tensor) -> Tensor:
        return fn.relu(x)

    def relu6(self, x: Tensor) -> Tensor:
        return fn.relu6(x)

    def gelu(self, x: Tensor) -> Tensor:
        return fn.gelu(x)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def max_pool(self, x: Tensor, size: int, stride: int, pad: int) -> Tensor:
        return fn.max_pool2d(x, kernel_size=size, stride=stride, padding=pad)

    def mean_pool(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, batch: int, length: int, heads: int, causal: bool
    ) -> Tensor:
        units = q.shape[-1]
        parts = (x.reshape(batch, length, heads, units // heads) for x in (q, k, v))
        q, k, v = (x.permute(0, 2, 1, 3) for x in parts)
        scores = flow.matmul(q, k.permute(0, 1, 3, 2)) * (1 / math.sqrt(units // heads))
        if causal:
            scores = fn.fused_scale_tril(scores, fill_value=float("-inf"))
        y = flow.matmul(flow.softmax(scores, dim=-1), v)
        return y.permute(0, 2, 1, 3).reshape(batch * length, units)

    def scores(self, x: Tensor, name: str, rows: int, width: int) -> Tensor:
        return flow.matmul(x, self.values[f"{name}-table"].transpose(0, 1))

    def flat(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], -1)

    def tokens(self, x: Tensor) -> Tensor:
        return x.reshape(-1, x.shape[-1])

    def mean_tokens(self, x: Tensor, batch: int, length: int) -> Tensor:
        return x.reshape(batch, length, -1).mean(dim=1)

    def concat(self, x: Tensor, y: Tensor) -> Tensor:
        return flow.cat([x, y], dim=-1)

    def join_channels(self, x: Tensor, y: Tensor) -> Tensor:
        return flow.cat([x, y], 1)

    def image(self, x: Tensor, channels: int, side: int) -> Tensor:
        return x.reshape(-1, channels, side, side)

    def pixels(self, x: Tensor, channels: int) -> Tensor:
        return x.permute(0, 2, 3, 1).reshape(-1, channels)

    def lstm(
        self, x: Tensor, name: str, length: int, inputs: int, units: int, in_cells: bool
    ) -> Tensor:
        w, r, p, q = (self.values[f"{name}-{k}_l0"]
                      for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))  # fmt: skip
        made = flow.matmul(x, w.transpose(0, 1)) + (p + q)
        h = c = flow.zeros(x.shape[0], units)
        states = []
        for t in range(length):
            gates = made[:, t] + flow.matmul(h, r.transpose(0, 1))
            enter, keep, new, leave = (gates[:, k * units : (k + 1) * units] for k in range(4))
            c = flow.sigmoid(keep) * c + flow.sigmoid(enter) * flow.tanh(new)
            h = flow.sigmoid(leave) * flow.tanh(c)
            states.append(h)
        return flow.stack(states, dim=1)

    def coupled_cells(self, x: Tensor, name: str, length: int, inputs: int, units: int) -> Tensor:
        weight = self.values[f"{name}-weight"].transpose(0, 1)
        h = c = flow.zeros(x.shape[0], units)
        states = []
        for t in range(length):
            made = flow.matmul(flow.cat([x[:, t], h], 1), weight)
            enter, leave, new = (made[:, k * units : (k + 1) * units] for k in range(3))
            enter = flow.sigmoid(enter)
            c = (1 - enter) * c + enter * flow.tanh(new)
            h = flow.sigmoid(leave) * flow.tanh(c)
            states.append(h)
        return flow.stack(states, dim=1)

    def column(self, x: Tensor, index: int) -> Tensor:
        return x[:, index]

    def exchange(self, x: Tensor, matrices: int, columns: int) -> Tensor:
        y = x.reshape(matrices, -1, columns).transpose(1, 2)
        return y.reshape(matrices * columns, -1)

    def sum_neighbours(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        rows = flow._C.gather(x, sources, axis=0)
        ends = targets.reshape(-1, 1).expand(-1, x.shape[1])
        return flow.scatter_add(flow.zeros_like(x), 0, ends, rows)

    def dots(self, vectors: Sequence[Tensor], width: int) -> Tensor:
        x, count = flow.stack(list(vectors), dim=1), len(vectors)
        pairs = [i * count + j for i in range(count) for j in range(i)]
        flat = flow.matmul(x, x.permute(0, 2, 1)).reshape(x.shape[0], count * count)
        return flow._C.gather(flat, flow.tensor(pairs, dtype=flow.int32), axis=1)


class _Network(flow.nn.Module):
    def __init__(self, work: Workload, values: Values) -> None:
        super().__init__()
        self.work, self.names = work, {}
        for i, (name, value) in enumerate((values | work.state()).items()):
            self.names[name] = f"v{i}"
            tensor = flow.tensor(value)
            if name in values:
                setattr(self, f"v{i}", flow.nn.Parameter(tensor))
            else:
                self.register_buffer(f"v{i}", tensor)

    def forward(self, *batch: Tensor) -> Tensor:
        values = {name: getattr(self, attribute) for name, attribute in self.names.items()}
        logits = self.work.network(_Ops(values), *batch[:-1])
        return flow._C.sparse_softmax_cross_entropy(logits, batch[-1]).mean()


class _Graph(flow.nn.Graph):
    def __init__(self, network: _Network, optimizer: Any) -> None:
        super().__init__()
        self.network = network
        self.add_optimizer(optimizer)

    def build(self, *batch: Tensor) -> Tensor:
        loss = self.network(*batch)
        loss.backward()
        return loss


def training(work: Workload, values: Values, data: Data, options: Options) -> Step:
    """A step is one call of the graph."""
    network = _Network(work, values)
    graph = _Graph(network, _optimizer(work.update, network.parameters()))
    batches = [[flow.tensor(a) for a in batch] for batch in data]
    return lambda i: float(graph(*batches[i % len(batches)]).numpy())


def _optimizer(update: Update, trained: Any) -> Any:
    if update.kind == "adam":
        return flow.optim.Adam(trained, lr=update.rate)
    momentum = 0.9 if update.kind == "momentum" else 0.0
    return flow.optim.SGD(trained, lr=update.rate, momentum=momentum)
