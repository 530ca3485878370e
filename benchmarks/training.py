"""Whole training steps beside torch, torch.compile, JAX, onnxruntime-training and OneFlow.

    python -m benchmarks.training [--rows mlp,lenet] [--threads 1,2] [--quick] [--out DIR]
    python -m benchmarks.training --mine MODULE:job [--twin MODULE:function]    # of your own

writes training.json, training.md and training.svg. `python -m benchmarks.environments` makes the
peers' environments; one that is missing has a row that says so. A job of one's own is measured by
`benchmarks.mine`, which see.
"""

import sys
from collections.abc import Iterator

from benchmarks import mine
from benchmarks.contest import Contestant, mkl_paths
from benchmarks.driver import COMMON_NOTES, Program, main
from benchmarks.environments import interpreter
from benchmarks.workloads import TRAINING

CONVOLUTIONS = ("lenet", "resnet18", "resnet50", "depthwise", "unet", "dilated", "gan")
# OneFlow's kernels for processors take 3 to 60 seconds for a step of the others.
TABLES = ("wide", "dlrm")
FOR_ONEFLOW = ("mlp", "lenet", "wide")
NOTES = (
    "Ours is flow2onnx with its native operators, where `benchmarks.environments native` has put "
    "them; the row flow2onnx is without: standard operators only, as in exported files.",
    "A step is forward, backward and update. It reads its loss, and takes the next of four "
    "batches.",
    "A peer is timed only if its losses of three steps on one batch are ours, from the same first "
    "values, to 1e-4 (ResNets 3e-2, encoders 1e-3). (*): the peer has no such update, so that "
    "only the cost compares.",
    "The first step is tracing, compiling and one step, without the imports beside it; that of "
    "torch.compile is given where its cache was empty. Peak memory is that of the whole process.",
)


def contestants(row: str, folder: str, *, takes_all: bool) -> Iterator[Contestant]:
    """Who takes part in a row; the first is ours."""
    if interpreter("flow2onnx:native"):
        yield Contestant("flow2onnx, native", "flow2onnx:native")
    yield Contestant("flow2onnx", "flow2onnx")
    for suffix, intel in mkl_paths():
        yield Contestant(f"torch, {suffix}", "torch", intel)
        if row in CONVOLUTIONS:
            yield Contestant(f"torch channels last, {suffix}", "torch:channels_last", intel)
        if row in TABLES:
            yield Contestant(f"torch sparse, {suffix}", "torch:sparse", intel)
        yield Contestant(f"torch.compile, {suffix}", "torch:compile", intel)
    yield Contestant("JAX", "jax")
    yield Contestant("onnxruntime-training", "ort_training")
    reason = "" if takes_all or row in FOR_ONEFLOW else "not run: seconds a step; --all runs it"
    yield Contestant("OneFlow 0.8", "oneflow", reason=reason)


PROGRAM = Program("training", "Training steps", TRAINING, (*NOTES, *COMMON_NOTES), contestants)

if __name__ == "__main__":
    if any(word.partition("=")[0] == "--mine" for word in sys.argv):
        mine.main()
    else:
        main(PROGRAM, __doc__ or "")
