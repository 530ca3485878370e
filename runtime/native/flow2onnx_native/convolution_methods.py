"""The method by which a convolution or a gradient of one is fastest: rules that were measured.

`python -m benchmarks.convolutions` measures what they choose, beside torch.
"""

from math import prod

from flow2onnx_native.abi import (
    MOST_WINOGRAD_CHANNELS,
    MOST_WINOGRAD_EXTENT,
    ConvShape,
    Method,
)

__all__ = [
    "MOST_AXES",
    "are_windows_apart",
    "by_axis",
    "fastest_method",
    "is_pointwise",
    "winograd_tile",
]

MOST_AXES = 3  # of an image
_TILES = {3: 4, 5: 2}  # the side of a tile's results for that of a kernel: 6 by 6 are read
# Below these, what tiles and weights cost to transform is more than they save.
_FEWEST_CHANNELS, _FEWEST_OF_LARGER = 16, 64  # the second for weights of the larger kernel
_FEWEST_TILES = 16  # of all images
# Of the tiles, which may hang over the edge of the image; of many by the smaller kernel fewer do.
_LEAST_FILLED, _MANY_TILES, _LEAST_OF_MANY = 0.75, 32, 0.65
# Both for weight gradients by the smaller kernel: there are no weights to be transformed before. By
# the larger, of few tiles and of many: what these are transformed to does not stay in the cache.
_OF_WEIGHTS, _MANY_LARGER, _LEAST_OF_LARGER = (1, 0.5), 256, (0.8, 0.9)
# Channels: with others oneDNN has no fast kernel for groups, and fills blocks with zeros.
_BLOCK = 8
_FEW, _NOT_MANY = 4, 24  # channels
_SMALLEST_IMAGE, _SMALLEST_OF_FEW, _FEW_IMAGES = 20, 16, 2  # positions of the output
# In a weight gradient: windows of all images, and positions of one.
_FEWEST_ADDED, _FEWEST_SUMMED = 25, 12
_FEW_WINDOWS, _MANY_WEIGHTS = 64, 1 << 17  # which cost more to be reordered than to be multiplied
# With which it pays to move what few windows see: weights, channels made, those for a window; and
# weights that twice as many windows see if no strides put them apart.
_FEWEST_WEIGHTS, _FEWEST_OUT, _OUT_OF_WINDOW, _MANY_IF_DENSE = 1 << 14, 192, 4, 1 << 21
_LONG_WINDOW, _FEWEST_IMAGES, _MOST_IMAGES = 768, 9, 32  # of one window: elements, and images
_LONGEST_DEPTHWISE = 9  # kernel whose forward pass oneDNN is fast with
_MOST_FIRST_PHASES = 8
# Of kernels that are mostly beyond the border: longer, no longer, and rows as long as so many.
_SHORT, _LONGEST, _ROW = 3, 13, 4
_FEWEST_COLUMNS = 64  # positions for which a product of each image pays
# Of a weight gradient: channels with which it pays too, and positions below which the runtime would
# have to put those of all images together.
_FEWEST_ROWS, _FLAT = 32, 256
_SMALL_PLANE = 256  # positions of the output of a channel
_MOST_SUMMED_TAPS = 200  # of a depthwise kernel over two axes, beyond which bands are faster
# Of what windows see, to be moved to rows: positions over one axis, and of a row of two; channels,
# those of long kernels, and positions with which few channels gain, or three axes do.
_SHORTEST_ROW, _LONG_LINE, _WIDE, _WIDEST, _MANY_PLACES, _FEW_PLACES = 32, 28, 64, 300, 1000, 100
_MOST_OF_SHARE = 1.25  # of what threads would do if it could be divided at will
# Over one axis: kernels as long as this, and as many channels with which they are.
_LONG_ROW, _MOST_OF_ROW, _MOST_OF_GROUP = 15, 72, 48
# Products of a position of a first layer, as which the runtime has a kernel; those for AVX-512.
_LARGEST_FIRST, _LARGEST_FIRST_PLANE = 80, 60


def fastest_method(name: str, shape: ConvShape, *, winograd: bool, avx512: bool) -> Method | None:
    """The method of a convolution or gradient; None where it is fastest as standard operators.

    `avx512`: whether the library's loops, and oneDNN, use that instruction set.
    """
    if _has_one_window(shape):
        return Method.COLUMNS if name == "Conv" and _has_several_rows(shape) else Method.PRODUCTS
    if _adds_few_windows(name, shape):
        return Method.PRODUCTS
    tile = winograd_tile(name, shape) if winograd else 0
    if tile:
        return Method(tile)
    if name == "Conv" and _reads_weights_once(shape):
        return Method.COLUMNS
    if name == "ConvInputGradient" and shape.groups == 1 and are_windows_apart(shape):
        return _input_gradient_apart(shape)
    if _is_product_if_moved(name, shape) and (avx512 or not _is_fast_as_standard(name, shape)):
        return Method.PRODUCTS
    if avx512 and _is_first_for_avx512(name, shape):
        return Method.SUMS
    if avx512 and shape.groups == 1 and _is_product(shape):  # of few channels too
        is_sum = name == "ConvWeightGradient" and _is_narrower(shape)
        return Method.SUMS if is_sum else Method.PRODUCTS
    rule = {"Conv": _forward, "ConvInputGradient": _input_gradient}.get(name, _weight_gradient)
    return rule(shape)


def _adds_few_windows(name: str, shape: ConvShape) -> bool:
    """True for a weight gradient of so few windows that it is little more than writing it."""
    is_few = shape.images <= _FEW_IMAGES and _windows(shape) <= _FEWEST_ADDED
    return name == "ConvWeightGradient" and is_few and shape.groups == 1


def by_axis(shape: ConvShape, first: str) -> tuple[int, ...]:
    """The numbers of all three axes, of which the table has the first under this name."""
    at = ConvShape._fields.index(first)
    return tuple(shape[at : at + MOST_AXES])


def _forward(shape: ConvShape) -> Method | None:
    if shape.groups > 1:
        return _of_groups(shape, is_back=False)
    if is_pointwise(shape) and (min(shape.in_, shape.out) <= _FEW or _has_few_channels(shape)):
        return Method.PRODUCTS
    if _is_first_of_three(shape):
        return Method.PLANES if shape.out < 2 * _BLOCK else Method.SUMS
    if shape.out <= _FEW or (_has_few_channels(shape) and not _is_image_apart(shape)):
        return Method.PLANES
    if _is_product(shape):
        return Method.PRODUCTS
    if is_pointwise(shape) and _has_few_windows(shape):
        return None
    if shape.in_ > _FEW or shape.out < 2 * _BLOCK:
        return Method.SUMS
    if shape.in_ * _taps(shape) <= _LARGEST_FIRST:
        return None
    return Method.PLANES if _has_unit_strides(shape) else Method.SUMS


def _input_gradient(shape: ConvShape) -> Method | None:
    if shape.groups > 1:
        return _of_groups(shape, is_back=True)
    if shape.axes < MOST_AXES and shape.in_ <= 2:
        return None  # the runtime's product with a sum over windows
    if shape.in_ < 2 * _BLOCK or shape.out <= _FEW or _has_few_channels(shape):
        return Method.PLANES
    return Method.SUMS


def _input_gradient_apart(shape: ConvShape) -> Method:
    """The method where no element is seen by two windows: what windows have is only moved back."""
    places = _places(shape)
    if places >= _FEWEST_COLUMNS:
        return Method.PRODUCTS
    if places >= _SMALLEST_OF_FEW:
        if 1 < _taps(shape) <= _FEW and shape.in_ >= _WIDE and _has_no_gaps(shape):
            return Method.SUMS
        if min(shape.in_, shape.out) < 2 * _WIDE or not _has_unit_strides(shape):
            return Method.PRODUCTS
    is_product = shape.images <= _FEW_IMAGES or shape.in_ < _BLOCK
    return Method.PRODUCTS if is_product else Method.SUMS


def _weight_gradient(shape: ConvShape) -> Method | None:
    per_in, per_out = shape.in_ // shape.groups, shape.out // shape.groups
    if _has_one_channel_a_group(shape):
        return Method.CHANNELS
    if per_in == per_out == 1:
        if shape.axes == 2 and _taps(shape) > _MOST_SUMMED_TAPS:
            return None
        is_small = shape.axes == 2 and _places(shape) <= _SMALL_PLANE
        return Method.SUMS if is_small and _taps(shape) <= _BLOCK + 1 else Method.PLANES
    if shape.groups > 1:
        is_long = shape.axes == 1 and _taps(shape) >= _LONG_ROW
        is_narrow = shape.axes != 2 and max(per_in, per_out) <= (1 + is_long) * _BLOCK
        is_odd = bool(per_in % _BLOCK or per_out % _BLOCK) and not is_pointwise(shape)
        return Method.PLANES if is_narrow or is_odd else Method.SUMS
    places = _places(shape)
    if places < (_SMALLEST_IMAGE if shape.images > _FEW_IMAGES else _SMALLEST_OF_FEW):
        are_rows = places < _FEWEST_SUMMED and _weights(shape) >= 2 * _MANY_WEIGHTS
        return None if are_rows or is_pointwise(shape) else Method.SUMS  # None: matrix products
    if is_pointwise(shape):
        is_narrow = places >= _FLAT and min(shape.in_, shape.out) < _FEWEST_ROWS
        return None if is_narrow else Method.PRODUCTS
    if shape.in_ == shape.axes == 1 and shape.out > _FEW:
        return None  # one product with all that windows see
    if _is_first_of_three(shape):
        return Method.PLANES
    is_apart = shape.axes == 2 and not _has_unit_strides(shape)  # which oneDNN is fast with
    has_few = shape.out <= _FEW or (_has_few_channels(shape) and not is_apart)
    return Method.PLANES if has_few else Method.SUMS


def _of_groups(shape: ConvShape, *, is_back: bool) -> Method | None:
    """The method of a convolution of groups and of its input gradient."""
    per_in, per_out = shape.in_ // shape.groups, shape.out // shape.groups
    if _has_one_channel_a_group(shape):
        is_known = _is_beyond_border(shape) if is_back else _is_mostly_border(shape)
        return Method.SUMS if is_known else Method.CHANNELS
    if per_in == per_out == 1:
        is_short = is_back or max(by_axis(shape, "kernel_depth")) <= _LONGEST_DEPTHWISE
        is_known = shape.axes < MOST_AXES and is_short
        return Method.SUMS if is_known and _is_dense(shape) else Method.PLANES
    if is_pointwise(shape):
        return None if per_in % (2 * _BLOCK) or per_out % (2 * _BLOCK) else Method.SUMS
    is_odd = bool(per_in % _BLOCK or per_out % _BLOCK)
    has_planes = is_odd or _has_narrow_groups(shape)
    return Method.PLANES if has_planes else Method.SUMS


def _has_one_channel_a_group(shape: ConvShape) -> bool:
    """True for as many such channels as a register has elements, about."""
    return shape.in_ == shape.out == shape.groups >= _BLOCK


def _is_mostly_border(shape: ConvShape) -> bool:
    """True for kernels that are long beside an image, which oneDNN is fast with if dense."""
    is_known = shape.axes == 2 and _is_dense(shape)
    longest = max(by_axis(shape, "kernel_depth"))
    return is_known and _SHORT < longest <= _LONGEST and shape.out_width <= _ROW * longest


def _is_beyond_border(shape: ConvShape) -> bool:
    """True for kernels most of which meet zeros alone, wherever they are."""
    is_known = shape.axes == 2 and _is_dense(shape)
    return is_known and max(by_axis(shape, "kernel_depth")) > 2 * (shape.out_width - 1)


def _is_dilated_beyond(shape: ConvShape) -> bool:
    """True where dilations put most of what windows see beyond the border."""
    axes = zip(
        by_axis(shape, "depth"), by_axis(shape, "kernel_depth"), by_axis(shape, "dilation_z"),
        strict=True,
    )  # fmt: skip
    return any(dilation > 1 and dilation * (kernel - 1) > size for size, kernel, dilation in axes)


def _has_narrow_groups(shape: ConvShape) -> bool:
    """True for few channels a group: fewer over two axes than over one."""
    widest = max(shape.in_, shape.out) // shape.groups
    if shape.axes == 1:
        return widest <= _MOST_OF_GROUP
    is_plain = shape.axes == 2 and _is_dense(shape) and _has_unit_strides(shape)
    return is_plain and widest <= _BLOCK and shape.out_width >= _SMALLEST_IMAGE


def _has_long_rows(shape: ConvShape) -> bool:
    """True over one axis for long kernels with not many channels."""
    fewest, most = sorted((shape.in_, shape.out))
    is_row = shape.axes == 1 and shape.groups == 1 and _taps(shape) >= _LONG_ROW
    return is_row and fewest > _FEW and most <= _MOST_OF_ROW


def _is_first_of_three(shape: ConvShape) -> bool:
    """True for few channels over three axes, but for patches that are apart."""
    phases = prod(by_axis(shape, "stride_z"))
    return shape.in_ <= _FEW and shape.axes == MOST_AXES and phases <= _MOST_FIRST_PHASES


def _is_image_apart(shape: ConvShape) -> bool:
    """True for images of 3 or 4 channels, the windows of which are apart by strides."""
    return shape.axes == 2 and 2 < shape.in_ <= _FEW and not _has_unit_strides(shape)


def _is_first_for_avx512(name: str, shape: ConvShape) -> bool:
    """True for those of few channels to many that oneDNN is only with AVX-512 at its best with."""
    if shape.groups > 1 or shape.out < 2 * _BLOCK or shape.in_ > _FEW:
        return False
    if name == "Conv":
        is_long = shape.in_ * _taps(shape) > _LARGEST_FIRST_PLANE
        return shape.axes == 2 and (is_long or _is_image_apart(shape))
    if name == "ConvInputGradient" or _taps(shape) == 1 or shape.axes == 1:
        return False
    return shape.in_ < _FEW and _is_first_of_three(shape)


def _reads_weights_once(shape: ConvShape) -> bool:
    """True where few windows of all images see many weights, and it pays to move what they see."""
    windows, weights = _windows(shape), _weights(shape)
    if shape.groups > 1 or windows > 2 * _FEW_WINDOWS or _is_dilated_beyond(shape):
        return False
    if shape.out < min(_FEWEST_OUT, _OUT_OF_WINDOW * windows):
        return False
    if windows > _FEW_WINDOWS:
        is_dense = _has_unit_strides(shape) and (_taps(shape) > 1 or _is_product(shape))
        fewest = _MANY_IF_DENSE if is_dense else _MANY_WEIGHTS
        return _is_dense(shape) and weights >= fewest
    are_matrices = shape.images <= _FEW_IMAGES or windows >= shape.images * _SMALLEST_OF_FEW
    return weights >= _FEWEST_WEIGHTS and not (is_pointwise(shape) and are_matrices)


def _has_several_rows(shape: ConvShape) -> bool:
    """True for images of one window whose many and long weights cost most to be put in order."""
    is_long = shape.in_ * _taps(shape) >= _LONG_WINDOW
    is_several = _FEWEST_IMAGES <= shape.images <= _MOST_IMAGES
    return is_long and is_several and shape.out >= _OUT_OF_WINDOW * shape.images


def _is_narrower(shape: ConvShape) -> bool:
    """True for large images of which few whole blocks of channels are made, from no fewer."""
    is_large = shape.images > _FEW_IMAGES and _places(shape) >= 2 * _MANY_PLACES
    are_whole = shape.in_ % _BLOCK == shape.out % _BLOCK == 0
    return is_large and are_whole and shape.out <= min(shape.in_, _WIDE)


def _has_few_windows(shape: ConvShape) -> bool:
    """True where each of many weights is used for few windows."""
    return _windows(shape) <= _FEW_WINDOWS and _weights(shape) >= _MANY_WEIGHTS


def _places(shape: ConvShape) -> int:
    return prod(by_axis(shape, "out_depth"))


def _windows(shape: ConvShape) -> int:
    return shape.images * _places(shape)


def _weights(shape: ConvShape) -> int:
    return shape.in_ // shape.groups * shape.out * _taps(shape)


def _has_few_channels(shape: ConvShape) -> bool:
    return max(shape.in_, shape.out) < _NOT_MANY and bool(shape.in_ % _BLOCK or shape.out % _BLOCK)


def is_pointwise(shape: ConvShape) -> bool:
    """True for windows of one element at every position of an image."""
    return _taps(shape) == 1 and _has_unit_strides(shape) and not _has_border(shape)


def _has_one_window(shape: ConvShape) -> bool:
    """True for one window of the whole image, so that images and weights are rows as they lie."""
    is_whole = by_axis(shape, "kernel_depth") == by_axis(shape, "depth")
    return shape.groups == 1 and is_whole and _is_dense(shape) and not _has_border(shape)


def _is_product(shape: ConvShape) -> bool:
    """True for windows of one element over enough positions for a matrix product of each image."""
    is_wide = _places(shape) >= _FEWEST_COLUMNS
    return is_pointwise(shape) and is_wide and min(shape.in_, shape.out) > _FEW


def are_windows_apart(shape: ConvShape) -> bool:
    """True where strides leave no element to two windows."""
    axes = zip(by_axis(shape, "kernel_depth"), by_axis(shape, "stride_z"), strict=True)
    return all(kernel <= stride for kernel, stride in axes)


def _is_product_if_moved(name: str, shape: ConvShape) -> bool:
    """True where products of what windows see are fastest, though it is moved to rows first."""
    if shape.groups > 1:
        return is_pointwise(shape) and _is_product_of_groups(name, shape)
    if is_pointwise(shape):
        return False
    if are_windows_apart(shape) and _is_dense(shape) and not _has_border(shape):
        return _is_product_if_apart(name, shape)
    rule = {"Conv": _is_forward_moved, "ConvInputGradient": _is_input_gradient_moved}
    return rule.get(name, _is_weight_gradient_moved)(shape)


def _is_product_of_groups(name: str, shape: ConvShape) -> bool:
    """True for windows of one element where a product of each group and image is fastest."""
    per_in, per_out = shape.in_ // shape.groups, shape.out // shape.groups
    if min(per_in, per_out) < _BLOCK or _places(shape) < _FEWEST_COLUMNS:
        return False
    are_blocks = per_in % (2 * _BLOCK) == per_out % (2 * _BLOCK) == 0
    return name != "Conv" or are_blocks or per_in >= _FEWEST_ROWS


def _is_fast_as_standard(name: str, shape: ConvShape) -> bool:
    """True for those moved to rows that the runtime's kernels are faster with, without AVX-512."""
    if shape.axes == MOST_AXES or shape.groups > 1:
        return False
    return name == "Conv" and shape.in_ <= _FEW and not are_windows_apart(shape)


def _is_product_if_apart(name: str, shape: ConvShape) -> bool:
    places = _places(shape)
    if name == "Conv":
        return places >= _FEWEST_COLUMNS and shape.kernel_width <= _BLOCK
    fewest = _SMALLEST_OF_FEW if shape.images <= _FEW else _FEWEST_COLUMNS
    return places >= fewest and shape.in_ * _taps(shape) > _BLOCK


def _is_forward_moved(shape: ConvShape) -> bool:
    if shape.in_ == 1 or shape.out <= _FEW:
        return False
    if shape.axes == 1:
        return shape.out_width >= (_LONG_LINE if _has_long_rows(shape) else _SHORTEST_ROW)
    if _taps(shape) <= _SHORT:
        return shape.out_width >= _NOT_MANY
    if shape.axes == 2 and shape.kernel_height == _taps(shape) >= _LONG_ROW:
        return shape.in_ >= _FEWEST_ROWS and _has_unit_strides(shape)  # as whole planes
    if _taps(shape) > 2 * _BLOCK or shape.out < _FEWEST_ROWS or shape.axes == MOST_AXES:
        return False
    if _is_plane_apart(shape):
        return shape.out_width >= _LONG_LINE
    return 2 < shape.in_ <= _FEW and shape.out_width >= 4 * _LONG_LINE and _is_dense(shape)


def _is_input_gradient_moved(shape: ConvShape) -> bool:
    places, taps = _places(shape), _taps(shape)
    if shape.in_ < _BLOCK and places >= _MANY_PLACES:
        return shape.out >= _WIDE and _is_shared(shape.images * shape.in_, shape.tasks)
    if _has_long_rows(shape) and _has_unit_strides(shape):
        return shape.images <= _FEW_IMAGES or places >= _LONG_LINE
    if shape.in_ < _BLOCK or _has_unit_strides(shape):
        return False
    if shape.axes == 1:
        return taps <= _FEW and shape.in_ <= _WIDE and places >= _FEWEST_COLUMNS
    are_many = shape.images * places > _SHORTEST_ROW and taps < _WIDE
    return shape.in_ >= 2 * _WIDE and not are_many


def _is_weight_gradient_moved(shape: ConvShape) -> bool:
    places, taps = _places(shape), _taps(shape)
    are_few = shape.images <= _FEW
    fewest = _SHORTEST_ROW if shape.axes == 1 else _FEWEST_COLUMNS
    if _has_long_rows(shape):
        fewest = _SMALLEST_IMAGE
    if shape.out <= _FEW or places < (_SMALLEST_OF_FEW if are_few else fewest):
        return False
    if shape.axes == 1:
        return shape.in_ > 1 or shape.stride_x > 1
    if shape.axes == MOST_AXES:
        is_wide = shape.out >= 4 * _WIDE and places <= _FEW_PLACES
        is_apart = not _is_dense(shape) and not _is_dilated_beyond(shape)
        return is_apart or (are_few and is_wide)
    if _is_plane_apart(shape):
        is_wide = shape.in_ >= _FEW or shape.out >= 2 * _WIDE
        is_long = shape.out_width >= 2 * _BLOCK
        return is_wide and (are_few or is_long or _weights(shape) >= 2 * _MANY_WEIGHTS)
    if shape.kernel_width == taps >= _LONG_ROW:  # for which oneDNN has no fast kernel
        return shape.in_ > _FEW
    return shape.in_ > _FEW and shape.out >= (_WIDE if taps <= _SHORT else _WIDEST)


def _is_shared(units: int, tasks: int) -> bool:
    """True if no task gets much more than its share of so many units."""
    return -(-units // tasks) * tasks <= _MOST_OF_SHARE * units


def _is_plane_apart(shape: ConvShape) -> bool:
    """True for images of two axes, the windows of which are apart by strides along their rows."""
    return shape.axes == MOST_AXES - 1 and shape.stride_x > 1


def _has_border(shape: ConvShape) -> bool:
    return any((*by_axis(shape, "front"), *by_axis(shape, "back")))


def _has_no_gaps(shape: ConvShape) -> bool:
    """True if windows touch."""
    return by_axis(shape, "kernel_depth") == by_axis(shape, "stride_z")


def _is_dense(shape: ConvShape) -> bool:
    return set(by_axis(shape, "dilation_z")) == {1}


def _has_unit_strides(shape: ConvShape) -> bool:
    return set(by_axis(shape, "stride_z")) == {1}


def _taps(shape: ConvShape) -> int:
    return prod(by_axis(shape, "kernel_depth"))


def winograd_tile(name: str, shape: ConvShape) -> int:
    """The side of the tiles by which a convolution or gradient is fastest; 0: it is without."""
    kernel, side = shape.kernel_height, _TILES.get(shape.kernel_height, 0)
    image, output = (shape.height, shape.width), (shape.out_height, shape.out_width)
    is_plain = (
        shape.axes == 2
        and kernel == shape.kernel_width
        and shape.stride_y == shape.stride_x == shape.dilation_y == shape.dilation_x == 1
        and shape.groups == 1
        and max(shape.images, shape.in_, shape.out) <= MOST_WINOGRAD_CHANNELS
        and max(*image, *output) <= MOST_WINOGRAD_EXTENT
    )
    if not side or not is_plain or max(shape.top, shape.left, shape.bottom, shape.right) >= kernel:
        return 0
    extents = image if name == "ConvInputGradient" else output
    tiles = prod(-(-extent // side) for extent in extents)
    count = shape.images * tiles
    fewest, filled = _FEWEST_TILES, _LEAST_FILLED
    is_larger = kernel > _SHORT and name == "ConvWeightGradient"
    if kernel == _SHORT and name == "ConvWeightGradient":
        fewest, filled = _OF_WEIGHTS
    elif is_larger:
        filled = _LEAST_OF_LARGER[count >= _MANY_LARGER]
    elif kernel == _SHORT and count >= _MANY_TILES:
        filled = _LEAST_OF_MANY
    pays = (
        min(shape.in_, shape.out) >= (_FEWEST_OF_LARGER if is_larger else _FEWEST_CHANNELS)
        and count >= fewest
        and prod(extents) >= filled * tiles * side**2
    )
    return side if pays else 0
