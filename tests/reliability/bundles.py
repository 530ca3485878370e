"""The bundle that the stress programs train, and a batch for it."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime import Options, Trainer

BUNDLE = Path(__file__).parents[2] / "runtime" / "conformance" / "mlp" / "bundle"


def open_trainer(folder: Path = BUNDLE, **more: Any) -> Trainer:
    """A trainer on one thread, so that many fit beside each other."""
    return Trainer(folder, Options(intra_op_threads=1), **more)


def copy_bundle(folder: Path) -> Path:
    """The folder, which is a copy of the bundle now."""
    return Path(shutil.copytree(BUNDLE, folder))


def one_batch(trainer: Trainer) -> dict[str, Any]:
    """Numbers that any step may train on."""
    draws = np.random.default_rng(0)
    return {
        feed.name: (
            draws.random(feed.shape) if feed.dtype.kind == "f" else draws.integers(0, 3, feed.shape)
        ).astype(feed.dtype)
        for feed in trainer.feeds
    }
