"""Settings of adapters: first values, ranks, scales, the optimizer."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from flow2onnx_runtime.adapters import Adapter
from flow2onnx_runtime.dtypes import Array

from flow2onnx.errors import ArgumentError
from flow2onnx.imported.low_rank.fitting import fit_adapter
from flow2onnx.imported.optimizers import optimizer_of
from flow2onnx.onnx_io.adapter_factors import MAGNITUDE
from flow2onnx.onnx_io.adapter_slots import Slot
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.groups import Groups
from flow2onnx.optim.schedules import Scheduler

__all__ = ["Ranks", "adapter_optimizer", "at_least", "first_values", "share_of"]

Ranks = int | Mapping[str, int]

_RATE = 2e-4
_UP = ".lora_B.weight"


def first_values(
    slots: Sequence[Slot],
    rank: Ranks,
    alpha: float,
    *,
    rslora: bool,
    seed: int,
    start: Adapter | None,
) -> tuple[dict[str, Array], dict[str, float]]:
    """The matrices by name and the scales by module: of `start`, or A uniform and B zeros.

    A is drawn from [-1/√n, 1/√n], n being the terms of each of its sums, as PEFT's is, and the
    scale is alpha / rank, or with `rslora` alpha / √rank.
    """
    if start is not None:
        known = fit_adapter(start, slots)
        pairs: dict[str, Array] = {}
        for slot in slots:
            if slot.module not in known.pairs:
                raise ArgumentError(
                    f"start: it has no adapter of {slot.module}",
                    hint="name the modules that it has with targets=",
                )
            a, b = (np.asarray(v, np.float32) for v in known.pairs[slot.module])
            pairs |= {slot.down: a, slot.up: b}
        return pairs, {s.module: known.scale(s.module) for s in slots}
    rng = np.random.default_rng(at_least("seed", seed, 0))
    pairs, scales = {}, dict[str, float]()
    if not isinstance(alpha, int | float) or not math.isfinite(alpha) or alpha <= 0:
        raise ArgumentError(f"alpha is {alpha!r}", hint="a number above 0; 16 is usual")
    for slot in slots:
        size = _rank_of(slot, rank)
        down, up = slot.shapes(size)
        bound = (slot.columns * math.prod(slot.kernel)) ** -0.5
        a = rng.uniform(-bound, bound, down).astype(np.float32)
        pairs |= {slot.down: a, slot.up: np.zeros(up, np.float32)}
        scales[slot.module] = alpha / (math.sqrt(size) if rslora else size)
    return pairs, scales


def _rank_of(slot: Slot, rank: Ranks) -> int:
    """The rank of a slot: one for all, or by module or the last part of its name."""
    if isinstance(rank, Mapping):
        last = slot.module.rpartition(".")[2]
        found = rank.get(slot.module, rank.get(last, rank.get("*")))
        if found is None:
            raise ArgumentError(f"rank says nothing of {last}", hint="give {'*': 8} for all others")
        rank = found
    at_least("rank", rank, 1)
    columns = slot.columns * math.prod(slot.kernel)
    most = min(columns, slot.rows)
    if rank > most:
        raise ArgumentError(
            f"rank is {rank}, and {slot.module} is a matrix of {columns} x {slot.rows}",
            hint=f"at most {most}; 8 to 64 are usual",
        )
    if rank % slot.groups:
        raise ArgumentError(
            f"rank is {rank}, and {slot.module} is a convolution of {slot.groups} groups",
            hint="give a rank that the groups divide, or leave it out of targets",
        )
    return rank


def at_least(what: str, number: object, least: int) -> int:
    """The number, checked: a whole one of at least so much."""
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise ArgumentError(f"{what} is {number!r}", hint=f"a whole number, {least} or more")
    return number


def share_of(what: str, number: object) -> float:
    """The number, checked: from 0 up to 1."""
    if not isinstance(number, int | float) or not 0 <= number < 1:
        raise ArgumentError(f"{what} is {number!r}", hint="a number from 0 up to 1")
    return float(number)


def adapter_optimizer(
    optimizer: str | Optimizer,
    lr: float | Scheduler | None,
    schedule: str | Scheduler | None,
    groups: Groups,
    clip_norm: float | None,
    up_rate: float | None,
    *,
    has_magnitudes: bool = False,
) -> Optimizer:
    """The optimizer; `up_rate` is the rate of all B by that of all A, as in LoRA+.

    Magnitudes have that of B, as in PEFT.
    """
    rate = _RATE if lr is None and isinstance(optimizer, str) else lr
    if up_rate is not None:
        if not isinstance(rate, int | float) or groups is not None:
            raise ArgumentError("up_rate goes with lr= as a number and without groups=")
        rates = {"lr": rate * up_rate}
        groups = {f"*{_UP}": rates, **({f"*{MAGNITUDE}": rates} if has_magnitudes else {})}
    return optimizer_of(
        optimizer, False, ema=None, lr=rate, groups=groups, schedule=schedule,
        clip_norm=clip_norm, clip_value=None,
    )  # fmt: skip
