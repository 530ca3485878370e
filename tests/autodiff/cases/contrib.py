"""Operators that the runtime has beside the standard, of which language models are made."""

import numpy as np

from tests.autodiff.cases.case import Case, plain
from tests.autodiff.cases.experts import EXPERTS

MS = "com.microsoft::"
SINGLE = ("float32",)


def _case(name, make, shapes, note="", **options):
    options = {"step": 0.05, "dtypes": SINGLE, "opset": 22, **options}
    return Case(name, make, shapes, note, **options)


def _known(name, note, shapes, known, attrs, outputs=0, **options):
    """The node on computed inputs, and on `known` ones by position, which come between."""

    def make(b, *inputs):
        operands, given = [], iter(inputs)
        for place in range(max(len(inputs) + len(known), *known, 0) + 1):
            content = known.get(place, ...)
            operands.append(next(given, None) if content is ... else content)
        while operands[-1] is None:
            operands.pop()
        made = b.emit(name, operands, attrs, outputs)
        return made if len(made) > 1 else made[0]

    return _case(name, make, shapes, note, **options)


def _packed(rows, columns, bits, block, *, points=False, seed=0):
    """Weights, scales and zero points of a product with packed weights, drawn at random."""
    rng = np.random.default_rng(seed)
    blocks = -(-columns // block)
    weights = rng.integers(0, 256, (rows, blocks, block * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.02, 0.2, (rows, blocks)).astype(np.float32)
    zeros = rng.integers(0, 256, (rows, -(-blocks * bits // 8))).astype(np.uint8)
    return weights, scales, zeros if points else None


def _product(note, rows, columns, bits=4, block=16, *, points=False, bias=False, trains=False):
    weights, scales, zeros = _packed(rows, columns, bits, block, points=points)
    attrs = {"K": columns, "N": rows, "bits": bits, "block_size": block, "accuracy_level": 0}

    def make(b, x, *rest):
        rest = list(rest)
        steps = rest.pop(0) if trains else scales
        operands = [x, weights, steps, zeros, None, *rest]
        while operands[-1] is None:
            operands.pop()
        return b.emit(f"{MS}MatMulNBits", operands, attrs)[0]

    shapes = [(2, 3, columns), *([scales.shape] if trains else []), *([(rows,)] if bias else [])]
    return _case(f"{MS}MatMulNBits", make, shapes, note)


def _rows(note, bits, *, points):
    weights, _, zeros = _packed(6, 64, bits, 16, points=points)
    attrs = {"bits": bits, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}

    def make(b, scales):
        operands = [weights.reshape(6, -1), np.asarray([[4, 0], [4, 2]]), scales]
        operands += [zeros] if points else []
        return b.emit(f"{MS}GatherBlockQuantized", operands, attrs)[0]

    return _case(f"{MS}GatherBlockQuantized", make, [(6, 4)], note)


NORMS = [
    plain("SimplifiedLayerNormalization", [(2, 3, 8), (8,)], attrs={"epsilon": 1e-5},
          dtypes=SINGLE, outputs=1),
    plain("SimplifiedLayerNormalization", [(2, 3, 8), (8,)], "statistics", dtypes=SINGLE,
          attrs={"epsilon": 1e-3, "axis": -1}, outputs=2),
    *(
        _known(f"{MS}{name}", note, shapes, {}, {"epsilon": 1e-3}, outputs)
        for name, most in (("SkipSimplifiedLayerNormalization", 4), ("SkipLayerNormalization", 5))
        for note, shapes, outputs in (
            ("", [(2, 3, 8), (2, 3, 8), (8,)], 1),
            ("all", [(2, 3, 8), (2, 3, 8), *[(8,)] * (most - 2)], 1),
            ("broadcast", [(2, 3, 8), (3, 8), (8,)], 1),
        )
    ),
]  # fmt: skip


def _with_sum(name):
    """The node with its fourth output, the second and third left out."""

    def make(b, *inputs):
        made = b.emit(f"{MS}{name}", inputs, {"epsilon": 1e-3}, 4)
        made[1].name = made[2].name = ""
        return made[0], made[3]

    return _case(f"{MS}{name}", make, [(2, 3, 8), (2, 3, 8), (8,)], "sum")


CURVES = [
    _case(f"{MS}QuickGelu", lambda b, x: b.emit(f"{MS}QuickGelu", [x], {"alpha": 1.0})[0], [(3, 4)],
          "silu"),
    plain(f"{MS}QuickGelu", [(3, 4)], dtypes=SINGLE),
    plain(f"{MS}Gelu", [(3, 4)], dtypes=SINGLE),
    plain(f"{MS}BiasGelu", [(2, 3, 4), (4,)], dtypes=SINGLE),
    plain(f"{MS}FastGelu", [(3, 4)], dtypes=SINGLE),
    plain(f"{MS}FastGelu", [(2, 3, 4), (4,)], "bias", dtypes=SINGLE),
]  # fmt: skip

PRODUCTS = [
    _product("", 6, 32),
    _product("points", 6, 48, points=True),
    _product("short-block", 5, 40, points=True, block=32),
    _product("bytes", 6, 32, bits=8),
    _product("bytes-points", 6, 32, bits=8, points=True),
    _product("bias", 6, 32, bias=True),
    _product("scales", 6, 48, points=True, trains=True),
]
ROWS = [
    _rows("", 4, points=False),
    _rows("points", 4, points=True),
    _rows("bytes", 8, points=True),
]

ROWS_OF_TEXT, SIZE = 5, 16


def _tables(size, length=12):
    angles = np.outer(np.arange(length), 1.0 / 10.0 ** (np.arange(size // 2) / size))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _grouped(
    note,
    *,
    packed=False,
    heads=4,
    shared=2,
    rotary=0,
    valid=None,
    sink=False,
    bias=None,
    places=None,
    outputs=1,
    size=SIZE,
    gives_weights=False,
    **attrs,
):
    """Attention of two texts of five tokens; `valid` are their lengths."""
    if gives_weights:
        outputs, attrs = 4, {**attrs, "qk_output": 2}
    attrs = {"num_heads": heads, "kv_num_heads": shared, "do_rotary": int(rotary > 0), **attrs}
    lengths = np.asarray(valid or [ROWS_OF_TEXT] * 2, np.int32) - 1

    def make(b, *inputs):
        inputs = list(inputs)
        operands = [inputs.pop(0), *([None] * 2 if packed else [inputs.pop(0), inputs.pop(0)])]
        operands += [None, None, lengths, b.const(np.int32(ROWS_OF_TEXT))]
        operands += [*_tables(rotary)] if rotary else [None, None]
        operands += [None if places is None else np.asarray(places)]
        operands += [inputs.pop(0) if bias else None, inputs.pop(0) if sink else None]
        while operands[-1] is None:
            operands.pop()
        made = b.emit(f"{MS}GroupQueryAttention", operands, attrs, outputs)
        return made if 1 < outputs < 4 else made[0]

    widths = [(heads + 2 * shared) * size] if packed else [heads * size] + [shared * size] * 2
    shapes = [(2, ROWS_OF_TEXT, width) for width in widths]
    shapes += ([bias] if bias else []) + ([(heads,)] if sink else [])
    return _case(f"{MS}GroupQueryAttention", make, shapes, note, step=0.02)


GROUPED = [
    _grouped(""),
    _grouped("packed", packed=True, scale=0.2),
    _grouped("packed-rotary", packed=True, rotary=SIZE),
    _grouped("rotary", rotary=SIZE, heads=2),
    _grouped("interleaved", rotary=SIZE, rotary_interleaved=1),
    _grouped("half-rotary", rotary=SIZE, size=2 * SIZE, packed=True),
    _grouped("padded", rotary=SIZE, valid=[3, 5]),
    _grouped("window", local_window_size=2),
    _grouped("window-padded", local_window_size=2, valid=[3, 5]),
    _grouped("softcap", softcap=1.5),
    _grouped("bias", bias=(2, 4, 5, 5)),
    _grouped("bias-softcap", bias=(1, 1, 5, 5), softcap=1.5, packed=True),
    _grouped("places", rotary=SIZE, places=[[0, 1, 2, 0, 1], [3, 4, 5, 6, 7]]),
    _grouped("sink", sink=True),
    _grouped("smooth", smooth_softmax=1),
    _grouped("present", rotary=SIZE, outputs=3),
    _grouped("weights", packed=True, rotary=SIZE, gives_weights=True),
    _grouped("weights-apart", rotary=SIZE, rotary_interleaved=1, scale=0.2, gives_weights=True),
    _grouped("weights-window", local_window_size=2, gives_weights=True),
    _grouped("weights-bias", bias=(2, 4, 5, 5), gives_weights=True),
    _grouped("weights-sink", sink=True, packed=True, gives_weights=True),
    _grouped("weights-smooth", smooth_softmax=1, gives_weights=True),
]  # fmt: skip


def _multi_head(note, shapes, mask=None, place=None, **attrs):
    """`place` says where inputs beyond the first three go: bias is 3, attention's bias 5."""

    def make(b, *inputs):
        operands = [*inputs[:3], *[None] * 6][:6]
        for at, value in zip(place or (), inputs[3 if len(inputs) > 3 else 1 :], strict=False):
            operands[at] = value
        if mask is not None:
            operands[4] = np.asarray(mask, np.int32)
        while operands[-1] is None:
            operands.pop()
        return b.emit(f"{MS}MultiHeadAttention", operands, {"num_heads": 2, **attrs})[0]

    return _case(f"{MS}MultiHeadAttention", make, shapes, note, step=0.02)


FLAT = [(2, 3, 16), (2, 5, 16), (2, 5, 16)]
SAME = [(2, 5, 16)] * 3
MULTI_HEAD = [
    _multi_head("", FLAT),
    _multi_head("scale", FLAT, scale=0.7),
    _multi_head("bias", [*FLAT, (48,)], place=[3]),
    _multi_head("added", [*FLAT, (1, 2, 3, 5)], place=[5]),
    _multi_head("mask", FLAT, mask=[[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]]),
    _multi_head("lengths", FLAT, mask=[3, 5]),
    _multi_head("causal", SAME, unidirectional=1),
    _multi_head("by-head", [(2, 3, 16), (2, 2, 5, 8), (2, 2, 5, 8)]),
]


def _turned(note, shape, places, table, **attrs):
    def make(b, x):
        return b.emit(f"{MS}RotaryEmbedding", [x, np.asarray(places), *_tables(table)], attrs)[0]

    return _case(f"{MS}RotaryEmbedding", make, [shape], note, step=0.25)


TURNED = [
    _turned("", (2, 3, 5, 8), [0], 8),
    _turned("offset", (2, 3, 5, 8), [4], 8, interleaved=1),
    _turned("places", (2, 3, 16), [[0, 2, 4], [5, 1, 1]], 8, num_heads=2),
    _turned("part", (2, 3, 5, 16), [1], 8, num_heads=3, rotary_embedding_dim=8),
]

CONTRIB_CASES = [
    *NORMS,
    *(map(_with_sum, ("SkipSimplifiedLayerNormalization", "SkipLayerNormalization"))),
    *CURVES,
    *PRODUCTS,
    *ROWS,
    *GROUPED,
    *MULTI_HEAD,
    *TURNED,
    *EXPERTS,
]
