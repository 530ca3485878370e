"""`flow.detection`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy.typing as _numpy_typing
import typing as _typing

def affine_channel(inputs: _typing.Any, axis: _typing.Any, use_bias: _typing.Any = True, scale_initializer: _typing.Any = None, bias_initializer: _typing.Any = None, activation: _typing.Any = None, trainable: _typing.Any = True, name: _typing.Any = None, model_distribute: _typing.Any = ...) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def anchor_generate(images: _typing.Any, feature_map_stride: _typing.Any, aspect_ratios: _typing.Any, anchor_scales: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def box_decode(ref_boxes: _typing.Any, boxes_delta: _typing.Any, regression_weights: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def box_encode(ref_boxes: _typing.Any, boxes: _typing.Any, regression_weights: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def calc_iou_matrix(boxes1: _typing.Any, boxes2: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def clip_to_image(boxes: _typing.Any, image_size: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def extract_piece_slice_id(inputs: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def identify_non_small_boxes(inputs: _typing.Any, min_size: _typing.Any = 0.0, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def identify_outside_anchors(anchors: _typing.Any, image_size: _typing.Any, tolerance: _typing.Any = 0.0, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def level_map(inputs: _typing.Any, min_level: _typing.Any = 2, max_level: _typing.Any = 5, canonical_level: _typing.Any = 4, canonical_scale: _typing.Any = 224, epsilon: _typing.Any = 1e-06, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def maskrcnn_positive_negative_sample(pos_inds: _typing.Any, neg_inds: _typing.Any, total_subsample_num: _typing.Any, pos_fraction: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def maskrcnn_split(input: _typing.Any, segms: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def masks_crop_and_resize(masks: _typing.Any, rois: _typing.Any, mask_h: _typing.Any, mask_w: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def nms(inputs: _typing.Any, nms_iou_threshold: _typing.Any = 0.7, post_nms_top_n: _typing.Any = 1000, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def object_bbox_flip(bbox: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], image_size: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], flip_code: _builtins.int | _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Boxes on mirrored images of `image_size` (width, height); codes as for `flow.image.flip`."""
def object_bbox_scale(bbox: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], scale: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Boxes times the factors that a resize gave."""
def object_segmentation_polygon_flip(poly: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], image_size: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], flip_code: _builtins.int | _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The points of polygons on mirrored images of `image_size` (width, height)."""
def object_segmentation_polygon_scale(poly: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], scale: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The points of polygons times the factors that a resize gave."""
def object_segmentation_polygon_to_mask(poly: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], poly_index: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], image_size: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """For each image a mask (objects, height, width), int8; `image_size` is (width, height)."""
def pos_neg_sampler(pos_inds: _typing.Any, neg_inds: _typing.Any, total_subsample_num: _typing.Any, pos_fraction: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def roi_align(x: _typing.Any, rois: _typing.Any, pooled_h: _typing.Any, pooled_w: _typing.Any, name: _typing.Any = None, spatial_scale: _typing.Any = 0.0625, sampling_ratio: _typing.Any = 2) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; compose it from flow operators in the job, or compute it on the host."""
def upsample_nearest(inputs: _typing.Any, scale: _typing.Any, data_format: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: OneFlow removed its Mask R-CNN helpers at 0.1.3; use flow.layers.upsample_2d."""
