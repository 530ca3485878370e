"""The oldest reader: records decoded by a description of each blob."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flow2onnx.dtypes import DType, element_type, float32, uint8
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.ops.images import crop_mirror_normalize, resize
from flow2onnx.ops.random import coin_flip
from flow2onnx.ops.readers import ofrecord_image_decoder, ofrecord_raw_decoder, ofrecord_reader
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.op import composite, op
from flow2onnx.trace.registry import register

__all__ = ["BlobConf", "BytesListCodec", "ImageCodec", "ImagePreprocessor",
           "ImageResizePreprocessor", "NormByChannelPreprocessor", "RawCodec"]  # fmt: skip


@dataclass(frozen=True)
class ImagePreprocessor:
    """A step behind the decoder: "bgr2rgb", or "mirror" for every other image at random."""

    preprocessor: str

    def __post_init__(self) -> None:
        if self.preprocessor not in ("bgr2rgb", "mirror"):
            raise ArgumentError(f"preprocessor is 'bgr2rgb' or 'mirror', got {self.preprocessor!r}")


@dataclass(frozen=True)
class ImageResizePreprocessor:
    """Resizing behind the decoder."""

    width: int
    height: int


@dataclass(frozen=True)
class ImageCodec:
    """An encoded image: blue, green, red, or what the steps make of it."""

    image_preprocessors: Sequence[ImagePreprocessor | ImageResizePreprocessor] | None = None

    def has(self, step: str) -> bool:
        """True if the steps include an `ImagePreprocessor` of that name."""
        return ImagePreprocessor(step) in (self.image_preprocessors or ())


@dataclass(frozen=True)
class RawCodec:
    """Numbers, or bytes as int8 each; zeros follow where there are fewer, if asked."""

    auto_zero_padding: bool = False


@dataclass(frozen=True)
class BytesListCodec:
    """Bytes, as int8 each; zeros follow."""


@dataclass(frozen=True)
class NormByChannelPreprocessor:
    """Less the mean of each channel, over its standard deviation."""

    mean_values: Sequence[float]
    std_values: Sequence[float] = (1.0, 1.0, 1.0)
    data_format: str = "channels_last"

    def __post_init__(self) -> None:
        if self.data_format not in ("channels_last", "channels_first"):
            known = "'channels_last' or 'channels_first'"
            raise ArgumentError(f"data_format is {known}, got {self.data_format!r}")


@dataclass(frozen=True)
class BlobConf:
    """A blob that `flow.data.decode_ofrecord` makes of the feature `name`: one sample's `shape`."""

    name: str
    shape: Sequence[int]
    dtype: DType
    codec: Any
    preprocessors: Sequence[NormByChannelPreprocessor] | None = None


for _class in (BlobConf, BytesListCodec, ImageCodec, ImagePreprocessor, ImageResizePreprocessor,
               NormByChannelPreprocessor, RawCodec):  # fmt: skip
    register(f"data.{_class.__name__}", _class)


@composite("data.decode_ofrecord")
def decode_ofrecord(
    ofrecord_dir: str,
    blobs: Sequence[BlobConf],
    batch_size: int = 1,
    data_part_num: int = 1,
    part_name_prefix: str = "part-",
    part_name_suffix_length: int = -1,
    shuffle: bool = False,
    buffer_size: int = 1024,
    name: str | None = None,
) -> tuple[Blob, ...]:
    """A reader and a decoder for each description, in one call."""
    if not isinstance(blobs, list | tuple) or not all(isinstance(c, BlobConf) for c in blobs):
        raise ArgumentError(f"blobs is a list of flow.data.BlobConf, got {blobs!r}")
    full = current_job("decode_ofrecord").name_op(name, "DecodeOFRecord")
    read = ofrecord_reader.lower(
        ofrecord_dir, batch_size, data_part_num, part_name_prefix, part_name_suffix_length,
        shuffle, buffer_size, name=f"{full}-reader",
    )  # fmt: skip
    return tuple(_blob(read, conf, f"{full}-{i}") for i, conf in enumerate(blobs))


def _blob(read: Blob, conf: BlobConf, name: str) -> Blob:
    if isinstance(conf.codec, ImageCodec):
        made = _image(read, conf, conf.codec, name)
    elif isinstance(conf.codec, RawCodec | BytesListCodec):
        pads = not isinstance(conf.codec, RawCodec) or conf.codec.auto_zero_padding
        shape = tuple(conf.shape)
        made = ofrecord_raw_decoder.lower(
            read, conf.name, shape, conf.dtype, auto_zero_padding=pads, name=name
        )
    else:
        raise ArgumentError(
            f"the codec of blob {conf.name!r} is {conf.codec!r}",
            hint="give flow.data.ImageCodec(), RawCodec() or BytesListCodec()",
        )
    for i, step in enumerate(conf.preprocessors or ()):
        made = _normalize(made, list(step.mean_values), list(step.std_values),
                          step.data_format, name=f"{name}-norm-{i}")  # fmt: skip
    kind = element_type(conf.dtype)
    return made if made.dtype == kind else _cast(made, kind, name=f"{name}-cast")


def _image(read: Blob, conf: BlobConf, codec: ImageCodec, name: str) -> Blob:
    if len(conf.shape) != 3 or conf.shape[2] not in (1, 3):
        raise ArgumentError(
            f"blob {conf.name!r} is an image of shape (height, width, channels), got {conf.shape}"
        )
    height, width, channels = conf.shape
    color = "GRAY" if channels == 1 else "RGB" if codec.has("bgr2rgb") else "BGR"
    image = ofrecord_image_decoder.lower(read, conf.name, color, f"{name}-image")
    for step in codec.image_preprocessors or ():
        if isinstance(step, ImageResizePreprocessor) and (step.width, step.height) != (
            width,
            height,
        ):
            raise ArgumentError(
                f"blob {conf.name!r} is {height} × {width}, resized to {step.height} × {step.width}"
            )
    made = resize.lower(image, (width, height), channels=channels, interpolation_type="bilinear",
                        name=f"{name}-resize")[0]  # fmt: skip
    if codec.has("mirror"):
        flags = coin_flip(made.shape[0], name=f"{name}-mirror")
        made = crop_mirror_normalize.lower(
            made, flags, "GRAY" if channels == 1 else "BGR", "NHWC", name=f"{name}-flip"
        )
    return made  # type: ignore[no-any-return]  # what `lower` of a composite gives


@op("data.normalize_by_channel", is_public=False)
def _normalize(
    b: Builder,
    x: Value,
    mean: list[float],
    std: list[float],
    data_format: str,
    name: str | None = None,
) -> Value:
    axis = -1 if data_format == "channels_last" else 1
    channels = dims(x)[axis]
    shape = [channels] if axis == -1 else [channels, 1, 1]
    mean, std = (v[:1] if len(set(v)) == 1 else v for v in (mean, std))
    for what, values in (("mean_values", mean), ("std_values", std)):
        if len(values) not in (1, channels):
            raise ArgumentError(f"{what} has {len(values)} values for {channels} channels")
    x = b.Cast(x, to=float32) if dtype_of(x) == uint8 else x
    offset, divisor = (b.Expand(b.const(v, dtype_of(x)), [channels]) for v in (mean, std))
    return b.Div(b.Sub(x, b.Reshape(offset, shape)), b.Reshape(divisor, shape))


@op("data.cast_blob", is_public=False)
def _cast(b: Builder, x: Value, dtype: DType, name: str | None = None) -> Value:
    return b.Cast(x, to=dtype)
