"""Shapes of convolutions that published networks have, and a draw of them by a fixed seed.

`convolution_layers.txt` is the table of them, and says how a layer is written.
"""

import math
import random
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

__all__ = ["CLASSES", "SEED", "Convolution", "draw_shapes", "parse_layer", "published_layers"]

_TABLE = Path(__file__).with_name("convolution_layers.txt")
_LAYER = re.compile(r"(\d+)>(\d+)@([\dx]+)((?: [kspdgo][\dx]+)*)( dw)?( t)?")
_MOST_PRODUCTS, _FEWEST_PRODUCTS = 5e8, 1e6  # multiplications of one pass
_MOST_ELEMENTS = 1 << 24  # of a tensor
_BATCHES = (1, 2, 4, 8, 16, 32)
_SHARE_OF_ODD = 0.25
SEED = 22


@dataclass(frozen=True)
class Convolution:
    """One layer on a batch; of a transposed one, `size` is that of what it reads."""

    net: str
    images: int
    channels: int
    out: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad: tuple[int, ...]
    output_pad: tuple[int, ...]
    groups: int
    is_transposed: bool

    @property
    def rank(self) -> int:
        """The number of axes of an image."""
        return len(self.size)

    @property
    def out_size(self) -> tuple[int, ...]:
        """The size of what it makes."""
        axes = zip(self.size, self.kernel, self.stride, self.dilation, self.pad, self.output_pad,
                   strict=True)  # fmt: skip
        if self.is_transposed:
            return tuple((n - 1) * s - 2 * p + (k - 1) * d + 1 + o for n, k, s, d, p, o in axes)
        return tuple((n + 2 * p - (k - 1) * d - 1) // s + 1 for n, k, s, d, p, _ in axes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of what it reads."""
        return self.images, self.channels, *self.size

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of what it makes."""
        return self.images, self.out, *self.out_size

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of the weights, as ONNX and torch have it."""
        rows, columns = self.channels, self.out
        if not self.is_transposed:
            rows, columns = columns, rows
        return rows, columns // self.groups, *self.kernel

    @property
    def products(self) -> int:
        """The multiplications of a pass by the definition."""
        windows = math.prod(self.size if self.is_transposed else self.out_size)
        return self.images * windows * math.prod(self.weight_shape)

    @property
    def kind(self) -> str:
        """Its class, one of `CLASSES`."""
        name = {1: "1-D", 2: "", 3: "3-D"}[self.rank]
        if self.is_transposed:
            return f"{name} transposed".strip()
        if name:
            return name if self.groups == 1 else f"{name} grouped"
        return self._kind_of_images()

    def _kind_of_images(self) -> str:
        if self.groups > 1:
            return "depthwise" if self.groups == self.channels else "grouped"
        if self.channels <= 4:
            return "few channels"
        if max(self.dilation) > 1:
            return "dilated"
        if max(self.stride) > 1:
            return "strided"
        if max(self.kernel) == 1:
            return "1x1"
        if self.kernel == (3, 3):
            return "3x3"
        return "large kernels" if max(self.kernel) >= 7 else "other kernels"

    @property
    def text(self) -> str:
        """The layer in the words of the tables, with the batch in front."""
        parts = [f"{self.images}x{self.channels}>{self.out}@{_times(self.size)}",
                 f"k{_times(self.kernel)}"]  # fmt: skip
        for letter, values, usual in (
            ("s", self.stride, 1), ("d", self.dilation, 1), ("p", self.pad, 0),
            ("o", self.output_pad, 0),
        ):  # fmt: skip
            if set(values) != {usual}:
                parts.append(f"{letter}{_times(values)}")
        if self.groups > 1:
            parts.append(f"g{self.groups}")
        return " ".join([*parts, *(["t"] if self.is_transposed else [])])

    def record(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> "Convolution":
        """The convolution that a record tells."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in record.items()})


CLASSES = (
    "1x1", "3x3", "other kernels", "large kernels", "strided", "few channels", "dilated",
    "grouped", "depthwise", "transposed", "1-D", "1-D grouped", "1-D transposed", "3-D",
    "3-D grouped", "3-D transposed",
)  # fmt: skip


def published_layers() -> Iterator[Convolution]:
    """All layers of the table, each on one image."""
    rank = 0
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        net, _, layers = line.partition(": ")
        if not layers and line.endswith("-D"):
            rank = int(line.removesuffix("-D"))
        elif layers and not line.startswith("#"):
            yield from (parse_layer(net, rank, layer) for layer in layers.split("; "))


def draw_shapes(count: int = 400, seed: int = SEED) -> list[Convolution]:
    """So many different shapes, as many of each class as of any other."""
    draw = random.Random(seed)
    found, table = [], list(published_layers())
    for i, kind in enumerate(CLASSES):
        layers = [c for c in table if c.kind == kind]
        share = count * (i + 1) // len(CLASSES) - count * i // len(CLASSES)
        found += _draw_class(draw, layers, share)
    return found


def _draw_class(draw: random.Random, layers: list[Convolution], count: int) -> list[Convolution]:
    """Every layer comes once before one comes again."""
    found: dict[str, Convolution] = {}
    waiting: list[Convolution] = []
    while len(found) < count:
        if not waiting:
            waiting = draw.sample(layers, len(layers))
        shape = _variant(draw, waiting.pop())
        if shape is not None:
            found.setdefault(shape.text, shape)
    return list(found.values())


def _variant(draw: random.Random, layer: Convolution) -> Convolution | None:
    """A layer on a batch, of another size perhaps, smaller where one image is too much."""
    shape = layer
    while shape.products > _MOST_PRODUCTS:
        shape = replace(shape, size=tuple(-(-n // 2) for n in shape.size))
    if draw.random() < _SHARE_OF_ODD:
        less = draw.randint(1, 3)
        shape = replace(shape, size=tuple(n - less if n > 8 else n for n in shape.size))
    shape = replace(shape, images=draw.choice(_BATCHES))
    largest = max(math.prod(shape.input_shape), math.prod(shape.output_shape))
    fits = _FEWEST_PRODUCTS <= shape.products <= _MOST_PRODUCTS and largest <= _MOST_ELEMENTS
    return shape if fits and min(shape.out_size) > 0 else None


def parse_layer(net: str, rank: int, text: str) -> Convolution:
    """A layer on one image, as the table writes it."""
    match = _LAYER.fullmatch(text)
    assert match is not None, f"{net}: {text!r} is no layer"
    channels, out, size, rest, is_depthwise, is_transposed = match.groups()
    told = {word[0]: word[1:] for word in rest.split()}
    kernel = _axes(told["k"], rank)
    dilation = _axes(told.get("d", "1"), rank)
    same = tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True))
    return Convolution(
        net=net, images=1, channels=int(channels), out=int(out), size=_axes(size, rank),
        kernel=kernel, stride=_axes(told.get("s", "1"), rank), dilation=dilation,
        pad=_axes(told["p"], rank) if "p" in told else same,
        output_pad=_axes(told.get("o", "0"), rank),
        groups=int(channels) if is_depthwise else int(told.get("g", "1")),
        is_transposed=bool(is_transposed),
    )  # fmt: skip


def _axes(text: str, rank: int) -> tuple[int, ...]:
    values = tuple(int(n) for n in text.split("x"))
    return values * rank if len(values) == 1 else values


def _times(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values[:1] if len(set(values)) == 1 else values))
