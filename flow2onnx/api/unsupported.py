"""Names of OneFlow without a counterpart in ONNX: a row each, with the reason and the nearest.

A name here exists, so that programs can mention it, and raises when it is used.
"""

import inspect
from dataclasses import dataclass
from typing import Any, NoReturn

from flow2onnx.errors import UnsupportedError
from flow2onnx.source import user_frame
from flow2onnx.trace.context import traced_job
from flow2onnx.trace.symbols import symbols

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
_OLD_LOADER = "OneFlow removed its first loader of detection data in June 2020"
_FEED = "read them with numpy, and feed the arrays through placeholders"
_OLD_DETECTION = "OneFlow removed its Mask R-CNN helpers at 0.1.3"
_COMPOSE = "compose it from flow operators in the job, or compute it on the host"
_NATIVE = "operators compiled for OneFlow cannot run on ONNX Runtime"
_COMPOSE_OP = "compose the operator from flow operators inside the job"
_NO_LIBRARY = "there is no C++ library to compile operators against"
_TRAINER = "the trainer classes of 0.4.0 are not available in this version"
_LOOP = "write the loop over calls of a train job and a predict job"
_ONE_DEVICE = "a job runs on one device in this version"


def _rows(reason: str, nearest: str, *names: str) -> dict[str, Unsupported]:
    return {name: Unsupported(name, reason, nearest) for name in names}


UNSUPPORTED = {
    **_rows(_REMOVED_LISTS, _PAD, "dim0_dynamic_to_fixed", "piece_slice", "sync_dynamic_resize",
            "tensor_buffer_to_tensor_list", "tensor_list_split", "tensor_list_to_tensor_buffer",
            "experimental.dynamic_binary_concat", "experimental.dynamic_binary_split"),
    **_rows("gathering within the piece of each device is gone since 0.1.1",
            "use flow.gather, which is the same on one device", "local_gather"),
    **_rows(_BUFFERS, _PAD, "gen_tensor_buffer", "tensor_buffer_to_list_of_tensors"),
    **_rows(_EAGER, _PLAIN, "builtin_op", "consistent_user_op_module_builder",
            "deprecated.nn.Module", "experimental.get_job_set", "find_or_create_module",
            "nn.Module", "user_op_module_builder"),
    **_rows("operators do not run one at a time", "use flow.assign in the body of a job",
            "experimental.eager_assign_121"),
    **_rows("operators do not run one at a time", "use flow.scope.placement in the body of a job",
            "eager_fixed_placement"),
    **_rows("a job runs on one machine in this version", "leave it out",
            "deprecated.init_worker", "deprecated.delete_worker"),
    **_rows(_ONE_DEVICE, "leave it out: there is nothing to sum over", "eager_nccl_all_reduce"),
    **_rows(_TIME, _STEPS, "experimental.ssp_variable_proxy"),
    **_rows(_NATIVE, _COMPOSE_OP, "experimental.custom_op_module", "experimental.op_lib"),
    **_rows(_NO_LIBRARY, _COMPOSE_OP, "sysconfig.get_include", "sysconfig.get_lib"),
    **_rows("calibration tables belong to TensorRT",
            "set config.tensorrt.int8_calibration(path) to a table that exists",
            "tensorrt.cache_int8_calibration", "tensorrt.write_int8_calibration"),
    **_rows("watching every blob made in a scope is gone since 0.1.3",
            "call flow.watch and flow.watch_diff on the blobs", "watch_scope"),
    **_rows(_OLD_LOADER, "call flow.data.coco_reader and the operators of flow.image",
            "data.COCODataset", "data.DataLoader", "data.ImageAlign",
            "data.ImageNormalizeByChannel", "data.ImageRandomFlip",
            "data.SegmentationPolygonListToAlignedMask", "data.SegmentationPolygonListToMask",
            "data.TargetResizeTransform"),
    **_rows("memory-mapped corpora of Megatron are not read in this version", _FEED,
            "data.MegatronGPTMMapDataLoader", "data.megatron_gpt_mmap_data_loader"),
    **_rows("files in the OneRec format, which OneFlow alone used, are not read",
            "write OFRecord files with flow2onnx.data.ofrecord.OFRecordWriter",
            "data.OneRecDecoder", "data.onerec_decoder", "data.onerec_reader"),
    **_rows(_OLD_DETECTION, _COMPOSE, "detection.affine_channel", "detection.anchor_generate",
            "detection.box_decode", "detection.box_encode", "detection.calc_iou_matrix",
            "detection.clip_to_image", "detection.extract_piece_slice_id",
            "detection.identify_non_small_boxes", "detection.identify_outside_anchors",
            "detection.level_map", "detection.maskrcnn_positive_negative_sample",
            "detection.maskrcnn_split", "detection.masks_crop_and_resize", "detection.nms",
            "detection.pos_neg_sampler", "detection.roi_align"),
    **_rows(_OLD_DETECTION, "use flow.layers.upsample_2d", "detection.upsample_nearest"),
    **_rows(_TRAINER, _LOOP, "Model", "model.Callback", "model.CheckpointConfig",
            "model.DataModule", "model.Model", "model.NumpyDataModule", "model.TrainingConfig",
            "model.ValidationConfig"),
}  # fmt: skip
