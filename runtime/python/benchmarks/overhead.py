"""What a step costs beyond the runtime's own run: Trainer.step's Program beside bare bindings.

Run: python benchmarks/overhead.py
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import onnxruntime as ort
from onnx import parser

from flow2onnx_runtime import Options, Program, State

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


def program(batch: int, hidden: int) -> Program:
    state, rng = State(), np.random.default_rng(0)
    shapes = {"w1": (784, hidden), "b1": (hidden,), "w2": (hidden, 10), "b2": (10,)}
    for name, shape in shapes.items():
        state.add(name, (0.05 * rng.standard_normal(shape)).astype(np.float32))
    model = parser.parse_model(STEP.format(batch=batch, hidden=hidden)).SerializeToString()
    return Program(model, state, Options(intra_op_threads=1))


def bare(program: Program, x: np.ndarray, label: np.ndarray) -> Callable[[], None]:
    """Two bindings of the same session and buffers, alternating; nothing fed, nothing read."""
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


def timed(call: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times * 1e6


def main() -> None:
    print("batch hidden   bare µs   ours µs   more µs   more %   (taken in turns)")
    for batch, hidden, times in ((1, 8, 300), (8, 16, 200), (100, 128, 30), (100, 512, 10)):
        ours, rng = program(batch, hidden), np.random.default_rng(1)
        x, label = rng.random((batch, 784), np.float32), rng.integers(0, 10, batch)
        plain = bare(ours, x, label)
        pairs = [
            (timed(plain, times), timed(lambda run=ours.run, a=(x, label): run(a), times))
            for _ in range(60)
        ]
        for name, pick in (("median", statistics.median), ("least", min)):
            a, b = (pick(column) for column in zip(*pairs, strict=True))
            row = f"{batch:5} {hidden:6} {a:9.1f} {b:9.1f} {b - a:9.1f} {100 * (b / a - 1):8.1f}"
            print(row, name)


if __name__ == "__main__":
    main()
