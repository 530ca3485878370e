"""Operators as OneFlow's operator types are: with results that no function of flow shows."""

from collections.abc import Sequence

from flow2onnx.errors import ArgumentError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of, rank_of
from flow2onnx.ops import conv_transpose, indexing, losses, normalization, special, unary
from flow2onnx.ops.arguments import axis_of
from flow2onnx.ops.arithmetic import add, condition
from flow2onnx.ops.normalization_layers import normalize_by_batch
from flow2onnx.ops.spatial import Ints
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.op import Operator, composite, op


@op("layer_norm", is_public=False)
def layer_norm(
    b: Builder,
    x: Value,
    gamma: Value | None = None,
    beta: Value | None = None,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    epsilon: float = 1e-05,
    name: str | None = None,
) -> tuple[Value, Value, Value, Value]:
    """nn.layer_norm, the mean and 1/deviation of each sample, and `x` free of them."""
    first = axis_of(begin_norm_axis, rank_of(x))
    axes = list(range(first, rank_of(x)))
    y = normalization.layer_norm.lower(
        b, x, gamma, beta, begin_norm_axis, begin_params_axis, epsilon
    )
    mean = b.ReduceMean(x, axes, keepdims=1)
    centred = b.Sub(x, mean)
    variance = b.ReduceMean(b.Mul(centred, centred), axes, keepdims=0)
    rate = b.Reciprocal(b.Sqrt(b.Add(variance, epsilon)))
    return y, b.Squeeze(mean, axes), rate, normalization.by_sample(b, x, first, epsilon)


@composite("normalization", is_public=False)
def batch_norm(
    x: Blob,
    moving_mean: Blob,
    moving_variance: Blob,
    gamma: Blob,
    beta: Blob,
    addend: Blob | None = None,
    axis: int = -1,
    epsilon: float = 1e-05,
    momentum: float = 0.99,
    training: bool = False,
    activation: str = "",
    name: str | None = None,
) -> list[Blob | None]:
    """`x` by its own statistics, which the moving ones follow, or by those; mean, 1/deviation."""
    along = axis_of(axis, len(x.shape))
    statistics = moving_mean, moving_variance
    if training:
        y, mean, rate = normalize_by_batch(x, along, momentum, epsilon, gamma, beta, *statistics)
    else:
        y = normalization.batch_normalization(x, *statistics, beta, gamma, epsilon, along)
    y = y if addend is None else add(y, addend)
    y = unary.relu(y, name=name) if activation == "relu" else y
    return [y, mean, rate] if training else [y, None, None]


@op("dropout", is_public=False)
def dropout(
    b: Builder,
    x: Value,
    mask: Value,
    addend: Value | None = None,
    scale: float = 1.0,
    name: str | None = None,
) -> Value:
    """x times `scale` where `mask` is not 0, else 0; plus `addend`."""
    if dims(mask) != dims(x):
        raise ShapeError(f"the mask is {dims(mask)}, what it hides is {dims(x)}")
    zero = b.like(0, x)
    y = b.Where(condition(b, mask), b.Mul(x, b.like(scale, x)), zero)
    return y if addend is None else b.Add(y, addend)


@op("prelu", is_public=False)
def prelu(b: Builder, x: Value, alpha: Value, name: str | None = None) -> Value:
    """x where it is positive, else alpha x; alpha has the shape of a sample, or 1s in it."""
    return b.PRelu(x, alpha)


def _with_probabilities(name: str, loss: Operator[Value]) -> Operator[Value]:
    """Publish a cross entropy together with the probabilities that it is of."""

    def lower(
        b: Builder, prediction: Value, label: Value, name: str | None = None
    ) -> tuple[Value, Value]:
        """The loss of each sample, and the probabilities."""
        return loss.lower(b, label, prediction), b.Softmax(prediction, axis=-1)

    return op(name, is_public=False)(lower)


softmax_cross_entropy = _with_probabilities(
    "softmax_cross_entropy", losses.softmax_cross_entropy_with_logits
)
sparse_softmax_cross_entropy = _with_probabilities(
    "sparse_softmax_cross_entropy", losses.sparse_softmax_cross_entropy_with_logits
)


@op("l2_normalize", is_public=False)
def l2_normalize(
    b: Builder, x: Value, axis: int, epsilon: float = 1e-12, name: str | None = None
) -> tuple[Value, Value]:
    """math.l2_normalize, and the sum of squares along `axis`."""
    y = special.l2_normalize.lower(b, x, axis, epsilon)
    return y, b.ReduceSum(b.Mul(x, x), [axis_of(axis, rank_of(x))], keepdims=1)


@op("combined_margin_loss", is_public=False)
def combined_margin_loss(
    b: Builder,
    x: Value,
    label: Value,
    m1: float = 1,
    m2: float = 0,
    m3: float = 0,
    name: str | None = None,
) -> tuple[Value, Value]:
    """flow.combined_margin_loss, and the angle at the label of each sample."""
    y = losses.combined_margin_loss.lower(b, x, label, m1, m2, m3)
    picked = b.GatherElements(x, losses.as_column(b, label, x), axis=-1)
    return y, b.Reshape(b.Acos(picked), list(dims(x)[:-1]))


@op("batch_gather", is_public=False)
def batch_gather(b: Builder, x: Value, indices: Value, name: str | None = None) -> Value:
    """flow.gather along the last axis of `indices`, one batch for each of those before."""
    return indexing.gather.lower(b, x, indices, batch_dims=rank_of(indices) - 1)


@op("deconv2d", is_public=False)
def deconv2d(
    b: Builder,
    x: Value,
    weight: Value,
    padding_before: Sequence[int],
    strides: Ints,
    output_padding: Ints = 0,
    dilation_rate: Ints | None = None,
    data_format: str = "channels_first",
    name: str | None = None,
) -> Value:
    """A transposed convolution cut by `padding_before` at both ends of each axis."""
    layouts = {"channels_first": "NCHW", "channels_last": "NHWC"}
    if data_format not in layouts:
        raise ArgumentError(f"data_format is one of {', '.join(layouts)}, got {data_format!r}")
    return conv_transpose.torch_conv2d_transpose.lower(
        b, x, weight, output_padding, strides, [2 * p for p in padding_before],
        layouts[data_format], dilations=dilation_rate,
    )  # fmt: skip


@op("argwhere", is_public=False)
def argwhere(b: Builder, condition: Value, name: str | None = None) -> tuple[Value, Value]:
    """flow.argwhere, and how many elements it found."""
    places = indexing.argwhere.lower(b, condition)
    count = b.Slice(b.Shape(places), [0], [1])
    return places, b.Cast(count, to=dtype_of(places))


@op("multi_square_sum", is_public=False)
def multi_square_sum(b: Builder, x: list[Value] | None = None, name: str | None = None) -> Value:
    """The sum of the squares of all elements of several blobs, shape (1,)."""
    if not x:
        raise ArgumentError("multi_square_sum needs at least one blob in x")
    return b.Reshape(b.Sum(*(b.ReduceSumSquare(v, list(range(rank_of(v)))) for v in x)), [1])


@op("fused_cast_scale", is_public=False)
def fused_cast_scale(
    b: Builder, x: Value, scale_by_tensor: Value, scale: float = 1.0, name: str | None = None
) -> Value:
    """`x` in the element type of a scale of one element, times it and times a number."""
    product = b.Mul(b.Cast(x, to=dtype_of(scale_by_tensor)), scale_by_tensor)
    return product if scale == 1.0 else b.Mul(product, b.like(scale, product))


@op("split_like", is_public=False)
def split_like(
    b: Builder, x: list[Value], like: list[Value], axis: int = 0, name: str | None = None
) -> list[Value]:
    """The one blob of `x` in pieces that are as long along `axis` as those of `like`."""
    (whole,) = x
    along = axis_of(axis, rank_of(whole))
    sizes = [dims(v)[along] for v in like]
    if sum(sizes) != dims(whole)[along]:
        raise ShapeError(
            f"pieces of {' + '.join(map(str, sizes))} do not make the {dims(whole)[along]} that "
            f"there are along axis {along}"
        )
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [
        b.Slice(whole, [end - size], [end], [along]) for size, end in zip(sizes, ends, strict=True)
    ]
