"""Images between decoding and the graph: resized, cut and aligned on the host, normalised in it."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from flow2onnx_runtime.dtypes import Array

from flow2onnx.data import images
from flow2onnx.data.decoding import Crop, Encoded, FixedSize, Key, random_of
from flow2onnx.data.images import METHODS, Side
from flow2onnx.dtypes import DType, element_type, float32, int8, int32, tensor_buffer, uint8
from flow2onnx.errors import ArgumentError, DataError, DTypeError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.ops.host_arguments import (
    buffer_type,
    buffers,
    channels_of,
    choice,
    dense,
    operator_name,
    per_sample,
    positive,
    seed_of,
)
from flow2onnx.ops.readers import window_of
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.host import HostType, HostValue
from flow2onnx.trace.host_blob import HostBlob, emit
from flow2onnx.trace.op import composite, op

_PIXELS = (uint8, float32)
# Former values of `interp_type`.
_OLD_METHODS = {"Linear": "bilinear", "NN": "nearest_neighbor", "Cubic": "bicubic"}


@composite("image.decode", "image_decode", catalogued=True)
def decode(images_bytes_buffer: Blob, dtype: DType, color_space: str, name: str | None) -> Blob:
    """The images in buffers of bytes, such as `flow.data.OFRecordBytesDecoder` makes."""
    source = buffers(images_bytes_buffer, "image.decode")
    kind = _pixel_type(dtype)
    channels_of(color_space)
    full = operator_name(name, "ImageDecode")
    run = partial(_decode_as, Encoded(None, color_space), kind)
    return per_sample(full, run, source)


def _decode_as(decoder: Encoded, dtype: DType, key: Key, data: Array) -> tuple[Array]:
    (image,) = decoder(key, data)
    return (image.astype(dtype.numpy, copy=False),)


def _pixel_type(dtype: object) -> DType:
    kind = element_type(dtype)
    if kind not in _PIXELS:
        raise DTypeError(f"pixels are uint8 or float32, got {kind.name}")
    return kind


@composite("image.random_crop", "image_random_crop")
def random_crop(
    input_blob: Blob,
    num_attempts: int = 10,
    seed: int | None = None,
    random_area: Sequence[float] | None = None,
    random_aspect_ratio: Sequence[float] | None = None,
    name: str | None = "ImageRandomCrop",
) -> Blob:
    """A random part of each image, another one at each call."""
    source = buffers(input_blob, "image.random_crop")
    full = operator_name(name, "ImageRandomCrop")
    window = window_of(num_attempts, random_area, random_aspect_ratio)
    run = partial(_crop, window, seed_of(full, seed))
    return per_sample(full, run, source)


def _crop(window: images.Window, seed: int, key: Key, image: Array) -> tuple[Array]:
    return (image[window.draw(random_of(seed, key), *image.shape[:2])],)


@composite("data.image_decoder_random_crop_resize", "data.ImageDecoderRandomCropResize")
def image_decoder_random_crop_resize(
    input_blob: Blob,
    target_width: int,
    target_height: int,
    num_attempts: int | None = None,
    seed: int | None = None,
    random_area: Sequence[float] | None = None,
    random_aspect_ratio: Sequence[float] | None = None,
    num_workers: int | None = None,
    warmup_size: int | None = None,
    max_num_pixels: int | None = None,
    name: str | None = None,
) -> Blob:
    """A random part of each encoded image, RGB, in one size; the pool's sizes are ours."""
    what = "data.image_decoder_random_crop_resize"
    source = buffers(input_blob, what)
    full = operator_name(name, "ImageDecoderRandomCropResize")
    window = window_of(num_attempts, random_area, random_aspect_ratio)
    width, height = positive(target_width, "target_width"), positive(target_height, "target_height")
    decoder = Encoded(None, "RGB", window, seed_of(full, seed))
    run = partial(_decode_and_resize, decoder, FixedSize(height, width, 3, uint8, "bilinear"))
    return per_sample(full, run, source, shape=(height, width, 3), dtype=uint8)


def _decode_and_resize(decoder: Encoded, size: FixedSize, key: Key, data: Array) -> tuple[Array]:
    return size(key, *decoder(key, data))[:1]


@composite("image.resize", "image.Resize", "image_resize")
def resize(
    image: Blob,
    target_size: int | Sequence[int] | None = None,
    min_size: int | None = None,
    max_size: int | None = None,
    keep_aspect_ratio: bool = False,
    resize_side: str = "shorter",
    channels: int = 3,
    dtype: DType | None = None,
    interpolation_type: str = "auto",
    name: str | None = None,
    color_space: str | None = None,
    interp_type: str | None = None,
    resize_shorter: int = 0,
    resize_x: int = 0,
    resize_y: int = 0,
) -> Any:
    """Images in another size, their factors (horizontal, vertical), and their new sizes or None.

    `target_size` is (width, height), and the result one array; with `keep_aspect_ratio` it is that
    of one side, and the images stay apart, with their sizes (width, height). With any of the
    parameters after `name`, which are those of old, only the images are returned.
    """
    is_old = any((color_space, interp_type, resize_shorter, resize_x, resize_y))
    if is_old:
        channels = 3 if color_space is None else channels_of(color_space)
        if interp_type:
            interpolation_type = _OLD_METHODS[choice(interp_type, _OLD_METHODS, "interp_type")]
        keep_aspect_ratio = bool(resize_shorter)
        target_size = resize_shorter or (resize_x, resize_y)
    source = buffers(image, "image.resize")
    method = choice(interpolation_type, METHODS, "interpolation_type")
    if keep_aspect_ratio:
        made = _by_side(source, target_size, min_size, max_size, resize_side, method, name)
        return made[0] if is_old else (made[0], made[2], made[1])
    made = _to_size(source, target_size, channels, dtype, method, name)
    return made[0] if is_old else (*made, None)


def _to_size(
    source: HostValue,
    target: object,
    channels: int,
    dtype: DType | None,
    method: str,
    name: str | None,
) -> tuple[HostBlob, ...]:
    if not isinstance(target, list | tuple) or len(target) != 2:
        raise ArgumentError(
            f"target_size is (width, height), got {target!r}",
            hint="one number is for keep_aspect_ratio=True",
        )
    width, height = (positive(n, "target_size") for n in target)
    if channels not in (1, 3):
        raise ArgumentError(f"channels is 1 or 3, got {channels!r}")
    kind = _pixel_type(uint8 if dtype is None else dtype)
    full = operator_name(name, "ImageResize")
    run = FixedSize(height, width, channels, kind, method)
    (batch,) = source.type.shape
    whole = HostType((batch, height, width, channels), kind)
    return emit(full, "sample", run, [source], whole, HostType((batch, 2), float32))


def _by_side(
    source: HostValue,
    target: object,
    least: int | None,
    most: int | None,
    side: str,
    method: str,
    name: str | None,
) -> tuple[HostBlob, ...]:
    """Images apart, their sizes and factors."""
    size = positive(target, "target_size")
    is_longer = choice(side, ("shorter", "longer"), "resize_side") == "longer"
    chosen: Side = "longer" if is_longer else "shorter"
    full = operator_name(name, "ImageResize")
    run = partial(_resize_side, size, chosen, least, most, method)
    (batch,) = source.type.shape
    types = buffer_type(batch), HostType((batch, 2), int32), HostType((batch, 2), float32)
    return emit(full, "sample", run, [source], *types)


def _resize_side(
    target: int,
    side: Side,
    least: int | None,
    most: int | None,
    method: str,
    key: Key,
    image: Array,
) -> tuple[Array, Array, Array]:
    old_height, old_width = image.shape[:2]
    height, width = images.size_in_ratio(old_height, old_width, target, side, least, most)
    factors = np.array([width / old_width, height / old_height], np.float32)
    return (
        images.resize(image, height, width, method),
        np.array([width, height], np.int32),
        factors,
    )


@composite("image.target_resize", "image_target_resize")
def target_resize(
    images: Blob,
    target_size: int,
    min_size: int | None = None,
    max_size: int | None = None,
    resize_side: str = "shorter",
    interpolation_type: str = "auto",
    name: str | None = None,
) -> tuple[HostBlob, ...]:
    """Images of which one side has the target size, their new sizes (width, height), factors."""
    source = buffers(images, "image.target_resize")
    method = choice(interpolation_type, METHODS, "interpolation_type")
    return _by_side(source, target_size, min_size, max_size, resize_side, method, name)


@composite("image.batch_align", "image_batch_align", catalogued=True)
def batch_align(
    images: Blob, shape: Sequence[int], dtype: DType, alignment: int, name: str | None
) -> Blob:
    """Images of different sizes in one array of `shape`, zeros at their right and bottom.

    OneFlow's result was only as large as the largest image rounded up to `alignment`; a size that
    is fixed is what runtimes want.
    """
    source = buffers(images, "image.batch_align")
    kind, sizes = _pixel_type(dtype), tuple(shape)
    if len(sizes) != 3 or any(type(n) is not int or n < 1 for n in sizes):
        raise ArgumentError(f"shape is (height, width, channels), got {shape!r}")
    if type(alignment) is not int or alignment < 0 or alignment & (alignment - 1):
        raise ArgumentError(f"alignment is 0 or a power of 2, got {alignment!r}")
    full = operator_name(name, "ImageBatchAlign")
    return per_sample(full, partial(_align, sizes, kind), source, shape=sizes, dtype=kind)


def _align(sizes: tuple[int, ...], dtype: DType, key: Key, image: Array) -> tuple[Array]:
    if image.ndim != 3 or any(have > most for have, most in zip(image.shape, sizes, strict=True)):
        raise DataError(
            f"an image of shape {image.shape} is larger than {sizes}",
            hint="give batch_align the shape of the largest image",
        )
    made = np.zeros(sizes, dtype.numpy)
    made[: image.shape[0], : image.shape[1], : image.shape[2]] = image
    return (made,)


@composite("image.flip", "image_flip")
def flip(image: Blob, flip_code: int | Blob, name: str | None = None) -> Blob:
    """Images mirrored: code 1 left and right, 16 top and bottom, 17 both, 0 as they are."""
    source = buffers(image, "image.flip")
    full = operator_name(name, "ImageFlip")
    codes, fixed = flip_codes(flip_code, source, "image.flip")
    return per_sample(full, partial(_flip_one, fixed), source, *codes)


def flip_codes(code: object, source: HostValue, what: str) -> tuple[list[HostValue], int]:
    """The blob that holds a code for each sample, or none and the code of all."""
    if isinstance(code, Blob):
        return [dense(code, what, source.type.shape, (int8,))], 0
    if code not in (0, 1, 16, 17):
        raise ArgumentError(f"flip_code is 0, 1, 16 or 17, or a blob of them; got {code!r}")
    return [], int(code)


def _flip_one(fixed: int, key: Key, image: Array, code: int | None = None) -> tuple[Array]:
    return (images.flip(image, fixed if code is None else int(code)),)


@composite("image.normalize", "image_normalize")
def normalize(
    image: Blob, std: float | Sequence[float], mean: float | Sequence[float],
    name: str | None = None,
) -> Blob:  # fmt: skip
    """Images apart, float32: less the mean of each channel, over its standard deviation."""
    source = buffers(image, "image.normalize")
    full = operator_name(name, "ImageNormalize")
    run = partial(_normalize_one, _per_channel(mean, "mean"), _per_channel(std, "std"))
    return per_sample(full, run, source)


def _per_channel(values: object, what: str) -> Array:
    given = np.atleast_1d(np.asarray(values, np.float32))
    if given.shape not in ((1,), (3,)):
        raise ArgumentError(f"{what} is a number for each channel, got {values!r}")
    if what == "std" and not given.all():
        raise ArgumentError(f"std is not 0, got {values!r}")
    return given


def _normalize_one(mean: Array, std: Array, key: Key, image: Array) -> tuple[Array]:
    if mean.size not in (1, image.shape[2]) or std.size not in (1, image.shape[2]):
        raise DataError(f"an image of {image.shape[2]} channels; mean or std have others")
    return (((image - mean) / std).astype(np.float32),)


@composite("image.crop_mirror_normalize", "image.CropMirrorNormalize")
def crop_mirror_normalize(
    input_blob: Blob,
    mirror_blob: Blob | None = None,
    color_space: str = "BGR",
    output_layout: str = "NCHW",
    crop_h: int = 0,
    crop_w: int = 0,
    crop_pos_y: float = 0.5,
    crop_pos_x: float = 0.5,
    mean: Sequence[float] = [0.0],
    std: Sequence[float] = [1.0],
    output_dtype: DType = float32,
    name: str | None = None,
) -> Blob:
    """A window of each image, mirrored where `mirror_blob` is not 0, less mean, over std.

    The window is cut on the host, the rest happens in the graph. Without a crop the images have
    one size already.
    """
    channels = channels_of(color_space)
    for place in (crop_pos_y, crop_pos_x):
        if not isinstance(place, int | float) or not 0 <= place <= 1:
            raise ArgumentError(f"crop_pos_y and crop_pos_x are in [0, 1], got {place!r}")
    window = Crop(crop_h, crop_w, channels, crop_pos_y, crop_pos_x)
    cut = _crop_window(input_blob, window) if input_blob.dtype == tensor_buffer else input_blob
    made: Blob = _mirror_normalize(
        cut, mirror_blob, window if cut is input_blob else None, channels,
        choice(output_layout, ("NCHW", "NHWC"), "output_layout"), mean, std, output_dtype, name,
    )  # fmt: skip
    return made


def _crop_window(images: Blob, window: Crop) -> Blob:
    if not window.height or not window.width:
        raise ArgumentError(
            "images of different sizes need crop_h and crop_w",
            hint="resize them to one size before: flow.image.Resize(target_size=(w, h))[0]",
        )
    source = buffers(images, "image.crop_mirror_normalize")
    sizes = positive(window.height, "crop_h"), positive(window.width, "crop_w"), window.channels
    full = operator_name(None, "CropWindow")
    return per_sample(full, window, source, shape=sizes, dtype=uint8)


@op("image.crop_mirror_normalize_tensor", is_public=False)
def _mirror_normalize(
    b: Builder,
    images: Value,
    mirror: Value | None,
    window: Crop | None,
    channels: int,
    layout: str,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: DType,
    name: str | None = None,
) -> Value:
    shape = dims(images)
    if len(shape) != 4 or shape[3] != channels or dtype_of(images) != uint8:
        raise ShapeError(
            f"takes uint8 images (batch, height, width, {channels}), got "
            f"{dtype_of(images).name} {shape}",
            hint="color_space says how many channels there are",
        )
    cut = images if window is None else _window(b, images, window)
    if mirror is not None:
        cut = _mirror(b, cut, mirror)
    offset, divisor = (_channelwise(v, channels, w) for v, w in ((mean, "mean"), (std, "std")))
    made = b.Mul(
        b.Sub(b.Cast(cut, to=float32), b.const(offset, float32)),
        b.const(np.float32(1) / divisor, float32),
    )
    made = b.Transpose(made, perm=[0, 3, 1, 2]) if layout == "NCHW" else made
    kind = element_type(dtype)
    return made if kind == float32 else b.Cast(made, to=kind)


def _window(b: Builder, images: Value, window: Crop) -> Value:
    _, height, width, _ = dims(images)
    h, w = window.height or height, window.width or width
    if h > height or w > width:
        raise ShapeError(f"a crop of {w} × {h} from images of {width} × {height}")
    top, left = math.floor((height - h) * window.y), math.floor((width - w) * window.x)
    if (h, w) == (height, width):
        return images
    return b.Slice(images, [top, left], [top + h, left + w], [1, 2])


def _mirror(b: Builder, images: Value, mirror: Value) -> Value:
    if dims(mirror) != dims(images)[:1]:
        raise ShapeError(
            f"mirror_blob has one number for each of {dims(images)[0]} images, got {dims(mirror)}"
        )
    flags = b.Reshape(b.Not(b.Equal(mirror, b.like(0, mirror))), [-1, 1, 1, 1])
    return b.Where(flags, b.Slice(images, [-1], [-(1 << 31)], [2], [-1]), images)


def _channelwise(values: Sequence[float], channels: int, what: str) -> Array:
    given = _per_channel(values, what)
    if given.size not in (1, channels):
        raise ArgumentError(f"{what} has {given.size} values for {channels} channels")
    return np.broadcast_to(given, (channels,)).copy()
