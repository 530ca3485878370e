"""What a step of each network asks of the GPU, over the stand-in; writes docs/launches.md.

    LD_LIBRARY_PATH=FOLDER python -m tests.gpu.launches

FOLDER is that of `tests.gpu.standin.build`. `tests/gpu/test_launches.py` lets no number grow.
"""

import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np

import flow2onnx as flow
from benchmarks.roofline import costs
from flow2onnx.api.session import current_session
from tests.gpu import standin
from tests.models.zoo import ROWS

PAGE = Path(__file__).parents[2] / "docs" / "launches.md"
# Names of the zoo; those of the second line take some ten seconds each.
QUICK = ("mlp", "lenet", "alexnet", "bert", "gpt", "wide_deep")
SLOW = ("vgg16", "resnet50", "mobilenet_v2", "yolov3")
HALVES = ("lenet", "bert", "resnet50")
_HEAD = """# Launches and bytes of a step on CUDA

What one train step asks of the GPU, for the small networks of `tests/models/zoo.py`, whose graphs
have the nodes of the full-size ones. `python -m tests.gpu.launches` writes this page over the
stand-in for CUDA, and `tests/gpu/test_launches.py` lets no number grow. **No GPU has seen these
numbers**: launches and copies are counted by the stand-in, the bytes of kernels are computed by
`benchmarks/roofline.py` from shapes, each operand read and each result written once.

| network | launches | kernels in them | bytes of kernels | bytes fed | fetched | copied there |
|---|--:|--:|--:|--:|--:|--:|
"""


@dataclass(frozen=True, kw_only=True)
class Load:
    """One step: launches of the host, kernels that they run, and bytes by kind."""

    launches: int
    kernels: int
    moved: int
    fed: int
    fetched: int
    copied: int


def names(slow: bool) -> Iterator[tuple[str, str]]:
    """The rows of the page: a network, and in which half precision it computes, if any."""
    chosen = QUICK + SLOW if slow else QUICK
    yield from ((name, "") for name in chosen)
    yield from ((name, "float16") for name in HALVES if name in chosen)


def load_of(name: str, half: str = "") -> Load:
    """The load of a step of a network, once it is recorded."""
    flow.clear_default_session()
    row = next(row for row in ROWS if row.name == name)
    train, feed = row.small().train, row.feed()
    train.spec.config.enable_auto_mixed_precision(bool(half))  # networks share a configuration
    if half:
        train.spec.config.runtime.mixed_precision_dtype(half)
    standin.reset()
    for _ in range(3):
        train(*feed)
    assert not standin.report()["violations"], standin.report()["violations"]
    standin.reset()
    train(*feed)
    counts = standin.report()
    assert counts["to_device"]["bytes"] == sum(np.asarray(a).nbytes for a in feed)
    graph = current_session().opening(train.spec.name).model.graph
    return Load(
        launches=counts["graph_launches"] + counts["kernels"],
        kernels=counts["graph_kernels"] + counts["kernels"],
        moved=sum(cost.count * cost.bytes for cost in costs(graph, "tf32")),
        fed=counts["to_device"]["bytes"],
        fetched=counts["to_host"]["bytes"],
        copied=counts["on_device"]["bytes"],
    )


def label(name: str, half: str) -> str:
    """The first cell of a row."""
    return f"{name}, {half}" if half else name


def written() -> dict[str, Load]:
    """The rows of the page by their first cell."""
    keys = [field.name for field in fields(Load)]
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(keys) + 1 and cells[1].replace(",", "").isdigit():
            numbers = (int(cell.replace(",", "")) for cell in cells[1:])
            found[cells[0]] = Load(**dict(zip(keys, numbers, strict=True)))
    return found


def main() -> None:
    """Measure every row and write the page."""
    if not standin.is_loaded():
        sys.exit("the stand-in is not in LD_LIBRARY_PATH")
    text = _HEAD
    for name, half in names(slow=True):
        load = load_of(name, half)
        print(label(name, half), load, flush=True)
        text += f"| {label(name, half)} | {' | '.join(f'{n:,}' for n in astuple(load))} |\n"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
