"""YOLOv3's boxes and loss in operators of the catalogue, where OneFlow's program had its own.

A *place* is one anchor in one cell of one head's grid; there are 3 × (1 + 4 + 16) × (side / 32)²
of them. Boxes are centre, width and height in parts of the image's side.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import flow2onnx as flow
from flow2onnx.trace.blob import Blob

# widths and heights in pixels, small to large: three for each head, the coarse one has the last
ANCHORS = (
    (10, 13), (16, 30), (33, 23), (30, 61), (62, 45), (59, 119), (116, 90), (156, 198), (373, 326),
)  # fmt: skip
SLOTS = 3
# A place that overlaps a box by more is no background, even if the box belongs to another place.
IGNORED_ABOVE = 0.7
TINY = 1e-6


def vector(values: Sequence[float]) -> Blob:
    """Constants as a vector."""
    return flow.concat([flow.constant(v, dtype=flow.float, shape=(1,)) for v in values], axis=0)


def columns(x: Blob, first: int, count: int) -> Blob:
    """A part of the last axis."""
    begin = [None] * (len(x.shape) - 1)
    return flow.slice(x, [*begin, first], [*begin, count])


@dataclass(frozen=True)
class Head:
    """The output of one head, (batch, places, 5 + classes), and the boxes that it stands for."""

    said: Blob
    boxes: Blob
    cells: int

    @classmethod
    def of(cls, y: Blob, anchors: Sequence[tuple[int, int]], side: int, name: str) -> "Head":
        """From the last convolution, (batch, 3 * (5 + classes), cells, cells)."""
        batch, channels, cells, _ = y.shape
        x = flow.transpose(y, perm=[0, 2, 3, 1])
        x = flow.reshape(x, (batch, cells * cells, SLOTS, channels // SLOTS))
        index = flow.range(cells, dtype=flow.float, name=f"{name}-cells")
        across = flow.reshape(index, (1, 1, cells, 1)) + flow.zeros((1, cells, 1, 1))
        down = flow.reshape(index, (1, cells, 1, 1)) + flow.zeros((1, 1, cells, 1))
        cell = flow.reshape(flow.concat([across, down], axis=3), (1, cells * cells, 1, 2))
        sizes = flow.reshape(vector([n / side for a in anchors for n in a]), (1, 1, SLOTS, 2))
        centre = (flow.math.sigmoid(columns(x, 0, 2)) + cell) * (1 / cells)
        boxes = flow.concat([centre, flow.math.exp(columns(x, 2, 2)) * sizes], axis=3)
        places = (batch, cells * cells * SLOTS, -1)
        return cls(flow.reshape(x, places), flow.reshape(boxes, places), cells)


def all_places(heads: Sequence[Head]) -> tuple[Blob, Blob]:
    """The outputs of every place, and its box."""
    said, boxes = ([getattr(head, part) for head in heads] for part in ("said", "boxes"))
    return flow.concat(said, axis=1), flow.concat(boxes, axis=1)


def decoded(heads: Sequence[Head]) -> tuple[Blob, Blob]:
    """Boxes as corners, (batch, places, 4), and the score of each class in each."""
    said, boxes = all_places(heads)
    sure = flow.math.sigmoid(columns(said, 4, 1))
    classes = flow.math.sigmoid(columns(said, 5, -1))
    return flow.concat(_corners(boxes), axis=2), sure * classes


def loss_of(heads: Sequence[Head], boxes: Blob, labels: Blob, side: int) -> Blob:
    """The loss of each image, shape (batch,): Darknet's gradients, written as losses.

    The anchor most like a box in width and height is to find it, in the cell of the box's centre:
    cross entropy for the position in the cell and for every class, half the squared error for the
    logarithms of width and height, small boxes up to twice as much. Cross entropy, too, for whether
    there is a box, at all places but those that overlap one well without being its place.
    """
    said, guessed = all_places(heads)
    is_box = flow.cast(flow.math.greater_equal(labels, 0), flow.float)
    place, position = _assigned(heads, boxes, side)
    at = flow.gather(said, place, axis=1, batch_dims=1)
    classes = flow.one_hot(_whole(labels, is_box), said.shape[2] - 5, dtype=flow.float)
    return (
        _sum(_of_positions(at, position, boxes), is_box)
        + _sum(_entropy(classes, columns(at, 5, -1)), is_box)
        + _of_presence(columns(said, 4, 1), guessed, boxes, place, is_box)
    )


def _assigned(heads: Sequence[Head], boxes: Blob, side: int) -> tuple[Blob, Blob]:
    """The place that is to find each box, (batch, boxes), and what it is to say of its position."""
    widths, heights = (vector([a[i] / side for a in ANCHORS]) for i in range(2))
    w, h = (_at_least(columns(boxes, i, 1), TINY) for i in (2, 3))
    shared = flow.math.minimum(w, widths) * flow.math.minimum(h, heights)
    best = flow.math.argmax(shared / (w * h + widths * heights - shared))
    cells = _of_heads([head.cells for head in heads], best)
    first = [0, *(SLOTS * head.cells**2 for head in heads)]
    start = _of_heads([first[0], first[1], first[1] + first[2]], best)
    slot = flow.gather(vector([i % SLOTS for i in range(len(ANCHORS))]), best)
    across, down = (flow.reshape(columns(boxes, i, 1), best.shape) * cells for i in range(2))
    column, row = (flow.math.minimum(flow.math.floor(v), cells - 1.0) for v in (across, down))
    place = flow.cast(start + (row * cells + column) * float(SLOTS) + slot, flow.int32)
    parts = [
        across - column, down - row,
        flow.math.log(flow.reshape(w, best.shape) / flow.gather(widths, best)),
        flow.math.log(flow.reshape(h, best.shape) / flow.gather(heights, best)),
    ]  # fmt: skip
    return place, flow.stack(parts, axis=2)


def _of_heads(numbers: Sequence[float], anchor: Blob) -> Blob:
    """The number of the head that has `anchor`; the first head has the last three."""
    return flow.gather(vector([n for n in reversed(numbers) for _ in range(SLOTS)]), anchor)


def _of_positions(at: Blob, position: Blob, boxes: Blob) -> Blob:
    centre = _entropy(columns(position, 0, 2), columns(at, 0, 2))
    extent = flow.math.squared_difference(columns(at, 2, 2), columns(position, 2, 2)) * 0.5
    weight = 2.0 - columns(boxes, 2, 1) * columns(boxes, 3, 1)
    return (centre + extent) * weight


def _of_presence(said: Blob, guessed: Blob, boxes: Blob, place: Blob, is_box: Blob) -> Blob:
    batch, places, _ = said.shape
    overlap = flow.math.reduce_max(_overlaps(guessed, boxes) * flow.expand_dims(is_box, 1), axis=2)
    is_ignored = flow.cast(flow.math.greater(overlap, IGNORED_ABOVE), flow.float)
    is_taken = _marked(place, is_box, batch, places)
    counts = flow.math.maximum(1.0 - is_ignored, is_taken)
    return _sum(_entropy(flow.expand_dims(is_taken, 2), said), counts)


def _marked(place: Blob, is_box: Blob, batch: int, places: int) -> Blob:
    """1 at the places that are to find a box, shape (batch, places)."""
    image = flow.reshape(flow.range(batch, dtype=flow.int32, name="images"), (batch, 1))
    index = flow.reshape(place + image * places, (-1, 1))
    counts = flow.scatter_nd(index, flow.reshape(is_box, (-1,)), (batch * places,))
    return flow.clip_by_value(flow.reshape(counts, (batch, places)), 0, 1)


def _overlaps(a: Blob, b: Blob) -> Blob:
    """Intersection over union of each box of `a` with each of `b`, shape (batch, a, b)."""
    low_a, high_a = (flow.expand_dims(v, 2) for v in _corners(a))
    low_b, high_b = (flow.expand_dims(v, 1) for v in _corners(b))
    extent = flow.math.minimum(high_a, high_b) - flow.math.maximum(low_a, low_b)
    shared = _area(_at_least(extent, 0.0))
    union = _area(high_a - low_a) + _area(high_b - low_b) - shared
    return shared / _at_least(union, TINY)


def _corners(boxes: Blob) -> tuple[Blob, Blob]:
    """The corners nearest to and farthest from the origin."""
    centre, half = columns(boxes, 0, 2), columns(boxes, 2, 2) * 0.5
    return centre - half, centre + half


def _area(extent: Blob) -> Blob:
    x = columns(extent, 0, 1) * columns(extent, 1, 1)
    return flow.squeeze(x, axis=[-1])


def _at_least(x: Blob, least: float) -> Blob:
    return flow.clip_by_value(x, min_value=least)


def _whole(labels: Blob, is_box: Blob) -> Blob:
    """Labels with 0 for rows that only fill up."""
    return flow.cast(flow.cast(labels, flow.float) * is_box, flow.int32)


def _entropy(labels: Blob, logits: Blob) -> Blob:
    return flow.nn.sigmoid_cross_entropy_with_logits(labels, logits)


def _sum(losses: Blob, weights: Blob) -> Blob:
    """Per image, losses (batch, n, k) weighted by (batch, n)."""
    return flow.math.reduce_sum(losses * flow.expand_dims(weights, 2), axis=[1, 2])
