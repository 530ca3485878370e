"""Ceilings of this machine: products of matrices, and bytes of memory a second.

    python -m benchmarks.ceilings [--quick] [--threads 1]

writes a line of JSON: by library, FLOP/s by precision ("float32", "tf32", "float16", "bfloat16")
and bytes/s of the GPU, or the text of why there are none. onnxruntime multiplies by cuBLAS, as
torch does, which is asked too where it is; the best of both is the ceiling. Each number is the best
of five runs of eight products, or eight passes over a large tensor, one after another. With
`--threads` it writes those of so many processors in float32, and as "launch" the time of a node
that computes next to nothing.
"""

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Callable
from typing import Any

from benchmarks.roofline import Ceilings

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
_CHAIN, _RUNS = 8, 5
_NODES = 200  # that compute next to nothing
_Numbers = dict[str, float]  # by precision, and "bandwidth"


def best_of(found: dict[str, _Numbers | str]) -> Ceilings:
    """The best numbers of all libraries; raises ValueError with their words if there are none."""
    numbers = [told for told in found.values() if not isinstance(told, str)]
    if not numbers:
        raise ValueError("; ".join(f"{library}: {told}" for library, told in found.items()))
    best = {key: max(one.get(key, 0.0) for one in numbers) for key in (*PRECISIONS, "bandwidth")}
    return Ceilings({precision: best[precision] for precision in PRECISIONS}, best["bandwidth"])


def measure(*, quick: bool) -> dict[str, _Numbers | str]:
    """The numbers of each library, or why it has none."""
    side, size = (64, 1 << 12) if quick else (8192, 1 << 28)
    found: dict[str, _Numbers | str] = {}
    for library, numbers in (("onnxruntime", by_onnxruntime), ("torch", by_torch)):
        try:
            found[library] = numbers(side, size)
        except Exception as error:  # a library is missing, or has no GPU, in ways of its own
            found[library] = f"{type(error).__name__}: {error}"[:300]
    return found


def by_onnxruntime(side: int, size: int) -> _Numbers:
    """By the CUDA provider: products of `side`², and a tensor of `size` float32 negated."""
    found = {}
    for precision in PRECISIONS:
        run = _session_run(_chain("MatMul", precision, [side, side]), _on_cuda(precision), "cuda")
        found[precision] = _CHAIN * 2 * side**3 / _best_seconds(run)
    run = _session_run(_chain("Neg", "float32", [size]), _on_cuda("float32"), "cuda")
    return found | {"bandwidth": _CHAIN * 2 * 4 * size / _best_seconds(run)}


def of_processors(threads: int, *, quick: bool = False) -> Ceilings:
    """The ceilings of so many threads, as the runtime's own kernels and numpy's reach them."""
    from flow2onnx_runtime import Options

    side, size = (64, 1 << 12) if quick else (1536, 1 << 25)
    options = Options(optimization="disable", intra_op_threads=threads)

    def seconds(operator: str, shape: list[int], count: int = _CHAIN) -> float:
        model = _chain(operator, "float32", shape, count)
        return _best_seconds(_session_run(model, options, "cpu"))

    product = min(seconds("MatMul", [side, side]) / _CHAIN, _numpy_seconds(side))
    bandwidth = _CHAIN * 2 * 4 * size / seconds("Neg", [size])
    few, many = seconds("Neg", [1], 1), seconds("Neg", [1], 1 + _NODES)
    return Ceilings({"float32": 2 * side**3 / product}, bandwidth, max(many - few, 1e-9) / _NODES)


def _numpy_seconds(side: int) -> float:
    """The least seconds of numpy's product, which has as many threads as processors it may use."""
    import numpy as np

    x, y = (np.random.default_rng(0).random((side, side), np.float32) for _ in range(2))
    return _best_seconds(lambda: np.matmul(x, x, out=y))


def by_torch(side: int, size: int) -> _Numbers:
    """The same by torch."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device, or a build without CUDA")
    found = {}
    for precision in PRECISIONS:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        kind = getattr(torch, "float32" if precision == "tf32" else precision)
        x, w = (torch.randn(side, side, device="cuda").to(kind) for _ in range(2))
        y = torch.empty_like(x)
        run = _torch_run(torch, lambda x=x, w=w, y=y: torch.mm(x, w, out=y))
        found[precision] = _CHAIN * 2 * side**3 / _best_seconds(run)
    big = torch.zeros(size, device="cuda")
    other = torch.empty_like(big)
    run = _torch_run(torch, lambda: other.copy_(big))
    return found | {"bandwidth": _CHAIN * 2 * 4 * size / _best_seconds(run)}


def _best_seconds(run: Callable[[], None]) -> float:
    """The shortest of some runs, after one that warms up."""
    run()
    times = []
    for _ in range(_RUNS):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times)


def _torch_run(torch: Any, act: Callable[[], Any]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(_CHAIN):
            act()
        torch.cuda.synchronize()

    return run


def _chain(operator: str, precision: str, shape: list[int], count: int = _CHAIN) -> bytes:
    """A model of an operator applied to its own result again and again, from float32."""
    from onnx import TensorProto, helper

    half = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}.get(precision)
    kind = half or TensorProto.FLOAT
    given = ["x", "w"] if operator == "MatMul" else ["x"]
    names = [f"{name}_half" if half else name for name in given]
    nodes = [helper.make_node("Cast", [g], [n], to=kind) for g, n in zip(given, names) if half]  # noqa: B905
    for i in range(count):
        result = "z" if i == count - 1 else f"y{i}"
        nodes.append(helper.make_node(operator, names, [result]))
        names[0] = result
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in given]
    outputs = [helper.make_tensor_value_info("z", kind, shape)]
    graph = helper.make_graph(nodes, operator, inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content


def _on_cuda(precision: str) -> Any:
    from flow2onnx_runtime import Options

    cuda = ("CUDAExecutionProvider", {"use_tf32": str(int(precision == "tf32"))})
    return Options(providers=(cuda,), optimization="disable")


def _session_run(model: bytes, options: Any, device: str) -> Callable[[], None]:
    """One run of a model with what it reads and writes on the device."""
    import numpy as np
    import onnxruntime as ort
    from flow2onnx_runtime import open_session

    session = open_session(model, options)
    binding, draw = session.io_binding(), np.random.default_rng(0)
    for given in session.get_inputs():
        # numbers of variance 1/side beside those of variance 1 keep the size of their products
        scale = np.float32(1.0 if given.name == "x" else given.shape[0] ** -0.5)
        array = draw.standard_normal(given.shape, np.float32) * scale
        binding.bind_ortvalue_input(given.name, ort.OrtValue.ortvalue_from_numpy(array, device, 0))
    binding.bind_output("z", device)

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small matrices: a rehearsal")
    parser.add_argument("--threads", type=int, help="of processors, in place of a GPU")
    args = parser.parse_args()
    if args.threads is None:
        print(json.dumps(measure(quick=args.quick)))
        return
    from benchmarks.worker import confine

    confine(args.threads, os.getpid())
    print(json.dumps(dataclasses.asdict(of_processors(args.threads, quick=args.quick))))


if __name__ == "__main__":
    main()
