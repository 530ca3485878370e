"""Attention, and the rotation of its queries and keys."""

import numpy as np

from tests.autodiff.cases.case import Case

QUERY, KEY, VALUE = (2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)
HEADS = {"q_num_heads": 4, "kv_num_heads": 2}
LOOKS = np.asarray([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]], bool)


def _attended(note, shapes, *, known=(), outputs=1, opset=24, **attrs):
    """The node on computed inputs and then on `known` ones, by position."""

    def make(b, *inputs):
        operands = [*inputs, *[None] * 7][:7]
        for position, content in dict(known).items():
            operands[position] = content
        while operands[-1] is None:
            operands.pop()
        made = b.emit("Attention", operands, attrs, outputs)
        return made if outputs > 1 else made[0]

    # in double precision there are only the operators that the standard makes it of
    dtypes = ("float32",) if note else ("float32", "float16")
    return Case("Attention", make, shapes, note, opset=opset, dtypes=dtypes)


PLAIN = [QUERY, KEY, VALUE]
ONE = [(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)]
PAST = [(2, 2, 4, 4), (2, 2, 4, 3)]
ATTENTION = [
    _attended("", ONE),
    _attended("grouped", PLAIN),
    _attended("flat", [(2, 3, 16), (2, 5, 8), (2, 5, 6)], scale=0.3, **HEADS),
    _attended("opset-23", ONE, opset=23),
    _attended("opset-23-causal", PLAIN, opset=23, is_causal=1),
    _attended("causal", PLAIN, is_causal=1),
    _attended("mask", PLAIN, known={3: LOOKS}),
    _attended("mask-by-head", PLAIN, known={3: np.stack([LOOKS, LOOKS[::-1]] * 2)}),
    _attended("mask-causal", ONE, known={3: LOOKS | (np.arange(5) == 0)}, is_causal=1),
    _attended("mask-of-numbers", [*ONE, (2, 1, 3, 5)]),
    _attended("softcap", PLAIN, softcap=1.5),
    _attended("softcap-mask", [*ONE, (3, 5)], softcap=1.5),
    _attended("opset-23-softcap-mask", [*ONE, (3, 5)], softcap=1.5, opset=23),
    _attended("past", [(2, 4, 3, 4), (2, 2, 3, 4), (2, 2, 3, 3), (3, 7), *PAST], outputs=3),
    _attended("past-causal", [(2, 2, 3, 4), (2, 2, 3, 4), (2, 2, 3, 3), (3, 7), *PAST], outputs=3,
              is_causal=1),
    *(
        _attended(f"scores-{mode}", [(2, 2, 3, 4), (2, 2, 3, 4), (2, 2, 3, 3), (3, 7), *PAST],
                  outputs=4, qk_matmul_output_mode=mode, softcap=1.2)
        for mode in range(4)
    ),
    _attended("scores-alone", [(2, 3, 16), (2, 5, 8), (2, 5, 6)], outputs=4, **HEADS),
    _attended("empty-row", ONE, known={3: LOOKS & [[True], [False], [True]]}),
    _attended("precision", ONE, softmax_precision=1),
    _attended("counts", PLAIN, known={6: np.asarray([5, 3])}),
    _attended("counts-causal", ONE, known={6: np.asarray([5, 4])}, is_causal=1),
]  # fmt: skip


def _turned(note, x, table, places=None, *, computed=False, **attrs):
    def make(b, x, *tables):
        if not computed:
            angles = np.linspace(0, 3, int(np.prod(table))).reshape(table)
            tables = [b.like(f(angles), x) for f in (np.cos, np.sin)]
        ids = [] if places is None else [np.asarray(places)]
        return b.RotaryEmbedding(x, *tables, *ids, **attrs)

    shapes = [x, table, table] if computed else [x]
    return Case("RotaryEmbedding", make, shapes, note, step=0.25, opset=23,
                dtypes=("float32", "float16"))  # fmt: skip


PLACES = [[0, 2, 4], [5, 1, 1]]
ROTARY = [
    _turned("", (2, 2, 3, 8), (2, 3, 4)),
    _turned("places", (2, 2, 3, 8), (6, 4), PLACES),
    _turned("flat", (2, 3, 16), (6, 4), PLACES, num_heads=2),
    _turned("interleaved", (2, 2, 3, 8), (6, 4), PLACES, interleaved=1),
    _turned("part", (2, 2, 3, 8), (6, 2), PLACES, rotary_embedding_dim=4),
    _turned("computed", (2, 2, 3, 8), (2, 3, 4), computed=True),
    _turned("computed-places", (2, 3, 16), (6, 4), PLACES, computed=True, num_heads=2),
    _turned("computed-all", (2, 2, 3, 8), (6, 2), PLACES, computed=True, interleaved=1,
            rotary_embedding_dim=4),
]  # fmt: skip
