"""describe: what a model, a bundle or a checkpoint holds, as plain data."""

import math
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flow2onnx_runtime import Manifest
from flow2onnx_runtime.dtypes import find_element
from flow2onnx_runtime.manifest import MANIFEST
from flow2onnx_runtime.safetensors import Header, read_header

from flow2onnx.checkpoint import store
from flow2onnx.checkpoint.store import SavedVariable
from flow2onnx.errors import BundleError
from flow2onnx.onnx_io.read import open_model, parameter_totals

__all__ = ["describe"]


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of `path`; its ``kind`` says which of these it is.

    ``model`` (an .onnx file), ``bundle`` (a folder with manifest.json), ``checkpoint`` (a folder as
    OneFlow writes it), ``weights`` (a .safetensors file). Raises BundleError or CheckpointError,
    with file and reason, for what is missing, foreign, damaged or half written.
    """
    target = Path(path)
    if not _exists(target):
        raise BundleError(
            f"{target} is not there", hint="give an .onnx file, a bundle or a checkpoint"
        )
    if target.is_dir():
        _check_filled(target)
        is_bundle = (target / MANIFEST).is_file() or not _looks_like_checkpoint(target)
        return _bundle(target) if is_bundle else _checkpoint(target)
    return _weights(target) if target.suffix == ".safetensors" else open_model(target).summary()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # ValueError: a name with a null character
        return False


def _check_filled(path: Path) -> None:
    if not any(_names(path)):
        raise BundleError(
            f"{path} is an empty folder", hint="give an .onnx file, a bundle or a checkpoint"
        )


def _names(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError as error:
        raise BundleError(
            f"{path}: cannot be read: {error.strerror}", hint="check its permissions"
        ) from error


def _looks_like_checkpoint(path: Path) -> bool:
    """True if a folder has what OneFlow writes, if only half: no manifest and no model."""
    return not any(p.suffix == ".onnx" for p in _names(path))


def _bundle(path: Path) -> dict[str, Any]:
    manifest = Manifest.read(path)
    models = (manifest.init, manifest.step, *(p.file for p in manifest.predict))
    return {
        "kind": "bundle",
        "path": str(path),
        "bytes": sum(entry.size for entry in manifest.files.values()),
        "job": manifest.job,
        "producer": manifest.producer,
        "opset": manifest.opset,
        "files": {name: entry.size for name, entry in manifest.files.items()},
        "feeds": [asdict(spec) for spec in manifest.feeds],
        "results": [asdict(spec) for spec in manifest.results],
        "losses": list(manifest.losses),
        "state": [asdict(spec) for spec in manifest.state],
        "parameters": _totals(manifest, ("variable",)),
        "state_totals": _totals(manifest, ("variable", "slot", "counter")),
        "state_id": manifest.state_id,
        "predict": [asdict(entry) for entry in manifest.predict],
        "models": {name: open_model(path / name).summary() for name in models},
        "metadata": dict(manifest.metadata),
    }


def _totals(manifest: Manifest, roles: Iterable[str]) -> dict[str, Any]:
    return parameter_totals(
        (s.dtype, math.prod(s.shape), _bytes(s.dtype, s.shape))
        for s in manifest.state
        if s.role in roles
    )


def _checkpoint(path: Path) -> dict[str, Any]:
    found = store.load(path)
    saved = [found] if isinstance(found, SavedVariable) else list(found.values())
    rows = [_variable(v) for v in saved]
    return {
        "kind": "checkpoint",
        "path": str(path),
        "bytes": sum(row["bytes"] for row in rows),
        "variables": rows,
        "parameters": _row_totals(rows),
    }


def _variable(variable: SavedVariable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "dtype": variable.dtype.name if variable.dtype else "unknown",
        "shape": list(variable.shape) if variable.shape is not None else None,
        "bytes": os.path.getsize(variable.file_path),
    }


def _weights(path: Path) -> dict[str, Any]:
    header = read_header(path)
    rows = _tensor_rows(header)
    return {
        "kind": "weights",
        "path": str(path),
        "bytes": path.stat().st_size,
        "variables": rows,
        "parameters": _row_totals(rows),
        "metadata": dict(header.metadata),
    }


def _tensor_rows(header: Header) -> list[dict[str, Any]]:
    return [
        {"name": n, "dtype": t.element, "shape": list(t.shape), "bytes": t.end - t.start}
        for n, t in sorted(header.tensors.items())
    ]


def _row_totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return parameter_totals((r["dtype"], math.prod(r["shape"] or ()), r["bytes"]) for r in rows)


def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    element = find_element(dtype)
    assert element is not None, "the manifest has been checked"
    return math.prod(shape) * element.size
