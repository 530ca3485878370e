"""Magnitudes and norms of DoRA, by the weights of a model."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from flow2onnx_runtime.adapters import Adapter
from flow2onnx_runtime.dtypes import Array

from flow2onnx.errors import UnsupportedError
from flow2onnx.imported.low_rank.fitting import fit_to_model
from flow2onnx.imported.low_rank.folder import LanguageModel, open_language_model
from flow2onnx.onnx_io.adapter_slots import Product, Slot
from flow2onnx.onnx_io.merge_weights import module_weights

__all__ = ["Norms", "complete_dora", "first_norms"]


@dataclass(frozen=True)
class Norms:
    """By module ‖W‖², and the magnitudes that training begins with; both are (rows)."""

    squares: Mapping[str, Array]
    magnitudes: Mapping[str, Array]


def first_norms(
    language: LanguageModel,
    chosen: Sequence[tuple[Product, Sequence[Slot]]],
    pairs: Mapping[str, Array],
    scales: Mapping[str, float],
    start: Adapter | None,
) -> Norms:
    """The norms of the chosen modules; magnitudes are those of `start` if it has some.

    `pairs` are the first matrices by name. Raises UnsupportedError for the model's head.
    """
    last = next((p for p, _ in chosen if p.is_last), None)
    if last is not None:
        raise UnsupportedError(
            f"{last.modules[0]} makes the scores, which the loss reads in parts, without DoRA",
            hint="leave the head out of targets, or dora=True out",
        )
    slots = [s for _, own in chosen for s in own]
    adapter = Adapter(pairs={s.module: (pairs[s.down], pairs[s.up]) for s in slots}, scales=scales)
    squares, norms = _norms(language, adapter)
    if start is None or not start.is_dora:
        return Norms(squares, norms)
    known = start.named_for({s.module: s.rows for s in slots})
    given = {m: np.asarray(v, np.float32) for m, v in known.magnitudes.items()}
    made = {m: np.asarray(c, np.float32) * norms[m] for m, c in known.factors.items()}
    return Norms(squares, {**norms, **made, **given})


def complete_dora(adapter: Adapter, model: str | os.PathLike[str]) -> Adapter:
    """The adapter with magnitudes and factors, each made of the other by a model's weights.

    One that is not of DoRA comes back as it is.
    """
    if not adapter.is_dora:
        return adapter
    language = open_language_model(model)
    known = fit_to_model(adapter, language)
    _, norms = _norms(language, known)
    magnitudes = {m: (c * norms[m]).astype(np.float32) for m, c in known.factors.items()}
    factors = {m: (v / norms[m]).astype(np.float32) for m, v in known.magnitudes.items()}
    return replace(
        known,
        magnitudes={**magnitudes, **known.magnitudes},
        factors={**factors, **known.factors},
    )


def _norms(language: LanguageModel, adapter: Adapter) -> tuple[dict[str, Array], dict[str, Array]]:
    """By module ‖W‖² and ‖W + scale * A B‖ of the columns, summed in double precision."""
    squares, norms = dict[str, Array](), dict[str, Array]()
    folder = os.fspath(language.folder)
    for slot, weight in module_weights(language.proto, folder, adapter.pairs):
        a, b = (v.astype(np.float64) for v in adapter.pairs[slot.module])
        real = weight.astype(np.float64)
        squares[slot.module] = np.square(real).sum(0).astype(np.float32)
        real += adapter.scale(slot.module) * (a @ b)
        norms[slot.module] = np.sqrt(np.square(real).sum(0)).astype(np.float32)
    return squares, norms
