"""Train a perceptron on handwritten digits; save its weights, and digits to ask about.

    python -m examples.serving.train FOLDER

`flow2onnx export` makes a model for a server from `predict_job` and the weights.
"""

import sys
from pathlib import Path
from typing import Annotated

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp

BATCH, EPOCHS = 100, 30
Images = Annotated[flow.Blob, tp.Numpy.Placeholder((BATCH, 1, 28, 28), dtype=flow.float)]
Labels = Annotated[flow.Blob, tp.Numpy.Placeholder((BATCH,), dtype=flow.int32)]


def network(images: flow.Blob) -> flow.Blob:
    """The logits of ten digits."""
    pixels = flow.reshape(images, [images.shape[0], -1])
    draw = flow.truncated_normal(0.1)
    hidden = flow.layers.dense(
        pixels, 128, activation=flow.nn.relu, kernel_initializer=draw, name="hidden"
    )
    return flow.layers.dense(hidden, 10, kernel_initializer=draw, name="output")


@flow.global_function(type="train")
def train_job(images: Images, labels: Labels) -> tp.Numpy:
    """One step of gradient descent; the loss of each image."""
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images))
    flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0).minimize(
        loss
    )
    return loss


@flow.global_function(type="predict")
def predict_job(images: Images) -> tp.Numpy:
    """The probability of each digit."""
    return flow.nn.softmax(network(images))


def main(folder: Path) -> None:
    """Train; write FOLDER/snapshot, FOLDER/digits.npz and, as bytes, the first of these digits."""
    (images, labels), (test_images, test_labels) = flow.data.load_mnist(BATCH)
    losses = [
        train_job(batch, wanted).mean()
        for _ in range(EPOCHS)
        for batch, wanted in zip(images, labels, strict=True)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    flow.checkpoint.save(str(folder / "snapshot"))
    shown = test_images.reshape(-1, 1, 28, 28).astype("<f4")
    np.savez(folder / "digits.npz", images=shown, labels=test_labels.ravel())
    (folder / "digit.f32").write_bytes(shown[0].tobytes())
    print(f"last loss {losses[-1]:.4f}; the first digit is a {test_labels.flat[0]}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
