"""Convolutions of four networks in each form of standard operators, beside torch.

    python -m benchmarks.convolution_forms [--only U-Net] [--threads 1] [--quick] [--out DIR]

writes convolution_forms.json and convolution_forms.md. Each pass of each layer is run in every
form that is valid there, alone, and in torch's function of that pass, in turn, by two processes.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flow2onnx_runtime.files import replace_bytes

from benchmarks.contest import disagreement, machine
from benchmarks.convolution_shapes import Convolution, parse_layer
from benchmarks.convolution_worker import GRADIENTS, PASSES, pass_graph
from benchmarks.convolutions import TOLERANCE, Side
from benchmarks.driver import RESULTS
from benchmarks.report import Grid, page, write_numbers

# a network, the images of a batch, and its layers as `convolution_layers.txt` writes them
LAYERS = (
    ("ResNet-18", 32, "64>64@32 k3; 64>128@32 k3 s2; 128>128@16 k3; 128>256@16 k3 s2; "
     "256>256@8 k3; 256>512@8 k3 s2; 512>512@4 k3"),
    ("ResNet-50", 8, "64>64@56 k3; 64>256@56 k1; 128>128@56 k3 s2; 256>256@28 k3 s2; "
     "256>256@14 k3; 512>512@14 k3 s2; 1024>2048@14 k1 s2; 512>512@7 k3"),
    ("MobileNetV2", 16, "32>32@48 k3 dw; 96>96@48 k3 s2 dw; 144>144@24 k3 dw; 192>192@12 k3 dw; "
     "384>384@6 k3 dw; 576>576@6 k3 s2 dw; 960>960@3 k3 dw; 24>144@24 k1; 160>960@3 k1"),
    ("U-Net", 8, "32>32@64 k3; 64>32@64 k3; 64>64@32 k3; 128>64@32 k3; 128>128@16 k3; "
     "256>128@16 k3; 256>256@8 k3"),
)  # fmt: skip
NOTES = (
    "Times are processor milliseconds, the least of the blocks that the two processes ran in turn, "
    "each confined to as many processors as threads. Ratios are the time of torch divided by that "
    "of the form that the rule picks; above 1 we are faster. Only forms whose results are torch's "
    "are timed: 61 elements and the mean size, to 1e-4.",
    "A layer is written as images x channels > channels @ size, k kernel, s stride, p padding, "
    "g groups.",
)
_REHEARSAL = ", a rehearsal of few short blocks"
_SLOW = 4.0  # a form of so many times the time of the fastest so far is run once


@dataclass(frozen=True)
class Row:
    """One pass of one layer: milliseconds of torch and of each form; the rule picks one."""

    net: str
    shape: str
    which: str
    threads: int
    picked: str
    torch_ms: float
    forms: dict[str, float]

    @property
    def ratio(self) -> float:
        """The time of torch divided by that of the form that is picked."""
        return self.torch_ms / self.forms[self.picked]


def layers(only: Sequence[str] = ()) -> Iterator[Convolution]:
    """The layers of the networks, on their batches."""
    for net, images, texts in LAYERS:
        if not only or net in only:
            for text in texts.split("; "):
                yield replace(parse_layer(net, 2, text), images=images)


def forms_of(shape: Convolution, which: str) -> tuple[str, tuple[str, ...]]:
    """The form that the rule picks for a pass, and all that are valid there."""
    from flow2onnx.lowering.forms import choose_forms

    with choose_forms() as record:
        pass_graph(shape, which)
    found = [c for c in record if c.question.lowering == GRADIENTS.get(which)]
    return (found[0].form, found[0].question.forms) if found else ("Conv", ("Conv",))


def measure(ours: Side, torch: Side, shape: Convolution, which: str, threads: int,
            blocks: int) -> Row:  # fmt: skip
    """The row of one pass of one layer."""
    picked, forms = forms_of(shape, which)
    theirs = torch.prepare(shape, which)["sample"]
    times: dict[str, float] = {}
    torch_ms = _least(torch, blocks)
    for form in forms:
        facts = ours.prepare(shape, f"{which}: {form}")
        if "error" in facts or disagreement(facts["sample"], theirs, TOLERANCE):
            continue
        fastest = min(times.values(), default=float("inf"))
        times[form] = _least(ours, 1)
        if times[form] < _SLOW * fastest:
            times[form] = min(times[form], _least(ours, blocks))
            torch_ms = min(torch_ms, _least(torch, blocks))
    return Row(shape.net, shape.text, which, threads, picked, torch_ms, times)


def _least(side: Side, blocks: int) -> float:
    """The least processor milliseconds of a pass, of so many blocks."""
    side.run(1)
    count = max(1, round(0.05 / max(side.run(1)[1], 1e-6)))
    return min(1000 * side.run(count)[1] / count for _ in range(blocks))


def grid(rows: Sequence[Row], threads: int) -> Grid:
    """A line for each pass."""
    lines = [
        [r.net, r.shape, r.which, f"{r.torch_ms:.2f}", f"{r.forms[r.picked]:.2f}",
         f"{r.ratio:.2f}", r.picked,
         ", ".join(f"{n} {ms:.2f}" for n, ms in sorted(r.forms.items(), key=lambda i: i[1])
                   if n != r.picked)]
        for r in rows if r.threads == threads
    ]  # fmt: skip
    header = ["network", "layer", "pass", "torch ms", "ours ms", "ratio", "form", "other forms, ms"]
    return Grid(f"{threads} thread{'s' * (threads > 1)}", header, lines)


def main() -> None:
    """Measure, write, and show."""
    args = _arguments()
    rows: list[Row] = []
    versions: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for threads in args.threads:
            with ExitStack() as stack:
                ours, torch = (
                    stack.enter_context(closing(Side(name, peer, threads, folder)))
                    for name, peer in (("standard", "flow2onnx"), ("torch", "torch"))
                )
                versions = {"flow2onnx": ours.versions, "torch": torch.versions}
                for shape in layers(args.only):
                    for which in PASSES:
                        row = measure(ours, torch, shape, which, threads, 2 if args.quick else 6)
                        rows.append(row)
                        print(" | ".join(grid([row], threads).lines[0]), flush=True)
    found = {
        "machine": machine(), "versions": versions, "rows": [asdict(r) for r in rows],
        "title": f"Convolutions in standard operators{_REHEARSAL * args.quick}",
        "notes": NOTES, "workloads": {},
    }  # fmt: skip
    text = page(found, [grid(rows, threads) for threads in args.threads])
    write_numbers(found, args.out / "convolution_forms.json")
    replace_bytes(args.out / "convolution_forms.md", text.encode())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=lambda t: t.split(","), default=[],
                        help=f"of {', '.join(net for net, *_ in LAYERS)}")  # fmt: skip
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1])
    parser.add_argument("--quick", action="store_true", help="few blocks: a rehearsal")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    names = [net for net, *_ in LAYERS]
    unknown = [net for net in args.only if net not in names]
    if unknown:
        parser.error(f"there is no network {unknown[0]}; there are {', '.join(names)}")
    return args


if __name__ == "__main__":
    main()
