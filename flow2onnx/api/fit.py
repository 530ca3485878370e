"""`job.fit`: the training loop of the runtime, over a train job of a session."""

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import flow2onnx_runtime
import numpy as np
from flow2onnx_runtime.dtypes import Array

from flow2onnx.checkpoint import store
from flow2onnx.checkpoint.store import SavedVariable
from flow2onnx.errors import ArgumentError, CheckpointError, ConfigError, UnsupportedError
from flow2onnx.graph.nodes import RANDOM_OPERATORS
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.trace import leaf_placeholders
from flow2onnx.typing import check_arguments

if TYPE_CHECKING:
    from flow2onnx.engine import Session

__all__ = ["JobLearner", "fit_job"]

Results = Mapping[str, Array]


class JobLearner:
    """A train job as a loop drives it, in its session; `predict` is a predict job of it, or None.

    Results are called ``out/0``, …. The rate is the schedule's.
    """

    def __init__(self, session: "Session", spec: JobSpec, predict: JobSpec | None) -> None:
        session.start()
        self._session, self._spec, self._predict = session, spec, predict
        job = session.opening(spec.name).job
        if job.kind != "train":
            raise ArgumentError(
                f"{spec.name} is a predict job", job=spec.name,
                hint="fit a job of type='train'; this one may be predict=",
            )  # fmt: skip
        if not job.losses:
            raise ArgumentError(
                f"{spec.name} returns no loss", job=spec.name, source=spec.source,
                hint="return what minimize was called with",
            )  # fmt: skip
        self._results, self.losses = job.results, job.losses
        self.feeds = tuple(_feeds(spec))
        self.draws_anew = any(n.op_type in RANDOM_OPERATORS for n in job.model.graph)
        self._steps = 0  # of use only where the job has no counter

    def check_plan(self, plan: Mapping[str, object]) -> None:
        """Nothing: ranks compare the job, and each call is of the whole batch."""

    @property
    def steps(self) -> int:
        """The number of steps done."""
        counter = self._spec.step_counter
        if counter in self._session.variables:
            return int(self._session.read(counter).item())
        return self._steps

    @property
    def rate(self) -> float | None:
        """Not known: the schedule of the job has it."""
        return None

    @rate.setter
    def rate(self, rate: float) -> None:
        raise UnsupportedError(
            f"the rate of job {self._spec.name} is its schedule's", job=self._spec.name,
            hint="export it with on_device=True, and fit the bundle: "
            "flow2onnx_runtime.Trainer(bundle).fit(…)",
        )  # fmt: skip

    @property
    def accumulated(self) -> int:
        """None: a call of a job makes a step."""
        return 0

    @property
    def keeps_old_values(self) -> bool:
        """True if a step whose loss is not finite is refused, by the settings of the session."""
        return bool(self._session.settings.value("stop_on_non_finite"))

    def keep_old_values(self, is_asked: bool) -> None:
        """Raise unless the session does as is asked."""
        if is_asked and not self.keeps_old_values:
            raise ConfigError(
                "the session's steps are made whatever their losses are",
                hint="call flow.config.stop_on_non_finite(True) before the first call of a job",
            )

    @property
    def updates_in_place(self) -> bool:
        """True: what is kept was decided when the session began."""
        return True

    @property
    def unread(self) -> tuple[str, ...]:
        """The feeds that the predict job does not have."""
        read = self._predict.names if self._predict is not None else ()
        return tuple(f.name for f in self.feeds if f.name not in read)

    @property
    def shows_predictions(self) -> bool:
        """True if the job returns more than losses."""
        return len(self._results) > len(self.losses)

    def prepare(self, arrays: Sequence[Array]) -> Any:
        """The arrays as the job takes them."""
        spec, pieces = self._spec, self._session.pieces(self._spec)
        return check_arguments(spec.parameters, spec.names, arrays, spec.name, pieces)

    def step(self, batch: Any) -> Results:
        """One call of the job."""
        found = self._session.run(self._spec, batch)
        self._steps += 1
        return dict(zip(self._results, found, strict=True))

    def accumulate(self, batch: Any) -> Results:
        """Raise: a call of a job makes a step."""
        raise UnsupportedError(
            f"job {self._spec.name} makes a step of each batch", job=self._spec.name,
            hint="export it with accumulate=True, and fit the bundle: "
            "flow2onnx_runtime.Trainer(bundle).fit(…)",
        )  # fmt: skip

    def update(self) -> None:
        """Nothing: there is nothing accumulated."""

    def evaluate(self, arrays: Sequence[Array]) -> tuple[Results, Results]:
        """The results of the predict job; a train job cannot be run without a step."""
        if self._predict is None:
            raise ArgumentError(
                "validation needs a job that changes nothing", job=self._spec.name,
                hint="name one of type='predict' with predict=",
            )  # fmt: skip
        spec = self._predict
        by_name = dict(zip((f.name for f in self.feeds), arrays, strict=True))
        missing = [name for name in spec.names if name not in by_name]
        if missing:
            raise ArgumentError(
                f"predict job {spec.name} takes {missing[0]!r}, which {self._spec.name} does not",
                job=spec.name, source=spec.source,
                hint="call parameters that are the same the same",
            )  # fmt: skip
        full = _full_batch(spec)
        rows = len(arrays[0]) if arrays and arrays[0].ndim else 0
        given = [by_name[name] for name in spec.names]
        if full is not None and rows < full:
            given = [flow2onnx_runtime.fill_rows(a, full) for a in given]
        pieces = self._session.pieces(spec)
        checked = check_arguments(spec.parameters, spec.names, given, spec.name, pieces)
        names = self._session.opening(spec.name).job.results
        found = dict(zip(names, self._session.run(spec, checked), strict=True))
        return {}, {n: v[:rows] if v.ndim and len(v) == full else v for n, v in found.items()}

    def is_finite(self, results: Results) -> bool:
        """True if no loss is NaN or infinite."""
        found = (results[name] for name in self.losses if name in results)
        return all(np.isfinite(np.asarray(loss, np.float64)).all() for loss in found)

    def snapshot(self) -> dict[str, Array]:
        """Copies of all variables."""
        return self._session.snapshot(list(self._session.variables))

    def restore(self, state: Mapping[str, Array]) -> None:
        """Replace all variables by a snapshot."""
        self._session.write(dict(state))

    def state_writer(self) -> Callable[[str | os.PathLike[str]], None]:
        """A function that writes all variables: a .safetensors file, or a checkpoint's folder."""
        values = self.snapshot()
        return lambda path: store.save(path, values)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace all variables by saved ones; all of them or none."""
        saved, variables = store.load(path), self._session.variables
        if isinstance(saved, SavedVariable) or set(saved) != set(variables):
            raise CheckpointError(
                f"{path} holds other variables than the session has",
                hint="give what a loop over the same jobs wrote",
            )
        self.restore({n: saved[n].view_as(v.shape, v.dtype) for n, v in variables.items()})


def _feeds(spec: JobSpec) -> Sequence[Any]:
    """The inputs of a job as tensors; raises for lists and nested parameters."""
    found = []
    for name, placeholder in leaf_placeholders(spec):
        if name not in spec.names or placeholder.kind != "numpy":
            raise UnsupportedError(
                f"parameter {name} of job {spec.name} takes more than one array",
                job=spec.name, source=spec.source,
                hint="call the job in a loop of your own; fit is for tp.Numpy.Placeholder",
            )  # fmt: skip
        dtype, element = placeholder.dtype.numpy, placeholder.dtype.name
        found.append(flow2onnx_runtime.TensorInfo(name, placeholder.shape, dtype, element))
    return found


def _full_batch(spec: JobSpec) -> int | None:
    shapes = [p.shape for _, p in leaf_placeholders(spec)]
    return next((shape[0] for shape in shapes if shape), None)


def fit_job(
    session: "Session",
    spec: JobSpec,
    predict: JobSpec | None,
    batches: Any,
    epochs: int,
    validation: Any,
    callbacks: Any,
    **settings: Any,
) -> "flow2onnx_runtime.History":
    """Train a job: `JobFunction.fit` says how."""
    learner = JobLearner(session, spec, predict)
    if batches is None and not learner.feeds:
        steps = settings["steps"]
        if steps is None:
            raise ArgumentError(
                f"job {spec.name} reads its batches itself", job=spec.name,
                hint="say how many are an epoch: steps=",
            )  # fmt: skip
        batches = repeat(())
    if batches is None:
        raise ArgumentError(
            f"job {spec.name} takes {', '.join(f.name for f in learner.feeds)}", job=spec.name,
            hint="give batches",
        )  # fmt: skip
    if settings["accumulate"] != 1:
        learner.accumulate(())
    made = flow2onnx_runtime.FitSettings(**settings)
    return flow2onnx_runtime.fit(learner, batches, epochs, validation, callbacks, made)
