"""Experts in one operator: MoE of real numbers, QMoE of 4 and 8 bits."""

import numpy as np

from flow2onnx.lowering.packed_weights import unpacked
from tests.autodiff.cases.case import Case

MS = "com.microsoft::"
ROWS, WIDTH, INNER, COUNT = 6, 8, 5, 4
GATED = {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702,
         "activation_beta": 1.0}  # fmt: skip


def _case(kind, note, make, shapes, **options):
    # scores no two of which are near each other: a step changes no choice
    options = {"step": 0.02, "distinct": True, "dtypes": ("float32",), "opset": 22, **options}
    return Case(f"{MS}{kind}", make, shapes, note, **options)


def _real(note, *, k=2, biases=True, trains=False, shape=(ROWS, WIDTH), count=COUNT, step=0.02,
          **attrs):  # fmt: skip
    rng = np.random.default_rng(3)
    wide = INNER * (2 if attrs.get("activation_type") == "swiglu" else 1)
    sizes = [(count, wide, WIDTH), (count, wide), (count, WIDTH, INNER), (count, WIDTH)]
    drawn = [rng.uniform(-0.4, 0.4, s).astype(np.float32) for s in sizes]

    def make(b, x, router, *own):
        operands = [b.Mul(v, 0.1) for v in own] if trains else drawn
        if not biases:
            operands = [v if i % 2 == 0 else None for i, v in enumerate(operands)][:3]
        return b.emit(f"{MS}MoE", [b.Mul(x, 0.25), router, *operands], {"k": k, **attrs})[0]

    rows = int(np.prod(shape[:-1]))
    shapes = [shape, (rows, count), *(sizes if trains else [])]
    return _case("MoE", note, make, shapes, step=step)


REAL = [
    _real("", k=1, step=0.004),
    _real("gelu", activation_type="gelu"),
    _real("silu-normal", activation_type="silu", normalize_routing_weights=1),
    _real("identity-plain", activation_type="identity", biases=False, shape=(2, 3, WIDTH)),
    _real("pairs", normalize_routing_weights=1, **GATED),
    _real("limit", normalize_routing_weights=1, swiglu_limit=0.5, step=0.002, **GATED),
    _real("idle", k=1, activation_type="silu", shape=(3, WIDTH), count=8),
    _real("trained", normalize_routing_weights=1, trains=True, **GATED),
]


def _bits(note, *, bits=4, block=32, points=False, by_row=False, weights=False, trains=False,
          columns=64, **attrs):  # fmt: skip
    rng, inner, count = np.random.default_rng(5), 64, COUNT
    attrs = {"k": 2, "expert_weight_bits": bits, "normalize_routing_weights": 1, **GATED, **attrs}
    sizes = {"1": (2 * inner, columns), "2": (columns, inner)}
    bytes_, scales, zeros = {}, {}, {}
    for name, (rows, width) in sizes.items():
        blocks = -(-width // block)
        bytes_[name] = rng.integers(0, 256, (count, rows, width * bits // 8)).astype(np.uint8)
        shape = (count, rows) if by_row else (count, rows, blocks)
        scales[name] = (rng.uniform(0.5, 1, shape) * 0.15 / 2**bits).astype(np.float32)
        zeros[name] = rng.integers(0, 256, (count, rows, -(-blocks * bits // 8))).astype(np.uint8)
    biases = [rng.uniform(-0.4, 0.4, (count, n)).astype(np.float32) for n in (2 * inner, columns)]
    choice = rng.uniform(-1, 1, (ROWS, count)).astype(np.float32)
    if not by_row:
        attrs["block_size"] = block

    def make(b, x, router, *own):
        own = list(own)
        first, second = (b.Mul(own.pop(0), 1 / 2**bits) for _ in "12") if trains else (
            scales["1"], scales["2"]
        )  # fmt: skip
        # with other weights the scores choose alone, and have no gradient
        chosen = choice if weights else router
        stored = [bytes_[i] for i in "12"]
        if bits == 8:
            stored = [unpacked(b, b.const(w), x) for w in stored]
        operands = [b.Mul(x, 0.05), chosen, stored[0], first, biases[0], stored[1], second,
                    biases[1], None, None, None]  # fmt: skip
        operands += [zeros["1"], zeros["2"], None] if points else [None] * 3
        operands.append(b.Add(b.Mul(router, 0.1), 1.0) if weights else None)
        while operands[-1] is None:
            operands.pop()
        return b.emit(f"{MS}QMoE", operands, attrs)[0]

    shapes = [(ROWS, columns), (ROWS, count)]
    shapes += [scales[i].shape for i in "12"] if trains else []
    return _case("QMoE", note, make, shapes)


BITS = [
    _bits(""),
    _bits("points", points=True),
    _bits("by-row", by_row=True),
    _bits("short-block", columns=96, block=64),
    _bits("bytes", bits=8),
    _bits("bytes-points", bits=8, points=True),
    _bits("weights", weights=True),
    _bits("scales", trains=True),
    _bits("scales-by-row", by_row=True, trains=True),
    _bits("never-normal", normalize_routing_weights=0),
]
EXPERTS = [*REAL, *BITS]
