"""The decorated function: what users call, export and ask about."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flow2onnx_runtime import view
from flow2onnx_runtime.dtypes import Array

from flow2onnx import engine, export
from flow2onnx.api.fit import fit_job
from flow2onnx.api.results import FutureResult, deliver, local_blobs
from flow2onnx.api.session import current_session
from flow2onnx.errors import CallError, ContextError, FlowError, spelling_hint
from flow2onnx.source import shorten_traceback, user_frame
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
    from flow2onnx_runtime import History

    from flow2onnx.compile import CompiledJob
    from flow2onnx.engine import Explanation, Session
    from flow2onnx.export import Report

__all__ = ["JobFunction", "define"]


@contextlib.contextmanager
def _locate_errors() -> Iterator[None]:
    """Let errors name the user's line."""
    source = user_frame()
    try:
        yield
    except FlowError as error:
        raise error.located(None, None, source) from None


class JobFunction:
    """A job. Calling it runs the compiled graph once, in the form its return annotation names."""

    def __init__(self, spec: JobSpec, session: "Session") -> None:
        functools.update_wrapper(self, spec.function)
        self.spec, self.session = spec, session

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on one array for each placeholder, by position or by the parameter's name."""
        __tracebackhide__ = True
        try:
            self._check_call()
            args, spec = self._positional(args, kwargs), self.spec
            job = self.session.start_for(spec)
            arrays = check_arguments(spec.parameters, spec.names, args, spec.name, job.pieces)
            return self._call(arrays, job)
        except FlowError as error:
            shorten_traceback(error.located(self.spec.name, None, user_frame()))
            raise
        except Exception as error:  # of the user's own code in the body
            shorten_traceback(error)
            raise

    def export(self, path: str | Path, **options: Any) -> "Report":
        """Write the job as ONNX: see `flow2onnx.export.export`."""
        with _locate_errors():
            return export.export(self, path, **options)

    def fit(
        self,
        batches: Any = None,
        epochs: int = 1,
        validation: Any = None,
        callbacks: Any = (),
        *,
        batch_size: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool | None = None,
        steps: int | None = None,
        columns: Mapping[str, str] | None = None,
        metrics: Any = (),
        predict: "JobFunction | str | None" = None,
        output: str | None = None,
        labels: str | None = None,
        accumulate: int = 1,
        prefetch: int = 2,
        non_finite: Literal["raise", "skip", "ignore"] = "raise",
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | None = None,
        resume: bool = False,
        progress: bool | None = None,
        plot: str | os.PathLike[str] | None = None,
    ) -> "History":
        """Train for some epochs; the history, a row of numbers for each.

        Everything is as in `flow2onnx_runtime.Trainer.fit`, but for what a job is: it returns its
        loss, batches have the size that it declares, and validation runs the predict job that
        `predict` names, on which `metrics` are measured; its results are called ``out/0``, …. A
        job that reads its data itself takes no `batches`, and `steps` of them are an epoch. The
        rate is the schedule's: callbacks that set it, and accumulation, are for exported bundles.
        """
        spec = None
        if predict is not None:
            named = predict if isinstance(predict, str) else predict.spec.name
            spec = export.find_job(self.session, named)
        return fit_job(
            self.session, self.spec, spec, batches, epochs, validation, callbacks,
            batch_size=batch_size, shuffle=shuffle, seed=seed, drop_last=drop_last, steps=steps,
            columns=columns, metrics=metrics, output=output, labels=labels, accumulate=accumulate,
            prefetch=prefetch, non_finite=non_finite, checkpoint=checkpoint, every=every,
            resume=resume, progress=progress, plot=plot,
        )  # fmt: skip

    def explain(self) -> "Explanation":
        """Which flags took effect and how, which provider runs which node, and the memory.

        Starts the session; `print` shows it, `as_dict()` is for programs.
        """
        session = self.session
        return engine.explain(session.opening(self.spec.name), session.settings, session.device)

    def __repr__(self) -> str:
        return f"<{self.spec.kind} job {self.spec.name}>"

    def _repr_html_(self) -> str:
        """The job for a notebook: its parameters, layers and a picture; or why it has none."""
        facts = {"API of release": self.spec.release, "defined at": self.spec.source}
        title = repr(self)[1:-1]
        try:
            return view.graph_block(export.graph_of_job(self), facts, title)
        except Exception as error:  # the body is the user's, and may raise anything
            why = view.facts_table({**facts, "cannot be traced": error})
            return view.html_block(title, why)

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments of a call in the order of the job's parameters."""
        if not kwargs:
            return args
        name, names = self.spec.name, self.spec.names
        for key in kwargs:
            if key not in names:
                listed = f"it takes {', '.join(names) or 'nothing'}"
                raise CallError(
                    f"{name}() got an unexpected keyword argument {key!r}",
                    hint=spelling_hint(key, names, listed),
                )
            if key in names[: len(args)]:
                raise CallError(
                    f"{name}() got multiple values for argument {key!r}",
                    hint="pass it once, by position or by name",
                )
        missing = [n for n in names[len(args) :] if n not in kwargs]
        if missing:
            raise CallError(
                f"{name}() is missing {' and '.join(missing)}",
                hint=f"its parameters are {', '.join(names)}",
            )
        return (*args, *(kwargs[n] for n in names[len(args) :]))

    def _check_call(self) -> None:
        outer = traced_job()
        if outer is not None:
            raise ContextError(
                f"job {self.spec.name} is called inside job {outer.spec.name}",
                job=outer.spec.name,
                hint="call a plain function instead: only the outermost function is a job",
            )

    def _call(self, arrays: list[Array], job: "CompiledJob") -> Any:
        spec, returns, tree, pieces = self.spec, self.spec.returns, job.tree, job.pieces
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
