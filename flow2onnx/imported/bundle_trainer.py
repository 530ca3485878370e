"""Trainers of models that were imported: the facts they know of a step, and one in a moment."""

import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

from flow2onnx_runtime import Options, Trainer
from flow2onnx_runtime.manifest import DRAWS_ANEW, RATE

from flow2onnx.compile import CompiledJob
from flow2onnx.graph.nodes import RANDOM_OPERATORS
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.combined import CombinedOptimizer

__all__ = ["step_facts", "temporary_trainer"]


def step_facts(optimizer: Optimizer, step: CompiledJob) -> dict[str, str]:
    """The facts about a step that a trainer should know, as texts for the manifest."""
    rate = None if isinstance(optimizer, CombinedOptimizer) else optimizer.scheduler.constant()
    draws = any(node.op_type in RANDOM_OPERATORS for node in step.model.graph)
    facts = {RATE: None if rate is None else repr(rate), DRAWS_ANEW: "true" if draws else None}
    return {name: text for name, text in facts.items() if text is not None}


def temporary_trainer(
    save: Callable[[Path], object], options: Options | None, beside: Path | None = None
) -> Trainer:
    """A trainer of the bundle that `save` writes, in a temporary folder that goes with it.

    The folder is hidden inside the folder `beside`, or stands where temporary files do.
    """
    prefix = "flow2onnx-" if beside is None else ".flow2onnx-"
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=beside))
    try:
        save(folder / "bundle")
        trainer = Trainer(folder / "bundle", options or Options())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(trainer, shutil.rmtree, folder, ignore_errors=True)
    return trainer
