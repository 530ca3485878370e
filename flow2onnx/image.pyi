"""`flow.image`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import flow2onnx.dtypes as _flow2onnx_dtypes
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import flow2onnx.trace.host_blob as _flow2onnx_trace_host_blob
import numpy.typing as _numpy_typing
import typing as _typing

def CropMirrorNormalize(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], mirror_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, color_space: _builtins.str = 'BGR', output_layout: _builtins.str = 'NCHW', crop_h: _builtins.int = 0, crop_w: _builtins.int = 0, crop_pos_y: _builtins.float = 0.5, crop_pos_x: _builtins.float = 0.5, mean: _collections_abc.Sequence[_builtins.float] = ..., std: _collections_abc.Sequence[_builtins.float] = ..., output_dtype: _flow2onnx_dtypes.DType = ..., name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A window of each image, mirrored where `mirror_blob` is not 0, less mean, over std.

    The window is cut on the host, the rest happens in the graph. Without a crop the images have
    one size already.
    """
def Resize(image: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target_size: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, min_size: _builtins.int | None = None, max_size: _builtins.int | None = None, keep_aspect_ratio: _builtins.bool = False, resize_side: _builtins.str = 'shorter', channels: _builtins.int = 3, dtype: _flow2onnx_dtypes.DType | None = None, interpolation_type: _builtins.str = 'auto', name: _builtins.str | None = None, color_space: _builtins.str | None = None, interp_type: _builtins.str | None = None, resize_shorter: _builtins.int = 0, resize_x: _builtins.int = 0, resize_y: _builtins.int = 0) -> _typing.Any:
    """Images in another size, their factors (horizontal, vertical), and their new sizes or None.

    `target_size` is (width, height), and the result one array; with `keep_aspect_ratio` it is that
    of one side, and the images stay apart, with their sizes (width, height). With any of the
    parameters after `name`, which are those of old, only the images are returned.
    """
def batch_align(images: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], shape: _collections_abc.Sequence[_builtins.int], dtype: _flow2onnx_dtypes.DType, alignment: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Images of different sizes in one array of `shape`, zeros at their right and bottom.

    OneFlow's result was only as large as the largest image rounded up to `alignment`; a size that
    is fixed is what runtimes want.
    """
def crop_mirror_normalize(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], mirror_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, color_space: _builtins.str = 'BGR', output_layout: _builtins.str = 'NCHW', crop_h: _builtins.int = 0, crop_w: _builtins.int = 0, crop_pos_y: _builtins.float = 0.5, crop_pos_x: _builtins.float = 0.5, mean: _collections_abc.Sequence[_builtins.float] = ..., std: _collections_abc.Sequence[_builtins.float] = ..., output_dtype: _flow2onnx_dtypes.DType = ..., name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A window of each image, mirrored where `mirror_blob` is not 0, less mean, over std.

    The window is cut on the host, the rest happens in the graph. Without a crop the images have
    one size already.
    """
def decode(images_bytes_buffer: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dtype: _flow2onnx_dtypes.DType = ..., color_space: _builtins.str = 'BGR', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The images in buffers of bytes, such as `flow.data.OFRecordBytesDecoder` makes."""
def flip(image: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], flip_code: _builtins.int | _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Images mirrored: code 1 left and right, 16 top and bottom, 17 both, 0 as they are."""
def normalize(image: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], std: _builtins.float | _collections_abc.Sequence[_builtins.float], mean: _builtins.float | _collections_abc.Sequence[_builtins.float], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Images apart, float32: less the mean of each channel, over its standard deviation."""
def random_crop(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], num_attempts: _builtins.int = 10, seed: _builtins.int | None = None, random_area: _collections_abc.Sequence[_builtins.float] | None = None, random_aspect_ratio: _collections_abc.Sequence[_builtins.float] | None = None, name: _builtins.str | None = 'ImageRandomCrop') -> _flow2onnx_trace_blob.Blob:
    """A random part of each image, another one at each call."""
def resize(image: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target_size: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, min_size: _builtins.int | None = None, max_size: _builtins.int | None = None, keep_aspect_ratio: _builtins.bool = False, resize_side: _builtins.str = 'shorter', channels: _builtins.int = 3, dtype: _flow2onnx_dtypes.DType | None = None, interpolation_type: _builtins.str = 'auto', name: _builtins.str | None = None, color_space: _builtins.str | None = None, interp_type: _builtins.str | None = None, resize_shorter: _builtins.int = 0, resize_x: _builtins.int = 0, resize_y: _builtins.int = 0) -> _typing.Any:
    """Images in another size, their factors (horizontal, vertical), and their new sizes or None.

    `target_size` is (width, height), and the result one array; with `keep_aspect_ratio` it is that
    of one side, and the images stay apart, with their sizes (width, height). With any of the
    parameters after `name`, which are those of old, only the images are returned.
    """
def target_resize(images: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target_size: _builtins.int, min_size: _builtins.int | None = None, max_size: _builtins.int | None = None, resize_side: _builtins.str = 'shorter', interpolation_type: _builtins.str = 'auto', name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_host_blob.HostBlob, ...]:
    """Images of which one side has the target size, their new sizes (width, height), factors."""
