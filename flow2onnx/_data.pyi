"""`flow.data`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import flow2onnx.dtypes as _flow2onnx_dtypes
import flow2onnx.ops.blob_conf as _flow2onnx_ops_blob_conf
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import flow2onnx.trace.host_blob as _flow2onnx_trace_host_blob
import flow2onnx.trace.initializers as _flow2onnx_trace_initializers
import numpy as _numpy
import numpy.typing as _numpy_typing
import os as _os
import typing as _typing

from flow2onnx.ops.blob_conf import BlobConf as BlobConf
from flow2onnx.ops.blob_conf import BytesListCodec as BytesListCodec
def COCODataset(dataset_dir: _typing.Any, annotation_file: _typing.Any, image_dir: _typing.Any, random_seed: _typing.Any, shuffle: _typing.Any = True, group_by_aspect_ratio: _typing.Any = True, max_segm_poly_points: _typing.Any = 1024, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its first loader of detection data in June 2020; call flow.data.coco_reader and the operators of flow.image."""
def DataLoader(dataset: _typing.Any, batch_size: _typing.Any, batch_cache_size: _typing.Any) -> _typing.NoReturn:
    """Not available: OneFlow removed its first loader of detection data in June 2020; call flow.data.coco_reader and the operators of flow.image."""
def ImageAlign(alignment: _typing.Any) -> _typing.NoReturn:
    """Not available: OneFlow removed its first loader of detection data in June 2020; call flow.data.coco_reader and the operators of flow.image."""
from flow2onnx.ops.blob_conf import ImageCodec as ImageCodec
def ImageDecoderRandomCropResize(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target_width: _builtins.int, target_height: _builtins.int, num_attempts: _builtins.int | None = None, seed: _builtins.int | None = None, random_area: _collections_abc.Sequence[_builtins.float] | None = None, random_aspect_ratio: _collections_abc.Sequence[_builtins.float] | None = None, num_workers: _builtins.int | None = None, warmup_size: _builtins.int | None = None, max_num_pixels: _builtins.int | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A random part of each encoded image, RGB, in one size; the pool's sizes are ours."""
def ImageNormalizeByChannel(mean: _typing.Any, std: _typing.Any = 1.0) -> _typing.NoReturn:
    """Not available: OneFlow removed its first loader of detection data in June 2020; call flow.data.coco_reader and the operators of flow.image."""
from flow2onnx.ops.blob_conf import ImagePreprocessor as ImagePreprocessor
def ImageRandomFlip(flip_code: _typing.Any = 1, probability: _typing.Any = 0.5) -> _typing.NoReturn:
    """Not available: OneFlow removed its first loader of detection data in June 2020; call flow.data.coco_reader and the operators of flow.image."""
from flow2onnx.ops.blob_conf import ImageResizePreprocessor as ImageResizePreprocessor
def MegatronGPTMMapDataLoader(data_file_prefix: _typing.Any, seq_length: _typing.Any, num_samples: _typing.Any, batch_size: _typing.Any, dtype: _typing.Any = ..., shuffle: _typing.Any = True, random_seed: _typing.Any = None, split_sizes: _typing.Any = None, split_index: _typing.Any = None, parallel_distribution: _typing.Any = None, start_from_saved_progress: _typing.Any = False, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: memory-mapped corpora of Megatron are not read in this version; read them with numpy, and feed the arrays through placeholders."""
from flow2onnx.ops.blob_conf import NormByChannelPreprocessor as NormByChannelPreprocessor
def OFRecordBytesDecoder(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], blob_name: _builtins.str, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The bytes of feature `blob_name`, a buffer for each sample."""
def OFRecordImageDecoder(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], blob_name: _builtins.str, color_space: _builtins.str = 'BGR', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The image in feature `blob_name`, uint8 (height, width, channels), for each sample."""
def OFRecordImageDecoderRandomCrop(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], blob_name: _builtins.str, color_space: _builtins.str = 'BGR', num_attempts: _builtins.int = 10, seed: _builtins.int | None = None, random_area: _builtins.list[_builtins.float] = ..., random_aspect_ratio: _builtins.list[_builtins.float] = ..., name: _builtins.str | None = 'OFRecordImageDecoderRandomCrop') -> _flow2onnx_trace_blob.Blob:
    """A random part of the image in feature `blob_name`, another one at each call."""
def OFRecordRawDecoder(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], blob_name: _builtins.str, shape: _builtins.tuple[_builtins.int, ...], dtype: _flow2onnx_dtypes.DType, dim1_varying_length: _builtins.bool = False, auto_zero_padding: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The numbers of feature `blob_name` in (batch, *shape).

    Fewer numbers than the shape takes are filled up with zeros if either flag is set. Bytes count
    as int8 each.
    """
def OneRecDecoder(input_blob: _typing.Any, key: _typing.Any, dtype: _typing.Any, shape: _typing.Any, is_dynamic: _typing.Any = False, reshape: _typing.Any = None, batch_padding: _typing.Any = None, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: files in the OneRec format, which OneFlow alone used, are not read; write OFRecord files with flow2onnx.data.ofrecord.OFRecordWriter."""
from flow2onnx.ops.blob_conf import RawCodec as RawCodec
def SegmentationPolygonListToAlignedMask() -> _typing.NoReturn:
    """Not available: OneFlow removed its first loader of detection data in June 2020; call flow.data.coco_reader and the operators of flow.image."""
def SegmentationPolygonListToMask() -> _typing.NoReturn:
    """Not available: OneFlow removed its first loader of detection data in June 2020; call flow.data.coco_reader and the operators of flow.image."""
def TargetResizeTransform(target_size: _typing.Any, max_size: _typing.Any) -> _typing.NoReturn:
    """Not available: OneFlow removed its first loader of detection data in June 2020; call flow.data.coco_reader and the operators of flow.image."""
def coco_reader(annotation_file: _builtins.str, image_dir: _builtins.str, batch_size: _builtins.int, shuffle: _builtins.bool = True, random_seed: _builtins.int | None = None, group_by_aspect_ratio: _builtins.bool = True, stride_partition: _builtins.bool = True, remove_images_without_annotations: _builtins.bool = True, name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_host_blob.HostBlob, ...]:
    """Encoded images with their ids, sizes (height, width), boxes, labels and polygons.

    Boxes are (left, top, right, bottom) in pixels, labels count from 1; a polygon's points are
    rows of `gt_segm`, and the rows of `gt_segm_index` say which point, polygon and object each is.
    """
def decode_ofrecord(ofrecord_dir: _builtins.str, blobs: _collections_abc.Sequence[_flow2onnx_ops_blob_conf.BlobConf], batch_size: _builtins.int = 1, data_part_num: _builtins.int = 1, part_name_prefix: _builtins.str = 'part-', part_name_suffix_length: _builtins.int = -1, shuffle: _builtins.bool = False, buffer_size: _builtins.int = 1024, name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_blob.Blob, ...]:
    """A reader and a decoder for each description, in one call."""
def decode_random(shape: _builtins.tuple[_builtins.int, ...], dtype: _flow2onnx_dtypes.DType, batch_size: _builtins.int = 1, initializer: _flow2onnx_trace_initializers.Initializer | None = None, tick: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Values drawn anew at each call, uniform in [0, 1) unless `initializer` says otherwise."""
def image_decoder_random_crop_resize(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target_width: _builtins.int, target_height: _builtins.int, num_attempts: _builtins.int | None = None, seed: _builtins.int | None = None, random_area: _collections_abc.Sequence[_builtins.float] | None = None, random_aspect_ratio: _collections_abc.Sequence[_builtins.float] | None = None, num_workers: _builtins.int | None = None, warmup_size: _builtins.int | None = None, max_num_pixels: _builtins.int | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A random part of each encoded image, RGB, in one size; the pool's sizes are ours."""
def load_mnist(train_batch_size: _builtins.int = 100, test_batch_size: _builtins.int = 100, data_format: _builtins.str = 'NCHW', url: _builtins.str | None = None, hash_check: _builtins.str | None = None, out_dir: _builtins.str = '.', *, path: _builtins.str | _os.PathLike[_builtins.str] | None = None) -> _builtins.tuple[_builtins.tuple[_numpy.ndarray[_builtins.tuple[_typing.Any, ...], _numpy.dtype[_numpy.float32]], _numpy.ndarray[_builtins.tuple[_typing.Any, ...], _numpy.dtype[_numpy.int32]]], _builtins.tuple[_numpy.ndarray[_builtins.tuple[_typing.Any, ...], _numpy.dtype[_numpy.float32]], _numpy.ndarray[_builtins.tuple[_typing.Any, ...], _numpy.dtype[_numpy.int32]]]]:
    """Training and test images and labels in batches, an incomplete last batch left out.

    Images are float32 in [0, 1] of shape (batches, size, 1, 28, 28), or (…, 28, 28, 1) as
    "NHWC"; labels are int32. The file is `path`, else `out_dir`/mnist.npz, else what the
    environment variable FLOW2ONNX_MNIST names. Without one the images are scikit-learn's
    digits enlarged to the same size, and a warning says so. Unlike OneFlow's, this function
    never fetches `url`, and compares the file's SHA-256 only with a `hash_check` that is given.
    """
def megatron_gpt_mmap_data_loader(data_file_prefix: _typing.Any, seq_length: _typing.Any, num_samples: _typing.Any, batch_size: _typing.Any, dtype: _typing.Any = ..., shuffle: _typing.Any = True, random_seed: _typing.Any = None, split_sizes: _typing.Any = None, split_index: _typing.Any = None, parallel_distribution: _typing.Any = None, start_from_saved_progress: _typing.Any = False, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: memory-mapped corpora of Megatron are not read in this version; read them with numpy, and feed the arrays through placeholders."""
def ofrecord_bytes_decoder(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], blob_name: _builtins.str, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The bytes of feature `blob_name`, a buffer for each sample."""
def ofrecord_image_classification_reader(ofrecord_dir: _builtins.str, image_feature_name: _builtins.str, label_feature_name: _builtins.str, batch_size: _builtins.int = 1, data_part_num: _builtins.int = 1, part_name_prefix: _builtins.str = 'part-', part_name_suffix_length: _builtins.int = -1, random_shuffle: _builtins.bool = False, shuffle_buffer_size: _builtins.int = 1024, shuffle_after_epoch: _builtins.bool = False, color_space: _builtins.str = 'BGR', decode_buffer_size_per_thread: _builtins.int = 32, num_decode_threads_per_machine: _builtins.int | None = None, name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_blob.Blob, _flow2onnx_trace_blob.Blob]:
    """Decoded images and their int32 labels; the sizes of buffers and pools are ours."""
def ofrecord_image_decoder(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], blob_name: _builtins.str, color_space: _builtins.str = 'BGR', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The image in feature `blob_name`, uint8 (height, width, channels), for each sample."""
def ofrecord_image_decoder_random_crop(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], blob_name: _builtins.str, color_space: _builtins.str = 'BGR', num_attempts: _builtins.int = 10, seed: _builtins.int | None = None, random_area: _builtins.list[_builtins.float] = ..., random_aspect_ratio: _builtins.list[_builtins.float] = ..., name: _builtins.str | None = 'OFRecordImageDecoderRandomCrop') -> _flow2onnx_trace_blob.Blob:
    """A random part of the image in feature `blob_name`, another one at each call."""
def ofrecord_loader(ofrecord_dir: _builtins.str, batch_size: _builtins.int = 1, data_part_num: _builtins.int = 1, part_name_prefix: _builtins.str = 'part-', part_name_suffix_length: _builtins.int = -1, shuffle: _builtins.bool = False, shuffle_buffer_size: _builtins.int = 1024, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The former name of `flow.data.ofrecord_reader`."""
def ofrecord_raw_decoder(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], blob_name: _builtins.str, shape: _builtins.tuple[_builtins.int, ...], dtype: _flow2onnx_dtypes.DType, dim1_varying_length: _builtins.bool = False, auto_zero_padding: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The numbers of feature `blob_name` in (batch, *shape).

    Fewer numbers than the shape takes are filled up with zeros if either flag is set. Bytes count
    as int8 each.
    """
def ofrecord_reader(ofrecord_dir: _builtins.str, batch_size: _builtins.int = 1, data_part_num: _builtins.int = 1, part_name_prefix: _builtins.str = 'part-', part_name_suffix_length: _builtins.int = -1, random_shuffle: _builtins.bool = False, shuffle_buffer_size: _builtins.int = 1024, shuffle_after_epoch: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The next records of the part files at each call, for ever.

    A batch in which the files end goes on with their beginning. `random_shuffle` swaps each record
    with one of `shuffle_buffer_size` held back; `shuffle_after_epoch` changes the order of the
    files after each pass.
    """
def onerec_decoder(input_blob: _typing.Any, key: _typing.Any, dtype: _typing.Any, shape: _typing.Any, is_dynamic: _typing.Any = False, reshape: _typing.Any = None, batch_padding: _typing.Any = None, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: files in the OneRec format, which OneFlow alone used, are not read; write OFRecord files with flow2onnx.data.ofrecord.OFRecordWriter."""
def onerec_reader(files: _typing.Any, batch_size: _typing.Any = 1, random_shuffle: _typing.Any = False, shuffle_mode: _typing.Any = 'instance', shuffle_buffer_size: _typing.Any = 1024, shuffle_after_epoch: _typing.Any = False, verify_example: _typing.Any = True, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: files in the OneRec format, which OneFlow alone used, are not read; write OFRecord files with flow2onnx.data.ofrecord.OFRecordWriter."""
