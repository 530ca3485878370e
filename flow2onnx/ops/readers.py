"""Readers: where the data of a job begins. They run on the host, one batch for each call."""

from functools import partial
from typing import Any

from flow2onnx.data.coco import CocoReader
from flow2onnx.data.decoding import Bytes, Encoded, Raw
from flow2onnx.data.images import Window
from flow2onnx.data.shards import Parts, batches
from flow2onnx.dtypes import DType, element_type, int32, int64, record
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.ops.host_arguments import (
    buffer_type,
    channels_of,
    operator_name,
    pair,
    per_sample,
    positive,
    records,
    seed_of,
)
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.host import HostType
from flow2onnx.trace.host_blob import HostBlob, emit
from flow2onnx.trace.initializers import Initializer, Uniform
from flow2onnx.trace.op import composite, op


@composite("data.ofrecord_reader")
def ofrecord_reader(
    ofrecord_dir: str,
    batch_size: int = 1,
    data_part_num: int = 1,
    part_name_prefix: str = "part-",
    part_name_suffix_length: int = -1,
    random_shuffle: bool = False,
    shuffle_buffer_size: int = 1024,
    shuffle_after_epoch: bool = False,
    name: str | None = None,
) -> Blob:
    """The next records of the part files at each call, for ever.

    A batch in which the files end goes on with their beginning. `random_shuffle` swaps each record
    with one of `shuffle_buffer_size` held back; `shuffle_after_epoch` changes the order of the
    files after each pass.
    """
    if not isinstance(ofrecord_dir, str):
        raise ArgumentError(f"ofrecord_dir is the path of a folder, got {ofrecord_dir!r}")
    full = operator_name(name, "OFRecordReader")
    parts = Parts(
        ofrecord_dir,
        positive(data_part_num, "data_part_num"),
        prefix=part_name_prefix,
        suffix_length=part_name_suffix_length,
        shuffles_parts=shuffle_after_epoch,
        buffer=positive(shuffle_buffer_size, "shuffle_buffer_size") if random_shuffle else 0,
        seed=seed_of(full, None),
    )
    size = positive(batch_size, "batch_size")
    return emit(full, "source", partial(batches, parts, size), (), HostType((size,), record))[0]


@composite("data.ofrecord_loader", like=ofrecord_reader)
def ofrecord_loader(**options: Any) -> Blob:
    """The former name of `flow.data.ofrecord_reader`."""
    return ofrecord_reader.lower(**options)


@composite("data.ofrecord_raw_decoder", "data.OFRecordRawDecoder")
def ofrecord_raw_decoder(
    input_blob: Blob,
    blob_name: str,
    shape: tuple[int, ...],
    dtype: DType,
    dim1_varying_length: bool = False,
    auto_zero_padding: bool = False,
    name: str | None = None,
) -> Blob:
    """The numbers of feature `blob_name` in (batch, *shape).

    Fewer numbers than the shape takes are filled up with zeros if either flag is set. Bytes count
    as int8 each.
    """
    what = "data.OFRecordRawDecoder"
    source = records(input_blob, what)
    kind, sizes = element_type(dtype), _shape(shape)
    is_padded = bool(dim1_varying_length or auto_zero_padding)
    decoder = Raw(blob_name, sizes, kind, is_padded)
    full = operator_name(name, "OFRecordRawDecoder")
    return per_sample(full, decoder, source, shape=sizes, dtype=kind)


def _shape(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list | tuple) or any(type(n) is not int or n < 1 for n in shape):
        raise ArgumentError(f"shape is a tuple of positive ints, got {shape!r}")
    return tuple(shape)


@composite("data.ofrecord_bytes_decoder", "data.OFRecordBytesDecoder")
def ofrecord_bytes_decoder(input_blob: Blob, blob_name: str, name: str | None = None) -> Blob:
    """The bytes of feature `blob_name`, a buffer for each sample."""
    what = "data.OFRecordBytesDecoder"
    source = records(input_blob, what)
    full = operator_name(name, "OFRecordBytesDecoder")
    return per_sample(full, Bytes(blob_name), source)


@composite("data.ofrecord_image_decoder", "data.OFRecordImageDecoder")
def ofrecord_image_decoder(
    input_blob: Blob, blob_name: str, color_space: str = "BGR", name: str | None = None
) -> Blob:
    """The image in feature `blob_name`, uint8 (height, width, channels), for each sample."""
    what = "data.OFRecordImageDecoder"
    source = records(input_blob, what)
    channels_of(color_space)
    full = operator_name(name, "OFRecordImageDecoder")
    decoder = Encoded(blob_name, color_space)
    return per_sample(full, decoder, source)


@composite("data.ofrecord_image_decoder_random_crop", "data.OFRecordImageDecoderRandomCrop")
def ofrecord_image_decoder_random_crop(
    input_blob: Blob,
    blob_name: str,
    color_space: str = "BGR",
    num_attempts: int = 10,
    seed: int | None = None,
    random_area: list[float] = [0.08, 1.0],  # noqa: B006  # OneFlow's default, never changed
    random_aspect_ratio: list[float] = [0.75, 1.333333],  # noqa: B006
    name: str | None = "OFRecordImageDecoderRandomCrop",
) -> Blob:
    """A random part of the image in feature `blob_name`, another one at each call."""
    what = "data.OFRecordImageDecoderRandomCrop"
    source = records(input_blob, what)
    channels_of(color_space)
    full = operator_name(name, "OFRecordImageDecoderRandomCrop")
    window = window_of(num_attempts, random_area, random_aspect_ratio)
    decoder = Encoded(blob_name, color_space, window, seed_of(full, seed))
    return per_sample(full, decoder, source)


def window_of(attempts: int | None, area: object, ratio: object) -> Window:
    """A random window; None stands for OneFlow's defaults."""
    return Window(
        10 if attempts is None else positive(attempts, "num_attempts"),
        pair([0.08, 1.0] if area is None else area, "random_area"),
        pair([0.75, 1.333333] if ratio is None else ratio, "random_aspect_ratio"),
    )


@composite("data.ofrecord_image_classification_reader", like=ofrecord_reader)
def ofrecord_image_classification_reader(
    image_feature_name: str,
    label_feature_name: str,
    color_space: str,
    decode_buffer_size_per_thread: int,
    num_decode_threads_per_machine: int | None,
    name: str | None,
    **options: Any,
) -> tuple[Blob, Blob]:
    """Decoded images and their int32 labels; the sizes of buffers and pools are ours."""
    full = current_job("reader").name_op(name, "OFRecordImageClassificationReader")
    read = ofrecord_reader.lower(**options, name=f"{full}-reader")
    image = ofrecord_image_decoder.lower(read, image_feature_name, color_space, f"{full}-image")
    label = ofrecord_raw_decoder.lower(read, label_feature_name, (), int32, name=f"{full}-label")
    return image, label


@op("data.decode_random")
def decode_random(
    b: Builder,
    shape: tuple[int, ...],
    dtype: DType,
    batch_size: int = 1,
    initializer: Initializer | None = None,
    tick: Value | None = None,
    name: str | None = None,
) -> Value:
    """Values drawn anew at each call, uniform in [0, 1) unless `initializer` says otherwise."""
    whole = (positive(batch_size, "batch_size"), *_shape(shape))
    drawn = initializer or Uniform(0, 1)
    if not isinstance(drawn, Initializer):
        raise ArgumentError(f"initializer is one of flow's initializers, got {initializer!r}")
    seed = current_job("decode_random").random_seed(b.prefix)
    return drawn.emit(b, whole, element_type(dtype), seed)


@composite("data.coco_reader")
def coco_reader(
    annotation_file: str,
    image_dir: str,
    batch_size: int,
    shuffle: bool = True,
    random_seed: int | None = None,
    group_by_aspect_ratio: bool = True,
    stride_partition: bool = True,
    remove_images_without_annotations: bool = True,
    name: str | None = None,
) -> tuple[HostBlob, ...]:
    """Encoded images with their ids, sizes (height, width), boxes, labels and polygons.

    Boxes are (left, top, right, bottom) in pixels, labels count from 1; a polygon's points are
    rows of `gt_segm`, and the rows of `gt_segm_index` say which point, polygon and object each is.
    """
    if name is None:
        raise ArgumentError("coco_reader needs a name", hint="pass name=")
    full = operator_name(name, "COCOReader")
    size = positive(batch_size, "batch_size")
    reader = CocoReader(
        annotation_file=annotation_file,
        image_dir=image_dir,
        size=size,
        shuffles=shuffle,
        seed=seed_of(full, random_seed),
        groups=group_by_aspect_ratio,
        only_useful=remove_images_without_annotations,
    )
    buffer = buffer_type(size)
    return emit(
        full, "source", reader.batches, (), buffer, HostType((size,), int64),
        HostType((size, 2), int32), buffer, buffer, buffer, buffer,
    )  # fmt: skip
