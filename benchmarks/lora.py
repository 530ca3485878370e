"""Training an adapter beside torch and PEFT: losses, time of a step, memory.

    python -m benchmarks.environments peft             # once: .venv/bench-peft
    python -m benchmarks.lora                          # the shape of SmolLM2-135M, 256 tokens
    python -m benchmarks.lora --shape qwen3-0.6b --length 512 --sides int4,recompute
    python -m benchmarks.lora --layers 4 --rounds 1    # a rehearsal

A model of a real one's shape with random weights is written as onnxruntime-genai's builder writes
it, in 4 bits, and with the numbers that these bits stand for as transformers reads them. Both sides
train the same adapters, of rank 8 on all products, from the same values on the same tokens. Each
side is a process; they run blocks of steps in turn, so that whatever else the machine does hits all
of them. Time of processors is what counts on a machine that others use. Memory is the peak of each
whole process, what it maps included.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.contest import machine
from benchmarks.driver import RESULTS
from benchmarks.environments import interpreter
from benchmarks.lora_worker import BATCHES
from benchmarks.worker_process import PeerError, WorkerProcess
from tests.imported.lora import folders

SHAPES = {"smollm2-135m": folders.SMOLLM2, "qwen3-0.6b": folders.QWEN3}
# ours by name: how the bundle is made
OURS: dict[str, dict[str, Any]] = {
    "int4": {},
    "recompute": {"recompute": True},
    "folded": {"folded": True, "recompute": False},
}
PEERS = ("torch", "torch:compile", "torch:checkpointing")
CHECKED = 10  # steps whose losses are compared
_BLOCK = 2
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

    for side in sides:
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
    with ExitStack() as stack:
        sides = list[Side]()
        for name in names:
            worker = stack.enter_context(closing(_start(folder, name, threads)))
            sides.append(Side(name, worker))
        for side in sides:
            side.about = side.worker.record()
            side.run(CHECKED, is_timed=False)
            file = folder / f"{side.name.replace(':', '-')}.npz"
            side.ask(f"save {file}")
            side.adapters = dict(np.load(file))
        for _ in range(rounds):
            for side in sides:
                side.run(_BLOCK, is_timed=True)
        for side in sides:
            side.about |= side.ask("end")
    return sides


def _start(folder: Path, name: str, threads: int) -> WorkerProcess:
    is_ours = name in OURS
    python = sys.executable if is_ours else interpreter("peft")
    if python is None:
        raise PeerError(f"{name} has no environment: python -m benchmarks.environments peft")
    model = folder / (name if is_ours else "hf")
    command = [python, "-m", "benchmarks.lora_worker", "ours" if is_ours else name, str(model),
               str(folder), "--threads", str(threads), "--offset", "0"]  # fmt: skip
    return WorkerProcess(command, name=name, patience=_PATIENCE)


def rows(sides: Sequence[Side]) -> list[dict[str, Any]]:
    """For each side its medians and peak, and how it differs from the first of torch's."""
    model = next((s for s in sides if s.name not in OURS), None)
    found = []
    for side in sides:
        row = {"side": side.name, "busy_s": float(np.median(side.busy)),
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


def show(title: str, found: Sequence[dict[str, Any]]) -> None:
    """Print a table."""
    columns = ("side", "s of processors", "s by the clock", "to torch", "peak MB", "to torch",
               "losses apart", "weights apart")  # fmt: skip
    table = Table(*columns, title=title)
    for row in found:
        table.add_row(
            row["side"], f"{row['busy_s']:.3f}", f"{row['wall_s']:.3f}",
            f"{row.get('busy_ratio', 1):.2f}", f"{row['peak_mb']:.0f}",
            f"{row.get('memory_ratio', 1):.2f}", f"{row.get('losses_apart', 0):.1e}",
            f"{row.get('weights_apart', 0):.1e}",
        )  # fmt: skip
    Console(width=120).print(table)


def main() -> None:
    """Write the models, measure, print and write what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lora", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--shape", choices=list(SHAPES), default="smollm2-135m")
    parser.add_argument("--layers", type=int, help="fewer than the model has: a rehearsal")
    parser.add_argument("--length", type=int, default=256, help="tokens of a row")
    parser.add_argument("--sides", default="int4,recompute,folded,torch",
                        help=f"of {', '.join([*OURS, *PEERS])}")  # fmt: skip
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=RESULTS / "lora.json")
    given = parser.parse_args()
    names = given.sides.split(",")
    unknown = [n for n in names if n not in (*OURS, *PEERS)]
    if unknown:
        parser.error(f"there is no side {unknown[0]}; there are {', '.join([*OURS, *PEERS])}")
    shape = SHAPES[given.shape]
    if given.layers:
        shape = replace(shape, layers=given.layers)
    shape = folders.with_bits(shape, 4)
    results: dict[str, Any] = {"machine": machine(), "shape": given.shape, "length": given.length,
                               "layers": shape.layers}  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        prepare(folder, shape, given.length, [n for n in names if n in OURS],
                has_peers=any(n in PEERS for n in names))  # fmt: skip
        for threads in map(int, given.threads.split(",")):
            try:
                found = rows(measure(folder, names, threads, given.rounds))
            except PeerError as error:
                sys.exit(str(error))
            show(f"{given.shape}, {given.length} tokens, {threads} thread(s)", found)
            results[f"threads={threads}"] = found
    given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
