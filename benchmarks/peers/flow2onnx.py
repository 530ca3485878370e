"""flow2onnx: a train job, with its native operators or without; a predict job, exported.

python -m benchmarks.peers.flow2onnx resnet18:batch=32 model.onnx  # export the predict job
"""

import dataclasses
import inspect
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp
from benchmarks.peers import Data, Options, Step, Values
from benchmarks.roofline import costs
from benchmarks.workloads import Input, Update, Workload, workload
from flow2onnx.api.session import current_session

VERSIONS = ("onnxruntime", "onnx", "onnx-ir", "numpy")
Blob = Any


class _Ops:
    """The operations as OneFlow's layers."""

    def dense(self, x: Blob, name: str, inputs: int, units: int) -> Blob:
        return flow.layers.dense(x, units, name=name)

    def conv(
        self, x: Blob, name: str, inputs: int, channels: int, size: int, stride: int, bias: bool
    ) -> Blob:
        return flow.layers.conv2d(
            x, channels, size, stride, _bordered(size // 2), use_bias=bias, name=name
        )

    def wide_conv(
        self, x: Blob, name: str, inputs: int, channels: int, size: int, stride: int, groups: int,
        dilation: int,
    ) -> Blob:  # fmt: skip
        weight = _variable(f"{name}-weight", channels, inputs // groups, size, size)
        border = _bordered(dilation * (size // 2))
        return flow.nn.conv2d(x, weight, stride, border, dilations=dilation, groups=groups)

    def transposed_conv(
        self, x: Blob, name: str, inputs: int, channels: int, size: int, stride: int
    ) -> Blob:
        weight = _variable(f"{name}-weight", inputs, channels, size, size)
        shape = (x.shape[0], channels, *(stride * side for side in x.shape[2:]))
        return flow.nn.conv2d_transpose(x, weight, shape, stride, "SAME")

    def patches(self, x: Blob, name: str, inputs: int, units: int, size: int) -> Blob:
        y = flow.layers.conv2d(x, units, size, size, "VALID", name=name)
        return flow.transpose(flow.reshape(y, (x.shape[0], units, -1)), perm=[0, 2, 1])

    def norm(self, x: Blob, name: str, channels: int) -> Blob:
        return flow.layers.batch_normalization(x, 1, 0.9, 1e-5, name=name)

    def layer_norm(self, x: Blob, name: str, units: int) -> Blob:
        return flow.layers.layer_norm(x, begin_norm_axis=-1, name=name)

    def table(self, ids: Blob, name: str, rows: int, width: int) -> Blob:
        return flow.gather(_variable(f"{name}-table", rows, width), ids)

    def positions(self, x: Blob, name: str, length: int, units: int) -> Blob:
        return x + _variable(f"{name}-table", length, units)

    def relu(self, x: Blob) -> Blob:
        return flow.nn.relu(x)

    def relu6(self, x: Blob) -> Blob:
        return flow.nn.relu6(x)

    def gelu(self, x: Blob) -> Blob:
        return flow.math.gelu(x)

    def add(self, x: Blob, y: Blob) -> Blob:
        return x + y

    def max_pool(self, x: Blob, size: int, stride: int, pad: int) -> Blob:
        return flow.nn.max_pool2d(x, size, stride, _bordered(pad))

    def mean_pool(self, x: Blob) -> Blob:
        return flow.math.reduce_mean(x, axis=[2, 3])

    def attention(
        self, q: Blob, k: Blob, v: Blob, batch: int, length: int, heads: int, causal: bool
    ) -> Blob:
        units = q.shape[-1]
        parts = (flow.reshape(x, (batch, length, heads, units // heads)) for x in (q, k, v))
        q, k, v = (flow.transpose(x, perm=[0, 2, 1, 3]) for x in parts)
        scores = flow.matmul(q, k, transpose_b=True, alpha=1 / math.sqrt(units // heads))
        if causal:
            scores = flow.math.fused_scale_tril(scores, fill_value=float("-inf"))
        y = flow.transpose(flow.matmul(flow.nn.softmax(scores), v), perm=[0, 2, 1, 3])
        return flow.reshape(y, (batch * length, units))

    def scores(self, x: Blob, name: str, rows: int, width: int) -> Blob:
        return flow.matmul(x, _variable(f"{name}-table", rows, width), transpose_b=True)

    def flat(self, x: Blob) -> Blob:
        return flow.reshape(x, (x.shape[0], -1))

    def tokens(self, x: Blob) -> Blob:
        return flow.reshape(x, (-1, x.shape[-1]))

    def mean_tokens(self, x: Blob, batch: int, length: int) -> Blob:
        return flow.math.reduce_mean(flow.reshape(x, (batch, length, -1)), axis=[1])

    def concat(self, x: Blob, y: Blob) -> Blob:
        return flow.concat([x, y], axis=-1)

    def join_channels(self, x: Blob, y: Blob) -> Blob:
        return flow.concat([x, y], axis=1)

    def image(self, x: Blob, channels: int, side: int) -> Blob:
        return flow.reshape(x, (-1, channels, side, side))

    def pixels(self, x: Blob, channels: int) -> Blob:
        return flow.reshape(flow.transpose(x, perm=[0, 2, 3, 1]), (-1, channels))

    def lstm(
        self, x: Blob, name: str, length: int, inputs: int, units: int, in_cells: bool
    ) -> Blob:
        if in_cells:
            return _cells(x, name, length, inputs, units)
        y, _ = flow.nn.LSTM(x, units, batch_first=True, name=name)
        return y

    def coupled_cells(self, x: Blob, name: str, length: int, inputs: int, units: int) -> Blob:
        weight = _variable(f"{name}-weight", 3 * units, inputs + units)
        h = c = flow.constant(0.0, flow.float32, (x.shape[0], units))
        states = []
        for t in range(length):
            word = flow.squeeze(flow.slice(x, [None, t, None], [None, 1, None]), axis=[1])
            made = flow.matmul(flow.concat([word, h], axis=1), weight, transpose_b=True)
            enter, leave, new = (flow.slice(made, [None, k * units], [None, units])
                                 for k in range(3))  # fmt: skip
            enter = flow.math.sigmoid(enter)
            c = (1 - enter) * c + enter * flow.math.tanh(new)
            h = flow.math.sigmoid(leave) * flow.math.tanh(c)
            states.append(h)
        return flow.stack(states, axis=1)

    def column(self, x: Blob, index: int) -> Blob:
        return flow.squeeze(flow.slice(x, [None, index], [None, 1]), axis=[1])

    def exchange(self, x: Blob, matrices: int, columns: int) -> Blob:
        y = flow.transpose(flow.reshape(x, (matrices, -1, columns)), perm=[0, 2, 1])
        return flow.reshape(y, (matrices * columns, -1))

    def sum_neighbours(self, x: Blob, sources: Blob, targets: Blob) -> Blob:
        return flow.math.unsorted_segment_sum(flow.gather(x, sources), targets, x.shape[0])

    def dots(self, vectors: Sequence[Blob], width: int) -> Blob:
        x, count = flow.stack(list(vectors), axis=1), len(vectors)
        products = flow.matmul(x, x, transpose_b=True)
        pairs = [i * count + j for i in range(count) for j in range(i)]
        flat = flow.reshape(products, (x.shape[0], count * count))
        return flow.gather(flat, np.asarray(pairs, np.int32), axis=1)


def _cells(x: Blob, name: str, length: int, inputs: int, units: int) -> Blob:
    """An LSTM as scripts of OneFlow write it: a product of input and state in each step."""
    weights = (_variable(f"{name}-weight_{k}_l0", 4 * units, n)
               for k, n in (("ih", inputs), ("hh", units)))  # fmt: skip
    weight = flow.concat(list(weights), axis=1)
    bias = _variable(f"{name}-bias_ih_l0", 4 * units) + _variable(f"{name}-bias_hh_l0", 4 * units)
    h = c = flow.constant(0.0, flow.float32, (x.shape[0], units))
    states = []
    for t in range(length):
        word = flow.squeeze(flow.slice(x, [None, t, None], [None, 1, None]), axis=[1])
        made = flow.matmul(flow.concat([word, h], axis=1), weight, transpose_b=True)
        made = flow.nn.bias_add(made, bias)
        gates = [flow.slice(made, [None, k * units], [None, units]) for k in range(4)]
        enter, keep, leave = (flow.math.sigmoid(gates[k]) for k in (0, 1, 3))
        c = keep * c + enter * flow.math.tanh(gates[2])
        h = leave * flow.math.tanh(c)
        states.append(h)
    return flow.stack(states, axis=1)


def training(work: Workload, values: Values, data: Data, options: Options) -> Step:
    """A step is a call of the job, as a user writes it."""

    def step(*blobs: Blob) -> Blob:
        logits = work.network(_Ops(), *blobs[:-1])
        losses = flow.nn.sparse_softmax_cross_entropy_with_logits(blobs[-1], logits)
        loss = flow.math.reduce_mean(losses)
        _optimizer(work.update).minimize(loss)
        return loss

    _declare(step, (*work.inputs, work.labels))
    flow.config.compute_thread_pool_size(options.threads)
    job = flow.global_function(type="train", function_config=_config(work, options))(step)
    if options.device == "cuda" and not job.session.has_gpu():
        raise SystemExit("flow2onnx: no usable CUDA provider; `flow2onnx doctor` says why")
    flow.load_variables(values, ignore_mismatch=False)
    return lambda i: job(*data[i % len(data)]).item()


def about(options: Options) -> dict[str, Any]:
    """On a CPU: the instruction set of native operators, if they take part.

    On a GPU: whether steps are captured, and what each node of the step moves and computes.
    """
    if options.device != "cuda":
        return instruction_set(options)
    session = current_session()
    opening = session.opening(session.job_names()[0])
    found = costs(opening.model.graph, options.precision)
    return {
        "captured": opening.options.captures,
        "nodes": sum(cost.count for cost in found),
        "costs": [dataclasses.astuple(cost) for cost in found],
    }


def instruction_set(options: Options) -> dict[str, Any]:
    """The instruction set that native operators use, which may be capped; nothing without them."""
    if "native" not in options.variant:
        return {}
    from flow2onnx_native.library import open_library

    return {"instruction_set": open_library().instruction_set}


def export(name: str, target: Path) -> None:
    """Write the predict job of a workload with its first values."""
    work = workload(name)

    def predict(*blobs: Blob) -> Blob:
        return work.network(_Ops(), *blobs)

    _declare(predict, work.inputs)
    job = flow.global_function(type="predict")(predict)
    flow.load_variables(work.variables() | work.state(), ignore_mismatch=False)
    job.export(target, verify=False)


def _declare(function: Any, inputs: tuple[Input, ...]) -> None:
    """Give a job function of any inputs the signature that says which."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    types = {
        i.name: tp.Numpy.Placeholder(i.shape, flow.float if i.limit is None else flow.int32)
        for i in inputs
    }
    parameters = [inspect.Parameter(n, kind, annotation=t) for n, t in types.items()]
    function.__annotations__ = types | {"return": tp.Numpy}
    function.__signature__ = inspect.Signature(parameters, return_annotation=tp.Numpy)


def _config(work: Workload, options: Options) -> Any:
    config = flow.function_config()
    config.runtime.native("native" in options.variant)
    if options.variant & {"asleep", "awake"}:
        config.runtime.allow_spinning("awake" in options.variant)
    if bucket := options.number("bucket", 0):
        config.all_reduce_group_min_mbyte(bucket)
        config.all_reduce_group_num(1000)
    config.enable_non_distributed_optimizer("zero" in options.variant)
    if "together" in options.variant:
        config.runtime.gradient_segments(1)
    if work.tables:
        config.indexed_slices_optimizer_conf(
            {"enable": True, "include_op_names": {"op_name": list(work.tables)}}
        )
    if options.profile:
        config.runtime.enable_profiling(True)
        config.runtime.profile_file_prefix(options.profile)
    if options.precision in ("float16", "bfloat16"):
        config.enable_auto_mixed_precision(True)
        config.runtime.mixed_precision_dtype(options.precision)
    if options.device == "cuda":
        config.runtime.use_tf32(options.precision == "tf32")
    return config


def _optimizer(update: Update) -> Any:
    rate = flow.optimizer.PiecewiseConstantScheduler([], [update.rate])
    if update.kind == "adam":
        return flow.optimizer.Adam(rate, do_bias_correction=True)
    return flow.optimizer.SGD(rate, momentum=0.9 if update.kind == "momentum" else 0)


def _variable(name: str, *shape: int) -> Blob:
    return flow.get_variable(name, shape, initializer=flow.zeros_initializer())


def _bordered(pad: int) -> list[list[int]]:
    return [[0, 0], [0, 0], [pad, pad], [pad, pad]]


if __name__ == "__main__":
    export(sys.argv[1], Path(sys.argv[2]))
