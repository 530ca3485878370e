"""A bundle: its files are whole, a trainer opens it, and each of its models is right."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from flow2onnx_runtime import BundleError, FlowError, Manifest, Trainer
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.manifest import MANIFEST

from flow2onnx.errors import ProviderError
from flow2onnx.export.report import Check, Output, Report
from flow2onnx.export.verification.model import (
    Settings,
    restore_bfloat16,
    run_model,
    verify_file,
)
from flow2onnx.export.verification.reference import IncomparableError, Trial
from flow2onnx.onnx_io.read import ModelFile, open_model

__all__ = ["verify_bundle"]


def verify_bundle(folder: Path, settings: Settings) -> Report:
    """The checks of a bundle: its files, that it trains, each of its models, its first state."""
    manifest = Manifest.read(folder, verify=False)
    rows = [_files_row(folder, manifest)]
    outputs: list[Output] = []
    rows.append(_trainer_row(folder, settings))
    state = _first_state(folder, settings) if rows[-1].ok else {}
    for file, given in _models(manifest, state):
        more, compared_outputs = _in_bundle(folder, file, settings, given)
        rows += [replace(row, check=f"{file}: {row.check}") for row in more]
        outputs += [replace(o, name=f"{file}: {o.name}") for o in compared_outputs]
    if all(row.ok is not False for row in rows):
        rows.append(_init_row(folder, manifest, settings))
    return Report(str(folder), tuple(rows), tuple(outputs))


def _models(
    manifest: Manifest, state: Mapping[str, Array]
) -> Iterator[tuple[str, Mapping[str, Array]]]:
    """The models of a bundle, each with the state to try it on."""
    yield manifest.init, state
    yield manifest.step, state
    if manifest.accumulate is not None:
        count = manifest.accumulate.count
        yield manifest.accumulate.gradients, state
        # an update is by the mean over at least one batch
        yield manifest.accumulate.update, {**state, count: np.ones(1, np.int64)}
    for job in manifest.predict:
        yield job.file, state


def _files_row(folder: Path, manifest: Manifest) -> Check:
    try:
        manifest.verify(folder)
    except BundleError as error:
        return Check(MANIFEST, False, error.message)
    return Check(MANIFEST, True, f"{len(manifest.files)} files have their size and SHA-256")


def _trainer_row(folder: Path, settings: Settings) -> Check:
    try:
        trainer = Trainer(folder, settings.options)
    except ProviderError:
        raise
    except FlowError as error:
        return Check("trainer", False, error.message)
    return Check("trainer", True, f"opens on {settings.provider} at step {trainer.steps}")


def _first_state(folder: Path, settings: Settings) -> dict[str, Array]:
    trainer = Trainer(folder, settings.options)
    return {
        n: restore_bfloat16(v, trainer.state.element(n)) for n, v in trainer.state_dict().items()
    }


def _in_bundle(
    folder: Path, file: str, settings: Settings, state: Mapping[str, Array]
) -> tuple[list[Check], list[Output]]:
    try:
        return verify_file(folder / file, settings, state)
    except BundleError as error:
        return [Check("file", False, error.message)], []


def _init_row(folder: Path, manifest: Manifest, settings: Settings) -> Check:
    """Check what init computes against the manifest, and against its model with numpy's draws."""
    name = f"{manifest.init}: state"
    found = run_model(folder / manifest.init, {}, settings)
    wanted = {s.name: (s.shape, s.dtype) for s in manifest.state}
    have = {n: (v.shape, v.dtype.name) for n, v in found.items()}
    if have != wanted:
        return Check(name, False, f"computes {have}, the manifest says {wanted}")
    if any(not np.isfinite(v.astype(np.float64)).all() for v in found.values()):
        return Check(name, False, "computes values that are not finite")
    odd = _odd_distributions(open_model(folder / manifest.init), found, settings)
    if odd:
        return Check(name, False, f"mean or spread is not what the model says: {', '.join(odd)}")
    return Check(name, True, f"{len(found)} tensors of the manifest's shapes, means and spreads")


def _odd_distributions(
    stored: ModelFile, found: Mapping[str, Array], settings: Settings
) -> list[str]:
    try:
        trial = Trial(stored, {}, settings.seed, settings.budget)
        drawn = trial.whole()
    except IncomparableError:
        return []
    return (
        []
        if drawn is None
        else [n for n, v in found.items() if n in drawn and not _same_distribution(v, drawn[n])]
    )


def _same_distribution(a: Array, b: Array) -> bool:
    """True if two samples may be of one distribution: means and spreads within six deviations."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    spread, root = float(np.sqrt((x.var() + y.var()) / 2)), float(np.sqrt(max(x.size, 1)))
    apart = max(abs(x.mean() - y.mean()), abs(x.std() - y.std()))
    return bool(apart <= 9 * spread / root + 1e-6 * (1 + abs(y.mean())))
