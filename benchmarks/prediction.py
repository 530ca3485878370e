"""Predictions beside bare onnxruntime, torch and torch.compile.

    python -m benchmarks.prediction [--rows lenet-b1,resnet18-b1] [--threads 1,2] [--quick]

writes prediction.json, prediction.md and prediction.svg. Ours is an exported predict job, run by
flow2onnx_runtime's Predictor.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.contest import Contestant, absence, mkl_paths
from benchmarks.driver import COMMON_NOTES, Program, main
from benchmarks.environments import ROOT, interpreter
from benchmarks.workloads import PREDICTION

NOTES = (
    "A prediction takes an array in and gives the logits as an array. A peer is timed only if its "
    "logits are as large as ours on the mean, on three batches.",
    "Ours is an exported predict job run by flow2onnx_runtime's Predictor with "
    "Options(native=True), in a process without the compiler. The row flow2onnx is without native "
    "operators. Bare onnxruntime runs the same file, and torch's own export of the network.",
)


def contestants(row: str, folder: str, *, takes_all: bool) -> Iterator[Contestant]:
    """Who takes part in a row; the models are exported to `folder` by processes of their own."""
    ours, failure = _exported("flow2onnx", row, folder)
    if interpreter("flow2onnx:native"):
        yield Contestant("flow2onnx, native", "predictor:native", model=ours, reason=failure)
    yield Contestant("flow2onnx", "predictor", model=ours, reason=failure)
    yield Contestant("onnxruntime, our file", "onnxruntime", model=ours, reason=failure)
    theirs, failure = _exported("torch", row, folder)
    yield Contestant("onnxruntime, torch's file", "onnxruntime", model=theirs, reason=failure)
    for suffix, intel in mkl_paths():
        yield Contestant(f"torch, {suffix}", "torch", intel)
        yield Contestant(f"torch channels last, {suffix}", "torch:channels_last", intel)
        yield Contestant(f"torch.compile, {suffix}", "torch:compile", intel)


def _exported(module: str, row: str, folder: str) -> tuple[str, str]:
    """The file of a network, and why there is none."""
    missing = absence(Contestant(module, module))
    if missing:
        return "", missing
    target = Path(folder, f"{module}.onnx")
    name = PREDICTION[row][1]
    command = [str(interpreter(module)), "-m", f"benchmarks.peers.{module}", name, str(target)]
    paths = [str(ROOT), str(ROOT / "runtime" / "python")]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    words = done.stderr.strip().splitlines() or ["without a word"]
    return str(target), "" if target.exists() else f"its export failed: {words[-1][:200]}"


PROGRAM = Program("prediction", "Predictions", PREDICTION, (*NOTES, *COMMON_NOTES), contestants)

if __name__ == "__main__":
    main(PROGRAM, __doc__ or "")
