"""The networks of the benchmarks, each written once for all peers.

A network is a function of `o`, the operations that a peer has under these names, and of its inputs;
it gives the logits. Operations with variables take their name and sizes. Images are NCHW.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

Tensor = Any  # every peer has its own


class Ops(Protocol):
    """The operations of a peer in its own terms, `name-weight` and such by name."""

    def dense(self, x: Tensor, name: str, inputs: int, units: int) -> Tensor:
        """x Wᵀ + b of the rows of x; the variables are name-weight (units, inputs) and -bias."""

    def conv(
        self, x: Tensor, name: str, inputs: int, channels: int, size: int, stride: int, bias: bool
    ) -> Tensor:
        """A convolution with `size // 2` zeros around; name-weight, and name-bias if `bias`."""

    def norm(self, x: Tensor, name: str, channels: int) -> Tensor:
        """Batch normalization; name-gamma, -beta, and the state -moving_mean, -moving_variance."""

    def layer_norm(self, x: Tensor, name: str, units: int) -> Tensor:
        """The last axis normalised; name-gamma and name-beta."""

    def table(self, ids: Tensor, name: str, rows: int, width: int) -> Tensor:
        """The rows of name-table (rows, width) that `ids` name."""

    def positions(self, x: Tensor, name: str, length: int, units: int) -> Tensor:
        """`x` (batch, length, units) plus name-table (length, units)."""

    def relu(self, x: Tensor) -> Tensor:
        """max(x, 0)."""

    def gelu(self, x: Tensor) -> Tensor:
        """x Φ(x), with the exact Φ."""

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y, of one shape."""

    def max_pool(self, x: Tensor, size: int, stride: int, pad: int) -> Tensor:
        """The largest of each window, `pad` wide borders left out."""

    def mean_pool(self, x: Tensor) -> Tensor:
        """The mean over height and width."""

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, batch: int, length: int, heads: int, causal: bool
    ) -> Tensor:
        """softmax(q kᵀ / √width) v for each of the heads; all are (batch · length, units).

        With `causal` no token sees those behind it.
        """

    def scores(self, x: Tensor, name: str, rows: int, width: int) -> Tensor:
        """x Wᵀ with W the name-table (rows, width) that `table` reads too."""

    def flat(self, x: Tensor) -> Tensor:
        """A row for each sample, in the order of NCHW."""

    def tokens(self, x: Tensor) -> Tensor:
        """(batch, length, units) as (batch · length, units)."""

    def mean_tokens(self, x: Tensor, batch: int, length: int) -> Tensor:
        """The mean over the tokens of each sample, (batch, units)."""

    def concat(self, x: Tensor, y: Tensor) -> Tensor:
        """Both side by side, along the last axis."""

    def lstm(
        self, x: Tensor, name: str, length: int, inputs: int, units: int, in_cells: bool
    ) -> Tensor:
        """All states of an LSTM over `x` (batch, length, inputs); they are (batch, length, units).

        The variables are torch's: name-weight_ih_l0, -weight_hh_l0, -bias_ih_l0, -bias_hh_l0. With
        `in_cells` a peer whose users write such a loop step by step does so.
        """

    def column(self, x: Tensor, index: int) -> Tensor:
        """One column of a matrix."""

    def dots(self, vectors: Sequence[Tensor], width: int) -> Tensor:
        """The dot products of every pair of vectors, each (batch, width): (batch, pairs)."""


def mlp(o: Ops, images: Tensor, hidden: int, depth: int) -> Tensor:
    """A perceptron with `depth` hidden layers, for digits."""
    x, width = o.flat(images), 784
    for i in range(depth):
        x, width = o.relu(o.dense(x, f"hidden{i}", width, hidden)), hidden
    return o.dense(x, "output", width, 10)


def lenet(o: Ops, images: Tensor) -> Tensor:
    """Two convolutions with pools and two dense layers, for digits."""
    x, width = images, 1
    for i, channels in enumerate((32, 64), 1):
        x = o.relu(o.conv(x, f"conv{i}", width, channels, 5, 1, bias=True))
        x, width = o.max_pool(x, 2, 2, 0), channels
    x = o.relu(o.dense(o.flat(x), "dense1", 64 * 49, 512))
    return o.dense(x, "dense2", 512, 10)


def resnet18(o: Ops, images: Tensor, width: int, classes: int) -> Tensor:
    """ResNet-18 for small images: a 3 × 3 stem, no pool after it, eight basic blocks."""
    x, inputs = o.relu(_normed(o, images, "stem", 3, width, 3, 1)), width
    for stage in range(4):
        channels = width << stage
        for block in range(2):
            name, stride = f"block{stage}_{block}", 2 if stage and not block else 1
            x, inputs = _basic(o, x, name, inputs, channels, stride), channels
    return o.dense(o.mean_pool(x), "output", inputs, classes)


def resnet50(o: Ops, images: Tensor, width: int, classes: int) -> Tensor:
    """ResNet-50 v1.5."""
    x = o.relu(_normed(o, images, "stem", 3, width, 7, 2))
    x, inputs = o.max_pool(x, 3, 2, 1), width
    for stage, count in enumerate((3, 4, 6, 3)):
        channels = width << stage
        for block in range(count):
            name, stride = f"block{stage}_{block}", 2 if stage and not block else 1
            x, inputs = _bottleneck(o, x, name, inputs, channels, stride), 4 * channels
    return o.dense(o.mean_pool(x), "output", inputs, classes)


def encoder(
    o: Ops, ids: Tensor, batch: int, length: int, layers: int, units: int, heads: int,
    vocabulary: int, classes: int,
) -> Tensor:  # fmt: skip
    """A transformer's encoder as BERT's, without dropout, and a class for each sequence."""
    x = o.positions(o.table(ids, "words", vocabulary, units), "places", length, units)
    x = o.layer_norm(o.tokens(x), "first", units)
    for i in range(layers):
        q, k, v = (o.dense(x, f"layer{i}_{part}", units, units) for part in "qkv")
        y = o.attention(q, k, v, batch, length, heads, causal=False)
        y = o.dense(y, f"layer{i}_attended", units, units)
        x = o.layer_norm(o.add(x, y), f"layer{i}_norm1", units)
        y = o.gelu(o.dense(x, f"layer{i}_hidden", units, 4 * units))
        y = o.dense(y, f"layer{i}_output", 4 * units, units)
        x = o.layer_norm(o.add(x, y), f"layer{i}_norm2", units)
    return o.dense(o.mean_tokens(x, batch, length), "output", units, classes)


def decoder(
    o: Ops, ids: Tensor, batch: int, length: int, layers: int, units: int, heads: int,
    vocabulary: int,
) -> Tensor:  # fmt: skip
    """A transformer's decoder as GPT-2's, without dropout: what follows each token."""
    x = o.positions(o.table(ids, "words", vocabulary, units), "places", length, units)
    x = o.tokens(x)
    for i in range(layers):
        y = o.layer_norm(x, f"layer{i}_norm1", units)
        q, k, v = (o.dense(y, f"layer{i}_{part}", units, units) for part in "qkv")
        y = o.attention(q, k, v, batch, length, heads, causal=True)
        x = o.add(x, o.dense(y, f"layer{i}_attended", units, units))
        y = o.layer_norm(x, f"layer{i}_norm2", units)
        y = o.gelu(o.dense(y, f"layer{i}_hidden", units, 4 * units))
        x = o.add(x, o.dense(y, f"layer{i}_output", 4 * units, units))
    return o.scores(o.layer_norm(x, "last", units), "words", vocabulary, units)


def wide(
    o: Ops, ids: Tensor, numbers: Tensor, rows: int, width: int, fields: int, hidden: int
) -> Tensor:
    """An embedding of `fields` categories beside 13 numbers, and a perceptron: click or not."""
    x = o.concat(o.flat(o.table(ids, "categories", rows, width)), numbers)
    x = o.relu(o.dense(x, "hidden1", fields * width + 13, hidden))
    x = o.relu(o.dense(x, "hidden2", hidden, hidden))
    return o.dense(x, "output", hidden, 2)


def language(
    o: Ops, ids: Tensor, length: int, layers: int, units: int, vocabulary: int, in_cells: bool
) -> Tensor:
    """A language model of LSTMs: what follows each word."""
    x = o.table(ids, "words", vocabulary, units)
    for i in range(layers):
        x = o.lstm(x, f"lstm{i}", length, units, units, in_cells)
    return o.dense(o.tokens(x), "output", units, vocabulary)


def dlrm(
    o: Ops, ids: Tensor, numbers: Tensor, fields: int, rows: int, width: int, hidden: int
) -> Tensor:
    """A recommendation model with a table for each category and the dot products of all pairs."""
    x = o.relu(o.dense(o.relu(o.dense(numbers, "bottom1", 13, hidden)), "bottom2", hidden, width))
    tables = [o.table(o.column(ids, i), f"field{i}", rows, width) for i in range(fields)]
    pairs = (fields + 1) * fields // 2
    x = o.concat(x, o.dots([x, *tables], width))
    x = o.relu(o.dense(x, "top1", width + pairs, hidden))
    return o.dense(x, "top2", hidden, 2)


def _normed(
    o: Ops, x: Tensor, name: str, inputs: int, channels: int, size: int, stride: int
) -> Tensor:
    return o.norm(o.conv(x, name, inputs, channels, size, stride, False), f"{name}_bn", channels)


def _basic(o: Ops, x: Tensor, name: str, inputs: int, channels: int, stride: int) -> Tensor:
    y = o.relu(_normed(o, x, f"{name}_a", inputs, channels, 3, stride))
    y = _normed(o, y, f"{name}_b", channels, channels, 3, 1)
    if inputs != channels:
        x = _normed(o, x, f"{name}_short", inputs, channels, 1, stride)
    return o.relu(o.add(y, x))


def _bottleneck(o: Ops, x: Tensor, name: str, inputs: int, channels: int, stride: int) -> Tensor:
    y = o.relu(_normed(o, x, f"{name}_a", inputs, channels, 1, 1))
    y = o.relu(_normed(o, y, f"{name}_b", channels, channels, 3, stride))
    y = _normed(o, y, f"{name}_c", channels, 4 * channels, 1, 1)
    if inputs != 4 * channels:
        x = _normed(o, x, f"{name}_short", inputs, 4 * channels, 1, stride)
    return o.relu(o.add(y, x))


Shape = tuple[int, ...]


class Sizes:
    """Ops on shapes, which compute nothing: the variables of a network, and what it costs.

    `flops` counts two for each multiplication with an addition, in convolutions, matrix products
    and attention; `elements` are those of all results, which the backward pass reads again.
    """

    def __init__(self) -> None:
        self.variables: dict[str, Shape] = {}
        self.state: dict[str, Shape] = {}
        self.flops = 0
        self.elements = 0

    def dense(self, x: Shape, name: str, inputs: int, units: int) -> Shape:
        assert x[-1] == inputs, f"{name}: rows of {x[-1]}, not of {inputs}"
        self.variables |= {f"{name}-weight": (units, inputs), f"{name}-bias": (units,)}
        return self._count((x[0], units), 2 * inputs)

    def conv(
        self, x: Shape, name: str, inputs: int, channels: int, size: int, stride: int, bias: bool
    ) -> Shape:
        assert x[1] == inputs, f"{name}: {x[1]} channels, not {inputs}"
        self.variables[f"{name}-weight"] = (channels, inputs, size, size)
        if bias:
            self.variables[f"{name}-bias"] = (channels,)
        places = _windows(x[2:], size, stride, size // 2)
        return self._count((x[0], channels, *places), 2 * inputs * size * size)

    def norm(self, x: Shape, name: str, channels: int) -> Shape:
        self.variables |= {f"{name}-gamma": (channels,), f"{name}-beta": (channels,)}
        self.state |= {f"{name}-moving_mean": (channels,), f"{name}-moving_variance": (channels,)}
        return self._count(x)

    def layer_norm(self, x: Shape, name: str, units: int) -> Shape:
        self.variables |= {f"{name}-gamma": (units,), f"{name}-beta": (units,)}
        return self._count(x)

    def table(self, ids: Shape, name: str, rows: int, width: int) -> Shape:
        self.variables[f"{name}-table"] = (rows, width)
        return self._count((*ids, width))

    def positions(self, x: Shape, name: str, length: int, units: int) -> Shape:
        self.variables[f"{name}-table"] = (length, units)
        return self._count(x)

    def relu(self, x: Shape) -> Shape:
        return self._count(x)

    def gelu(self, x: Shape) -> Shape:
        return self._count(x)

    def add(self, x: Shape, y: Shape) -> Shape:
        assert x == y, f"{x} is added to {y}"
        return self._count(x)

    def max_pool(self, x: Shape, size: int, stride: int, pad: int) -> Shape:
        return self._count((*x[:2], *_windows(x[2:], size, stride, pad)))

    def mean_pool(self, x: Shape) -> Shape:
        return self._count(x[:2])

    def attention(
        self, q: Shape, k: Shape, v: Shape, batch: int, length: int, heads: int, causal: bool
    ) -> Shape:
        each = 1 if causal else 2  # half of the products are of tokens that are not seen
        self._count((batch, heads, length, length), each * (q[-1] // heads))
        return self._count(q, each * length)

    def scores(self, x: Shape, name: str, rows: int, width: int) -> Shape:
        assert self.variables[f"{name}-table"] == (rows, width), f"{name} is another table"
        return self._count((x[0], rows), 2 * width)

    def flat(self, x: Shape) -> Shape:
        return (x[0], math.prod(x[1:]))

    def tokens(self, x: Shape) -> Shape:
        return (x[0] * x[1], x[2])

    def mean_tokens(self, x: Shape, batch: int, length: int) -> Shape:
        return self._count((batch, x[-1]))

    def concat(self, x: Shape, y: Shape) -> Shape:
        return self._count((x[0], x[1] + y[1]))

    def lstm(
        self, x: Shape, name: str, length: int, inputs: int, units: int, in_cells: bool
    ) -> Shape:
        assert x[1:] == (length, inputs), f"{name}: {x[1:]}, not {(length, inputs)}"
        self.variables |= {
            f"{name}-weight_ih_l0": (4 * units, inputs), f"{name}-weight_hh_l0": (4 * units, units),
            f"{name}-bias_ih_l0": (4 * units,), f"{name}-bias_hh_l0": (4 * units,),
        }  # fmt: skip
        self._count((x[0], length, 4 * units), 2 * (inputs + units))
        return self._count((x[0], length, units))

    def column(self, x: Shape, index: int) -> Shape:
        assert index < x[1], f"column {index} of {x[1]}"
        return x[:1]

    def dots(self, vectors: Sequence[Shape], width: int) -> Shape:
        batch, count = vectors[0][0], len(vectors)
        return self._count((batch, count * (count - 1) // 2), 4 * width)

    def _count(self, shape: Shape, flops_each: int = 0) -> Shape:
        self.elements += math.prod(shape)
        self.flops += math.prod(shape) * flops_each
        return shape


def _windows(sides: Shape, size: int, stride: int, pad: int) -> Shape:
    return tuple((side + 2 * pad - size) // stride + 1 for side in sides)
