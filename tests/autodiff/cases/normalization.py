"""Normalizations: operators that take means and variances out."""

from flow2onnx.dtypes import float32
from tests.autodiff.cases.case import NO_DOUBLE, Case, plain


def _layer_norm(note, shapes, **attrs):
    return Case("LayerNormalization", lambda b, *x: b.LayerNormalization(*x, **attrs), shapes, note)


def _batch_norm(note, x, **attrs):
    def make(b, x, scale, offset, mean, spread):
        return b.BatchNormalization(
            x, scale, offset, mean, b.Add(b.Mul(spread, spread), 0.3), **attrs
        )

    return Case("BatchNormalization", make, [x, *[(x[1],)] * 4], note)


def _trained(note, x, outputs=3, **attrs):
    def make(b, x, scale, offset, mean, variance):
        # the runtime overwrites the running values: each node has its own
        values = x, scale, offset, b.Mul(mean, 1.0), b.Mul(variance, 1.0)
        return b.several("BatchNormalization", *values, outputs=outputs, training_mode=1, **attrs)

    return Case("BatchNormalization", make, [x, *[(x[1],)] * 4], f"training-{note}")


NORMALIZATION = [
    _layer_norm("", [(3, 5), (5,), (5,)]),
    _layer_norm("no-offset", [(3, 5), (5,)], epsilon=0.1),
    _layer_norm("axis", [(2, 3, 4), (3, 4), (3, 4)], axis=1),
    _layer_norm("negative", [(2, 3, 4), (3, 4)], axis=-2),
    _batch_norm("", (3, 2, 4, 5)),
    _batch_norm("epsilon", (3, 2, 4), epsilon=0.1),
    _batch_norm("matrix", (4, 3)),
    *(
        Case(
            "BatchNormalization",
            lambda b, x, *others, mode=mode: b.several(
                "BatchNormalization", x, *(b.Cast(v, to=float32) for v in others),
                outputs=1 + 2 * mode, training_mode=mode,
            ),
            [(3, 2, 4), *[(2,)] * 4],
            f"wide-statistics-{mode}",
            low=0.5,
            dtypes=("float16",),
        )
        for mode in (0, 1)
    ),
    _trained("", (3, 2, 4, 5)),
    _trained("momentum", (3, 2, 4), momentum=0.3, epsilon=0.1),
    _trained("matrix", (5, 3)),
    plain("InstanceNormalization", [(2, 3, 4, 2), (3,), (3,)], lacks=NO_DOUBLE),
    plain(
        "InstanceNormalization", [(2, 3, 5), (3,), (3,)], "epsilon", attrs={"epsilon": 0.1},
        lacks=NO_DOUBLE,
    ),
    Case(
        "LayerNormalization",
        lambda b, *x: b.several("LayerNormalization", *x, outputs=3, axis=1, epsilon=0.1),
        [(2, 3, 4), (3, 4), (3, 4)],
        "all-outputs",
    ),
    *(
        plain(
            "GroupNormalization", [(2, 6, 3, 2), (6,), (6,)], f"{groups}",
            attrs={"num_groups": groups, "epsilon": 0.01, "stash_type": 11},
        )
        for groups in (1, 2, 6)
    ),
    *(
        plain("RMSNormalization", [(2, 3, 4), scale], note, attrs=attrs, opset=23)
        for note, scale, attrs in (
            ("", (4,), {}),
            ("axis", (3, 4), {"axis": 1, "epsilon": 0.1}),
            ("broadcast", (1,), {"axis": -2}),
        )
    ),
    plain("MeanVarianceNormalization", [(3, 2, 4, 2)], lacks=NO_DOUBLE),
    plain(
        "MeanVarianceNormalization", [(3, 2, 4)], "axes", attrs={"axes": [0, -1]}, lacks=NO_DOUBLE
    ),
    *(
        plain("LpNormalization", [(2, 3, 4)], f"{p}-{axis}", attrs={"p": p, "axis": axis},
              avoid=(0,))
        for p in (1, 2)
        for axis in (-1, 1)
    ),
    *(
        plain("LRN", [(2, 6, 3, 2)], f"{size}", attrs={"size": size, **attrs}, lacks=NO_DOUBLE)
        for size, attrs in (
            (3, {"alpha": 0.5}), (5, {"alpha": 1.0, "beta": 0.5, "bias": 2.0}), (1, {"alpha": 1.0}),
        )
    ),
]  # fmt: skip
