"""One side of the sweep of convolutions: flow2onnx, natively or in standard operators, or torch.

    python -m benchmarks.convolution_worker flow2onnx --threads 1

It first writes a record of its versions. Then it reads lines: a record of a convolution and a pass,
which it answers with a record of a few elements of the result and of how it is computed; "run N",
answered by the seconds that N passes took, by the clock and of processors; "end".
"""

import argparse
import hashlib
import json
import math
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.convolution_shapes import Convolution
from benchmarks.worker import confine, version_of

PASSES = ("forward", "input gradient", "weight gradient")
GRADIENTS = {PASSES[1]: "Conv.dX", PASSES[2]: "Conv.dW"}  # the lowerings that have forms
Array = np.ndarray[Any, np.dtype[Any]]
Pass = Callable[[], Any]
_NUMBERS = 65521  # a prime: no axis of a tensor repeats them
_SAMPLES = 61


def operands(shape: Convolution) -> tuple[Array, Array, Array]:
    """Input, weights and gradient of the output: the same on both sides."""
    numbers = np.random.default_rng(0).random(_NUMBERS, np.float32) - np.float32(0.5)
    shapes = (shape.input_shape, shape.weight_shape, shape.output_shape)
    x, w, g = (
        np.resize(np.roll(numbers, 1000 * i), math.prod(s)).reshape(s) for i, s in enumerate(shapes)
    )
    return x, w, g


class Ours:
    """A graph of one pass as a train job has it: after all passes, with native operators."""

    VERSIONS = ("onnxruntime", "onnx", "onnx-ir", "numpy")

    def __init__(self, threads: int) -> None:
        from flow2onnx_native.library import open_library

        self.threads, self.library = threads, open_library()
        assert "Conv" in self.library.operators, "without oneDNN there is nothing to measure"

    def built(self) -> dict[str, str]:
        """The digest that tells this build of the library from others."""
        digest = hashlib.sha256(Path(self.library.path).read_bytes()).hexdigest()
        return {"native operators": digest[:12]}

    def prepare(self, shape: Convolution, which: str) -> tuple[Pass, str]:
        """A pass, and the operators that compute it."""
        from flow2onnx_native.pipeline import rewrite_training
        from flow2onnx_runtime.extensions import GraphAnalysis

        from flow2onnx.analysis.in_place import index_origin, late_readers
        from flow2onnx.graph.model import model_bytes, model_of

        graph = pass_graph(shape, which)
        model, _ = rewrite_training(
            model_of(graph), self.library.operators, self.threads,
            GraphAnalysis(late_readers, index_origin), winograd=True,
            avx512=self.library.uses_avx512,
        )  # fmt: skip
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.register_custom_ops_library(self.library.path)
        return open_pass(model_bytes(model), options, self.threads, shape), _operators(model)


class Standard:
    """A graph of one pass in standard operators, in the form that stands behind the pass.

    "input gradient: phases" asks for that form where it is valid.
    """

    VERSIONS = ("onnxruntime", "onnx", "onnx-ir", "numpy")

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def built(self) -> dict[str, str]:
        """Nothing: the versions tell it from others."""
        return {}

    def prepare(self, shape: Convolution, which: str) -> tuple[Pass, str]:
        """A pass, and the operators that compute it."""
        import onnxruntime as ort

        from flow2onnx.graph.model import model_bytes, model_of
        from flow2onnx.lowering.forms import Picks, choose_forms

        which, _, form = which.partition(": ")
        with choose_forms(Picks(dict.fromkeys(GRADIENTS.values(), form))):
            model = model_of(pass_graph(shape, which))
        step = open_pass(model_bytes(model), ort.SessionOptions(), self.threads, shape)
        return step, _operators(model)


def pass_graph(shape: Convolution, which: str) -> Any:
    """The graph of one pass as a train job has it, after all passes; its result is "result"."""
    from flow2onnx.autodiff import gradients
    from flow2onnx.dtypes import float32
    from flow2onnx.graph import Builder
    from flow2onnx.passes import run_passes

    b = Builder()
    shapes = (shape.input_shape, shape.weight_shape, shape.output_shape)
    x, w, g = (b.input(n, s, float32) for n, s in zip("xwg", shapes, strict=True))
    pads = [*shape.pad, *shape.pad]
    steps = {"strides": shape.stride, "dilations": shape.dilation, "pads": pads,
             "group": shape.groups}  # fmt: skip
    if shape.is_transposed:
        y = b.ConvTranspose(x, w, **steps, output_padding=shape.output_pad)
    else:
        y = b.Conv(x, w, **steps)
    wanted = x if which == PASSES[1] else w
    b.output(y if which == PASSES[0] else gradients(b, {y: g}, [wanted])[wanted], "result")
    run_passes(b.graph)
    return b.graph


def open_pass(model: bytes, options: Any, threads: int, shape: Convolution) -> Pass:
    """A call of a pass's model on the operands of its shape."""
    import onnxruntime as ort

    options.intra_op_num_threads, options.log_severity_level = threads, 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in zip("xwg", operands(shape), strict=True):
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))

    def run() -> Any:
        binding.bind_output("result", "cpu")  # made anew, as torch does
        session.run_with_iobinding(binding)
        return binding.get_outputs()[0].numpy

    return run


def _operators(model: Any) -> str:
    """The operators of a model, the most frequent first; ours have a star."""
    counts = Counter(map(_name, model.graph))
    return ", ".join(f"{n} {name}" if n > 1 else name for name, n in counts.most_common())


def _name(node: Any) -> str:
    ours = "*" if node.domain else ""
    if "method" not in node.attributes:
        return f"{node.op_type}{ours}"
    from flow2onnx_native.abi import Method

    return f"{node.op_type}{ours} by {Method(node.attributes['method'].as_int()).name}"


class Torch:
    """torch's own functions, without the walk of its autograd."""

    VERSIONS = ("torch", "numpy")

    def __init__(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)

    def built(self) -> dict[str, str]:
        """Nothing: its version tells it from others."""
        return {}

    def prepare(self, shape: Convolution, which: str) -> tuple[Pass, str]:
        """A pass, and no word on how."""
        import torch

        x, w, g = (torch.from_numpy(a) for a in operands(shape))
        steps = (
            shape.stride, shape.pad, shape.dilation, shape.is_transposed, shape.output_pad,
            shape.groups,
        )  # fmt: skip
        forward = torch.ops.aten.convolution.default
        backward = torch.ops.aten.convolution_backward.default
        wanted = [which == PASSES[1], which == PASSES[2], False]

        def run() -> Any:
            with torch.inference_mode():
                if which == PASSES[0]:
                    return forward(x, w, None, *steps).numpy
                made = backward(g, x, w, None, *steps, wanted)
                return made[PASSES.index(which) - 1].numpy

        return run, ""


SIDES: dict[str, Callable[[int], Any]] = {
    "flow2onnx": Ours, "standard": Standard, "torch": Torch,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--offset", type=int, default=os.getpid())
    args = parser.parse_args()
    confine(args.threads, args.offset)
    side = SIDES[args.side](args.threads)
    packages = {p: version_of(p) for p in side.VERSIONS} | side.built()
    _tell(json.dumps({"versions": {"python": platform.python_version(), **packages}}))
    serve(side)


def serve(side: Any) -> None:
    """Answer lines until there are no more."""
    step: Pass = lambda: None  # noqa: E731
    for line in sys.stdin:
        if line.startswith("end"):
            return
        if line.startswith("run"):
            wall, busy = time.perf_counter(), time.process_time()
            for _ in range(int(line.split()[1])):
                step()
            _tell(f"{time.perf_counter() - wall} {time.process_time() - busy}")
            continue
        asked = json.loads(line)
        try:
            step, how = side.prepare(Convolution.of_record(asked["convolution"]), asked["pass"])
            result = np.asarray(step()(), np.float64).ravel()
        except Exception as error:  # what a library raises has no common base
            _tell(json.dumps({"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}))
            continue
        places = np.linspace(0, result.size - 1, _SAMPLES).astype(int)
        _tell(json.dumps({"sample": [np.abs(result).mean(), *result[places]], "how": how}))


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
