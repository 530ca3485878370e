"""ONNX Runtime without a server: threads that run a model one row at a time, in this process.

    python benchmarks/serving/bare.py MODEL.ONNX THREADS

Reads lines "CONCURRENCY SECONDS" and answers each with JSON. Speaks to `compare.py`.
"""

import json
import sys
import threading
import time

import numpy as np
import onnxruntime as ort


def _client(run, end: float, seconds: list[float]) -> None:
    now = time.perf_counter()
    while now < end:
        run()
        before, now = now, time.perf_counter()
        seconds.append(now - before)


def _measure(run, concurrency: int, duration: float) -> dict[str, object]:
    taken: list[list[float]] = [[] for _ in range(concurrency)]
    processor, began = time.process_time(), time.perf_counter()
    threads = [
        threading.Thread(target=_client, args=(run, began + duration, seconds)) for seconds in taken
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed, processor = time.perf_counter() - began, time.process_time() - processor
    seconds = [second for one in taken for second in one]
    return {"seconds": seconds, "elapsed": elapsed, "processor": processor}


def main() -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(sys.argv[2])
    session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    (item,) = session.get_inputs()
    shape = [size if isinstance(size, int) else 1 for size in item.shape]
    feeds = {item.name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    first = session.run(None, feeds)
    print(json.dumps([array.tobytes().hex() for array in first]), flush=True)
    for line in sys.stdin:
        concurrency, duration = line.split()
        found = _measure(lambda: session.run(None, feeds), int(concurrency), float(duration))
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
