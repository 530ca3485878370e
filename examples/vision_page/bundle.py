"""The bundles of the page: one trains the head of a network, the other its last blocks too."""

import glob
from collections.abc import Sequence
from dataclasses import replace

import flow2onnx as flow
from examples.vision_page.network import HEAD, Vision
from flow2onnx.compile.names import loss_name
from flow2onnx.imported import TrainableModel
from flow2onnx.trace.blob import Blob

BATCH = 16
RATE = 0.001
SCORES = loss_name(1)  # what a step calls the second part of its loss
OUT = 1e4  # taken off the scores of classes that nobody named, whose shares are then 0


def loss(logits: Blob, targets: Blob, used: Blob) -> dict[str, Blob]:
    """The mean cross entropy over the classes in use, in nats, and the scores.

    `targets` has a row of shares for each image, all zeros for one that does not count; `used` has
    1 for each class that has a name and 0 for others. Real numbers alone, as integers are computed
    on the processor where a GPU has the rest.
    """
    scores = logits + (used - 1.0) * OUT
    shares = flow.nn.logsoftmax(scores, axis=1)
    counted = flow.math.reduce_sum(targets)
    return {"loss": flow.math.negative(flow.math.reduce_sum(targets * shares)) / counted,
            "scores": scores}  # fmt: skip


def trainable(vision: Vision, trained: Sequence[str]) -> TrainableModel:
    """The network with a step that trains some of its weights on batches of `BATCH` images.

    Shapes of the step are fixed, so that a GPU computes all of it; predictions take any batch.
    """
    extra = {
        "targets": ((BATCH, vision.classes), flow.float32),
        "used": ((1, vision.classes), flow.float32),
    }
    patterns = [glob.escape(name) for name in trained]
    sides = {name: vision.size for name in free_sides(vision)}
    made = flow.make_trainable(
        vision.model, loss, "adam", lr=RATE, trained=patterns, on_device=True, webgpu=True,
        name="vision", inputs={vision.input: vision.shape(BATCH), **extra},
    )  # fmt: skip
    free = flow.make_trainable(
        vision.model, "cross_entropy", "adam", trained=patterns, on_device=True, webgpu=True,
        name="vision", inputs=sides or None, check_import=False,
    )  # fmt: skip
    predict = next(job for job in free.predicts if job.spec.name == "predict")
    return replace(made, predicts=(predict,))


def free_sides(vision: Vision) -> list[str]:
    """The names of height and width where the model leaves them free."""
    for value in vision.model.graph.input:
        if value.name == vision.input:
            dims = list(value.type.tensor_type.shape.dim)
            sides = dims[2:] if vision.is_channels_first else dims[1:3]
            return [d.dim_param for d in sides if d.dim_param]
    return []


def both(vision: Vision) -> dict[str, TrainableModel]:
    """The bundles by name: ``head`` and ``blocks``."""
    return {"head": trainable(vision, HEAD), "blocks": trainable(vision, vision.blocks)}


__all__ = ["BATCH", "SCORES", "both", "loss", "trainable"]
