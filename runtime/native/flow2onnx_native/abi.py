"""Numbers that passes write and kernels read: of operations, programs, shapes and limits.

This is the one table of both sides: `setup.py` makes a C++ header of it, and the library is asked
for its digest when it is opened. Programs and shapes are attributes of whole numbers.

A `Fused` node has the attribute `plan`: `FusedHead`; for each input a `FusedOperand`; for each
output the same, its rank and its sizes; for each constant its register; for each step a `Step`. A
`FusedChannels` node has a `ChannelsHead`; for each input a `ChannelsOperand`; for each output the
same, its rank and its sizes; for each constant its cell; for each stage eight tables, each behind
the number of its rows: steps on cells, links that read, spread, write, recall and keep, steps on
tiles, links that sum. The constants themselves are the attribute `values` of both.
"""

import hashlib
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

__all__ = [
    "CHANNEL_TILE",
    "DOMAIN",
    "DRAW_PRIME",
    "LONGEST_ROW",
    "LOOP_COUNT",
    "MOST_ATTENTION_EXTENT",
    "MOST_COUNTERS",
    "MOST_DIMENSIONS",
    "MOST_DRAWN",
    "MOST_HEAD_WIDTH",
    "MOST_HEAD_WIDTH_ON_CPU",
    "MOST_IMAGES",
    "MOST_MATRIX_ELEMENTS",
    "MOST_MATRIX_TASKS",
    "MOST_POOL_EXTENT",
    "MOST_POOL_STRIDE",
    "MOST_POOL_WINDOW",
    "MOST_TASKS",
    "MOST_WINOGRAD_CHANNELS",
    "MOST_WINOGRAD_EXTENT",
    "OPERATION_COUNT",
    "PACKED_COLUMNS",
    "REVISION",
    "Activation",
    "Addend",
    "AttentionLayout",
    "AttentionShape",
    "Cell",
    "ChannelsHead",
    "ChannelsOperand",
    "ConvForm",
    "ConvShape",
    "Draw",
    "FusedHead",
    "FusedOperand",
    "Kind",
    "Link",
    "Matrix",
    "Method",
    "Mode",
    "Operation",
    "PackShape",
    "PackedShape",
    "PoolShape",
    "ProductHead",
    "RecurrenceShape",
    "Step",
    "cpp_header",
    "digest",
]

REVISION = 6  # raised where attributes change and nothing below shows it
DOMAIN = "flow2onnx.native"


class Operation(IntEnum):
    """An operation of a program; those from `ROW_SUM` on reduce each row, into all its elements."""

    COPY, NEG, ABS, SQRT, RECIPROCAL, EXP, ERF, SIGMOID, RELU, NOT, TRUTH, SIGN = range(12)
    GELU_SLOPE = 12
    ADD, SUB, MUL, DIV, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, EQUAL, AND, OR = range(13, 24)
    MAX, MIN, WHERE = range(24, 27)
    ROW_SUM, ROW_MEAN = range(27, 29)


LOOP_COUNT = int(Operation.ROW_SUM)
OPERATION_COUNT = len(Operation)


class Mode(IntEnum):
    """How an operand of `Fused` stands beside the elements: inputs are FULL or SPREAD."""

    FULL = 0
    SPREAD = 1
    PER_ROW = 1  # of outputs
    SUMMED = 2


class Kind(IntEnum):
    """The elements of an operand of `FusedChannels`: all, one for each channel, or one."""

    FULL, CELLS, ONE = range(3)


class Addend(IntEnum):
    """How the addend of a product stands beside its result; a mask is not added."""

    NOTHING, ONE, PER_COLUMN, PER_ROW, FULL, MASK = range(6)


class Activation(IntEnum):
    """The function of each result of `PackedProduct`; GELU is the exact one, not tanh's."""

    NONE, RELU, GELU = range(3)


class Cell(IntEnum):
    """What a step of `Recurrence` computes; the last two are plain layers of that activation."""

    LSTM, GRU, TANH, RELU = range(4)


class Method(IntEnum):
    """The attribute `method` of convolutions; tiles are Winograd's, named by the side of results.

    SUMS are oneDNN's sums of products, PLANES sums of shifted planes, for few channels a group,
    CHANNELS products of channels side by side, for one channel a group, COLUMNS one product of the
    weights, as they lie, with what the few windows of all images see, for forward passes without
    groups; where a shape is too large for these three, the library computes it by SUMS. PRODUCTS
    are matrix products of weights and what windows see, moved to rows where it does not lie so; of
    groups, with windows of one element alone.
    """

    SUMS = 0
    PLANES = 1
    TILES_OF_2 = 2
    CHANNELS = 3
    TILES_OF_4 = 4
    PRODUCTS = 5
    COLUMNS = 6


class FusedHead(NamedTuple):
    """Elements, the length of a row or 0, and how many of each there are."""

    total: int
    row: int
    registers: int
    inputs: int
    outputs: int
    constants: int
    steps: int


class FusedOperand(NamedTuple):
    """The register of an operand, and its index for element i: (i // inner) % middle."""

    at: int
    mode: int
    middle: int
    inner: int
    element: int  # type, as ONNX numbers them


class Step(NamedTuple):
    """One operation on registers, cells or places; an operand that it has not is the first."""

    operation: int
    to: int
    a: int
    b: int
    c: int


class ChannelsHead(NamedTuple):
    """The sizes before, of and behind channels, and how many of each there are."""

    outer: int
    channels: int
    inner: int
    places: int
    cells: int
    kept: int
    inputs: int
    outputs: int
    constants: int
    stages: int


class ChannelsOperand(NamedTuple):
    """The kind of an operand, the cell of one that is not full, and its type as ONNX has it."""

    kind: int
    cell: int
    element: int


class Link(NamedTuple):
    """From an operand, a cell or what is kept to a place, or from a place to a cell."""

    start: int
    to: int


class ProductHead(NamedTuple):
    """The attribute `shape` of `Product`, before a `Matrix` each for A, B and Y."""

    rows: int
    columns: int
    sum: int
    outer: int
    inner: int
    tasks: int
    addend: int
    has_relu: int
    has_sums: int


class Matrix(NamedTuple):
    """How the matrices of an operand lie in it: strides of two axes of pairs; all its elements."""

    is_transposed: int
    leading: int
    outer: int
    inner: int
    size: int


class PackShape(NamedTuple):
    """The attribute `shape` of `Pack`: the extents of the matrix, and if it lies transposed."""

    depth: int
    columns: int
    is_transposed: int


class PackedShape(NamedTuple):
    """The attribute `shape` of `PackedProduct`; the addend is none, PER_COLUMN or FULL.

    Of the product with its addend comes an `Activation`, and to that a fourth input is added.
    """

    rows: int
    depth: int
    columns: int
    addend: int
    tasks: int
    activation: int = 0
    has_residual: int = 0


class RecurrenceShape(NamedTuple):
    """The attribute `shape` of `Recurrence` and its gradient: one direction of a layer.

    `has_dy`, `has_dh` and `has_dc` are the gradient's: of what there are gradients, of all outputs,
    of the last state, of the last cell.
    """

    cell: int
    steps: int
    batch: int
    units: int
    is_reverse: int
    has_lengths: int
    has_dy: int
    has_dh: int
    has_dc: int
    tasks: int


class ConvShape(NamedTuple):
    """The attribute `shape` of convolutions; 0 images are as many as the tensor has.

    `axes`: how many an image has, the last ones. The others have one position. `tasks`: how many
    threads share the work.
    """

    images: int
    in_: int
    depth: int
    height: int
    width: int
    out: int
    kernel_depth: int
    kernel_height: int
    kernel_width: int
    out_depth: int
    out_height: int
    out_width: int
    stride_z: int
    stride_y: int
    stride_x: int
    dilation_z: int
    dilation_y: int
    dilation_x: int
    front: int
    top: int
    left: int
    back: int
    bottom: int
    right: int
    groups: int
    axes: int
    tasks: int


class ConvForm(NamedTuple):
    """The attribute `form` of `Conv`; `keeps`: whether the weights are the same in every call."""

    has_bias: int
    has_addend: int
    relu: int
    keeps: int


class PoolShape(NamedTuple):
    """The attribute `shape` of `MaxPool` and its gradient."""

    images: int
    channels: int
    height: int
    width: int
    out_height: int
    out_width: int
    kernel_height: int
    kernel_width: int
    stride_y: int
    stride_x: int
    top: int
    left: int


class AttentionShape(NamedTuple):
    """The attribute `shape` of attention.

    `mask`: 0, none; 1, added to the scores; 2, truths where they stay. The element of a mask for a
    score is where strides lead, 0 along axes that it is spread over. `is_precise`: products have
    single precision, not TF32's. `element`: the type of operands and results, as ONNX numbers it.
    `group`: how many heads of queries, side by side, read one head of keys and values.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    mask: int
    mask_batch: int
    mask_head: int
    mask_query: int
    mask_key: int
    is_precise: int
    element: int
    group: int = 1


class AttentionLayout(NamedTuple):
    """The attribute `layout` of attention on CPUs, and how many tasks may share it out.

    For each tensor: 0, its heads lie one behind the other; 1, side by side within each row.
    """

    queries: int
    keys: int
    values: int
    result: int
    slope: int
    query_gradient: int
    key_gradient: int
    value_gradient: int
    tasks: int


class Draw(NamedTuple):
    """Which places of a tensor are kept: those whose number is `least` or more; 0 keeps all.

    Numbers are a hash of the place and of `counters` whole numbers that go in, modulo `DRAW_PRIME`:
    k = start, then (k + counter)^5 for each; ((place + k)^5 + (k + step)^5)^5. Products wrap around
    as those of int64 do, and remainders have no sign.
    """

    start: int
    step: int
    least: int
    counters: int


MOST_DIMENSIONS = 8
DRAW_PRIME = 2**31 - 1
MOST_DRAWN = 1 << 29  # places
MOST_COUNTERS = 4
MOST_TASKS = 1 << 10  # of lookups, losses and pools
MOST_HEAD_WIDTH = 128  # on CUDA, and a multiple of 8
MOST_HEAD_WIDTH_ON_CPU = 1 << 10
MOST_ATTENTION_EXTENT = 1 << 20  # examples, heads, queries or keys
MOST_IMAGES = 1 << 16  # and as many channels of pools
LONGEST_ROW = 1 << 16  # of `Fused`
CHANNEL_TILE = 512  # elements; the places of a program fit in the first cache level
MOST_MATRIX_ELEMENTS = 1 << 30
MOST_MATRIX_TASKS = 1 << 12  # of products and convolutions
PACKED_COLUMNS = 16  # of a packed matrix side by side: whole registers of any width
MOST_POOL_EXTENT = 1 << 14  # no number of bytes overflows
MOST_POOL_STRIDE = 1 << 8  # rows are whole in steps
MOST_POOL_WINDOW = 255  # a place in it is a byte, and one is left over
MOST_WINOGRAD_CHANNELS = 1 << 16
MOST_WINOGRAD_EXTENT = 1 << 12

_ENUMS = (Operation, Mode, Kind, Addend, Activation, Cell, Method)
_RECORDS = (
    FusedHead, FusedOperand, Step, ChannelsHead, ChannelsOperand, Link, ProductHead, Matrix,
    PackShape, PackedShape, RecurrenceShape, ConvShape, ConvForm, PoolShape, AttentionShape,
    AttentionLayout, Draw,
)  # fmt: skip


def cpp_header() -> str:
    """The table as a C++ header, of namespace `abi`."""
    lines = ["#pragma once", "#include <cstdint>", "namespace abi {", *_declarations()]
    return "\n".join([*lines, f'constexpr const char *DIGEST = "{digest()}";', "}", ""])


def digest() -> str:
    """A short digest of the table, the same where numbers mean the same."""
    return hashlib.sha256("\n".join(_declarations()).encode()).hexdigest()[:16]


def _declarations() -> Iterator[str]:
    yield f'constexpr const char *DOMAIN_NAME = "{DOMAIN}";'
    for enum in _ENUMS:
        members = ", ".join(f"{name} = {int(m)}" for name, m in enum.__members__.items())
        name = enum.__name__
        yield f"namespace {name.lower()} {{ enum {name} : int64_t {{ {members} }}; }}"
    for record in _RECORDS:
        fields = ", ".join(field.removesuffix("_") for field in record._fields)
        yield f"struct {record.__name__} {{ int64_t {fields}; }};"
    for name, number in globals().items():
        if name.isupper() and isinstance(number, int):
            yield f"constexpr int64_t {name} = {number};"
