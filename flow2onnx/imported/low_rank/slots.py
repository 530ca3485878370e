"""write_slots: a model folder that adapters fit into, its data file untouched."""

import os
from collections.abc import Sequence
from pathlib import Path

from flow2onnx.errors import BundleError
from flow2onnx.export.files import link_file, write_bytes
from flow2onnx.imported.low_rank.folder import LanguageModel, open_language_model
from flow2onnx.onnx_io.adapter_slots import (
    Slot,
    add_slots,
    choose_products,
    fused_experts,
    has_factors,
    products,
    slots_of,
)

__all__ = ["write_folder", "write_slots"]

_KEPT = ".before-slots"


def write_slots(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    targets: Sequence[str] | str | None = None,
    *,
    factors: bool = False,
) -> tuple[Slot, ...]:
    """Give a folder's model inputs for adapters, or write a folder with such a model.

    Without an adapter the model computes what it did. Without `output` the model file of the folder
    is replaced, and the old one kept beside it with ``.before-slots`` after its name; else a folder
    is written whose other files are second names of the same files. With `factors` slots take
    those of DoRA, too. Nothing is done to a model that has these slots.
    """
    language = open_language_model(model)
    proto = language.copy()
    wanted = [targets] if isinstance(targets, str) else targets
    chosen = choose_products(products(proto), wanted, fused_experts(proto))
    slots = tuple(s for _, own in chosen for s in own)
    present = slots_of(proto)
    if not present:
        add_slots(proto, chosen, factors=factors)
    elif {s.module for s in slots} != set(present) or factors != has_factors(proto):
        what = "for other modules" if factors == has_factors(proto) else "of the other kind"
        before = language.path.with_name(language.path.name + _KEPT)
        raise BundleError(
            f"{language.path} has slots {what}, such as {next(iter(present))}",
            hint="begin with the model as it was before slots"
            + (f": {before.name}" if before.exists() else ""),
        )
    content: bytes = proto.SerializeToString(deterministic=True)
    if output is not None:
        write_folder(language, Path(output), content)
    elif not present:
        kept = language.path.with_name(language.path.name + _KEPT)
        if not kept.exists():
            link_file(language.path, kept)
        write_bytes(language.path, content)
    return slots


def write_folder(language: LanguageModel, output: Path, content: bytes) -> None:
    """Write a folder with this model, the other files of the old one under second names."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise BundleError(f"{output} is there already", hint="give a folder that is not")
    output.mkdir(parents=True, exist_ok=True)
    for path in sorted(language.folder.iterdir()):
        if path.is_file() and path.name not in (language.path.name, language.path.name + _KEPT):
            link_file(path, output / path.name)
    write_bytes(output / language.path.name, content)
