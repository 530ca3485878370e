"""What OneFlow had and ONNX has no counterpart of: one row for each name, the reason, the nearest.

A name here exists, so that programs can mention it, and raises when it is used.
"""

import inspect
from dataclasses import dataclass
from typing import Any, NoReturn

from flow2onnx.api.symbols import symbols
from flow2onnx.errors import UnsupportedError
from flow2onnx.trace.context import traced_job
from flow2onnx.trace.source import user_frame

__all__ = ["UNSUPPORTED", "Unsupported"]


@dataclass(frozen=True)
class Unsupported:
    """A function or class that raises when it is called, derived from or looked into."""

    name: str
    reason: str
    nearest: str

    @property
    def __doc__(self) -> str:  # type: ignore[override]  # each has its own
        return f"Not available: {self.reason}; {self.nearest}."

    @property
    def __signature__(self) -> inspect.Signature:
        return symbols()[self.name].signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # whatever OneFlow took
        """Refuse."""
        self._refuse()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        self._refuse()

    def __getattr__(self, name: str) -> Any:  # whatever the class had
        if name.startswith("_"):
            raise AttributeError(name)
        self._refuse()

    def _refuse(self) -> NoReturn:
        job = traced_job()
        raise UnsupportedError(
            self.reason,
            op=f"flow.{self.name}",
            job=job.spec.name if job else None,
            source=user_frame(),
            hint=self.nearest,
        )


_REMOVED_LISTS = "tensor lists, which OneFlow itself removed at 0.4, have no ONNX counterpart"
_BUFFERS = "a tensor buffer holds arrays of different sizes, which no ONNX tensor does"
_PAD = "pad the arrays to one shape on the host, and feed them through a placeholder"
_EAGER = "a job is traced once, so there are no modules that live between its operators"
_PLAIN = "call the operator of flow, such as flow.nn.relu, in the body of the job"
_TIME = "one call is one step: there are no sub-steps inside a run of an ONNX model"
_STEPS = "make one call of the job for each piece"
_READERS = "files are read and decoded on the host, which this version does not do"
_FEED = "read them with numpy or pillow, and feed the arrays through placeholders"
_OLD_DETECTION = "OneFlow removed its Mask R-CNN helpers at 0.1.3"
_COMPOSE = "compose it from flow operators in the job, or compute it on the host"
_NATIVE = "operators compiled for OneFlow cannot run on ONNX Runtime"
_COMPOSE_OP = "compose the operator from flow operators inside the job"
_NO_LIBRARY = "there is no C++ library to compile operators against"
_QAT = "quantization-aware training is not available in this version"
_QUANTIZE = "train in float32, and quantize the exported model with onnxruntime.quantization"
_SUMMARY = "summaries are not written in this version"
_WATCH = "write the values from a handler of flow.watch, with any TensorBoard writer"
_TRAINER = "the trainer classes of 0.4.0 are not available in this version"
_LOOP = "write the loop over calls of a train job and a predict job"
_SERVING = "saved models are written as ONNX files"
_EXPORT = "call job.export(path), and open the file with ONNX Runtime"
_ONE_DEVICE = "a job runs on one device in this version"


def _rows(reason: str, nearest: str, *names: str) -> dict[str, Unsupported]:
    return {name: Unsupported(name, reason, nearest) for name in names}


UNSUPPORTED = {
    **_rows(_REMOVED_LISTS, _PAD, "dim0_dynamic_to_fixed", "piece_slice", "sync_dynamic_resize",
            "tensor_buffer_to_tensor_list", "tensor_list_split", "tensor_list_to_tensor_buffer",
            "experimental.dynamic_binary_concat", "experimental.dynamic_binary_split"),
    **_rows("gathering within the piece of each device is gone since 0.1.1",
            "use flow.gather, which is the same on one device", "local_gather"),
    **_rows(_BUFFERS, _PAD, "gen_tensor_buffer", "tensor_buffer_to_list_of_tensors",
            "tensor_buffer_to_tensor", "tensor_to_tensor_buffer", "tensor_buffer", "record"),
    **_rows(_EAGER, _PLAIN, "builtin_op", "consistent_user_op_module_builder",
            "find_or_create_module", "user_op_module_builder", "experimental.get_job_set",
            "nn.Module"),
    **_rows("operators do not run one at a time", "use flow.assign in the body of a job",
            "experimental.eager_assign_121"),
    **_rows("operators do not run one at a time", "use flow.scope.placement in the body of a job",
            "eager_fixed_placement"),
    **_rows("a job runs on one machine in this version", "leave it out",
            "deprecated.init_worker", "deprecated.delete_worker"),
    **_rows(_ONE_DEVICE, "leave it out: there is nothing to sum over", "eager_nccl_all_reduce"),
    **_rows(_TIME, _STEPS, "acc", "pack", "repeat", "unpack", "experimental.ssp_variable_proxy"),
    **_rows(_NATIVE, _COMPOSE_OP, "experimental.custom_op_module", "experimental.op_lib"),
    **_rows(_NO_LIBRARY, _COMPOSE_OP, "sysconfig.get_include", "sysconfig.get_lib"),
    **_rows(_QAT, _QUANTIZE, "quantization.fake_quantization", "quantization.min_max_observer",
            "quantization.moving_average_min_maxObserver",
            "quantization.moving_average_min_max_observer"),
    **_rows("calibration tables belong to TensorRT",
            "set config.tensorrt.int8_calibration(path) to a table that exists",
            "tensorrt.cache_int8_calibration", "tensorrt.write_int8_calibration"),
    **_rows("watching every blob made in a scope is gone since 0.1.3",
            "call flow.watch and flow.watch_diff on the blobs", "watch_scope"),
    **_rows("a hash table that grows from call to call has no ONNX operator",
            "number the categories on the host, and feed the numbers",
            "categorical_ordinal_encode", "layers.categorical_ordinal_encoder"),
    **_rows(_READERS, _FEED, "data.BlobConf", "data.BytesListCodec", "data.COCODataset",
            "data.DataLoader", "data.ImageAlign", "data.ImageCodec",
            "data.ImageDecoderRandomCropResize", "data.ImageNormalizeByChannel",
            "data.ImagePreprocessor", "data.ImageRandomFlip", "data.ImageResizePreprocessor",
            "data.MegatronGPTMMapDataLoader", "data.NormByChannelPreprocessor",
            "data.OFRecordBytesDecoder", "data.OFRecordImageDecoder",
            "data.OFRecordImageDecoderRandomCrop", "data.OFRecordRawDecoder",
            "data.OneRecDecoder", "data.RawCodec", "data.SegmentationPolygonListToAlignedMask",
            "data.SegmentationPolygonListToMask", "data.TargetResizeTransform", "data.coco_reader",
            "data.decode_ofrecord", "data.decode_random", "data.image_decoder_random_crop_resize",
            "data.megatron_gpt_mmap_data_loader", "data.ofrecord_bytes_decoder",
            "data.ofrecord_image_classification_reader", "data.ofrecord_image_decoder",
            "data.ofrecord_image_decoder_random_crop", "data.ofrecord_loader",
            "data.ofrecord_raw_decoder", "data.ofrecord_reader", "data.onerec_decoder",
            "data.onerec_reader"),
    **_rows(_READERS, _FEED, "image.CropMirrorNormalize", "image.Resize", "image.batch_align",
            "image.crop_mirror_normalize", "image.decode", "image.flip", "image.normalize",
            "image.random_crop", "image.resize", "image.target_resize", "image_batch_align",
            "image_decode", "image_flip", "image_normalize", "image_random_crop", "image_resize",
            "image_target_resize"),
    **_rows("annotations of images are transformed on the host, which this version does not do",
            "transform them with numpy, and feed the arrays through placeholders",
            *(f"{prefix}{name}" for prefix in ("", "detection.")
              for name in ("object_bbox_flip", "object_bbox_scale",
                           "object_segmentation_polygon_flip", "object_segmentation_polygon_scale",
                           "object_segmentation_polygon_to_mask"))),
    **_rows(_OLD_DETECTION, _COMPOSE, "detection.affine_channel", "detection.anchor_generate",
            "detection.box_decode", "detection.box_encode", "detection.calc_iou_matrix",
            "detection.clip_to_image", "detection.extract_piece_slice_id",
            "detection.identify_non_small_boxes", "detection.identify_outside_anchors",
            "detection.level_map", "detection.maskrcnn_positive_negative_sample",
            "detection.maskrcnn_split", "detection.masks_crop_and_resize", "detection.nms",
            "detection.pos_neg_sampler", "detection.roi_align"),
    **_rows(_OLD_DETECTION, "use flow.layers.upsample_2d", "detection.upsample_nearest"),
    **_rows(_SUMMARY, _WATCH, "summary.Graph", "summary.HParam", "summary.Hparam",
            "summary.IntegerRange", "summary.Metric", "summary.Projector", "summary.RealRange",
            "summary.ValueSet", "summary.create_summary_writer", "summary.flush_summary_writer",
            "summary.histogram", "summary.hparams", "summary.image", "summary.pb",
            "summary.scalar", "summary.text"),
    **_rows(_TRAINER, _LOOP, "Model", "model.Callback", "model.CheckpointConfig",
            "model.DataModule", "model.Model", "model.NumpyDataModule", "model.TrainingConfig",
            "model.ValidationConfig"),
    **_rows(_SERVING, _EXPORT, "onnx.export", "saved_model.GraphBuilder",
            "saved_model.ModelBuilder", "saved_model.SignatureBuilder", "serving.InferenceSession",
            "serving.ModelVersionPolicy", "serving.SessionOption"),
}  # fmt: skip
