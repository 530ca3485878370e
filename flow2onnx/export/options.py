"""Options of exports: those that all have, those of a model, and those of a bundle."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from flow2onnx_runtime.tuning_file import forms_in
from flow2onnx_runtime.world import launched_world

from flow2onnx.compile.opsets import USUAL_OPSET, check_opset
from flow2onnx.engine.session import Session
from flow2onnx.errors import ArgumentError
from flow2onnx.export.files import Weights
from flow2onnx.export.metadata import check_metadata
from flow2onnx.export.session_view import Exportable, SessionView

__all__ = ["METHODS", "PRECISIONS", "BundleExport", "ExportOptions", "ModelExport", "Predict"]

PRECISIONS = ("fp32", "fp16", "int8", "int8-dynamic")
METHODS = ("minmax", "entropy", "percentile")
Predict = Exportable | str


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of any export.

    `batch` fixes it at another size than declared. `tuning` is a file of lowerings measured on the
    target, by ``flow2onnx tune --cache FILE`` there, or by ``python -m flow2onnx_runtime.tune`` on
    what ``flow2onnx tune --emit`` wrote. `sharding` says in the models, by annotations of the
    standard, what hints and placements ask of several devices: of as many as there are processes,
    or as `cpu_device_num` or `gpu_device_num` says, or of that number. They are of IR version 11,
    and compute what they do without.
    """

    opset: int = USUAL_OPSET
    batch: int | None = None
    metadata: Mapping[str, str] | None = None
    verify: bool = True
    tuning: str | os.PathLike[str] | None = None
    sharding: bool | int = False

    def __post_init__(self) -> None:
        check_metadata(self.metadata)
        check_opset(self.opset)
        if self.batch is not None and (type(self.batch) is not int or self.batch < 1):
            raise ArgumentError(f"batch is {self.batch!r}", hint="give a number of at least 1")
        is_number = type(self.sharding) is int and self.sharding >= 2
        if type(self.sharding) is not bool and not is_number:
            raise ArgumentError(
                f"sharding is {self.sharding!r}", hint="give True, or a number of 2 or more devices"
            )

    def view(self, session: Session, *, for_devices: bool = False) -> SessionView:
        """A started session, compiled by these options."""
        tuned = forms_in(self.tuning) if self.tuning is not None else {}
        return SessionView(
            session, self.opset, self.batch, for_devices, tuned, shards=self._shards(session)
        )

    def _shards(self, session: Session) -> int:
        """How many devices the models are to tell of."""
        if type(self.sharding) is int:
            return self.sharding
        devices = max(session.target().devices, launched_world().size) if self.sharding else 1
        if self.sharding and devices == 1:
            raise ArgumentError(
                "sharding=True, and there is one device",
                hint="give a number of devices, or set flow.config.gpu_device_num(N) before",
            )
        return devices


@dataclass(frozen=True, kw_only=True)
class ModelExport(ExportOptions):
    """Options for a predict job.

    Weights are initializers under the variables' names, in the file or, with
    ``weights="safetensors"`` and above 1.8 GB, in a .safetensors file of the same stem beside it;
    with ``weights="external"`` in a file with .data after the model's name. With `dynamic_batch`
    the first axis is free for inputs that share the first input's batch.

    `precision`: "fp16" computes in float16 what keeps its digits there, and stores the weights so
    (inputs and outputs stay float32, unless `half_io`); "int8" quantizes with the runtime's own
    quantizer, by the ranges that values have on the batches of `calibration`, found by `method`
    ("minmax", "entropy", "percentile"); "int8-dynamic" finds ranges at run time.

    The report's `comparison` is with the same export in float32, on `samples`, else on
    `calibration`, else on random numbers: arrays, dicts of arrays by input, or batches of these.
    `labels` are the classes of these rows: a loss of accuracy above `max_drop` fails the report,
    and so does a difference above `tolerance`. `preprocess` puts a `Preprocess`, or one for each
    input named, before the model: `calibration` and `samples` are raw then too.
    """

    dynamic_batch: bool = False
    weights: Weights = "inside"
    precision: str = "fp32"
    calibration: object = None
    method: str = "minmax"
    samples: object = None
    labels: object = None
    max_drop: float = 0.005
    tolerance: float | None = None
    half_io: bool = False
    preprocess: object = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_word("weights", self.weights, get_args(Weights))
        _check_word("precision", self.precision, PRECISIONS)
        _check_word("method", self.method, METHODS)
        if not (_is_number(self.max_drop) and 0 <= self.max_drop <= 1):
            raise ArgumentError(
                f"max_drop is {self.max_drop!r}", hint="a share of the answers: 0.005 is 0.5 %"
            )
        if self.tolerance is not None and not (_is_number(self.tolerance) and self.tolerance >= 0):
            raise ArgumentError(
                f"tolerance is {self.tolerance!r}", hint="give a number of at least 0, or None"
            )
        for is_wrong, message, hint in self._contradictions():
            if is_wrong:
                raise ArgumentError(message, hint=hint)

    def _contradictions(self) -> Iterator[tuple[bool, str, str]]:
        """Options that exclude each other: if they are set, what is wrong, what to do."""
        precision, has_labels = self.precision, self.labels is not None
        has_calibration, has_samples = self.calibration is not None, self.samples is not None
        yield (
            self.dynamic_batch and self.batch is not None,
            f"dynamic_batch takes batches of any size, batch={self.batch} fixes one",
            "give one",
        )
        yield (
            precision == "int8" and not has_calibration,
            'precision="int8" needs calibration=, from which ranges are found',
            'give some batches of inputs, or ask for "int8-dynamic"',
        )
        yield (
            precision != "int8" and has_calibration,
            f'calibration is for precision="int8", precision is {precision!r}',
            "give the inputs to compare on as samples=",
        )
        yield (
            precision != "fp16" and self.half_io,
            f'half_io is for precision="fp16", precision is {precision!r}',
            "leave it out",
        )
        yield (
            precision == "fp32" and (has_samples or has_labels),
            "samples and labels are for an export in reduced precision",
            f"precision= {', '.join(PRECISIONS[1:])}",
        )
        yield (
            precision != "fp32" and self.sharding is not False,
            f"sharding says where the values of the job itself lie, and precision is {precision!r}",
            "leave one out",
        )
        yield (
            has_labels and not has_samples and not has_calibration,
            "labels without samples",
            "give the inputs that they are of",
        )

    @property
    def is_reduced(self) -> bool:
        """True unless the precision is the job's own."""
        return self.precision != "fp32"


@dataclass(frozen=True, kw_only=True)
class BundleExport(ExportOptions):
    """Options for a train job.

    Each job in `predict` (a job, or the name of one of the session) becomes a model beside the
    step whose weights lie in weights.safetensors: predict.onnx, then ``predict-NAME.onnx``.

    `on_device` makes the folder one to ship: the learning rate can be set, random draws depend on
    the step and not on the past, so that a resumed training is an undisturbed one, and a README and
    the list of operators are added. `accumulate` adds the step in two halves, for accumulation of
    gradients; `distributed` does so too, as the processes that train a bundle together meet between
    the halves, and lets the rate be set and draws depend on the step; `ort_format` the models as
    .ort files, for reduced builds of the runtime.
    """

    predict: Predict | Sequence[Predict] | None = None
    on_device: bool = False
    accumulate: bool = False
    distributed: bool = False
    ort_format: bool = False


def _check_word(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise ArgumentError(f"{name} is {value!r}", hint=f"one of {', '.join(known)}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
