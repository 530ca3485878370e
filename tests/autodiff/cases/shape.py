"""Operators that move elements."""

from tests.autodiff.cases.case import moved

X = [(2, 3, 4)]
LOWEST = -(2**63)
SHAPE = [
    moved("Reshape", "", X, lambda b, x: b.Reshape(x, [4, -1])),
    moved("Reshape", "zero-keeps", X, lambda b, x: b.Reshape(x, [0, 12])),
    moved("Flatten", "", X, lambda b, x: b.Flatten(x)),
    moved("Flatten", "axis", X, lambda b, x: b.Flatten(x, axis=-1)),
    moved("Squeeze", "", [(1, 3, 1)], lambda b, x: b.Squeeze(x)),
    moved("Squeeze", "axis", [(1, 3, 1)], lambda b, x: b.Squeeze(x, [-1])),
    moved("Unsqueeze", "", X, lambda b, x: b.Unsqueeze(x, [0, -1])),
    moved("Transpose", "", X, lambda b, x: b.Transpose(x, perm=[2, 0, 1])),
    moved("Transpose", "reversed", X, lambda b, x: b.Transpose(x)),
    moved("Expand", "", [(3, 1)], lambda b, x: b.Expand(x, [2, 3, 4])),
    moved("Expand", "smaller", [(3, 4)], lambda b, x: b.Expand(x, [1, 1])),
    moved("Expand", "scalar", [()], lambda b, x: b.Expand(x, [2, 3])),
    moved("Concat", "", [(2, 3), (1, 3), (4, 3)], lambda b, *x: b.Concat(*x, axis=0)),
    moved("Concat", "negative", [(2, 3), (2, 1)], lambda b, *x: b.Concat(*x, axis=-1)),
    moved("Concat", "one", [(2, 3)], lambda b, x: b.Concat(x, axis=1)),
    moved("Concat", "twice", [(2, 3)], lambda b, x: b.Concat(x, x, axis=1)),
    moved("Split", "", [(5, 3)], lambda b, x: b.several("Split", x, [2, 3], outputs=2)),
    moved(
        "Split",
        "equal",
        [(2, 6)],
        lambda b, x: b.several("Split", x, axis=-1, num_outputs=3, outputs=3),
    ),
    moved(
        "Split",
        "unused",
        [(2, 5)],
        lambda b, x: b.several("Split", x, axis=1, num_outputs=3, outputs=3)[2],
    ),
    moved("Slice", "", X, lambda b, x: b.Slice(x, [1, 0], [2, 3], [1, 2])),
    moved("Slice", "no-axes", X, lambda b, x: b.Slice(x, [0, 1], [2, 3])),
    moved("Slice", "negative", X, lambda b, x: b.Slice(x, [-2, -3], [-1, 100], [1, -1])),
    moved("Slice", "step", [(7, 5)], lambda b, x: b.Slice(x, [1, 0], [6, 5], [0, 1], [2, 3])),
    moved("Slice", "back", [(7, 5)], lambda b, x: b.Slice(x, [-1], [LOWEST], [0], [-1])),
    moved(
        "Slice", "back-step", [(7, 5)], lambda b, x: b.Slice(x, [5, 4], [0, -6], [0, 1], [-2, -3])
    ),
    moved("Slice", "before-first", [(4,)], lambda b, x: b.Slice(x, [-9], [3], [0])),
    moved("Slice", "back-before", [(4,)], lambda b, x: b.Slice(x, [-9], [LOWEST], [0], [-1])),
    moved("Slice", "mixed", [(4, 6)], lambda b, x: b.Slice(x, [1, 5], [3, 0], [0, 1], [1, -2])),
    moved("Pad", "", X, lambda b, x: b.Pad(x, [1, 0, 2, 0, 1, 0])),
    moved("Pad", "value", [(2, 3)], lambda b, x: b.Pad(x, [0, 1, 1, 0], 3.0)),
    moved("Pad", "axes", X, lambda b, x: b.Pad(x, [1, 2, 0, 1], None, [-1, 0])),
    moved("Pad", "cropped", [(4, 5)], lambda b, x: b.Pad(x, [-1, 2, 0, -3])),
    moved("Pad", "reflect", [(3, 4)], lambda b, x: b.Pad(x, [2, 0, 1, 3], mode="reflect")),
    moved("Pad", "edge", [(3, 4)], lambda b, x: b.Pad(x, [0, 2, 1, 3], mode="edge")),
    moved("Pad", "wrap", [(3, 4)], lambda b, x: b.Pad(x, [1, 2, 0, 3], mode="wrap")),
    moved("Tile", "", [(2, 3)], lambda b, x: b.Tile(x, [2, 3])),
    moved("Tile", "one", [(2, 3)], lambda b, x: b.Tile(x, [1, 2])),
]
