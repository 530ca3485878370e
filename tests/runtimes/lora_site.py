"""Serve the page that trains adapters, on a model made by seed, with what Python computes of it.

python -m tests.runtimes.lora_site DIR [--shape tiny|smollm2] [--length 64]… [--steps 5]

For each length DIR/site has feeds-LENGTH.safetensors and losses-LENGTH.json beside the page: a row
of so many tokens, and Python's losses on it.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from flow2onnx_runtime import Options, Trainer, save_safetensors

from examples.browser.__main__ import serve
from examples.lora_page.__main__ import build
from tests.imported.lora.folders import SMOLLM2, TINY, with_bits, write_folder
from tests.imported.lora.sessions import batch
from tests.imported.lora.words import write_tokenizer

SHAPES = {"tiny": replace(TINY, layers=1, is_tied=True), "smollm2": SMOLLM2}
WORDS = (
    "who keeps the bridge at night old miller what does bell mean means that river is rising "
    "where key under third stone"
)


def main() -> None:
    """Make the model, the site and Python's losses, then serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--length", type=int, action="append", help="tokens, 32 unless said")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    shape = with_bits(SHAPES[options.shape], 4)
    folder = write_folder(options.folder / "model", shape)
    write_tokenizer(folder.path, WORDS.split())
    site = options.folder / "site"
    build(folder.path, site, 8, 0)
    for length in options.length or [32]:
        write_losses(site, batch(shape, rows=1, length=length), length, options.steps)
    serve(site, options.port)


def write_losses(site: Path, given: dict[str, np.ndarray], length: int, steps: int) -> None:
    """Write a batch, and the losses and seconds of steps on it."""
    trainer = Trainer(site / "bundle", Options(intra_op_threads=2))
    losses, times = [], []
    for _ in range(steps):
        began = time.perf_counter()
        losses.append(float(trainer.step(**given)["loss"]))
        times.append(time.perf_counter() - began)
    save_safetensors(site / f"feeds-{length}.safetensors", given)
    found = json.dumps({"losses": losses, "seconds": times})
    (site / f"losses-{length}.json").write_text(found)


if __name__ == "__main__":
    main()
