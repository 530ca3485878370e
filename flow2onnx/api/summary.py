"""`flow.summary` inside jobs: values written to TensorBoard event files at each call."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from flow2onnx_runtime.dtypes import Array

from flow2onnx.api.session import current_session
from flow2onnx.errors import ArgumentError, JobError
from flow2onnx.proto.event_files import EventWriter, summary_of
from flow2onnx.source import user_frame
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.job import Watch
from flow2onnx.typing import whole

if TYPE_CHECKING:
    from flow2onnx.engine import Session

__all__ = [
    "create_summary_writer",
    "flush_summary_writer",
    "histogram",
    "image",
    "pb",
    "scalar",
]


def create_summary_writer(logdir: str, name: str | None = None) -> None:
    """At each call of the job, begin an event file below `logdir`, where all jobs write then."""
    if not isinstance(logdir, str):
        raise ArgumentError(
            f"logdir is a text, got {logdir!r}",
            op="summary.create_summary_writer",
            source=user_frame(),
            hint="name the folder that TensorBoard is to show",
        )

    def begin(session: "Session") -> None:
        _close(session)
        session.events = EventWriter(logdir)

    _add("create_summary_writer", begin)


def flush_summary_writer(name: str | None = None) -> None:
    """At each call of the job, bring what was written to the disk."""
    _add("flush_summary_writer", lambda session: _writer(session).flush())


def scalar(value: Blob, step: Blob, tag: Blob, name: str | None = None) -> None:
    """Write one number to the curve `tag`; `step` is int64 of shape (1,), `tag` int8."""

    def write(session: "Session", value: Array, step: Array, tag: Array) -> None:
        _writer(session).scalar(_text(tag), float(value.ravel()[0]), _number(step))

    _add("scalar", write, value, step, tag)


def histogram(value: Blob, step: Blob, tag: Blob, name: str | None = None) -> None:
    """Write the distribution of the values of a blob."""

    def write(session: "Session", value: Array, step: Array, tag: Array) -> None:
        _writer(session).histogram(_text(tag), value, _number(step))

    _add("histogram", write, value, step, tag)


def image(
    value: Blob, step: Blob | None = None, tag: Blob | None = None, name: str | None = None
) -> None:
    """Write a batch of images, uint8 and channels last."""

    def write(session: "Session", value: Array, *more: Array) -> None:
        given = iter(more)
        number = 0 if step is None else _number(next(given))
        _writer(session).images("image" if tag is None else _text(next(given)), value, number)

    _add("image", write, value, *(b for b in (step, tag) if b is not None))


def pb(value: Blob, step: Blob | None = None, name: str | None = None) -> None:
    """Write a summary that `flow.summary.text` or `hparams` made, fed as its bytes in int8."""

    def write(session: "Session", value: Array, *more: Array) -> None:
        summary = summary_of(_bytes(value))
        _writer(session).add(summary, 0 if step is None else _number(more[0]))

    _add("pb", write, value, *(() if step is None else (step,)))


def _add(what: str, write: Callable[..., None], *blobs: Blob) -> None:
    """Let `write` have the values at each call, the pieces of several devices put together."""
    job, session = current_job(f"summary.{what}"), current_session()
    for blob in blobs:
        if not isinstance(blob, Blob):
            raise ArgumentError(
                f"summary.{what} takes blobs, got {blob!r}",
                job=job.spec.name,
                source=user_frame(),
                hint="feed step and tag as parameters: np.array([1]), np.frombuffer(b'loss', "
                "np.int8)",
            )
        job.check_own(blob.value, "blob")
    values = tuple(blob.value for blob in blobs)

    def handler(*arguments: list[Array]) -> None:
        write(session, *map(whole, arguments))

    job.watches.append(Watch(values, handler, is_once=True))


def _writer(session: "Session") -> EventWriter:
    if session.events is None:
        raise JobError(
            "there is no summary writer yet",
            hint="first call a job whose body is flow.summary.create_summary_writer(logdir)",
        )
    writer: EventWriter = session.events
    return writer


def _close(session: "Session") -> None:
    if session.events is not None:
        session.events.close()


def _bytes(array: Array) -> bytes:
    """The bytes of a text, which may be filled up with zeros."""
    return np.ascontiguousarray(array).tobytes().rstrip(b"\0")


def _text(array: Array) -> str:
    return _bytes(array).decode(errors="replace")


def _number(array: Array) -> int:
    return int(array.ravel()[0])
