"""`flow.summary`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import flow2onnx.api.hparams as _flow2onnx_api_hparams
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy.typing as _numpy_typing
import typing as _typing

from flow2onnx.api.projector import Graph as Graph
from flow2onnx.api.hparams import HParam as HParam
Hparam = _flow2onnx_api_hparams.HParam
from flow2onnx.api.hparams import IntegerRange as IntegerRange
from flow2onnx.api.hparams import Metric as Metric
from flow2onnx.api.projector import Projector as Projector
from flow2onnx.api.hparams import RealRange as RealRange
from flow2onnx.api.hparams import ValueSet as ValueSet
def create_summary_writer(logdir: _builtins.str, name: _builtins.str | None = None) -> None:
    """At each call of the job, begin an event file below `logdir`, where all jobs write then."""
def flush_summary_writer(name: _builtins.str | None = None) -> None:
    """At each call of the job, bring what was written to the disk."""
def histogram(value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], step: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], tag: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> None:
    """Write the distribution of the values of a blob."""
def hparams(hparams: _collections_abc.Mapping[_typing.Any, _typing.Any]) -> _typing.Any:
    """A summary of one run's hyper-parameters and metrics: keys are texts, HParams and Metrics."""
def image(value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], step: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, tag: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, name: _builtins.str | None = None) -> None:
    """Write a batch of images, uint8 and channels last."""
def pb(value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], step: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, name: _builtins.str | None = None) -> None:
    """Write a summary that `flow.summary.text` or `hparams` made, fed as its bytes in int8."""
def scalar(value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], step: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], tag: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> None:
    """Write one number to the curve `tag`; `step` is int64 of shape (1,), `tag` int8."""
def text(text: _collections_abc.Sequence[_builtins.str], tag: _builtins.str | None = None) -> _typing.Any:
    """A summary of a list of texts; None for anything else, as in OneFlow."""
