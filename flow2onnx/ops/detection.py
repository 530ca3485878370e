"""Objects on images: boxes and polygons that follow what is done to the images."""

from collections.abc import Callable
from functools import partial
from typing import Any

from flow2onnx.data import detection
from flow2onnx.data.decoding import Key
from flow2onnx.dtypes import float32, int32
from flow2onnx.ops.host_arguments import buffers, dense, operator_name, per_sample
from flow2onnx.ops.images import flip_codes
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.host import HostValue
from flow2onnx.trace.host_blob import HostBlob
from flow2onnx.trace.op import composite


def _size(image_size: Blob, source: HostValue, what: str) -> HostValue:
    return dense(image_size, what, (*source.type.shape, 2), (int32,))


def _flip(
    what: str,
    name: str | None,
    kind: str,
    given: Blob,
    image_size: Blob,
    code: int | Blob,
    flip: Callable[..., Any],
) -> HostBlob:
    source = buffers(given, what)
    codes, fixed = flip_codes(code, source, what)
    inputs = [source, _size(image_size, source, what), *codes]
    run = partial(_flip_one, flip, fixed)
    full = operator_name(name, kind)
    return per_sample(full, run, *inputs)


def _flip_one(
    flip: Callable[..., Any], fixed: int, key: Key, values: Any, size: Any, code: Any = None
) -> tuple[Any]:
    return (flip(values, size, fixed if code is None else int(code)),)


def _scale(what: str, name: str | None, kind: str, given: Blob, scale: Blob) -> HostBlob:
    source = buffers(given, what)
    factors = dense(scale, what, (*source.type.shape, 2), (float32,))
    full = operator_name(name, kind)
    return per_sample(full, _scale_one, source, factors)


def _scale_one(key: Key, values: Any, factors: Any) -> tuple[Any]:
    return (detection.scale(values, factors),)


@composite("object_bbox_flip", "detection.object_bbox_flip")
def object_bbox_flip(
    bbox: Blob, image_size: Blob, flip_code: int | Blob, name: str | None = None
) -> Blob:
    """Boxes on mirrored images of `image_size` (width, height); codes as for `flow.image.flip`."""
    return _flip("object_bbox_flip", name, "ObjectBboxFlip", bbox, image_size, flip_code,
                 detection.flip_boxes)  # fmt: skip


@composite("object_bbox_scale", "detection.object_bbox_scale")
def object_bbox_scale(bbox: Blob, scale: Blob, name: str | None = None) -> Blob:
    """Boxes times the factors that a resize gave."""
    return _scale("object_bbox_scale", name, "ObjectBboxScale", bbox, scale)


@composite("object_segmentation_polygon_flip", "detection.object_segmentation_polygon_flip")
def object_segmentation_polygon_flip(
    poly: Blob, image_size: Blob, flip_code: int | Blob, name: str | None = None
) -> Blob:
    """The points of polygons on mirrored images of `image_size` (width, height)."""
    return _flip("object_segmentation_polygon_flip", name, "ObjectSegmPolyFlip", poly, image_size,
                 flip_code, detection.flip_polygons)  # fmt: skip


@composite("object_segmentation_polygon_scale", "detection.object_segmentation_polygon_scale")
def object_segmentation_polygon_scale(poly: Blob, scale: Blob, name: str | None = None) -> Blob:
    """The points of polygons times the factors that a resize gave."""
    return _scale("object_segmentation_polygon_scale", name, "ObjectSegmPolyScale", poly, scale)


@composite("object_segmentation_polygon_to_mask", "detection.object_segmentation_polygon_to_mask")
def object_segmentation_polygon_to_mask(
    poly: Blob, poly_index: Blob, image_size: Blob, name: str | None = None
) -> Blob:
    """For each image a mask (objects, height, width), int8; `image_size` is (width, height)."""
    what = "object_segmentation_polygon_to_mask"
    source, places = buffers(poly, what), buffers(poly_index, what)
    full = operator_name(name, "ObjectSegmPolyToMask")
    inputs = [source, places, _size(image_size, source, what)]
    return per_sample(full, _masks, *inputs)


def _masks(key: Key, points: Any, places: Any, size: Any) -> tuple[Any]:
    return (detection.masks(points, places, size),)
