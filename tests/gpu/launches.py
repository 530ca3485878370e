"""Launches and bytes of a step of each network, over the stand-in; writes docs/launches.md.

    LD_LIBRARY_PATH=FOLDER STANDIN_RUNS=0 python -m tests.gpu.launches [ROW ...] [--json]

FOLDER is that of `tests.gpu.standin.build`; flow2onnx-native is installed. Of ROWs, such as "bert,
native", the other lines stay; --json shows loads and writes nothing. `tests/gpu/test_launches.py`
lets no number grow.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, fields
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
NATIVE = (
    *((name, "") for name in ("mlp", "lenet", "bert", "gpt", "wide_deep")),
    *((name, "float16") for name in ("lenet", "bert", "gpt")),
)
_HEAD = """# Launches and bytes of a step on CUDA

What one train step asks of the GPU, for the small networks of `tests/models/zoo.py`, whose graphs
have the nodes of the full-size ones. `python -m tests.gpu.launches` writes this page over the
stand-in for CUDA, and `tests/gpu/test_launches.py` lets no number grow. **No GPU has seen these
numbers**: launches and copies are counted by the stand-in, the bytes of kernels are computed by
`benchmarks/roofline.py` from shapes, each operand read and each result written once. *Native*
steps have the operators of flow2onnx-native.

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


Key = tuple[str, str, bool]


def names(slow: bool) -> Iterator[Key]:
    """The rows of the page: a network, the half precision it computes in, if any, and if native."""
    chosen = QUICK + SLOW if slow else QUICK
    yield from ((name, "", False) for name in chosen)
    yield from ((name, "float16", False) for name in HALVES if name in chosen)
    yield from ((name, half, True) for name, half in NATIVE)


def load_of(name: str, half: str = "", is_native: bool = False) -> Load:
    """The load of a step of a network, once it is recorded."""
    flow.clear_default_session()
    row = next(row for row in ROWS if row.name == name)
    train, feed = row.small().train, row.feed()
    if half:
        train.spec.config.enable_auto_mixed_precision(True)
        train.spec.config.runtime.mixed_precision_dtype(half)
    train.spec.config.runtime.native(is_native)
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


def label(name: str, half: str, is_native: bool) -> str:
    """The first cell of a row."""
    return ", ".join(filter(None, (name, half, "native" if is_native else "")))


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


def page(loads: Mapping[str, Load]) -> str:
    """The text of the page."""
    rows = ([name, *(f"{n:,}" for n in astuple(load))] for name, load in loads.items())
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> None:
    """Measure rows, and show them or write the page."""
    keys = {label(*key): key for key in names(slow=True)}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="; ".join(keys))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    unknown = [row for row in args.rows if row not in keys]
    if unknown:
        parser.error(f"there is no row {unknown[0]!r}; there are {'; '.join(keys)}")
    if not standin.is_loaded():
        sys.exit("the stand-in is not in LD_LIBRARY_PATH")
    known = written()
    found = {row: load_of(*keys[row]) for row in args.rows or keys}
    if args.json:
        print(json.dumps({row: asdict(load) for row, load in found.items()}))
        return
    loads = {row: found.get(row, known.get(row)) for row in keys}
    missing = [row for row, load in loads.items() if load is None]
    if missing:
        sys.exit(f"never measured: {'; '.join(missing)}")
    PAGE.write_text(page({row: load for row, load in loads.items() if load}), encoding="utf-8")


if __name__ == "__main__":
    main()
