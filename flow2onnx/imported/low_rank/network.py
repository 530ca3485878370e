"""lora_network: adapters of any model with products or convolutions, for a loss of one's own."""

import glob
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from flow2onnx_runtime.adapters import Adapter

from flow2onnx.errors import ArgumentError
from flow2onnx.imported.low_rank.adapters import SCALES_FACT
from flow2onnx.imported.low_rank.settings import Ranks, adapter_optimizer, first_values, share_of
from flow2onnx.imported.trainable import TrainableModel, make_trainable
from flow2onnx.onnx_io.adapter_inputs import drop_before_adapters, scale_adapters, signatures
from flow2onnx.onnx_io.adapter_slots import (
    add_slots,
    choose_products,
    fused_experts,
    products,
    slots_of,
)
from flow2onnx.onnx_io.blocks import inline_tensors
from flow2onnx.onnx_io.language_model import fill_initializers
from flow2onnx.onnx_io.read import open_model
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.groups import Groups
from flow2onnx.optim.schedules import Scheduler

__all__ = ["input_shapes", "lora_network"]


def lora_network(
    model: str | os.PathLike[str],
    loss: str | Callable[..., Any],
    rank: Ranks = 8,
    alpha: float = 16,
    targets: Sequence[str] | str | None = None,
    *,
    rslora: bool = False,
    dropout: float = 0.0,
    optimizer: str | Optimizer = "adamw",
    lr: float | Scheduler | None = None,
    schedule: str | Scheduler | None = None,
    groups: Groups = None,
    up_rate: float | None = None,
    clip_norm: float | None = None,
    start: Adapter | None = None,
    seed: int = 0,
    **options: Any,
) -> TrainableModel:
    """Adapters of any .onnx model, in its products and convolutions, with a step that trains them.

    `loss` and `options` are those of `make_trainable` (`inputs`, `output`, `labels`, `accumulate`,
    `training_mode`, …), all else is as in `lora`: rank, alpha, targets by shell patterns of
    modules, all but the last product and convolutions of several groups by default. What the model
    holds itself is frozen, and inside the bundle. `adapter_of` reads the adapter of a trainer.

    A convolution has two in place of A and B, the first with its window, stride and padding and
    `rank` channels, the second of windows of one number, as in PEFT.

    >>> import flow2onnx as flow
    >>> made = flow.lora_network("resnet.onnx", "cross_entropy", rank=4)  # doctest: +SKIP
    >>> trainer = made.trainer()  # doctest: +SKIP
    """
    _check_options(options)
    stored = open_model(model)
    proto = stored.proto
    inline_tensors(proto, os.fspath(stored.path.parent))
    wanted = [targets] if isinstance(targets, str) else targets
    chosen = choose_products(products(proto), wanted, fused_experts(proto))
    slots = [slot for _, own in chosen for slot in own]
    pairs, scales = first_values(slots, rank, alpha, rslora=rslora, seed=seed, start=start)
    if start is not None and start.is_dora:
        raise ArgumentError("start: it is an adapter of DoRA, which lora trains", hint="flow.lora")
    rule = adapter_optimizer(optimizer, lr, schedule, groups, clip_norm, up_rate)
    if not slots_of(proto):
        add_slots(proto, chosen)
    share = share_of("dropout", dropout)
    if share:
        drop_before_adapters(proto, slots, share, seed)
        options.setdefault("check_import", False)  # two runs draw different numbers
    scale_adapters(proto, slots, scales)
    fill_initializers(proto, pairs)
    made = make_trainable(
        proto, loss, rule, seed=seed, trained=[glob.escape(n) for n in pairs],
        **{"name": stored.path.stem, **options},
    )  # fmt: skip
    fact = ";".join(f"{m}={s!r}" for m, s in scales.items())
    return replace(made, metadata={**made.metadata, SCALES_FACT: fact})


def input_shapes(model: str | os.PathLike[str]) -> dict[str, tuple[int | str, ...]]:
    """The inputs of a model file with their shapes; a free size is its name."""
    graph = open_model(model).proto.graph
    constants = {tensor.name for tensor in graph.initializer}
    return {s.name: s.shape for s in signatures(graph.input) if s.name not in constants}


def _check_options(options: dict[str, Any]) -> None:
    """Raise ArgumentError for what is decided here, or is for language models alone."""
    taken = [n for n in options if n in ("trained", "frozen", "opset", "separate", "ema")]
    if taken:
        raise ArgumentError(
            f"{taken[0]} goes with make_trainable, and here adapters alone are trained",
            hint="choose modules with targets=",
        )
    other = [n for n in options if n in ("dora", "packs", "chunks", "folded", "logits", "float64")]
    if other and not (other == ["logits"] and isinstance(options["logits"], bool)):
        raise ArgumentError(
            f"{other[0]} is for language models, which flow.lora trains", hint="leave it out"
        )
