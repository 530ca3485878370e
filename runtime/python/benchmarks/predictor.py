"""The cost of a prediction beyond the runtime's own call: Predictor beside InferenceSession.run.

Run: python benchmarks/predictor.py

The ways take turns in blocks; given are the medians of the blocks, and how they compare.
"""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime as ort
from onnx import parser

from flow2onnx_runtime import Options, Predictor

BLOCKS = 15
HEADER = '<ir_version: 10, opset_import: ["" : 21]>'
# One multiplication: next to no work, so that what surrounds it shows.
MODEL = """model (float[{batch},{width}] x) => (float[{batch},{width}] y) <float two = {{2}}>
{{ y = Mul(x, two) }}"""
CASES = ((1, 10, 3000), (8, 784, 2000), (256, 784, 200), (256, 4096, 60))


def sessions(batch: int | str, width: int) -> tuple[ort.InferenceSession, Predictor]:
    text = MODEL.format(batch=batch, width=width)
    model = parser.parse_model(HEADER + text).SerializeToString()
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    bare = ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    return bare, Predictor(model, Options(intra_op_threads=1))


def medians(ways: dict[str, Callable[[], object]], calls: int) -> dict[str, float]:
    """Microseconds of a call of each way."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(BLOCKS):
        for name, call in ways.items():
            start = time.perf_counter()
            for _ in range(calls):
                call()
            times[name].append((time.perf_counter() - start) / calls * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def calls(batch: int, width: int, is_open: bool, count: int) -> None:
    bare, predictor = sessions("N" if is_open else batch, width)
    x = np.random.default_rng(1).random((batch, width), np.float32)
    out = {"y": np.empty_like(x)}
    found = medians(
        {
            "session.run": lambda: bare.run(None, {"x": x}),
            "session.run again": lambda: bare.run(None, {"x": x}),
            "predictor(x)": lambda: predictor(x),
            "predictor.run(x, out=)": lambda: predictor.run(x, out=out),
            "predictor.submit(x)": lambda: predictor.submit(x).result(),
        },
        count,
    )
    base = found["session.run"]
    cells = [f"{name} {value:.1f} µs ({value / base:.2f})" for name, value in found.items()]
    print(f"{batch} x {width}, {'open' if is_open else 'fixed'} batch:  {'   '.join(cells)}")


def small_requests(threads: int = 8, requests: int = 2000) -> None:
    """Rows one at a time from several threads, each through a layer of some size."""
    draws = np.random.default_rng(1)
    text = f"""{HEADER} layer (float[N,512] x, float[512,512] w) => (float[N,512] y)
    {{ y = MatMul(x, w) }}"""
    model = parser.parse_model(text)
    weights = draws.random((512, 512), np.float32)
    from onnx import numpy_helper

    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    del model.graph.input[1]
    predictor = Predictor(model.SerializeToString(), Options(intra_op_threads=1))
    x = draws.random((1, 512), np.float32)

    def rate(call: Callable[[], object]) -> float:
        with ThreadPoolExecutor(threads) as pool:
            start = time.perf_counter()
            list(pool.map(lambda _: call(), range(requests)))
            return requests / (time.perf_counter() - start)

    with predictor.batched(max_batch=threads) as batched:
        alone, joined = [], []
        for _ in range(5):
            alone.append(rate(lambda: predictor(x)))
            joined.append(rate(lambda: batched(x)))
    ratio = statistics.median(joined) / statistics.median(alone)
    print(f"{threads} threads, a row each: batched answers {ratio:.2f} times as many a second")


def main() -> None:
    print(f"onnxruntime {ort.__version__}, one thread; in brackets, times session.run")
    for batch, width, count in CASES:
        for is_open in (False, True):
            calls(batch, width, is_open, count)
    small_requests()


if __name__ == "__main__":
    main()
