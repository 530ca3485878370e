"""One peer of a benchmark in a process of its own: it sets up a workload and runs blocks of steps.

Started by `training.py`: reads "run N" lines, answers each with the seconds that N steps took. The
first answer is a line of JSON: seconds from imports to the end of the first step, and the losses of
three steps from the common start, by which the parent sees that all peers do the same arithmetic.
"""

import json
import resource
import sys
import time
from collections.abc import Callable

import numpy as np

BATCH = 100
RATE = 0.1


def parameters(workload: str) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)

    def normal(*shape: int) -> np.ndarray:
        return (draw.standard_normal(shape) * 0.05).astype(np.float32)

    if workload == "mlp":
        shapes = {"hidden": (512, 784), "output": (10, 512)}
    else:
        shapes = {"conv1": (32, 1, 5, 5), "conv2": (64, 32, 5, 5), "dense1": (512, 3136),
                  "dense2": (10, 512)}  # fmt: skip
    values = {}
    for name, shape in shapes.items():
        values[f"{name}-weight"] = normal(*shape)
        values[f"{name}-bias"] = np.zeros(shape[0], np.float32)
    return values


def data() -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(2)
    return [
        (draw.random((BATCH, 1, 28, 28), np.float32), draw.integers(0, 10, BATCH).astype(np.int32))
        for _ in range(8)
    ]


def flow2onnx_step(workload: str) -> Callable[[int], float]:
    import flow2onnx as flow
    import flow2onnx.typing as tp

    def mlp(images):  # type: ignore[no-untyped-def]
        pixels = flow.reshape(images, [BATCH, -1])
        hidden = flow.layers.dense(pixels, 512, activation=flow.nn.relu, name="hidden")
        return flow.layers.dense(hidden, 10, name="output")

    def lenet(x):  # type: ignore[no-untyped-def]
        for i, channels in enumerate((32, 64), 1):
            x = flow.layers.conv2d(
                x, channels, 5, padding="SAME", activation=flow.nn.relu, name=f"conv{i}"
            )
            x = flow.nn.max_pool2d(x, 2, 2, "SAME")
        flat = flow.reshape(x, [BATCH, -1])
        hidden = flow.layers.dense(flat, 512, activation=flow.nn.relu, name="dense1")
        return flow.layers.dense(hidden, 10, name="dense2")

    network = {"mlp": mlp, "lenet": lenet}[workload]

    @flow.global_function(type="train")
    def step(
        images: tp.Numpy.Placeholder((BATCH, 1, 28, 28)),
        labels: tp.Numpy.Placeholder((BATCH,), dtype=flow.int32),
    ) -> tp.Numpy:
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images))
        rate = flow.optimizer.PiecewiseConstantScheduler([], [RATE])
        flow.optimizer.SGD(rate, momentum=0).minimize(loss)
        return loss

    if threads := _threads():
        flow.config.compute_thread_pool_size(threads)
    flow.load_variables(parameters(workload))
    batches = data()
    return lambda i: float(step(*batches[i % len(batches)]).mean())


def torch_step(workload: str, channels_last: bool = False) -> Callable[[int], float]:
    import torch
    from torch import nn

    torch.set_num_threads(_threads() or torch.get_num_threads())
    if workload == "mlp":
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    else:
        model = nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10),
        )  # fmt: skip
    with torch.no_grad():
        for slot, value in zip(model.parameters(), parameters(workload).values(), strict=True):
            slot.copy_(torch.from_numpy(value))
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = model.to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    batches = [(torch.from_numpy(x), torch.from_numpy(y).long()) for x, y in data()]

    def step(i: int) -> float:
        images, labels = batches[i % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(images.to(memory_format=layout)), labels)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


PEERS: dict[str, Callable[[str], Callable[[int], float]]] = {
    "flow2onnx": flow2onnx_step,
    "torch": torch_step,
    "torch-channels-last": lambda workload: torch_step(workload, channels_last=True),
}


def _threads() -> int:
    import os

    return int(os.environ.get("OMP_NUM_THREADS", "0"))


def main(peer: str, workload: str) -> None:
    started = time.perf_counter()
    step = PEERS[peer](workload)
    losses = [step(0)]
    first = time.perf_counter() - started
    losses += [step(i) for i in (1, 2)]
    print(json.dumps({"first_step_s": first, "losses": losses}), flush=True)
    done = 3
    for line in sys.stdin:
        if line.startswith("end"):
            break
        count = int(line.split()[1])
        begun = time.perf_counter()
        for i in range(done, done + count):
            step(i)
        print(time.perf_counter() - begun, flush=True)
        done += count
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
