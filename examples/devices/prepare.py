"""Write what the samples for devices learn from: python -m examples.devices.prepare FOLDER.

A bundle whose network knows scikit-learn's digits, and `hand.safetensors`: digits as one person
writes them, here lying on their side, which that network has never seen.
"""

import sys
from pathlib import Path

import numpy as np
from flow2onnx_runtime import save_safetensors

from examples.browser import model

LEARNT, TESTED = 32, 300  # batches to learn from, digits to be tested on


def main() -> None:
    """Train the network of examples/browser for a moment, and export it for devices."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    known = model.train(4)
    model.train_job.export(folder / "bundle", predict=model.predict_job, on_device=True)
    images, labels = model.digits()
    lying = np.ascontiguousarray(images.transpose(0, 1, 3, 2))
    count = LEARNT * model.BATCH
    hand = {
        "images": lying[:count].reshape(LEARNT, model.BATCH, 1, 8, 8),
        "labels": labels[:count].reshape(LEARNT, model.BATCH),
        "tests": lying[-TESTED:, None],
        "answers": labels[-TESTED:],
    }
    save_safetensors(folder / "hand.safetensors", hand)
    print(f"{known:.0%} of upright digits are known; {folder}/hand.safetensors has lying ones")


if __name__ == "__main__":
    main()
