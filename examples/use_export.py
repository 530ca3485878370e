"""Use an exported model and train its bundle on, with the runtime distribution alone.

    python examples/use_export.py demo/mlp.onnx demo/mlp_bundle digits.npz

Neither the compiler nor the onnx package is needed, and this script makes sure of that. The .npz
holds ``images``, float32 (n, 1, 28, 28) in 0..1, and ``labels``, int32 (n,).
"""

import importlib.util
import sys

import numpy as np
from flow2onnx_runtime import Predictor, Trainer


def main(model: str, bundle: str, digits: str) -> None:
    """Print the accuracy before and after one more pass over the digits."""
    for package in ("flow2onnx", "onnx", "onnx_ir"):
        if importlib.util.find_spec(package) is not None:
            sys.exit(f"{package} is installed here: this is meant for an environment without it")
    with np.load(digits) as data:
        images, labels = data["images"], data["labels"]
    answers = Predictor(model)(images)["out/0"].argmax(1)
    print(f"accuracy of {model}: {np.mean(answers == labels):.2%} on {len(labels)} digits")
    trainer = Trainer(bundle)
    before = trainer.steps
    losses = [
        trainer.step(images[i : i + 100], labels[i : i + 100])["out/0"].mean()
        for i in range(0, len(images) - 99, 100)
    ]
    print(f"trained {bundle} from step {before} to {trainer.steps}: loss {losses[-1]:.4f}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
