"""Write what examples/c/digits.c trains on: python -m examples.c.prepare FOLDER.

A bundle of the digits' MLP, and the handwritten digits as tensors.
"""

import sys
from pathlib import Path

from flow2onnx_runtime import save_safetensors

import flow2onnx as flow
from models import mlp

BATCH = 20


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (images, labels), (tests, answers) = flow.data.load_mnist(BATCH, BATCH)
    digits = {"images": images, "labels": labels, "tests": tests, "answers": answers}
    save_safetensors(folder / "digits.safetensors", digits)
    mlp.train_job.export(folder / "bundle", predict=mlp.predict_job, batch=BATCH, on_device=True)


if __name__ == "__main__":
    main()
