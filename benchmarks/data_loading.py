"""Reading records and decoding images beside torch's DataLoader, from the same files.

    python benchmarks/data_loading.py [--workers 2] [--images 512] [--blocks 7] [--json FILE]

"records" reads a label and 128 numbers of each record; "images" decodes JPEGs of about 500 × 375,
cuts a random window, resizes it to 224 × 224 and stacks batches of 32. Ours is one process with
threads. torch gets the same files through an index of offsets and the same Pillow and numpy code
for images; its workers are processes, and for records it also runs without any. Blocks of the
contestants alternate, so that whatever else the machine does hits all of them; the median counts.
"""

import argparse
import io
import json
import os
import platform
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader, Dataset

from flow2onnx.data.decoding import Encoded, FixedSize, Raw
from flow2onnx.data.images import Window
from flow2onnx.data.ofrecord import OFRecordWriter, Record
from flow2onnx.data.pipeline import Pipeline
from flow2onnx.data.shards import Parts, batches
from flow2onnx.dtypes import float32, int32, record, tensor_buffer, uint8
from flow2onnx.trace.host import HostNode, HostPlan, HostType, HostValue

BATCH, SIDE, NUMBERS = 32, 224, 128
LABEL = Raw("class/label", (), int32)
FEATURES = Raw("features", (NUMBERS,), float32)
CROP = Encoded("encoded", "RGB", Window())
RESIZE = FixedSize(SIDE, SIDE, 3, uint8)
DECODERS = {"records": [(LABEL,), (FEATURES,)], "images": [(LABEL,), (CROP, RESIZE)]}
SHAPES = {"records": (NUMBERS,), "images": (SIDE, SIDE, 3)}


def write(folder: Path, workload: str, count: int, parts: int) -> None:
    random = np.random.default_rng(0)
    for part in range(parts):
        with OFRecordWriter(folder / f"part-{part}") as writer:
            for i in range(count // parts):
                content = (
                    {"features": random.random(NUMBERS, np.float32)}
                    if workload == "records"
                    else {"encoded": jpeg(random)}
                )
                writer.write({"class/label": np.int32(i % 1000), **content})


def jpeg(random: np.random.Generator) -> bytes:
    """Something of a photograph's size: smooth, with some noise."""
    small = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC))
    noisy = np.clip(smooth + random.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(noisy).save(file, "JPEG", quality=90)
    return file.getvalue()


def ours(folder: Path, workload: str, parts: int, workers: int) -> Callable[[], object]:
    reader = HostNode("reader", "source", lambda: batches(Parts(str(folder), parts), BATCH))
    records = HostValue(reader, 0, HostType((BATCH,), record))
    nodes, feeds = [reader], []
    for i, steps in enumerate(DECODERS[workload]):
        value = records
        for j, step in enumerate(steps):
            shape, dtype = (BATCH,), tensor_buffer
            if j == len(steps) - 1:
                shape, dtype = ((BATCH,), int32) if i == 0 else kind(workload)
            node = HostNode(f"{i}/{j}", "sample", step, (value,))
            value = HostValue(node, 0, HostType(shape, dtype))
            nodes.append(node)
        feeds.append(value)
    return Pipeline(HostPlan(tuple(nodes), tuple(feeds)), workers).next


def kind(workload: str):
    return (BATCH, *SHAPES[workload]), float32 if workload == "records" else uint8


class Records(Dataset):
    """The same records by number: what a user of torch writes, with an index made beforehand."""

    def __init__(self, folder: Path, workload: str) -> None:
        self.steps, self.index, self.files = DECODERS[workload], [], {}
        for file in sorted(folder.glob("part-*")):
            offset, size = 0, file.stat().st_size
            with file.open("rb") as opened:
                while offset < size:
                    opened.seek(offset)
                    (length,) = struct.unpack("<q", opened.read(8))
                    self.index.append((str(file), offset, length))
                    offset += 8 + length

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, number: int):
        file, offset, length = self.index[number]
        if file not in self.files:
            self.files[file] = open(file, "rb")  # noqa: SIM115  # kept open for the next
        opened = self.files[file]
        opened.seek(offset + 8)
        data, made = opened.read(length), []
        for steps in self.steps:
            value = Record(data, file, number, offset)
            for step in steps:
                value = step((0, number), value)[0]
            made.append(value)
        return tuple(made)


def torch_loader(folder: Path, workload: str, workers: int) -> Callable[[], object]:
    loader = DataLoader(
        Records(folder, workload), BATCH, num_workers=workers, drop_last=True,
        persistent_workers=workers > 0, collate_fn=stacked,
    )  # fmt: skip

    def endless() -> Iterator[object]:
        while True:
            yield from loader

    batches_ = endless()
    return lambda: next(batches_)


def stacked(samples):
    return [torch.from_numpy(np.stack(column)) for column in zip(*samples, strict=True)]


def measure(
    contestants: dict[str, Callable[[], object]], steps: int, blocks: int
) -> dict[str, list[float]]:
    """Samples per second of every block."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for pull in contestants.values():
        for _ in range(4):
            pull()
    for _ in range(blocks):
        for name, pull in contestants.items():
            pull()  # what waited in a queue meanwhile
            for _ in range(6):
                pull()
            start = time.perf_counter()
            for _ in range(steps):
                pull()
            rates[name].append(steps * BATCH / (time.perf_counter() - start))
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for workload, count, steps in (("records", 8192, 60), ("images", args.images, 6)):
            place = Path(folder, workload)
            place.mkdir()
            write(place, workload, count, 4)
            contestants = {
                "flow2onnx": ours(place, workload, 4, args.workers),
                "torch DataLoader": torch_loader(place, workload, args.workers),
            }
            if workload == "records":
                contestants["torch DataLoader, no workers"] = torch_loader(place, workload, 0)
            results[workload] = measure(contestants, steps, args.blocks)
    report(results, args)


def report(results: dict[str, dict[str, list[float]]], args: argparse.Namespace) -> None:
    table = Table("workload", "who", "per second", "range", "beside torch")
    for workload, rates in results.items():
        torch_rate = statistics.median(rates["torch DataLoader"])
        for name, found in rates.items():
            middle = statistics.median(found)
            table.add_row(workload, name, f"{middle:,.0f}", 
                          f"{min(found):,.0f} … {max(found):,.0f}",
                          f"× {middle / torch_rate:.2f}")  # fmt: skip
    Console().print(table)
    if args.json:
        facts = {
            "machine": {"processor": platform.processor() or platform.machine(),
                        "cores": os.cpu_count(), "python": sys.version.split()[0]},
            "versions": {name: version(name) for name in ("torch", "numpy", "pillow")},
            "workers": args.workers, "batch": BATCH, "images": args.images, "blocks": args.blocks,
            "samples_per_second": {
                workload: {name: {"median": statistics.median(found), "all": found}
                           for name, found in rates.items()}
                for workload, rates in results.items()
            },
        }  # fmt: skip
        args.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
