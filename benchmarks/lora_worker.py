"""One side of `benchmarks.lora` in a process of its own.

    python -m benchmarks.lora_worker ours FOLDER/int4 FOLDER --threads 1
    python -m benchmarks.lora_worker torch:compile FOLDER/hf FOLDER --threads 1

It writes a line of JSON when it is ready, and answers each line "run N" with the losses of N steps
and the seconds that they took, "save FILE" with a file of the adapters, "end" with its peak memory.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from benchmarks.worker import confine, peak_mb, tell

BATCHES, SHAPE = "batches.npz", "shape.json"
MOMENT = "moment/"  # before the names of second moments, which the exact side saves, too
RATE, DECAY = 2e-4, 0.01
Step = Callable[[int], float]
Adapters = Callable[[], dict]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("side", help="ours, exact, or torch with variants after a colon")
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--offset", type=int, default=os.getpid())
    args = parser.parse_args()
    confine(args.threads, args.offset)
    name, _, variant = args.side.partition(":")
    side = {"ours": ours, "torch": with_torch, "exact": exact}[name]
    begun = time.process_time()
    step, adapters, about = side(args.model, args.folder, args.threads, set(variant.split(":")))
    tell(json.dumps({"open_s": time.process_time() - begun, "open_mb": peak_mb(), **about}))
    serve(step, adapters)


def serve(step: Step, adapters: Adapters) -> None:
    """Answer the lines that come."""
    import numpy as np

    done = 0
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "run":
            wall, busy = time.perf_counter(), time.process_time()
            losses = [step(done + i) for i in range(int(rest))]
            done += int(rest)
            taken = time.perf_counter() - wall, time.process_time() - busy
            tell(json.dumps({"losses": losses, "wall_s": taken[0], "busy_s": taken[1]}))
        elif word == "save":
            np.savez(rest, **adapters())
            tell(json.dumps({"saved": rest}))
        elif word == "end":
            tell(json.dumps({"peak_mb": peak_mb()}))
            return


def ours(model: Path, folder: Path, threads: int, variant: set[str]) -> tuple[Step, Adapters, dict]:
    """The runtime on a bundle, without the compiler; the variant native has native operators."""
    import numpy as np
    import onnxruntime
    from flow2onnx_runtime import Options, Trainer

    batches = np.load(folder / BATCHES)["ids"]
    options = Options(intra_op_threads=threads)
    if "native" in variant:
        sizes = {"batch": 1, "sequence": batches.shape[1]}
        options = replace(options, native=True, free_dimensions=sizes)
    trainer = Trainer(model, options)

    def step(i: int) -> float:
        ids = batches[i % len(batches)][None]
        labels = np.roll(ids, -1, 1)
        labels[:, -1] = -100
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": labels}
        return float(trainer.step(**given)["loss"])

    def adapters() -> dict:
        return {n: v for n, v in trainer.state_dict().items() if n.endswith(".weight")}

    return step, adapters, {"onnxruntime": onnxruntime.__version__}


def with_torch(
    model: Path, folder: Path, threads: int, variant: set[str]
) -> tuple[Step, Adapters, dict]:
    """transformers' model with PEFT's adapters, in single precision; `variant` may have compile
    and checkpointing.
    """
    import numpy as np
    import peft
    import torch
    import transformers

    torch.set_num_threads(threads)
    network = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    network.config.use_cache = False
    if "checkpointing" in variant:
        network.gradient_checkpointing_enable({"use_reentrant": False})
        network.enable_input_require_grads()
    network = peft.PeftModel.from_pretrained(network, folder / "peft", is_trainable=True).train()
    trained = {n: p for n, p in network.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(trained.values(), lr=RATE, weight_decay=DECAY)
    called = torch.compile(network) if "compile" in variant else network
    batches = torch.from_numpy(np.load(folder / BATCHES)["ids"])

    def step(i: int) -> float:
        ids = batches[i % len(batches)][None]
        optimizer.zero_grad()
        loss = called(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    def adapters() -> dict:
        return {_own_name(n): p.detach().numpy().T for n, p in trained.items()}

    about = {"torch": torch.__version__, "peft": peft.__version__,
             "transformers": transformers.__version__}  # fmt: skip
    return step, adapters, about


def exact(
    model: Path, folder: Path, threads: int, variant: set[str]
) -> tuple[Step, Adapters, dict]:
    """torch in double precision throughout; transformers' norms and softmax are single always."""
    import numpy as np
    import torch
    from safetensors.numpy import load_file

    from tests.imported.lora.torch_reference import Model

    torch.set_num_threads(threads)
    shape = SimpleNamespace(**json.loads((folder / SHAPE).read_text()))
    config = json.loads((folder / "peft" / "adapter_config.json").read_text())
    own = {_own_name(n): v.T for n, v in
           load_file(folder / "peft" / "adapter_model.safetensors").items()}  # fmt: skip
    modules = sorted({n.rpartition(".lora_")[0] for n in own})
    pairs = {m: (own[f"{m}.lora_A.weight"], own[f"{m}.lora_B.weight"]) for m in modules}
    scales = dict.fromkeys(modules, config["lora_alpha"] / config["r"])
    weights = _folder_weights(load_file(model / "model.safetensors"), shape)
    network = Model(SimpleNamespace(shape=shape, weights=weights), pairs, scales, torch.float64)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    batches = torch.from_numpy(np.load(folder / BATCHES)["ids"])

    def step(i: int) -> float:
        ids = batches[i % len(batches)][None]
        labels = ids.roll(-1, 1)
        labels[:, -1] = -100
        optimizer.zero_grad()
        loss = network.loss(ids, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    def adapters() -> dict:
        found = {}
        for module, pair in network.pairs.items():
            for letter, value in zip("AB", pair, strict=True):
                name = f"{module}.lora_{letter}.weight"
                found[name] = value.detach().numpy()
                found[MOMENT + name] = optimizer.state[value]["exp_avg_sq"].numpy()
        return found

    return step, adapters, {"torch": torch.__version__}


def _folder_weights(tensors: dict, shape: SimpleNamespace) -> dict:
    """The parameters that transformers reads, by the names of the served model."""
    import numpy as np

    found = {n.removesuffix(".weight").replace(".self_attn.", ".attn."): w
             for n, w in tensors.items()}  # fmt: skip
    found[f"model.layers.{shape.layers}.final_norm_layernorm"] = found.pop("model.norm")
    if shape.is_packed:
        for i in range(shape.layers):
            stem = f"model.layers.{i}.attn"
            found[f"{stem}.qkv_proj"] = np.concatenate(
                [found.pop(f"{stem}.{n}_proj") for n in "qkv"]
            )
    found.setdefault("lm_head", found["model.embed_tokens"])
    rates = 1.0 / 10000.0 ** (np.arange(0, shape.head, 2) / shape.head)
    angles = np.outer(np.arange(shape.places), rates)
    return found | {"cos": np.cos(angles), "sin": np.sin(angles)}


def _own_name(name: str) -> str:
    """A parameter of PEFT's as the served model names it."""
    plain = name.removeprefix("base_model.model.").replace(".self_attn.", ".attn.")
    return plain.replace(".default.weight", ".weight")


if __name__ == "__main__":
    main()
