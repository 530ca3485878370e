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

    def wide_conv(
        self, x: Tensor, name: str, inputs: int, channels: int, size: int, stride: int,
        groups: int, dilation: int,
    ) -> Tensor:  # fmt: skip
        """A convolution in groups, or with gaps; zeros around keep the extents; name-weight."""

    def transposed_conv(
        self, x: Tensor, name: str, inputs: int, channels: int, size: int, stride: int
    ) -> Tensor:
        """A transposed convolution to `stride` times the extents.

        Its variable is name-weight (inputs, channels, size, size).
        """

    def patches(self, x: Tensor, name: str, inputs: int, units: int, size: int) -> Tensor:
        """Every `size` by `size` patch of the images projected: (batch, patches, units).

        The variables are name-weight (units, inputs, size, size) and name-bias.
        """

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

    def relu6(self, x: Tensor) -> Tensor:
        """min(max(x, 0), 6)."""

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

    def join_channels(self, x: Tensor, y: Tensor) -> Tensor:
        """The channels of two images of one size, one behind the other."""

    def image(self, x: Tensor, channels: int, side: int) -> Tensor:
        """Rows as images of so many channels, in the order of NCHW."""

    def pixels(self, x: Tensor, channels: int) -> Tensor:
        """A row of its channels for each place of each image."""

    def lstm(
        self, x: Tensor, name: str, length: int, inputs: int, units: int, in_cells: bool
    ) -> Tensor:
        """All states of an LSTM over `x` (batch, length, inputs); they are (batch, length, units).

        The variables are torch's: name-weight_ih_l0, -weight_hh_l0, -bias_ih_l0, -bias_hh_l0. With
        `in_cells` a peer whose users write such a loop step by step does so.
        """

    def coupled_cells(self, x: Tensor, name: str, length: int, inputs: int, units: int) -> Tensor:
        """An LSTM without bias whose gate that keeps is 1 less the gate that lets enter, by steps.

        The variables are name-weight, (3 units, inputs + units), of the gates that let enter and
        leave, and of what is new.
        """

    def column(self, x: Tensor, index: int) -> Tensor:
        """One column of a matrix."""

    def exchange(self, x: Tensor, matrices: int, columns: int) -> Tensor:
        """Transposes of so many matrices, each the rows below those of the one before."""

    def sum_neighbours(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        """For each row the sum of those that edges lead from to it; an edge is a pair of rows."""

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
        x = _pre_normed(o, x, f"layer{i}", batch, length, units, heads, causal=True)
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


def coupled_language(o: Ops, ids: Tensor, length: int, units: int, vocabulary: int) -> Tensor:
    """A language model of cells of which no library has an operator."""
    x = o.coupled_cells(o.table(ids, "words", vocabulary, units), "cells", length, units, units)
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


def graph(
    o: Ops, x: Tensor, sources: Tensor, targets: Tensor, inputs: int, layers: int, units: int,
    classes: int,
) -> Tensor:  # fmt: skip
    """A graph convolutional network: each layer sums over neighbours what a product made."""
    for i in range(layers):
        x = o.dense(x, f"layer{i}", inputs if i == 0 else units, units)
        x = o.relu(o.sum_neighbours(x, sources, targets))
    return o.sum_neighbours(o.dense(x, "output", units, classes), sources, targets)


# of MobileNetV2: how much wider inside, channels, blocks, stride of the first
_INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
             (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip


def depthwise(o: Ops, images: Tensor, stages: int, classes: int) -> Tensor:
    """MobileNetV2, or its first stages: 3 × 3 convolutions see one channel each."""
    x, inputs = o.relu6(_normed(o, images, "stem", 3, 32, 3, 2)), 32
    for stage, (wider, channels, count, first) in enumerate(_INVERTED[:stages]):
        for block in range(count):
            name, stride = f"block{stage}_{block}", first if not block else 1
            x, inputs = _inverted(o, x, name, inputs, channels, wider, stride), channels
    x = o.relu6(_normed(o, x, "last", inputs, 1280, 1, 1))
    return o.dense(o.mean_pool(x), "output", 1280, classes)


def dilated(o: Ops, images: Tensor, width: int, classes: int) -> Tensor:
    """Convolutions whose gaps double from layer to layer, twice from 1 to 8, with sums around."""
    x = o.relu(_normed(o, images, "stem", 3, width, 3, 2))
    for i, gap in enumerate((1, 2, 4, 8) * 2):
        y = o.wide_conv(x, f"layer{i}", width, width, 3, 1, 1, gap)
        x = o.relu(o.add(x, o.norm(y, f"layer{i}_bn", width)))
    return o.dense(o.mean_pool(x), "output", width, classes)


def unet(o: Ops, images: Tensor, width: int, depth: int, classes: int) -> Tensor:
    """U-Net with batch normalization: the class of each place, a row for each."""
    x, inputs, sides = images, 3, []
    for i in range(depth):
        x, inputs = _double(o, x, f"down{i}", inputs, width << i), width << i
        sides.append(x)
        x = o.max_pool(x, 2, 2, 0)
    x, inputs = _double(o, x, "bottom", inputs, width << depth), width << depth
    for i in reversed(range(depth)):
        channels = width << i
        x = o.transposed_conv(x, f"up{i}", inputs, channels, 2, 2)
        x = _double(o, o.join_channels(sides[i], x), f"up{i}_", 2 * channels, channels)
        inputs = channels
    return o.pixels(o.conv(x, "output", width, classes, 1, 1, bias=True), classes)


def vit(
    o: Ops, images: Tensor, batch: int, side: int, patch: int, layers: int, units: int, heads: int,
    classes: int,
) -> Tensor:  # fmt: skip
    """A vision transformer, whose result is of the mean of all patches."""
    length = (side // patch) ** 2
    x = o.patches(images, "patches", 3, units, patch)
    x = o.tokens(o.positions(x, "places", length, units))
    for i in range(layers):
        x = _pre_normed(o, x, f"layer{i}", batch, length, units, heads, causal=False)
    x = o.mean_tokens(o.layer_norm(x, "last", units), batch, length)
    return o.dense(x, "output", units, classes)


def mixer(
    o: Ops, images: Tensor, batch: int, side: int, patch: int, layers: int, units: int,
    classes: int,
) -> Tensor:  # fmt: skip
    """MLP-Mixer: products over the patches of a channel, and over the channels of a patch."""
    length = (side // patch) ** 2
    x = o.tokens(o.patches(images, "patches", 3, units, patch))
    for i in range(layers):
        y = o.exchange(o.layer_norm(x, f"layer{i}_a", units), batch, units)
        y = o.gelu(o.dense(y, f"layer{i}_b", length, units // 2))
        y = o.dense(y, f"layer{i}_c", units // 2, length)
        x = o.add(x, o.exchange(y, batch, length))
        y = o.gelu(o.dense(o.layer_norm(x, f"layer{i}_d", units), f"layer{i}_e", units, 4 * units))
        x = o.add(x, o.dense(y, f"layer{i}_f", 4 * units, units))
    x = o.mean_tokens(o.layer_norm(x, "last", units), batch, length)
    return o.dense(x, "output", units, classes)


def gan(o: Ops, noise: Tensor, inputs: int, width: int) -> Tensor:
    """DCGAN's generator of digits, and its discriminator behind it: real or not."""
    x = o.relu(o.dense(noise, "start", inputs, 4 * width * 49))
    x = o.image(x, 4 * width, 7)
    x = o.transposed_conv(x, "up0", 4 * width, 2 * width, 5, 1)
    x = o.relu(o.norm(x, "up0_bn", 2 * width))
    x = o.transposed_conv(x, "up1", 2 * width, width, 4, 2)
    x = o.relu(o.norm(x, "up1_bn", width))
    x = o.transposed_conv(x, "up2", width, 1, 4, 2)
    x = o.relu(o.conv(x, "down0", 1, width, 5, 2, bias=True))
    x = o.relu(o.conv(x, "down1", width, 2 * width, 5, 2, bias=True))
    return o.dense(o.flat(x), "output", 2 * width * 49, 2)


def _inverted(
    o: Ops, x: Tensor, name: str, inputs: int, channels: int, wider: int, stride: int
) -> Tensor:
    y, width = x, inputs * wider
    if wider > 1:
        y = o.relu6(_normed(o, x, f"{name}_a", inputs, width, 1, 1))
    y = o.wide_conv(y, f"{name}_b", width, width, 3, stride, width, 1)
    y = o.relu6(o.norm(y, f"{name}_b_bn", width))
    y = _normed(o, y, f"{name}_c", width, channels, 1, 1)
    return o.add(x, y) if stride == 1 and inputs == channels else y


def _double(o: Ops, x: Tensor, name: str, inputs: int, channels: int) -> Tensor:
    x = o.relu(_normed(o, x, f"{name}a", inputs, channels, 3, 1))
    return o.relu(_normed(o, x, f"{name}b", channels, channels, 3, 1))


def _pre_normed(
    o: Ops, x: Tensor, name: str, batch: int, length: int, units: int, heads: int, *, causal: bool
) -> Tensor:
    """A layer of a transformer that normalises what goes into its two parts."""
    y = o.layer_norm(x, f"{name}_norm1", units)
    q, k, v = (o.dense(y, f"{name}_{part}", units, units) for part in "qkv")
    y = o.attention(q, k, v, batch, length, heads, causal=causal)
    x = o.add(x, o.dense(y, f"{name}_attended", units, units))
    y = o.layer_norm(x, f"{name}_norm2", units)
    y = o.gelu(o.dense(y, f"{name}_hidden", units, 4 * units))
    return o.add(x, o.dense(y, f"{name}_output", 4 * units, units))


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

    def wide_conv(
        self, x: Shape, name: str, inputs: int, channels: int, size: int, stride: int,
        groups: int, dilation: int,
    ) -> Shape:  # fmt: skip
        assert x[1] == inputs, f"{name}: {x[1]} channels, not {inputs}"
        self.variables[f"{name}-weight"] = (channels, inputs // groups, size, size)
        places = _windows(x[2:], size, stride, size // 2)  # gaps widen window and border alike
        return self._count((x[0], channels, *places), 2 * inputs // groups * size * size)

    def transposed_conv(
        self, x: Shape, name: str, inputs: int, channels: int, size: int, stride: int
    ) -> Shape:
        assert x[1] == inputs, f"{name}: {x[1]} channels, not {inputs}"
        assert (size - stride) % 2 == 0, f"{name}: an odd border of {size - stride}"
        self.variables[f"{name}-weight"] = (inputs, channels, size, size)
        self._count(x, 2 * channels * size * size)
        return self._count((x[0], channels, *(stride * side for side in x[2:])))

    def patches(self, x: Shape, name: str, inputs: int, units: int, size: int) -> Shape:
        self.variables |= {
            f"{name}-weight": (units, inputs, size, size), f"{name}-bias": (units,),
        }  # fmt: skip
        length = math.prod(side // size for side in x[2:])
        return self._count((x[0], length, units), 2 * inputs * size * size)

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

    def relu6(self, x: Shape) -> Shape:
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

    def join_channels(self, x: Shape, y: Shape) -> Shape:
        assert x[2:] == y[2:], f"images of {x[2:]} beside those of {y[2:]}"
        return self._count((x[0], x[1] + y[1], *x[2:]))

    def image(self, x: Shape, channels: int, side: int) -> Shape:
        assert x[1] == channels * side * side, f"{x[1]} are no {(channels, side, side)}"
        return (x[0], channels, side, side)

    def pixels(self, x: Shape, channels: int) -> Shape:
        assert x[1] == channels, f"{x[1]} channels, not {channels}"
        return self._count((x[0] * math.prod(x[2:]), channels))

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

    def coupled_cells(self, x: Shape, name: str, length: int, inputs: int, units: int) -> Shape:
        assert x[1:] == (length, inputs), f"{name}: {x[1:]}, not {(length, inputs)}"
        self.variables[f"{name}-weight"] = (3 * units, inputs + units)
        self._count((x[0], length, 3 * units), 2 * (inputs + units))
        return self._count((x[0], length, units))

    def column(self, x: Shape, index: int) -> Shape:
        assert index < x[1], f"column {index} of {x[1]}"
        return x[:1]

    def exchange(self, x: Shape, matrices: int, columns: int) -> Shape:
        assert (x[0] % matrices, x[1]) == (0, columns), f"{x} are not {matrices} matrices"
        return self._count((matrices * columns, x[0] // matrices))

    def sum_neighbours(self, x: Shape, sources: Shape, targets: Shape) -> Shape:
        assert sources == targets, f"{sources} and {targets} are no pairs"
        self._count((*sources, *x[1:]), 1)
        return self._count(x)

    def dots(self, vectors: Sequence[Shape], width: int) -> Shape:
        batch, count = vectors[0][0], len(vectors)
        return self._count((batch, count * (count - 1) // 2), 4 * width)

    def _count(self, shape: Shape, flops_each: int = 0) -> Shape:
        self.elements += math.prod(shape)
        self.flops += math.prod(shape) * flops_each
        return shape


def _windows(sides: Shape, size: int, stride: int, pad: int) -> Shape:
    return tuple((side + 2 * pad - size) // stride + 1 for side in sides)
