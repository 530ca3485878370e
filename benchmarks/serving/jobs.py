"""The models that servers are compared by: a perceptron, and ResNet-18 of 224 × 224 pixels."""

from pathlib import Path

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.api.job import JobFunction
from flow2onnx.engine.session import SESSION, Session
from flow2onnx.export import export_triton
from flow2onnx.trace.blob import Blob
from models import mlp
from models.blocks import Layers, pooled

CLASSES = 1000
STAGES = (64, 128, 256, 512)


def resnet18(images: Blob) -> Blob:
    """Logits of ResNet-18 (He and others, arXiv:1512.03385), 11,689,512 parameters."""
    layers = Layers()
    x = _conv(layers, images, 64, 7, "conv1", 2)
    x = flow.nn.max_pool2d(flow.nn.relu(x), 3, 2, "SAME", name="pool1")
    for stage, channels in enumerate(STAGES, 2):
        for i in range(2):
            name, strides = f"res{stage}_{i}", 2 if stage > 2 and i == 0 else 1
            y = flow.nn.relu(_conv(layers, x, channels, 3, f"{name}_a", strides))
            y = _conv(layers, y, channels, 3, f"{name}_b")
            is_projected = strides > 1
            x = flow.nn.relu(y + (_conv(layers, x, channels, 1, f"{name}_c", strides)
                                  if is_projected else x))  # fmt: skip
    return layers.dense(pooled(x), CLASSES, "fc")


def _conv(layers: Layers, x: Blob, channels: int, size: int, name: str, strides: int = 1) -> Blob:
    return layers.norm(layers.conv(x, channels, size, strides, name=name), f"{name}_bn")


def predict_job(shape: tuple[int, ...], network) -> JobFunction:
    @flow.global_function(type="predict")
    def predict(images: tp.Numpy.Placeholder(shape, dtype=flow.float)) -> tp.Numpy:
        return network(images)

    return predict


NETWORKS = {"mlp": ((1, 1, 28, 28), mlp.network), "resnet18": ((1, 3, 224, 224), resnet18)}


def export_all(repository: Path, names: list[str]) -> None:
    """Put the models of those names, as they are drawn, into a Triton repository."""
    for name in names:
        token = SESSION.set(Session())
        try:
            report = export_triton(predict_job(*NETWORKS[name]), repository, name=name)
        finally:
            SESSION.reset(token)
        assert report.ok, f"{name} does not pass its verification: {report}"
