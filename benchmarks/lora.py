"""Training an adapter beside torch and PEFT: losses, time of a step, memory.

    python -m benchmarks.environments peft             # once: .venv/bench-peft
    python -m benchmarks.lora                          # the shape of SmolLM2-135M, 256 tokens
    python -m benchmarks.lora --shape qwen3-0.6b --length 512 --sides int4,recompute
    python -m benchmarks.lora --layers 4 --rounds 1    # a rehearsal

writes lora.json, lora.md and lora.svg, after each number of threads anew.

A model of a real one's shape with random weights is written as onnxruntime-genai's builder writes
it, in 4 bits, and with the numbers that these bits stand for as transformers reads them. Both sides
train the same adapters, of rank 8 on all products, from the same values on the same tokens. Each
side is a process; they run blocks of steps in turn, so that whatever else the machine does hits all
of them. Time of processors is what counts on a machine that others use. Memory is the peak of each
whole process, what it maps included.
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime.progress_bar import ProgressBar

from benchmarks.contest import intel_library, machine
from benchmarks.driver import RESULTS
from benchmarks.environments import interpreter, recipe_of
from benchmarks.lora_worker import BATCHES
from benchmarks.report import Grid, save
from benchmarks.worker_process import PeerError, WorkerProcess
from tests.imported.lora import folders

SHAPES = {"smollm2-135m": folders.SMOLLM2, "qwen3-0.6b": folders.QWEN3}
# ours by name: how the bundle is made
OURS: dict[str, dict[str, Any]] = {
    "int4": {},
    "kept": {"recompute": False},
    "recompute": {"recompute": True},
    "folded": {"folded": True, "recompute": False},
}
NATIVE = tuple(f"{name}:native" for name in OURS)  # the same bundles on native operators
# "mkl" has MKL take its Intel path on any processor, see `intel_library`
PEERS = ("torch", "torch:compile", "torch:checkpointing", "torch:mkl", "torch:compile:mkl")
ALL = (*OURS, *NATIVE, *PEERS)
SIDES = "int4,kept,folded,int4:native,kept:native,folded:native,torch,torch:compile"
CHECKED = 10  # steps whose losses are compared
_BLOCK = 2
NOTES = (
    "Random weights of the shape. Ours trains on the 4 bits, torch on the float32 numbers that "
    "they stand for; *kept* is ours with nothing computed again, *folded* that with real numbers, "
    "*native* on native operators with the rows' length fixed, *torch:compile* under "
    "torch.compile, *mkl* with MKL on the path of Intel's processors. A step is forward, backward "
    "and AdamW.",
    "Times are medians over blocks of steps that the sides, each a process of its own, ran in "
    "turn; memory is the peak of a process. Ratios are to the first of torch's: below 1 is less.",
    "*Losses apart* is the largest relative difference of ten losses, *weights apart* the largest "
    "absolute one of the adapters after ten steps, *beyond* the share of numbers that differ by "
    "more than 2e-6. AdamW moves a number by about the rate, 2e-4, in each step, however small its "
    "gradient is; compiled, torch differs from itself by 2.5e-4.",
)
_PATIENCE = 3600.0  # seconds: ten steps of a large model at one thread


@dataclass
class Side:
    """A process that trains, and what it said."""

    name: str
    worker: WorkerProcess
    about: dict[str, Any] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    adapters: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def ask(self, line: str) -> dict[str, Any]:
        """The answer to a line."""
        self.worker.tell(line)
        return self.worker.record()

    def run(self, steps: int, *, is_timed: bool) -> None:
        """Let it take steps."""
        found = self.ask(f"run {steps}")
        self.losses += found["losses"]
        if is_timed:
            self.wall.append(found["wall_s"] / steps)
            self.busy.append(found["busy_s"] / steps)

    def saved(self, folder: Path) -> dict[str, np.ndarray[Any, Any]]:
        """The numbers of its adapters as they are, through a file."""
        file = folder / f"{self.name.replace(':', '-')}.npz"
        self.ask(f"save {file}")
        return dict(np.load(file))


def prepare(
    folder: Path, shape: folders.Shape, length: int, sides: Sequence[str], *, has_peers: bool
) -> None:
    """Write the model, its bundles by side, the tokens and, for peers, model and adapters."""
    made = folders.write_folder(folder / "model", shape)
    ids = np.random.default_rng(1).integers(0, shape.words, (CHECKED, length))
    np.savez(folder / BATCHES, ids=ids)
    if has_peers:
        write_for_transformers(made, folder / "hf")
    made.weights.clear()
    _write_bundles(folder, sides, has_peers=has_peers)


def _write_bundles(folder: Path, sides: Sequence[str], *, has_peers: bool) -> None:
    from flow2onnx_runtime.adapters import write_adapter

    import flow2onnx as flow
    from flow2onnx.imported import adapter_of

    for side in dict.fromkeys(name.partition(":")[0] for name in sides):
        made = flow.lora(folder / "model", accumulate=False, **OURS[side])
        made.save(folder / side)
        if has_peers and not (folder / "peft").exists():
            write_adapter(folder / "peft", adapter_of(made.trainer()))


def write_for_transformers(made: folders.Folder, folder: Path) -> None:
    """Write config.json and the weights as transformers names them."""
    from flow2onnx_runtime import save_safetensors

    shape = made.shape
    is_qwen = shape.family == "qwen3"
    config = {
        "architectures": ["Qwen3ForCausalLM" if is_qwen else "LlamaForCausalLM"],
        "model_type": shape.family, "hidden_size": shape.hidden,
        "intermediate_size": shape.inner, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.shared,
        "head_dim": shape.head, "vocab_size": shape.words, "rms_norm_eps": shape.epsilon,
        "max_position_embeddings": shape.places, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": shape.is_tied, "attention_bias": False, "mlp_bias": False,
    }  # fmt: skip
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    tensors = dict(_transformers_tensors(made))
    save_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})


def _transformers_tensors(made: folders.Folder) -> list[tuple[str, np.ndarray[Any, Any]]]:
    shape, found = made.shape, []
    widths = [shape.heads * shape.head, *[shape.shared * shape.head] * 2]
    for name, weight in made.weights.items():
        if name in ("cos", "sin") or (name == "lm_head" and shape.is_tied):
            continue
        plain = name.replace(".attn.", ".self_attn.")
        if plain.endswith("final_norm_layernorm"):
            found.append(("model.norm.weight", weight))
        elif plain.endswith("qkv_proj"):
            parts = np.split(weight, np.cumsum(widths)[:-1])
            stem = plain.removesuffix("qkv_proj")
            pairs = zip("qkv", parts, strict=True)
            found += [(f"{stem}{n}_proj.weight", np.ascontiguousarray(p)) for n, p in pairs]
        else:
            found.append((f"{plain}.weight", weight))
    return found


def measure(folder: Path, names: Sequence[str], threads: int, rounds: int) -> list[Side]:
    """The sides after ten compared steps and `rounds` blocks of timed ones."""
    bar, sides = ProgressBar(pause=10.0), list[Side]()
    bar.begin(f"{threads} thread{'s' * (threads > 1)}", 0, len(names) * (1 + rounds))
    done = itertools.count(1)
    with ExitStack() as stack:
        stack.callback(bar.close)
        for name in names:
            worker = stack.enter_context(closing(start(folder, name, threads)))
            sides.append(Side(name, worker))
        for side in sides:
            side.about = side.worker.record()
            side.run(CHECKED, is_timed=False)
            side.adapters = side.saved(folder)
            bar.show(next(done), f"{side.name}: {CHECKED} steps to compare")
        for _, side in itertools.product(range(rounds), sides):
            side.run(_BLOCK, is_timed=True)
            bar.show(next(done), f"{side.name}: {side.wall[-1]:.2f} s a step")
        for side in sides:
            side.about |= side.ask("end")
    return sides


def start(folder: Path, name: str, threads: int) -> WorkerProcess:
    """The process of a side, which says that it is ready once it has opened its model."""
    bundle, _, variant = name.partition(":")
    peer = f"flow2onnx{':' * bool(variant)}{variant}" if is_ours(name) else "peft"
    python = interpreter(peer)
    if python is None:
        raise PeerError(
            f"{name} has no environment: python -m benchmarks.environments {recipe_of(peer)}"
        )
    model = folder / (bundle if is_ours(name) else "hf")
    side = f"ours:{variant}" if is_ours(name) else name
    command = [python, "-m", "benchmarks.lora_worker", side, str(model),
               str(folder), "--threads", str(threads), "--offset", "0"]  # fmt: skip
    return WorkerProcess(command, _environment(name), name=name, patience=_PATIENCE)


def is_ours(name: str) -> bool:
    """True for a side that is this project's, False for a peer."""
    return name.partition(":")[0] in OURS


def _environment(name: str) -> dict[str, str]:
    if "mkl" not in name.split(":"):
        return dict(os.environ)
    library = intel_library()
    if library is None:
        raise PeerError(f"{name} needs a C compiler on Linux, to answer MKL's question with")
    return {**os.environ, "LD_PRELOAD": library}


def rows(sides: Sequence[Side], threads: int) -> list[dict[str, Any]]:
    """For each side its medians and peak, and how it differs from the first of torch's."""
    model = next((s for s in sides if not is_ours(s.name)), None)
    found = []
    for side in sides:
        row = {"threads": threads, "side": side.name, "busy_s": float(np.median(side.busy)),
               "least_busy_s": min(side.busy), "wall_s": float(np.median(side.wall)),
               "least_wall_s": min(side.wall), **side.about,
               "first_loss": side.losses[0], "last_loss": side.losses[CHECKED - 1]}  # fmt: skip
        if model is not None:
            row |= {
                "busy_ratio": row["busy_s"] / float(np.median(model.busy)),
                "wall_ratio": row["wall_s"] / float(np.median(model.wall)),
                "memory_ratio": side.about["peak_mb"] / model.about["peak_mb"],
                **_differences(side, model),
            }
        found.append(row)
    return found


def _differences(side: Side, model: Side) -> dict[str, float]:
    """The largest relative difference of ten losses, and the absolute ones of the adapters."""
    own, other = (np.asarray(s.losses[:CHECKED]) for s in (side, model))
    apart = np.concatenate(
        [np.abs(v - side.adapters[n]).ravel() for n, v in model.adapters.items()]
    )
    return {
        "losses_apart": float(np.abs(own / other - 1).max()),
        "weights_apart": float(apart.max()),
        "weights_apart_median": float(np.median(apart)),
        "weights_beyond": float(np.mean(apart > 2e-6)),
    }


def tables(found: Sequence[dict[str, Any]]) -> list[Grid]:
    """A table for each number of threads."""
    header = ["side", "s of processors", "s by the clock", "to torch", "peak MB", "to torch",
              "losses apart", "weights apart", "beyond 2e-6"]  # fmt: skip
    grids = []
    for threads in dict.fromkeys(row["threads"] for row in found):
        lines = [_line(row) for row in found if row["threads"] == threads]
        grids.append(Grid(f"{threads} thread{'s' * (threads > 1)}", header, lines))
    return grids


def _line(row: dict[str, Any]) -> list[str]:
    forms = {"busy_s": ".3f", "wall_s": ".3f", "busy_ratio": ".2f", "peak_mb": ".0f",
             "memory_ratio": ".2f", "losses_apart": ".1e", "weights_apart": ".1e",
             "weights_beyond": ".2%"}  # fmt: skip
    cells = [f"{row[key]:{form}}" if key in row else "-" for key, form in forms.items()]
    return [row["side"], *cells]


def draw(found: dict[str, Any], path: Path) -> None:
    """Seconds of a step and peaks of memory, a bar for each side, in a row for each number of
    threads.
    """
    import matplotlib.pyplot as plt

    threads = list(dict.fromkeys(row["threads"] for row in found["rows"]))
    figure, axes = plt.subplots(
        len(threads), 2, figsize=(11, 0.8 + 2.4 * len(threads)), squeeze=False, layout="constrained"
    )
    quantities = (("busy_s", "{:.2f}", "processor time of a step, s"),
                  ("peak_mb", "{:.0f}", "peak memory of the process, MB"))  # fmt: skip
    for line, count in zip(axes, threads, strict=True):
        chosen = [row for row in found["rows"] if row["threads"] == count][::-1]
        colors = ["tab:blue" if is_ours(row["side"]) else "tab:gray" for row in chosen]
        for axis, (key, form, title) in zip(line, quantities, strict=True):
            bars = axis.barh([r["side"] for r in chosen], [r[key] for r in chosen], color=colors)
            axis.bar_label(bars, fmt=form, padding=3, fontsize="small")
            axis.margins(x=0.15)
            axis.set_title(f"{title}, {count} thread{'s' * (count > 1)}", loc="left", fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(found["title"])
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def add_shape_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which model is written, and how long its rows are."""
    parser.add_argument("--shape", choices=list(SHAPES), default="smollm2-135m")
    parser.add_argument("--layers", type=int, help="fewer than the model has: a rehearsal")
    parser.add_argument("--length", type=int, default=256, help="tokens of a row")


def shape_of(given: argparse.Namespace) -> folders.Shape:
    """The shape that these options name, with weights of 4 bits."""
    shape = SHAPES[given.shape]
    if given.layers:
        shape = replace(shape, layers=given.layers)
    return folders.with_bits(shape, 4)


def main() -> None:
    """Write the models, measure, print and write what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lora", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_shape_arguments(parser)
    parser.add_argument("--sides", default=SIDES, help=f"of {', '.join(ALL)}")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the files")
    given = parser.parse_args()
    names = given.sides.split(",")
    unknown = [n for n in names if n not in ALL]
    if unknown:
        parser.error(f"there is no side {unknown[0]}; there are {', '.join(ALL)}")
    shape = shape_of(given)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        print("writing the model and its bundles", flush=True)
        prepare(folder, shape, given.length, [n for n in names if is_ours(n)],
                has_peers=any(n in PEERS for n in names))  # fmt: skip
        done: list[dict[str, Any]] = []
        for threads in map(int, given.threads.split(",")):
            try:
                done += rows(measure(folder, names, threads, given.rounds), threads)
            except PeerError as error:
                sys.exit(str(error))
            found = _document(given, shape.layers, done)
            save(found, given.out / "lora.json", tables(done), draw)  # what there is so far
            tables(done)[-1].show()


def _document(given: argparse.Namespace, layers: int, done: list[dict[str, Any]]) -> dict[str, Any]:
    """All that is known, for `benchmarks.report.save`."""
    packages = ("onnxruntime", "torch", "peft", "transformers")
    versions = {}
    for row in done:
        name = row["side"]
        side = ("native" if ":" in name else "ours") if is_ours(name) else "torch"
        versions[side] = {package: row[package] for package in packages if package in row}
    what = f"{layers} layers, 4 bits, one row of {given.length} tokens, rank 8 on all products"
    return {"title": "Adapters of a language model", "machine": machine(), "versions": versions,
            "workloads": {given.shape: what}, "notes": NOTES, "rows": done}  # fmt: skip


if __name__ == "__main__":
    main()
