"""torch: eager or compiled, with contiguous tensors or channels last, with dense or sparse tables.

python -m benchmarks.peers.torch resnet18:batch=32 model.onnx  # export the forward pass
"""

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as fn

from benchmarks.peers import Data, Options, Step, Values
from benchmarks.workloads import Update, Workload, workload

VERSIONS = ("torch", "numpy")
Tensor = torch.Tensor
_HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


class _Ops:
    """The operations on a dictionary of tensors."""

    def __init__(self, values: dict[str, Tensor], *, trains: bool, sparse: bool = False) -> None:
        self.values, self.trains, self.sparse = values, trains, sparse

    def dense(self, x: Tensor, name: str, inputs: int, units: int) -> Tensor:
        return fn.linear(x, self.values[f"{name}-weight"], self.values[f"{name}-bias"])

    def conv(
        self, x: Tensor, name: str, inputs: int, channels: int, size: int, stride: int, bias: bool
    ) -> Tensor:
        values = self.values
        return fn.conv2d(x, values[f"{name}-weight"], values.get(f"{name}-bias"), stride, size // 2)

    def wide_conv(
        self, x: Tensor, name: str, inputs: int, channels: int, size: int, stride: int,
        groups: int, dilation: int,
    ) -> Tensor:  # fmt: skip
        weight, border = self.values[f"{name}-weight"], dilation * (size // 2)
        return fn.conv2d(x, weight, None, stride, border, dilation, groups)

    def transposed_conv(
        self, x: Tensor, name: str, inputs: int, channels: int, size: int, stride: int
    ) -> Tensor:
        weight, border = self.values[f"{name}-weight"], (size - stride) // 2
        return fn.conv_transpose2d(x, weight, None, stride, border)

    def patches(self, x: Tensor, name: str, inputs: int, units: int, size: int) -> Tensor:
        y = fn.conv2d(x, self.values[f"{name}-weight"], self.values[f"{name}-bias"], size)
        return y.flatten(2).transpose(1, 2)

    def norm(self, x: Tensor, name: str, channels: int) -> Tensor:
        roles = ("moving_mean", "moving_variance", "gamma", "beta")
        return fn.batch_norm(x, *(self.values[f"{name}-{r}"] for r in roles), self.trains)

    def layer_norm(self, x: Tensor, name: str, units: int) -> Tensor:
        return fn.layer_norm(x, (units,), self.values[f"{name}-gamma"], self.values[f"{name}-beta"])

    def table(self, ids: Tensor, name: str, rows: int, width: int) -> Tensor:
        return fn.embedding(ids, self.values[f"{name}-table"], sparse=self.sparse)

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
        return fn.max_pool2d(x, size, stride, pad)

    def mean_pool(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, batch: int, length: int, heads: int, causal: bool
    ) -> Tensor:
        q, k, v = (x.view(batch, length, heads, -1).transpose(1, 2) for x in (q, k, v))
        y = fn.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return y.transpose(1, 2).reshape(batch * length, -1)

    def scores(self, x: Tensor, name: str, rows: int, width: int) -> Tensor:
        return fn.linear(x, self.values[f"{name}-table"])

    def flat(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def tokens(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1)

    def mean_tokens(self, x: Tensor, batch: int, length: int) -> Tensor:
        return x.view(batch, length, -1).mean(1)

    def concat(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y], -1)

    def join_channels(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y], 1)

    def image(self, x: Tensor, channels: int, side: int) -> Tensor:
        return x.view(-1, channels, side, side)

    def pixels(self, x: Tensor, channels: int) -> Tensor:
        return x.permute(0, 2, 3, 1).reshape(-1, channels)

    def lstm(
        self, x: Tensor, name: str, length: int, inputs: int, units: int, in_cells: bool
    ) -> Tensor:
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        start = x.new_zeros(1, x.shape[0], units)
        weights = [self.values[f"{name}-{n}"] for n in names]
        return torch.lstm(x, (start, start), weights, True, 1, 0.0, self.trains, False, True)[0]

    def coupled_cells(self, x: Tensor, name: str, length: int, inputs: int, units: int) -> Tensor:
        weight = self.values[f"{name}-weight"]
        h = c = x.new_zeros(x.shape[0], units)
        states = []
        for word in x.unbind(1):
            made = torch.nn.functional.linear(torch.cat([word, h], 1), weight)
            enter, leave, new = made.chunk(3, 1)
            enter = torch.sigmoid(enter)
            c = (1 - enter) * c + enter * torch.tanh(new)
            h = torch.sigmoid(leave) * torch.tanh(c)
            states.append(h)
        return torch.stack(states, 1)

    def column(self, x: Tensor, index: int) -> Tensor:
        return x[:, index]

    def exchange(self, x: Tensor, matrices: int, columns: int) -> Tensor:
        y = x.reshape(matrices, -1, columns).transpose(1, 2)
        return y.reshape(matrices * columns, -1)

    def sum_neighbours(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add(0, targets, x[sources])

    def dots(self, vectors: Sequence[Tensor], width: int) -> Tensor:
        x = torch.stack(list(vectors), 1)
        i, j = torch.tril_indices(len(vectors), len(vectors), offset=-1)
        return torch.bmm(x, x.transpose(1, 2))[:, i, j]


def training(work: Workload, values: Values, data: Data, options: Options) -> Step:
    """A step is forward, backward and a fused update; on a GPU it copies the batch there."""
    _begin(options)
    weights = {n: _placed(torch.from_numpy(v), options) for n, v in values.items()}
    trained = [w.requires_grad_() for w in weights.values()]
    for name, value in work.state().items():
        weights[name] = _placed(torch.from_numpy(value), options)
    is_sparse = "sparse" in options.variant
    ops = _Ops(weights, trains=True, sparse=is_sparse)

    def loss_of(*batch: Tensor) -> Tensor:
        return fn.cross_entropy(work.network(ops, *batch[:-1]), batch[-1])

    forward = _maybe_compiled(loss_of, options)
    optimizer = _optimizer(work.update, trained, is_fused=not is_sparse)
    batches = _batches(data, options)
    scaler = torch.amp.GradScaler(enabled=options.precision == "float16")

    def step(i: int) -> float:
        batch = [_moved(t, options) for t in batches[i % len(batches)]]
        optimizer.zero_grad(set_to_none=True)
        with _precision(options):
            loss = forward(*batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return float(loss.detach())

    return step


def prediction(work: Workload, values: Values, data: Data, options: Options) -> Step:
    """A step is the forward pass by the moving statistics, without gradients."""
    _begin(options)
    ops = _Ops({n: _placed(torch.from_numpy(v), options) for n, v in values.items()}, trains=False)
    forward = _maybe_compiled(lambda *inputs: work.network(ops, *inputs), options)
    batches = _batches(data, options)

    def step(i: int) -> Any:
        with torch.inference_mode():
            return forward(*batches[i % len(batches)][:-1]).numpy()

    return step


class _Network(torch.nn.Module):
    """The forward pass as a module, which is what torch exports."""

    def __init__(self, work: Workload) -> None:
        super().__init__()
        self.work = work
        self.names = {}
        for i, (name, value) in enumerate((work.variables() | work.state()).items()):
            self.names[name] = f"v{i}"
            self.register_buffer(f"v{i}", torch.from_numpy(value))

    def forward(self, *inputs: Tensor) -> Tensor:
        values = {name: getattr(self, attribute) for name, attribute in self.names.items()}
        return self.work.network(_Ops(values, trains=False), *inputs)


def export(name: str, target: Path) -> None:
    """Write the forward pass of a workload with its first values."""
    work = workload(name)
    inputs = tuple(torch.from_numpy(a) for a in work.data()[0][:-1])
    torch.onnx.export(_Network(work).eval(), inputs, str(target), dynamo=True, external_data=False)


def _begin(options: Options) -> None:
    torch.set_num_threads(options.threads)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch: no CUDA device, or a build without CUDA")
    if options.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    torch.backends.cudnn.benchmark = True


def _precision(options: Options) -> contextlib.AbstractContextManager[Any]:
    half = _HALVES.get(options.precision)
    return torch.autocast(options.device, half) if half else contextlib.nullcontext()


def _maybe_compiled(function: Callable[..., Any], options: Options) -> Callable[..., Any]:
    return torch.compile(function) if "compile" in options.variant else function


def _optimizer(update: Update, trained: list[Tensor], *, is_fused: bool) -> torch.optim.Optimizer:
    if update.kind == "adam":
        return torch.optim.Adam(trained, update.rate, fused=is_fused)
    momentum = 0.9 if update.kind == "momentum" else 0
    return torch.optim.SGD(trained, update.rate, momentum, fused=is_fused)


def _batches(data: Data, options: Options) -> list[list[Tensor]]:
    """The data as tensors in the layout asked for; labels are int64, as the loss wants them."""
    batches = [[_in_layout(torch.from_numpy(a), options) for a in batch] for batch in data]
    for batch in batches:
        batch[-1] = batch[-1].long()
        if options.device == "cuda":
            batch[:] = [t.pin_memory() for t in batch]
    return batches


def _placed(tensor: Tensor, options: Options) -> Tensor:
    return _in_layout(tensor, options).to(options.device)


def _moved(tensor: Tensor, options: Options) -> Tensor:
    return tensor.to(options.device, non_blocking=True) if options.device == "cuda" else tensor


def _in_layout(tensor: Tensor, options: Options) -> Tensor:
    is_last = "channels_last" in options.variant and tensor.dim() == 4
    return tensor.to(memory_format=torch.channels_last) if is_last else tensor


if __name__ == "__main__":
    export(sys.argv[1], Path(sys.argv[2]))
