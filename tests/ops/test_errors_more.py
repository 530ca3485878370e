"""Bad arguments of the operators beyond the core: the error names the operator and the line."""

import re
from pathlib import Path

import pytest

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from tests.ops.test_errors import raised

SAME = ("SAME_LOWER", "NCHW", 3, 1, 1)

# operator, arguments (a letter is a blob of INPUTS), error, what its message says
BAD = [
    ("sort", ("x", 2), ArgumentError, "axis 2"),
    ("sort", ("x", 0, "UP"), ArgumentError, "ASCENDING or DESCENDING"),
    ("argsort", ("x", -3), ArgumentError, "axis -3"),
    ("argsort", ("x", 0, "ascending"), ArgumentError, "direction"),
    ("math.top_k", ("x", -1, 0), ArgumentError, "k is a positive int"),
    ("math.top_k", ("x", 5), ArgumentError, "axis 5"),
    ("math.in_top_k", ("z", "v", 1), ShapeError, "do not fit"),
    ("math.in_top_k", ("i", "x", 1), ShapeError, "do not fit"),
    ("count_not_finite", ("i",), DTypeError, "real numbers"),
    ("multi_count_not_finite", ([],), ArgumentError, "at least one"),
    ("pad", ("x", [(1, 1)]), ArgumentError, "one pair for each"),
    ("pad", ("x", [1, 1]), ArgumentError, "pairs"),
    ("pad", ("x", 1), ArgumentError, "pairs"),
    ("pad", ("x", [(-3, 0), (0, 0)]), ShapeError, "leaves nothing"),
    ("pad_grad", ("x", [(2, 1), (0, 0)]), ShapeError, "leave nothing"),
    ("constant_pad2d", ("x", 1), ShapeError, r"\(N, C, H, W\)"),
    ("zero_pad2d", ("image", [1, 2]), ArgumentError, "left, right"),
    ("zero_pad2d", ("image", -1), ArgumentError, "left, right"),
    ("replication_pad2d", ("image", [1, 2, 3]), ArgumentError, "left, right"),
    ("reflection_pad2d", ("image", 5), ArgumentError, "smaller than the image"),
    ("same_padding", ("image", "VALID", *SAME[1:]), ArgumentError, "SAME_LOWER or"),
    ("same_padding", ("image", "SAME_LOWER", "NCW", 3, 1, 1), ArgumentError, "data_format"),
    ("same_padding", ("image", "SAME_UPPER", "NCHW", 0, 1, 1), ArgumentError, "kernel_size"),
    ("broadcast_like", ("x", "v"), ShapeError, "cannot be repeated"),
    ("broadcast_like", ("x", "y"), ShapeError, "cannot be repeated"),
    ("broadcast_like", ("v", "t", [0]), ArgumentError, "leave axes"),
    ("broadcast_like", ("v", "t", [0, 5]), ArgumentError, "axis 5"),
    ("broadcast_to_compatible_with", ("x", ["y"]), ShapeError, "not compatible"),
    ("expand", ("x", [4]), ArgumentError, "every dimension"),
    ("expand", ("x", 4), ArgumentError, "every dimension"),
    ("expand", ("x", [-1, 3, 4]), ArgumentError, "every new dimension"),
    ("expand", ("x", [3, 5]), ShapeError, "cannot be repeated"),
    ("elem_cnt", ("x", 3), DTypeError, "element type"),
    ("math.reduced_shape_elem_cnt", ("x", 2), ArgumentError, "axis 2"),
    ("reverse", ("x", 2), ArgumentError, "axis 2"),
    ("reverse", ("x", None), ArgumentError, "axis is an int"),
    ("range", (3, 3), ArgumentError, "nothing lies"),
    ("range", (3, 6, 0), ArgumentError, "delta of 0"),
    ("range", (0.5,), ArgumentError, "takes ints"),
    ("dynamic_reshape", ("x", (5, -1)), ShapeError, "12 elements"),
    ("gather_nd", ("x", "v"), DTypeError, "whole numbers"),
    ("gather_nd", ("x", "i"), ShapeError, "no coordinates"),
    ("scatter_nd", ("z", "v", [3, 0, 4]), ArgumentError, "positive ints"),
    ("scatter_nd", ("z", "v", [5, 5, 5]), ShapeError, "updates are"),
    ("tensor_scatter_nd_add", ("t", "z", "v"), ShapeError, "updates are"),
    ("tensor_scatter_nd_update", ("x", "z", "v"), ShapeError, "no coordinates"),
    ("slice_update", ("x", "x", [(0, 1, 1)]), ShapeError, "update is"),
    ("slice_update", ("x", "x", [(0, 1, 0)]), ArgumentError, "step of 0"),
    ("slice_update", ("x", "x", [0]), ArgumentError, "start, stop, step"),
    ("slice_v2", ("x", 3), ArgumentError, "start, stop, step"),
    ("dim_gather", ("x", 2, "i"), ArgumentError, "axis 2"),
    ("dim_gather", ("x", 0, "z"), ShapeError, "differ beside axis 0"),
    ("dim_gather", ("x", 1, "x"), DTypeError, "whole numbers"),
    ("masked_fill", ("x", "i", "one"), ArgumentError, "holds no 'one'"),
    ("masked_fill", ("y", "i", 1), ShapeError, "Incompatible"),
    ("argwhere", ("x", 3), DTypeError, "element type"),
    ("diag", ("t",), ShapeError, "vector or a matrix"),
    ("diag", ("x", 4), ArgumentError, "no diagonal 4"),
    ("diag", ("x", 0.5), ArgumentError, "diagonal is an int"),
    ("unsorted_segment_sum", ("x", "z", 0), ArgumentError, "num_segments"),
    ("unsorted_segment_sum", ("x", "z", 2, 1), ShapeError, "segment_ids"),
    ("unsorted_segment_sum", ("v", "v", 2), DTypeError, "whole numbers"),
    ("unsorted_segment_sum_like", ("x", "z", "y"), ShapeError, "the sums are"),
    ("unsorted_batch_segment_sum", ("x", "i", "z"), ArgumentError, "num_segments"),
    ("unsorted_batch_segment_sum", ("y", "i", 2), ShapeError, "segment_ids"),
    ("math.atan2", ("x", "v"), ShapeError, "does not broadcast"),
    ("math.xdivy", ("i", "i"), DTypeError, "real numbers"),
    ("math.xlogy", ("x", "d"), DTypeError, "float32 and float64"),
    ("math.floordiv", ("x", "y"), ShapeError, "does not broadcast"),
    ("math.erf", ("i",), DTypeError, "real numbers"),
    ("math.erfc", ("i",), DTypeError, "real numbers"),
    ("math.log_sigmoid", ("i",), DTypeError, "real numbers"),
    ("math.lgamma", ("i",), DTypeError, "real numbers"),
    ("math.mish", ("i",), DTypeError, "real numbers"),
    ("math.gelu_grad", ("x", "y"), ShapeError, "does not broadcast"),
    ("math.polyval", (3, "x"), ArgumentError, "coeffs"),
    ("math.l2_normalize", ("x",), ArgumentError, "needs an axis"),
    ("math.l2_normalize", ("x", 2), ArgumentError, "axis 2"),
    ("math.reduce_any", ("x", 2), ArgumentError, "axis 2"),
    ("math.reduce_prod", ("x", "all"), ArgumentError, "axis"),
    ("math.tril", ("v",), ShapeError, "two dimensions"),
    ("math.fused_scale_tril", ("x", 0.5), ArgumentError, "diagonal is an int"),
    ("math.fused_scale_tril_softmax_dropout", ("x", 0, 0, 1, 1.5), ArgumentError, "rate"),
    (
        "math.fused_scale_tril_softmax_dropout",
        ("x", 0, 0, 1, 0.5, [3, 4]),
        UnsupportedError,
        "noise_shape",
    ),
    ("random.bernoulli", ("i",), DTypeError, "real numbers"),
    ("random.coin_flip", (0,), ArgumentError, "batch_size"),
    ("random.coin_flip", (2, None, 1.5), ArgumentError, "probability"),
    ("random.shuffle", ("x", "seed", "n"), ArgumentError, "seed is an int"),
    ("experimental.unique_with_counts", ("x",), ShapeError, "vector"),
    ("experimental.unique_with_counts", ("v", flow.float32), DTypeError, "out_idx"),
    ("experimental.indexed_slices_reduce_sum", ("z", "v"), ShapeError, "no slice"),
    ("experimental.indexed_slices_reduce_sum", ("v", "v"), ShapeError, "no slice"),
    ("experimental.logical_slice", ("x", [(3, 0, -1)]), ArgumentError, "step forward"),
]


def looked_up(argument, blobs):
    if isinstance(argument, list):
        return [looked_up(a, blobs) for a in argument]
    return blobs.get(argument, argument) if isinstance(argument, str) else argument


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "says"), BAD, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(BAD)]
)
def test_bad_argument(name, arguments, kind, says):
    function = flow
    for part in name.split("."):
        function = getattr(function, part)
    error = raised(lambda blobs: function(*(looked_up(a, blobs) for a in arguments)))
    assert isinstance(error, kind), repr(error)
    assert re.search(says, str(error)), str(error)
    assert error.op.rpartition(".")[2] == name.rpartition(".")[2] or error.op.startswith(
        name.rpartition(".")[2]
    )
    assert Path(error.source.rsplit(":", 1)[0]).name == Path(__file__).name
