"""The workloads: sizes, first values, data and update of each network, the same for every peer.

A workload is named as ``encoder:layers=4,units=256``: a network and what differs from its sizes in
`NETWORKS`. `TRAINING` and `PREDICTION` name those of the tables. First values and data are drawn by
numpy from seeds, so that all peers start from the same numbers.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import networks

Array = np.ndarray[Any, np.dtype[Any]]
BATCHES = 4  # of data, which steps take in turn


@dataclass(frozen=True)
class Input:
    """An array that a step takes: numbers, or indices below `limit`."""

    name: str
    shape: tuple[int, ...]
    limit: int | None = None

    def drawn(self, draw: np.random.Generator) -> Array:
        """Random content: indices are int32, numbers float32 around 0."""
        if self.limit is not None:
            return draw.integers(0, self.limit, self.shape).astype(np.int32)
        noise = draw.random(self.shape, np.float32) - np.float32(0.5)
        if len(self.shape) < 4:
            return noise
        # Images of noise alone look all the same to a deep network, whose normalization then
        # magnifies rounding errors: these have sixteen areas of different brightness.
        side = self.shape[-1] // 4
        areas = draw.standard_normal((*self.shape[:2], 4, 4), np.float32)
        return areas.repeat(side, 2).repeat(side, 3) + noise


@dataclass(frozen=True)
class Update:
    """An optimizer: ``sgd``, ``momentum`` (0.9) or ``adam`` (0.9, 0.999, corrected for bias)."""

    kind: str
    rate: float

    @property
    def slots(self) -> int:
        """The numbers it keeps for each of a variable."""
        return {"sgd": 0, "momentum": 1, "adam": 2}[self.kind]


@dataclass(frozen=True)
class Workload:
    """A network with its inputs, labels and update; the loss is the mean cross entropy.

    `tolerance` is how far the losses of three steps may differ between peers, relatively.
    """

    name: str
    inputs: tuple[Input, ...]
    labels: Input
    update: Update
    network: Callable[..., Any]
    tolerance: float = 1e-4
    tables: tuple[str, ...] = ()

    @functools.cached_property
    def sizes(self) -> networks.Sizes:
        """The variables of the network, and what its forward pass costs."""
        sizes = networks.Sizes()
        self.network(sizes, *(i.shape for i in self.inputs))
        return sizes

    def variables(self) -> dict[str, Array]:
        """The first values of what is trained, by name."""
        draw = np.random.default_rng(1)
        return {name: _first(draw, name, shape) for name, shape in self.sizes.variables.items()}

    def state(self) -> dict[str, Array]:
        """The first moving statistics, by name."""
        return {
            name: np.full(shape, float(name.endswith("variance")), np.float32)
            for name, shape in self.sizes.state.items()
        }

    def data(self) -> list[list[Array]]:
        """Batches: the inputs in order, then the labels."""
        draw = np.random.default_rng(2)
        return [[i.drawn(draw) for i in (*self.inputs, self.labels)] for _ in range(BATCHES)]


def _first(draw: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    role = name.rpartition("-")[2]
    if role == "beta" or role.startswith("bias"):
        return np.zeros(shape, np.float32)
    if role == "gamma":
        return np.ones(shape, np.float32)
    gain = 2.0 if len(shape) == 4 else 1.0
    scale = 0.05 if role == "table" else math.sqrt(gain / math.prod(shape[1:]))
    return draw.standard_normal(shape, np.float32) * np.float32(scale)


def _digits(network: Callable[..., Any], batch: int, rate: float, **sizes: int) -> dict[str, Any]:
    return {
        "inputs": (Input("images", (batch, 1, 28, 28)),),
        "labels": Input("labels", (batch,), 10),
        "update": Update("sgd", rate),
        "network": functools.partial(network, **sizes),
    }


def _mlp(batch: int = 100, hidden: int = 512, depth: int = 1) -> dict[str, Any]:
    return _digits(networks.mlp, batch, 0.01, hidden=hidden, depth=depth)


def _lenet(batch: int = 100) -> dict[str, Any]:
    return _digits(networks.lenet, batch, 0.01)


def _images(
    network: Callable[..., Any], batch: int, side: int, width: int, classes: int
) -> dict[str, Any]:
    # Normalization and ReLU carry rounding errors on from layer to layer.
    return {
        "inputs": (Input("images", (batch, 3, side, side)),),
        "labels": Input("labels", (batch,), classes),
        "update": Update("momentum", 0.001),
        "network": functools.partial(network, width=width, classes=classes),
        "tolerance": 3e-2,
    }


def _resnet18(
    batch: int = 32, side: int = 32, width: int = 64, classes: int = 10
) -> dict[str, Any]:
    return _images(networks.resnet18, batch, side, width, classes)


def _resnet50(
    batch: int = 8, side: int = 224, width: int = 64, classes: int = 1000
) -> dict[str, Any]:
    return _images(networks.resnet50, batch, side, width, classes)


def _encoder(
    batch: int = 8, length: int = 128, layers: int = 4, units: int = 256, heads: int = 0,
    vocabulary: int = 1000, classes: int = 10,
) -> dict[str, Any]:  # fmt: skip
    network = functools.partial(
        networks.encoder, batch=batch, length=length, layers=layers, units=units,
        heads=heads or units // 64, vocabulary=vocabulary, classes=classes,
    )  # fmt: skip
    return {
        "inputs": (Input("ids", (batch, length), vocabulary),),
        "labels": Input("labels", (batch,), classes),
        "update": Update("adam", 1e-4),
        "network": network,
        "tolerance": 1e-3,
    }


def _next_words(
    network: Callable[..., Any], batch: int, length: int, vocabulary: int, *, rate: float
) -> dict[str, Any]:
    """A language model that says what follows each word, and Adam's rate."""
    return {
        "inputs": (Input("ids", (batch, length), vocabulary),),
        "labels": Input("labels", (batch * length,), vocabulary),
        "update": Update("adam", rate),
        "network": network,
        "tolerance": 1e-3,
    }


def _decoder(
    batch: int = 8, length: int = 512, layers: int = 12, units: int = 768, heads: int = 0,
    vocabulary: int = 50257,
) -> dict[str, Any]:  # fmt: skip
    network = functools.partial(
        networks.decoder, batch=batch, length=length, layers=layers, units=units,
        heads=heads or units // 64, vocabulary=vocabulary,
    )  # fmt: skip
    return _next_words(network, batch, length, vocabulary, rate=1e-4)


def _wide(
    batch: int = 512, rows: int = 200_000, width: int = 16, fields: int = 26, hidden: int = 256
) -> dict[str, Any]:
    network = functools.partial(networks.wide, rows=rows, width=width, fields=fields, hidden=hidden)
    return {
        "inputs": (Input("ids", (batch, fields), rows), Input("numbers", (batch, 13))),
        "labels": Input("labels", (batch,), 2),
        "update": Update("sgd", 1.0),
        "network": network,
        "tables": ("categories-table",),
    }


def _lstm(
    batch: int = 32, length: int = 64, layers: int = 2, units: int = 256, vocabulary: int = 1000,
    cells: int = 0,
) -> dict[str, Any]:  # fmt: skip
    network = functools.partial(
        networks.language, length=length, layers=layers, units=units, vocabulary=vocabulary,
        in_cells=bool(cells),
    )  # fmt: skip
    return _next_words(network, batch, length, vocabulary, rate=1e-3)


def _coupled_cells(
    batch: int = 16, length: int = 64, units: int = 1024, vocabulary: int = 1000
) -> dict[str, Any]:
    network = functools.partial(
        networks.coupled_language, length=length, units=units, vocabulary=vocabulary
    )
    return _next_words(network, batch, length, vocabulary, rate=1e-3)


def _dlrm(
    batch: int = 1024, fields: int = 26, rows: int = 100_000, width: int = 16, hidden: int = 256
) -> dict[str, Any]:
    network = functools.partial(networks.dlrm, fields=fields, rows=rows, width=width, hidden=hidden)
    return {
        "inputs": (Input("ids", (batch, fields), rows), Input("numbers", (batch, 13))),
        "labels": Input("labels", (batch,), 2),
        "update": Update("sgd", 0.1),
        "network": network,
        "tables": tuple(f"field{i}-table" for i in range(fields)),
    }


def _graph(
    nodes: int = 4000, edges: int = 20_000, inputs: int = 256, layers: int = 2, units: int = 128,
    classes: int = 7,
) -> dict[str, Any]:  # fmt: skip
    network = functools.partial(
        networks.graph, inputs=inputs, layers=layers, units=units, classes=classes
    )
    ends = (Input(name, (edges,), nodes) for name in ("sources", "targets"))
    return {
        "inputs": (Input("x", (nodes, inputs)), *ends),
        "labels": Input("labels", (nodes,), classes),
        "update": Update("adam", 1e-2),
        "network": network,
        "tolerance": 1e-2,
    }


def _depthwise(
    batch: int = 16, side: int = 96, stages: int = 7, classes: int = 100
) -> dict[str, Any]:
    network = functools.partial(networks.depthwise, stages=stages, classes=classes)
    return _images(networks.depthwise, batch, side, 0, classes) | {"network": network}


def _dilated(batch: int = 16, side: int = 96, width: int = 64, classes: int = 10) -> dict[str, Any]:
    return _images(networks.dilated, batch, side, width, classes)


def _unet(
    batch: int = 8, side: int = 64, width: int = 32, depth: int = 3, classes: int = 8
) -> dict[str, Any]:
    found = _images(networks.unet, batch, side, width, classes)
    network = functools.partial(networks.unet, width=width, depth=depth, classes=classes)
    labels = Input("labels", (batch * side * side,), classes)
    return found | {"network": network, "labels": labels}


def _vit(
    batch: int = 32, side: int = 32, patch: int = 4, layers: int = 12, units: int = 192,
    heads: int = 0, classes: int = 10,
) -> dict[str, Any]:  # fmt: skip
    network = functools.partial(
        networks.vit, batch=batch, side=side, patch=patch, layers=layers, units=units,
        heads=heads or units // 64, classes=classes,
    )  # fmt: skip
    return {
        "inputs": (Input("images", (batch, 3, side, side)),),
        "labels": Input("labels", (batch,), classes),
        "update": Update("adam", 1e-4),
        "network": network,
        "tolerance": 1e-3,
    }


def _mixer(
    batch: int = 64, side: int = 32, patch: int = 4, layers: int = 8, units: int = 128,
    classes: int = 10,
) -> dict[str, Any]:  # fmt: skip
    network = functools.partial(
        networks.mixer, batch=batch, side=side, patch=patch, layers=layers, units=units,
        classes=classes,
    )  # fmt: skip
    return {
        "inputs": (Input("images", (batch, 3, side, side)),),
        "labels": Input("labels", (batch,), classes),
        "update": Update("adam", 1e-3),
        "network": network,
        "tolerance": 1e-2,
    }


def _gan(batch: int = 64, inputs: int = 100, width: int = 64) -> dict[str, Any]:
    return {
        "inputs": (Input("noise", (batch, inputs)),),
        "labels": Input("labels", (batch,), 2),
        "update": Update("adam", 1e-4),
        "network": functools.partial(networks.gan, inputs=inputs, width=width),
        "tolerance": 1e-2,
    }


NETWORKS: dict[str, Callable[..., dict[str, Any]]] = {
    "mlp": _mlp,
    "lenet": _lenet,
    "resnet18": _resnet18,
    "resnet50": _resnet50,
    "encoder": _encoder,
    "decoder": _decoder,
    "wide": _wide,
    "lstm": _lstm,
    "coupled": _coupled_cells,
    "dlrm": _dlrm,
    "graph": _graph,
    "depthwise": _depthwise,
    "dilated": _dilated,
    "unet": _unet,
    "vit": _vit,
    "gan": _gan,
    "mixer": _mixer,
}

_GPT = "decoder:length=256,layers=4,units=384,vocabulary=8000"
# the rows of the training table: a short name, what it is called there, and the workload
TRAINING = {
    "mlp": ("MLP, batch 100, SGD", "mlp"),
    "lenet": ("LeNet, batch 100, SGD", "lenet"),
    "resnet18": ("ResNet-18, 32 px, batch 32, momentum", "resnet18"),
    "resnet50": ("ResNet-50, 224 px, batch 8, momentum", "resnet50"),
    "encoder256": ("encoder 4 × 256, 8 × 128 tokens, Adam", "encoder"),
    "encoder768": ("encoder 2 × 768, 8 × 128 tokens, Adam", "encoder:layers=2,units=768"),
    "wide": ("embedding of 200 000 rows, batch 512, SGD", "wide"),
    "lstm": ("LSTM language model 2 × 256, 32 × 64 words, Adam", "lstm"),
    "cells": ("the same, in cells", "lstm:cells=1"),
    "dlrm": ("DLRM, 26 tables of 100 000 rows, batch 1024, SGD", "dlrm"),
    "depthwise": ("MobileNetV2, 96 px, batch 16, momentum", "depthwise"),
    "unet": ("U-Net, 64 px, batch 8, momentum", "unet"),
    "gpt": (
        "GPT 4 × 384, 4 × 256 tokens of 8 000, Adam",
        f"{_GPT},batch=4",
    ),
    "dilated": ("dilated convolutions, 96 px, batch 16, momentum", "dilated"),
    "vit": ("ViT-tiny, 64 patches, batch 32, Adam", "vit"),
    "narrow": ("MLP 3 × 64, batch 8, SGD", "mlp:batch=8,hidden=64,depth=3"),
    "broad": ("MLP 2 × 4096, batch 256, SGD", "mlp:batch=256,hidden=4096,depth=2"),
    "gan": ("DCGAN's generator and discriminator, batch 64, Adam", "gan"),
}
# Networks that only `benchmarks.native` measures: what an operator is for that no row above needs.
OTHERS = {
    "coupled": ("cells of coupled gates, 1024, 16 × 64 words, Adam", "coupled"),
    "mixer": ("MLP-Mixer 8 × 128, 64 patches, batch 64, Adam", "mixer"),
    "graph": ("graph convolutions 2 × 128, 4 000 nodes and 20 000 edges, Adam", "graph"),
}
PREDICTION = {
    f"{name}-b{batch}": (f"{title}, batch {batch}", f"{network}batch={batch}")
    for batch in (1, 32)
    for name, title, network in (
        ("lenet", "LeNet", "lenet:"),
        ("resnet18", "ResNet-18, 32 px", "resnet18:"),
        ("resnet50", "ResNet-50, 224 px", "resnet50:"),
        ("depthwise", "MobileNetV2, 96 px", "depthwise:"),
        ("unet", "U-Net, 64 px", "unet:"),
        ("gpt", "GPT 4 × 384, 256 tokens of 8 000", f"{_GPT},"),
        ("vit", "ViT-tiny, 64 patches", "vit:"),
    )
}


def workload(text: str) -> Workload:
    """The workload of a name such as ``mlp:batch=512``."""
    network, _, rest = text.partition(":")
    if network not in NETWORKS:
        raise SystemExit(f"there is no workload {network}; there are {', '.join(NETWORKS)}")
    return Workload(text, **NETWORKS[network](**dict(_settings(rest))))


def _settings(text: str) -> Iterator[tuple[str, int]]:
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        yield name, int(value)
