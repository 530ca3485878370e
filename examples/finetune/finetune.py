"""Fine-tune the bundle on the digits 5 to 9, with the runtime distribution alone.

    python examples/finetune/finetune.py digits_bundle digits.npz tuned/

Neither torch nor the compiler nor the onnx package is imported. The .npz holds ``images``, float32
(n, 1, 28, 28) in 0..1, and ``labels``; the last fifth of it is held back. The tuned network is
written to a folder, for any ONNX Runtime.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from flow2onnx_runtime import Predictor, Trainer
from numpy.typing import NDArray


def accuracy(
    predict: Callable[..., Any], images: NDArray[np.float32], labels: NDArray[np.int64]
) -> float:
    """The share of the images whose highest score is that of the label."""
    return float(np.mean(predict(images)["scores"].argmax(1) == labels))


def main(bundle: str, digits: str, folder: str) -> None:
    with np.load(digits) as data:
        images, labels = data["images"], data["labels"].astype(np.int64)
    new, held = labels >= 5, np.arange(len(labels)) >= len(labels) * 4 // 5
    test = images[new & held], labels[new & held]
    trainer = Trainer(bundle)
    print(f"accuracy on the digits 5 to 9 before: {accuracy(trainer.predict, *test):.1%}")
    rows = images[new & ~held], labels[new & ~held]
    history = trainer.fit(rows, 4, test, batch_size=50, metrics="accuracy")
    print(f"steps: {trainer.steps}, loss: {history.last['loss']:.4f}")
    print(f"accuracy on the digits 5 to 9 after: {accuracy(trainer.predict, *test):.1%}")
    tuned = Predictor(trainer.export_predict(folder))
    print(f"accuracy of the tuned model's file: {accuracy(tuned, *test):.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
