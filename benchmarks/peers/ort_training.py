"""onnxruntime-training 1.19.2, the last: an ONNX model of the forward pass, made trainable by it.

It offers plain SGD and AdamW, which without decay is Adam; a workload with momentum is trained
without, so that its losses differ and only its cost can be compared.
"""

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.training import artifacts, onnxblock
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from benchmarks.peers import Array, Data, Options, Step, Values
from benchmarks.workloads import Workload

VERSIONS = ("onnxruntime-training", "onnx", "numpy")
_OPSET = 17


class _Ops:
    """The operations as nodes of a graph; a tensor is its name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def dense(self, x: str, name: str, inputs: int, units: int) -> str:
        return self._node("Gemm", x, f"{name}-weight", f"{name}-bias", transB=1)

    def conv(
        self, x: str, name: str, inputs: int, channels: int, size: int, stride: int, bias: bool
    ) -> str:
        variables = [f"{name}-weight", *([f"{name}-bias"] if bias else [])]
        return self._node("Conv", x, *variables, strides=[stride] * 2, pads=[size // 2] * 4)

    def wide_conv(
        self, x: str, name: str, inputs: int, channels: int, size: int, stride: int, groups: int,
        dilation: int,
    ) -> str:  # fmt: skip
        return self._node(
            "Conv", x, f"{name}-weight", strides=[stride] * 2, group=groups,
            pads=[dilation * (size // 2)] * 4, dilations=[dilation] * 2,
        )  # fmt: skip

    def transposed_conv(
        self, x: str, name: str, inputs: int, channels: int, size: int, stride: int
    ) -> str:
        border = (size - stride) // 2
        return self._node(
            "ConvTranspose", x, f"{name}-weight", strides=[stride] * 2, pads=[border] * 4
        )

    def patches(self, x: str, name: str, inputs: int, units: int, size: int) -> str:
        variables = [f"{name}-weight", f"{name}-bias"]
        y = self._node("Conv", x, *variables, strides=[size] * 2, pads=[0] * 4)
        y = self._node("Reshape", y, self._ints(0, units, -1))
        return self._node("Transpose", y, perm=[0, 2, 1])

    def norm(self, x: str, name: str, channels: int) -> str:
        roles = ("gamma", "beta", "moving_mean", "moving_variance")
        moved = [f"{name}-next_mean", f"{name}-next_variance"]
        return self._node(
            "BatchNormalization", x, *(f"{name}-{r}" for r in roles), more=moved,
            epsilon=1e-5, momentum=0.9, training_mode=1,
        )  # fmt: skip

    def layer_norm(self, x: str, name: str, units: int) -> str:
        kept = [f"{name}-mean", f"{name}-rate"]  # which the gradient reads
        inputs = (x, f"{name}-gamma", f"{name}-beta")
        return self._node("LayerNormalization", *inputs, more=kept, axis=-1)

    def table(self, ids: str, name: str, rows: int, width: int) -> str:
        return self._node("Gather", f"{name}-table", ids)

    def positions(self, x: str, name: str, length: int, units: int) -> str:
        return self._node("Add", x, f"{name}-table")

    def relu(self, x: str) -> str:
        return self._node("Relu", x)

    def relu6(self, x: str) -> str:
        low, high = (self._constant(f"limit{n}", np.float32(n)) for n in (0, 6))
        return self._node("Clip", x, low, high)

    def gelu(self, x: str) -> str:
        # the operator of this domain has a gradient; the standard's Gelu came with opset 20
        return self._node("Gelu", x, domain="com.microsoft")

    def add(self, x: str, y: str) -> str:
        return self._node("Add", x, y)

    def max_pool(self, x: str, size: int, stride: int, pad: int) -> str:
        return self._node(
            "MaxPool", x, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[pad] * 4
        )

    def mean_pool(self, x: str) -> str:
        return self.flat(self._node("GlobalAveragePool", x))

    def attention(
        self, q: str, k: str, v: str, batch: int, length: int, heads: int, causal: bool
    ) -> str:
        shape = self._ints(batch, length, heads, -1)
        q, k, v = (self._node("Reshape", x, shape) for x in (q, k, v))
        q, v = (self._node("Transpose", x, perm=[0, 2, 1, 3]) for x in (q, v))
        k = self._node("Transpose", k, perm=[0, 2, 3, 1])
        root = self._constant("root", np.float32(math.sqrt(self.width // heads)))
        scores = self._node("Div", self._node("MatMul", q, k), root)
        if causal:
            unseen = np.triu(np.full((length, length), -np.inf, np.float32), 1)
            scores = self._node("Add", scores, self._constant(f"unseen{length}", unseen))
        shares = self._node("Softmax", scores, axis=-1)
        y = self._node("Transpose", self._node("MatMul", shares, v), perm=[0, 2, 1, 3])
        return self._node("Reshape", y, self._ints(batch * length, -1))

    def scores(self, x: str, name: str, rows: int, width: int) -> str:
        return self._node("Gemm", x, f"{name}-table", transB=1)

    def flat(self, x: str) -> str:
        return self._node("Flatten", x)

    def tokens(self, x: str) -> str:
        return self._node("Reshape", x, self._ints(-1, self.width))

    def mean_tokens(self, x: str, batch: int, length: int) -> str:
        x = self._node("Reshape", x, self._ints(batch, length, -1))
        return self._node("ReduceMean", x, axes=[1], keepdims=0)

    def concat(self, x: str, y: str) -> str:
        return self._node("Concat", x, y, axis=-1)

    def join_channels(self, x: str, y: str) -> str:
        return self._node("Concat", x, y, axis=1)

    def image(self, x: str, channels: int, side: int) -> str:
        return self._node("Reshape", x, self._ints(-1, channels, side, side))

    def pixels(self, x: str, channels: int) -> str:
        y = self._node("Transpose", x, perm=[0, 2, 3, 1])
        return self._node("Reshape", y, self._ints(-1, channels))

    def lstm(self, x: str, name: str, length: int, inputs: int, units: int, in_cells: bool) -> str:
        # step by step: its operator LSTM has a gradient in builds of one's own only
        w, r, p, q = (f"{name}-{k}_l0" for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        words = self._several("Split", length, x, axis=1)
        h = c = None
        states = []
        for word in words:
            rows = self._node("Squeeze", word, self._ints(1))
            made = self._node("Add", self._node("Gemm", rows, w, p, transB=1), q)
            if h is not None:
                made = self._node("Add", made, self._node("Gemm", h, r, transB=1))
            enter, keep, new, leave = self._several("Split", 4, made, axis=1)
            own = self._node("Mul", self._node("Sigmoid", enter), self._node("Tanh", new))
            kept = None if c is None else self._node("Mul", self._node("Sigmoid", keep), c)
            c = own if kept is None else self._node("Add", own, kept)
            h = self._node("Mul", self._node("Sigmoid", leave), self._node("Tanh", c))
            states.append(self._node("Unsqueeze", h, self._ints(1)))
        self.width = units
        return self._node("Concat", *states, axis=1)

    def coupled_cells(self, x: str, name: str, length: int, inputs: int, units: int) -> str:
        words = self._several("Split", length, x, axis=1)
        rows = [self._node("Squeeze", word, self._ints(1)) for word in words]
        one = self._constant("one", np.float32(1))
        none = self._constant(f"{name}-none", np.zeros((inputs, units), np.float32))
        h = c = self._node("MatMul", rows[0], none)  # zeros, as many as the batch has
        states = []
        for row in rows:
            joined = self._node("Concat", row, h, axis=1)
            made = self._node("Gemm", joined, f"{name}-weight", transB=1)
            enter, leave, new = self._several("Split", 3, made, axis=1)
            enter = self._node("Sigmoid", enter)
            own = self._node("Mul", enter, self._node("Tanh", new))
            kept = self._node("Mul", self._node("Sub", one, enter), c)
            c = self._node("Add", kept, own)
            h = self._node("Mul", self._node("Sigmoid", leave), self._node("Tanh", c))
            states.append(self._node("Unsqueeze", h, self._ints(1)))
        self.width = units
        return self._node("Concat", *states, axis=1)

    def column(self, x: str, index: int) -> str:
        return self._node("Gather", x, self._constant(f"at{index}", np.int64(index)), axis=1)

    def exchange(self, x: str, matrices: int, columns: int) -> str:
        y = self._node("Reshape", x, self._ints(matrices, -1, columns))
        y = self._node("Transpose", y, perm=[0, 2, 1])
        return self._node("Reshape", y, self._ints(matrices * columns, -1))

    def sum_neighbours(self, x: str, sources: str, targets: str) -> str:
        none = self._node("ConstantOfShape", self._node("Shape", x))
        ends = self._node("Cast", self._node("Unsqueeze", targets, self._ints(1)), to=7)  # int64
        rows = self._node("Gather", x, sources)
        return self._node("ScatterND", none, ends, rows, reduction="add")

    def dots(self, vectors: Sequence[str], width: int) -> str:
        rows = [self._node("Unsqueeze", v, self._ints(1)) for v in vectors]
        x, count = self._node("Concat", *rows, axis=1), len(vectors)
        products = self._node("MatMul", x, self._node("Transpose", x, perm=[0, 2, 1]))
        pairs = [i * count + j for i in range(count) for j in range(i)]
        return self._node("Gather", self._node("Flatten", products), self._ints(*pairs), axis=1)

    width = 0  # of the residual stream of an encoder

    def _node(
        self, kind: str, *inputs: str, more: Sequence[str] = (), domain: str = "", **attributes: Any
    ) -> str:
        name = f"n{len(self.nodes)}"
        outputs = [name, *more]
        node = helper.make_node(kind, inputs, outputs, name, domain=domain, **attributes)
        self.nodes.append(node)
        return name

    def _several(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        more = [f"n{len(self.nodes)}_{i}" for i in range(1, count)]
        return [self._node(kind, *inputs, more=more, **attributes), *more]

    def _ints(self, *values: int) -> str:
        return self._constant("shape" + "_".join(map(str, values)), np.array(values, np.int64))

    def _constant(self, name: str, value: Any) -> str:
        self.constants[name] = numpy_helper.from_array(np.asarray(value), name)
        return name


def differs(work: Workload) -> str | None:
    """Why the losses of a workload cannot be those of the others."""
    return "no momentum" if work.update.kind == "momentum" else None


def training(work: Workload, values: Values, data: Data, options: Options) -> Step:
    """A step is the training model, the optimizer, and a reset of the gradients."""
    with tempfile.TemporaryDirectory() as folder:
        _write(folder, work, values)
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = options.threads
        state = CheckpointState.load_checkpoint(str(Path(folder, "checkpoint")))
        model = Module(str(Path(folder, "training_model.onnx")), state, session_options=settings)
        optimizer = Optimizer(str(Path(folder, "optimizer_model.onnx")), model)
    optimizer.set_learning_rate(work.update.rate)
    batches = [[*batch[:-1], batch[-1].astype(np.int64)] for batch in data]

    def step(i: int) -> float:
        model.train()
        loss = model(*batches[i % len(batches)])
        optimizer.step()
        model.lazy_reset_grad()
        return float(loss)

    return step


def _write(folder: str, work: Workload, values: Values) -> None:
    adam = onnxblock.optim.AdamW(eps=1e-8, weight_decay=0.0)
    artifacts.generate_artifacts(
        _forward(work, values), requires_grad=list(values), frozen_params=list(work.state()),
        loss=artifacts.LossType.CrossEntropyLoss, artifact_directory=folder,
        optimizer=adam if work.update.kind == "adam" else artifacts.OptimType.SGD,
    )  # fmt: skip


def _forward(work: Workload, values: Values) -> onnx.ModelProto:
    ops = _Ops()
    ops.width = next((v.shape[1] for n, v in values.items() if n == "places-table"), 0)
    logits = work.network(ops, *(i.name for i in work.inputs))
    variables = [numpy_helper.from_array(v, n) for n, v in _all(work, values).items()]
    inputs = [
        helper.make_tensor_value_info(
            i.name, TensorProto.FLOAT if i.limit is None else TensorProto.INT32, i.shape
        )
        for i in work.inputs
    ]
    shape = (work.labels.shape[0], work.labels.limit)
    output = helper.make_tensor_value_info(logits, TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        ops.nodes, "forward", inputs, [output], [*variables, *ops.constants.values()]
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _all(work: Workload, values: Values) -> dict[str, Array]:
    return values | work.state()
