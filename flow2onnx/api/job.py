"""The decorated function: what users call, export and ask about."""

import functools
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flow2onnx_runtime.dtypes import Array

from flow2onnx import engine, export
from flow2onnx.api.results import FutureResult, deliver, local_blobs
from flow2onnx.api.session import current_session
from flow2onnx.errors import CallError, ContextError, FlowError
from flow2onnx.source import user_frame
from flow2onnx.trace.context import traced_job
from flow2onnx.trace.spec import JobSpec
from flow2onnx.typing import (
    AbsentReturn,
    CallbackReturn,
    NoneReturn,
    check_arguments,
    present,
)

if TYPE_CHECKING:
    from flow2onnx.engine import Explanation, Session

__all__ = ["JobFunction", "define"]


class JobFunction:
    """A job. Calling it runs the compiled graph once, in the form its return annotation names."""

    def __init__(self, spec: JobSpec, session: "Session") -> None:
        functools.update_wrapper(self, spec.function)
        self.spec, self.session = spec, session

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on one array for each placeholder, by position."""
        try:
            self._check_call(kwargs)
            self.session.start()
            spec, pieces = self.spec, self.session.pieces(self.spec)
            arrays = check_arguments(spec.parameters, spec.names, args, spec.name, pieces)
            return self._call(arrays, pieces)
        except FlowError as error:
            error.located(self.spec.name, None, user_frame())
            raise

    def export(self, path: str | Path, **options: Any) -> Any:
        """Write the job as ONNX: see `flow2onnx.export.export`."""
        return export.export(self, path, **options)

    def explain(self) -> "Explanation":
        """Which flags took effect and how, which provider runs which node, and the memory.

        Starts the session; `print` shows it, `as_dict()` is for programs.
        """
        session = self.session
        return engine.explain(session.opening(self.spec.name), session.settings, session.device)

    def __repr__(self) -> str:
        return f"<{self.spec.kind} job {self.spec.name}>"

    def _check_call(self, kwargs: dict[str, Any]) -> None:
        outer = traced_job()
        if outer is not None:
            raise ContextError(
                f"job {self.spec.name} is called inside job {outer.spec.name}",
                job=outer.spec.name,
                hint="call a plain function instead: only the outermost function is a job",
            )
        if kwargs:
            raise CallError(
                f"{self.spec.name}() got an unexpected keyword argument {next(iter(kwargs))!r}",
                hint="a job takes its arrays by position",
            )

    def _call(self, arrays: list[Array], pieces: int) -> Any:
        spec, returns, tree = self.spec, self.spec.returns, self.session.tree(self.spec.name)
        if isinstance(returns, AbsentReturn):
            if tree.kind == "none":
                self.session.run(spec, arrays)
                return None
            future = self._submit(arrays, lambda out: local_blobs(tree, out, pieces))
            return FutureResult(self.session, future, spec.name)
        if isinstance(returns, CallbackReturn):
            future = self._submit(arrays, lambda out: present(returns, tree, out, pieces))
            return functools.partial(deliver, self.session, future)
        out = self.session.run(spec, arrays)
        return None if isinstance(returns, NoneReturn) else present(returns, tree, out, pieces)

    def _submit(self, arrays: list[Array], shown: Callable[[list[Array]], Any]) -> "Future[Any]":
        return self.session.submit(self.spec, arrays, shown)


def define(spec: JobSpec) -> JobFunction:
    """Add a job to the current session."""
    session = current_session()
    return JobFunction(session.define(spec), session)
