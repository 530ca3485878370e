"""The cost of a step beyond the runtime's own run: Trainer.step beside bare bindings.

Run: python benchmarks/overhead.py
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import parser

from flow2onnx_runtime import (
    FileEntry,
    Manifest,
    Options,
    Program,
    StateSpec,
    TensorSpec,
    Trainer,
)

OPTIONS = Options(intra_op_threads=1)

# A dense layer of `hidden` units and a softmax, SGD; 784 inputs as in the seeds' network.
STEP = """<ir_version: 10, opset_import: ["" : 21]>
step (float[{batch},784] x, int64[{batch}] label, float[784,{hidden}] w1, float[{hidden}] b1,
      float[{hidden},10] w2, float[10] b2)
 => (float loss, float[784,{hidden}] "next/w1", float[{hidden}] "next/b1",
     float[{hidden},10] "next/w2", float[10] "next/b2")
 <float rate = {{-0.1}}, int64[1] rows = {{0}}, float zero = {{0}}, float count = {{{batch}}},
  int64 ten = {{10}}, float[2] off_on = {{0, 1}}>
{{
 a = MatMul(x, w1)
 h0 = Add(a, b1)
 h = Relu(h0)
 o = MatMul(h, w2)
 z = Add(o, b2)
 loss, logp = SoftmaxCrossEntropyLoss(z, label)
 p = Exp(logp)
 hot = OneHot(label, ten, off_on)
 d0 = Sub(p, hot)
 d = Div(d0, count)
 ht = Transpose<perm=[1,0]>(h)
 gw2 = MatMul(ht, d)
 gb2 = ReduceSum<keepdims=0>(d, rows)
 w2t = Transpose<perm=[1,0]>(w2)
 gh = MatMul(d, w2t)
 on0 = Greater(h0, zero)
 on = Cast<to=1>(on0)
 ga = Mul(gh, on)
 xt = Transpose<perm=[1,0]>(x)
 gw1 = MatMul(xt, ga)
 gb1 = ReduceSum<keepdims=0>(ga, rows)
 u1 = Mul(gw1, rate)
 u2 = Mul(gb1, rate)
 u3 = Mul(gw2, rate)
 u4 = Mul(gb2, rate)
 "next/w1" = Add(w1, u1)
 "next/b1" = Add(b1, u2)
 "next/w2" = Add(w2, u3)
 "next/b2" = Add(b2, u4)
}}"""


INIT = """<ir_version: 10, opset_import: ["" : 21]>
init () => (float[784,{hidden}] w1, float[{hidden}] b1, float[{hidden},10] w2, float[10] b2)
{{
 w1 = RandomNormal<shape=[784,{hidden}], scale=0.05, seed=1.0>()
 b1 = RandomNormal<shape=[{hidden}], scale=0.05, seed=2.0>()
 w2 = RandomNormal<shape=[{hidden},10], scale=0.05, seed=3.0>()
 b2 = RandomNormal<shape=[10], scale=0.05, seed=4.0>()
}}"""


def trainer(folder: Path, batch: int, hidden: int) -> Trainer:
    for name, text in (("init.onnx", INIT), ("step.onnx", STEP)):
        model = parser.parse_model(text.format(batch=batch, hidden=hidden))
        (folder / name).write_bytes(model.SerializeToString())
    shapes = {"w1": (784, hidden), "b1": (hidden,), "w2": (hidden, 10), "b2": (10,)}
    Manifest(
        job="mlp",
        producer="benchmark",
        opset=21,
        files={name: FileEntry.of(folder / name) for name in ("init.onnx", "step.onnx")},
        state=tuple(StateSpec(name, shape, "float32") for name, shape in shapes.items()),
        feeds=(TensorSpec("x", (batch, 784), "float32"), TensorSpec("label", (batch,), "int64")),
        results=(TensorSpec("loss", (), "float32"),),
        losses=("loss",),
    ).write(folder)
    return Trainer(folder, OPTIONS)


def bare(folder: Path, x: np.ndarray, label: np.ndarray) -> Callable[[], None]:
    """Two bindings of another session of the same model, alternating; nothing fed or read."""
    other = Trainer(folder, OPTIONS)
    program = Program(folder / "step.onnx", other.state, OPTIONS.for_training())
    state, wrap = program.state, ort.OrtValue.ortvalue_from_numpy
    bindings = []
    for _ in (0, 1):
        binding = program.session.io_binding()
        binding.bind_ortvalue_input("x", wrap(x))
        binding.bind_ortvalue_input("label", wrap(label))
        binding.bind_ortvalue_output("loss", wrap(np.zeros((), np.float32)))
        for name in state:
            binding.bind_ortvalue_input(name, state.current(name))
            binding.bind_ortvalue_output(f"next/{name}", state.other(name))
        bindings.append(binding)
        state.mask ^= program.write_mask

    def run() -> None:
        program.session.run_with_iobinding(bindings[0])
        bindings.reverse()

    return run


def timed(call: Callable[[], object]) -> float:
    start = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - start) / 1000


def measure(batch: int, hidden: int, calls: int) -> dict[str, list[float]]:
    """CPU time of each call: bare, another bare as control, the trainer; in random order."""
    with tempfile.TemporaryDirectory() as folder:
        ours, rng = trainer(Path(folder), batch, hidden), np.random.default_rng(1)
        x, label = rng.random((batch, 784), np.float32), rng.integers(0, 10, batch)
        ways: dict[str, Callable[[], object]] = {
            "bare": bare(Path(folder), x, label),
            "bare again": bare(Path(folder), x, label),
            "Trainer.step": lambda: ours.step(x, label),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(calls):
            for name in rng.permutation(list(ways)):
                times[name].append(timed(ways[name]))
    return times


def main() -> None:
    print("CPU time of a call in µs, and how much more than bare run_with_iobinding")
    for batch, hidden, calls in ((1, 8, 4000), (8, 16, 4000), (100, 128, 1500), (100, 512, 500)):
        times = measure(batch, hidden, calls)
        for name, pick in (("median", statistics.median), ("least", min)):
            found = {way: pick(values) for way, values in times.items()}
            base = found["bare"]
            cells = [f"{way} {v:8.1f} {100 * (v / base - 1):+6.1f}%" for way, v in found.items()]
            print(f"batch {batch:3}, hidden {hidden:3}, {name:6}:  {'   '.join(cells)}")


if __name__ == "__main__":
    main()
