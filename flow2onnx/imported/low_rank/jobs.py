"""The jobs of an adapter's training, step and evaluation, over weights that stay in their file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flow2onnx.dtypes import DType, by_code, float16, float32, int32, int64
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.contrib import AFTER_SOFTMAX
from flow2onnx.graph.dimension import extents
from flow2onnx.graph.nodes import attribute, read_values
from flow2onnx.graph.types import dtype_of, sizes_of
from flow2onnx.imported.initial_state import state_variable
from flow2onnx.imported.low_rank.head import head_nodes, next_token_loss
from flow2onnx.imported.low_rank.texts import DOCUMENTS
from flow2onnx.imported.training_mode import ALWAYS
from flow2onnx.lowering.packed_weights import unpacked
from flow2onnx.onnx_io.adapter_factors import MAGNITUDE, NORM
from flow2onnx.onnx_io.append import Handler, append_model, input_dtype
from flow2onnx.onnx_io.foreign import ForeignModel
from flow2onnx.onnx_io.serialize import Placement
from flow2onnx.optim.base import Optimizer
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.job import Job, Region

__all__ = ["EVAL", "FACTORS", "LABELS", "AdapterPlan", "adapter_body", "shared_places"]

LABELS, EVAL, FACTORS = "labels", "eval", "factors"
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"
_ATTENTION = "com.microsoft::GroupQueryAttention"
_EXPERTS = "com.microsoft::QMoE"
_EXPERT_WEIGHTS = (2, 5)  # their places among its operands
_LENGTHS, _BIAS = 5, 10  # the places of its operands: ends of texts, what is added to the scores
_HIDDEN = -1e9  # added to the score of a token that is not to be seen


@dataclass(frozen=True, kw_only=True)
class AdapterPlan:
    """How adapters of a language model are trained.

    The model has slots whose first values are tensors of it; `scales` are by module. `hidden` is
    the value that its head reads, `logits` the output. `shared` are the tensors that stay in a
    file. The head is computed in `chunks`, and `dropout` is the share of what adapters read
    that is left out of a step. With `packs` a row has several texts, and a feed says which.
    `factors` is a model of DoRA's factors alone, whose magnitudes are trained, too. With
    `gives_weights` attention of a step gives the weights of its keys, for its gradient to read.
    """

    foreign: ForeignModel
    scales: Mapping[str, float]
    hidden: str
    logits: str
    shared: tuple[str, ...]
    optimizer: Optimizer
    chunks: int | None = None
    dropout: float = 0.0
    packs: bool = False
    factors: ForeignModel | None = None
    gives_weights: bool = False

    @property
    def trained(self) -> tuple[str, ...]:
        """The names of the adapters' matrices, and of magnitudes if there are any."""
        ends = (_DOWN, _UP) if self.factors is None else (_DOWN, _UP, MAGNITUDE)
        return tuple(m + end for m in self.scales for end in ends)

    @property
    def feeds(self) -> tuple[tuple[str, DType], ...]:
        """The names and types of what a batch consists of, all of the shape `rows`."""
        own = ((str(v.name), input_dtype(v)) for v in self.foreign.inputs)
        return (*own, (LABELS, int64), *([(DOCUMENTS, int64)] if self.packs else []))

    @property
    def rows(self) -> tuple[int | str, str]:
        """(batch, sequence); the batch is a number if the model takes no other."""
        shapes = [v.shape for v in self.foreign.inputs if v.shape is not None and len(v.shape) == 2]
        fixed = next((s[0] for s in shapes if isinstance(s[0], int)), None)
        return fixed or "batch", "sequence"


def shared_places(foreign: ForeignModel, file: str) -> dict[str, Placement]:
    """The places of the tensors of a model that lie in another file, called `file` from here on."""
    found = {}
    for name, tensor in foreign.tensors.items():
        if hasattr(tensor, "location"):
            found[name] = Placement(file, tensor.offset or 0, int(tensor.length or tensor.nbytes))
    return found


def adapter_body(plan: AdapterPlan, kind: str) -> Callable[[], list[Blob]]:
    """The body of a job: ``train``, or ``eval``; each gives the loss of its batch.

    That of ``factors`` reads no batch and gives DoRA's factors.
    """

    def body() -> list[Blob]:
        job = current_job("lora")
        if kind == FACTORS:
            return _factors(job, plan)
        values = _feeds(job, plan) | _shared(job, plan, plan.foreign)
        labels, documents = values.pop(LABELS), values.pop(DOCUMENTS, None)
        adapters = _adapters(job, plan)
        values |= adapters
        made = append_model(job.b, plan.foreign, values, _handlers(plan, kind, documents))
        nodes = head_nodes(list(plan.foreign.graph), plan.hidden)
        with job.b.under("loss"):
            loss, _ = next_token_loss(
                job, nodes, made, plan.hidden, labels,
                chunks=plan.chunks, trained=list(adapters.values()), trains=kind == "train",
            )  # fmt: skip
        if kind == "train":
            plan.optimizer.minimize(Blob(job.b.Reshape(loss, [1])))
        return [Blob(loss)]

    return body


def _factors(job: Job, plan: AdapterPlan) -> list[Blob]:
    """The factors of all modules, in the order of the plan's model of them."""
    assert plan.factors is not None, "only plans with factors have this job"
    values = _shared(job, plan, plan.factors) | _adapters(job, plan)
    made = append_model(job.b, plan.factors, values)
    return [Blob(made[name]) for name in plan.factors.outputs]


def _feeds(job: Job, plan: AdapterPlan) -> dict[str, Value]:
    """Whole texts, their masks and labels: (batch, sequence)."""
    values = {n: job.b.input(n, list(plan.rows), dtype) for n, dtype in plan.feeds}
    job.inputs += values.values()
    return values


def _shared(job: Job, plan: AdapterPlan, foreign: ForeignModel) -> dict[str, Value]:
    """The frozen tensors that a model reads, as inputs: they become constants in a file.

    What is in half precision there is computed with in single precision. Passes take them for
    state, as they do not vary from one batch to the next.
    """
    read = {v.name for n in foreign.graph for v in read_values(n) if v is not None}
    found = {}
    for name in plan.shared:
        if name in read:
            tensor = plan.foreign.tensors[name]
            shape = [int(d) for d in tensor.shape]
            dtype = by_code(int(tensor.dtype))
            value = job.values[name] = job.b.input(name, shape, dtype)
            found[name] = job.b.Cast(value, to=float32) if dtype == float16 else value
    return found


def _adapters(job: Job, plan: AdapterPlan) -> dict[str, Value]:
    """The adapters' matrices, B times its scale."""
    values = {}
    for name in plan.trained:
        value = job.state(state_variable(plan.foreign, name))
        job.user_variables[name] = Blob(value)
        scale = plan.scales[name.removesuffix(_UP)] if name.endswith(_UP) else 1.0
        with job.b.under("scale"):
            values[name] = value if scale == 1.0 else job.b.Mul(value, scale)
    return values


def _handlers(plan: AdapterPlan, kind: str, documents: Value | None) -> Mapping[str, Handler]:
    """Handlers of the nodes that training makes otherwise."""
    found = dict(ALWAYS) | {_EXPERTS: _exact_experts}
    if kind == "train" and plan.factors is not None:
        found["::Identity"] = _constant_norm
    if kind == "train" and plan.dropout > 0:
        found["::MatMul"] = _dropping(plan)
    else:
        found |= {"::MatMul": _together(plan), "::Concat": _side_by_side(plan)}
    gives_weights = kind == "train" and plan.gives_weights
    if gives_weights or documents is not None:
        found[_ATTENTION] = _attention(documents, gives_weights=gives_weights)
    return found


def _exact_experts(
    b: Builder, node: Node, inputs: Sequence[Value | None], made: Mapping[str, Value]
) -> Sequence[Value | None]:
    """Experts of 8 bits, which round what they multiply to 8 bits where weights are packed."""
    x, *rest = inputs
    assert x is not None, "experts read rows"
    if attribute(node, "expert_weight_bits", 4) == 8:
        for place in _EXPERT_WEIGHTS:
            weight = rest[place - 1]
            assert weight is not None, "experts have weights"
            rest[place - 1] = unpacked(b, weight, x)
    return b.emit(_EXPERTS, [x, *rest], dict(node.attributes), len(node.outputs))


def _constant_norm(
    b: Builder, node: Node, inputs: Sequence[Value | None], made: Mapping[str, Value]
) -> Sequence[Value | None]:
    """A value as it is; no gradient flows through the norms of DoRA."""
    (x,), start = inputs, len(b.nodes)
    assert x is not None, "the checker has seen the operands"
    y = b.Identity(x)
    if str(node.name).endswith(NORM):
        region = Region((x,), (y,), lambda *_: (None,))
        current_job("lora").add_region(region, start)
    return [y]


def _attention(documents: Value | None, *, gives_weights: bool) -> Handler:
    """Attention in which no token looks at one of another document of its row.

    Such that gives the weights of its keys takes every text for as long as its row: what it would
    not look at is behind all that counts, and the runtime leaves weights there as memory has them.
    """

    def attend(
        b: Builder, node: Node, inputs: Sequence[Value | None], made: Mapping[str, Value]
    ) -> Sequence[Value | None]:
        x, *rest = [*inputs, *[None] * 16][:16]
        assert x is not None, "attention has queries"
        attrs: dict[str, Any] = dict(node.attributes)
        count = len(node.outputs)
        if documents is not None:
            rest[_BIAS - 1] = _between_documents(b, documents, rest[_BIAS - 1], x)
        if gives_weights and not attribute(node, "softcap", 0.0):
            images, rows, _ = extents(b, x)
            rest[_LENGTHS - 1] = b.Cast(b.Expand(b.Sub(rows, np.int64(1)), [images]), to=int32)
            attrs, count = attrs | {"qk_output": AFTER_SOFTMAX}, 4
        while rest[-1] is None:
            rest.pop()
        return b.emit(_ATTENTION, [x, *rest], attrs, count)[: len(node.outputs)]

    return attend


def _between_documents(b: Builder, documents: Value, bias: Value | None, x: Value) -> Value:
    """The mask of scores between tokens of different documents, (image, 1, row, key)."""
    if bias is not None:
        raise UnsupportedError("attention has a bias of its own: its texts cannot be packed")
    others = b.Equal(b.Unsqueeze(documents, [1, 2]), b.Unsqueeze(documents, [1, 3]))
    return b.Where(others, b.like(0.0, x), b.like(_HIDDEN, x))


def _together(plan: AdapterPlan) -> Handler:
    """Products with the A of all modules that read one value as one product.

    Their columns are few, and a value is read once for all of them, on the way back too.
    """
    groups: dict[str, list[str]] = {}
    for node in plan.foreign.graph:
        if (name := _trained_down(plan, node)) is not None:
            groups.setdefault(str(node.inputs[0] and node.inputs[0].name), []).append(name)
    done: dict[str, Value] = {}

    def product(
        b: Builder, node: Node, inputs: Sequence[Value | None], made: Mapping[str, Value]
    ) -> Sequence[Value | None]:
        x, weight = inputs
        assert x is not None, "a product has operands"
        name = _trained_down(plan, node)
        group = groups.get(str(node.inputs[0] and node.inputs[0].name), [])
        if name is None or len(group) == 1:
            return [b.MatMul(x, weight)]
        if name not in done:
            weights = [made[n] for n in group]
            columns = b.MatMul(x, b.Concat(*weights, axis=1))
            ranks = [sizes_of(w)[1] for w in weights]
            parts = b.several("Split", columns, ranks, outputs=len(group), axis=-1)
            done.update(zip(group, parts, strict=True))
        return [done.pop(name)]

    return product


def _side_by_side(plan: AdapterPlan) -> Handler:
    """The results of modules that read one value, side by side, as one product.

    Given:   p, q = Split(x A);  y = Concat(p B, q C, axis=-1)
    Result:  y = (x A) D, where D has B and C on its diagonal and zeros beside them
    Kept:    where anything else stands between them, such as zeros of a module that is not trained
    """

    def concat(
        b: Builder, node: Node, inputs: Sequence[Value | None], made: Mapping[str, Value]
    ) -> Sequence[Value | None]:
        values = [v for v in inputs if v is not None]
        makers = [v.producer() for v in values]
        parts = [p.inputs[0] for p in makers if p is not None and p.op_type == "MatMul"]
        split = parts[0].producer() if parts and parts[0] is not None else None
        is_whole = split is not None and split.op_type == "Split" and [*split.outputs] == parts
        if split is None or not is_whole or not all(_is_trained_up(plan, v) for v in node.inputs):
            return [b.Concat(*values, axis=attribute(node, "axis", 0))]
        blocks = [p.inputs[1] for p in makers if p is not None]
        return [b.MatMul(split.inputs[0], _diagonal(b, [v for v in blocks if v is not None]))]

    return concat


def _is_trained_up(plan: AdapterPlan, value: Value | None) -> bool:
    """True for a product of the model with the B of a module that is trained."""
    maker = None if value is None else value.producer()
    if maker is None or maker.op_type != "MatMul" or maker.inputs[1] is None:
        return False
    name = str(maker.inputs[1].name)
    return name.endswith(_UP) and name.removesuffix(_UP) in plan.scales


def _diagonal(b: Builder, blocks: Sequence[Value]) -> Value:
    """The matrix with `blocks` on its diagonal."""
    widths = [int(sizes_of(v)[1]) for v in blocks]  # adapters have known sizes
    whole, before, rows = sum(widths), 0, []
    for block, width in zip(blocks, widths, strict=True):
        rows.append(b.Pad(block, [0, before, 0, whole - before - width]))
        before += width
    return b.Concat(*rows, axis=0)


def _trained_down(plan: AdapterPlan, node: Node) -> str | None:
    """The name of the A by which a node multiplies what a module reads; None if no A is trained.

    An adapter that is kept beside the weights has constants of such names.
    """
    if node.op_type != "MatMul" or node.inputs[1] is None:
        return None
    name = str(node.inputs[1].name)
    is_trained = name.endswith(_DOWN) and name.removesuffix(_DOWN) in plan.scales
    return name if is_trained else None


def _dropping(plan: AdapterPlan) -> Handler:
    """Products with an A that read what a dropout leaves."""

    def product(
        b: Builder, node: Node, inputs: Sequence[Value | None], made: Mapping[str, Value]
    ) -> Sequence[Value | None]:
        x, weight = inputs
        assert x is not None, "a product has operands"
        if _trained_down(plan, node) is not None:
            job = current_job("lora")
            seed = job.random_seed(str(node.name))
            ratio = b.const(plan.dropout, dtype_of(x))
            x = b.emit("Dropout", [x, ratio, b.const(True)], {"seed": int(seed)})[0]
        return [b.MatMul(x, weight)]

    return product
