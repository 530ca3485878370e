"""The job being traced here and now: a context variable, so that threads have their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from flow2onnx.errors import ContextError
from flow2onnx.source import user_frame

if TYPE_CHECKING:
    from flow2onnx.trace.job import Job

__all__ = ["current_job", "traced_job", "tracing"]

_JOB: ContextVar["Job | None"] = ContextVar("flow2onnx_job", default=None)


def traced_job() -> "Job | None":
    """The job being traced, or None outside any job."""
    return _JOB.get()


def current_job(what: str) -> "Job":
    """The job being traced; `what` (an operator's name) is meaningless outside one."""
    job = _JOB.get()
    if job is None:
        raise ContextError(
            "operators exist only inside a job function",
            op=what,
            source=user_frame(),
            hint="call it in the body of a function decorated with @flow.global_function(...)",
        )
    return job


@contextmanager
def tracing(job: "Job") -> Iterator["Job"]:
    """Trace `job` inside."""
    token = _JOB.set(job)
    try:
        yield job
    finally:
        _JOB.reset(token)
