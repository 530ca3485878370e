"""`flow.serving`: saved models, opened and run without the program that made them."""

import enum
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.messages import parse_bytes, parse_text

from flow2onnx import export
from flow2onnx.api.saved_model import blobs_shown
from flow2onnx.dtypes import DType, by_name
from flow2onnx.errors import ArgumentError
from flow2onnx.proto.saved_model import SavedModel
from flow2onnx.source import user_frame

if TYPE_CHECKING:
    from flow2onnx_runtime import Predictor, TensorInfo

__all__ = ["InferenceSession", "ModelVersionPolicy", "SessionOption"]


class _Policy(enum.Enum):
    """Which version of a model is loaded."""

    LATEST = "latest"


class ModelVersionPolicy:
    """The ways to choose a version of a model."""

    LATEST = _Policy.LATEST


class SessionOption:
    """Where an inference session runs."""

    def __init__(self) -> None:
        self.device_tag, self.device_num, self.is_mirrored_view = "gpu", 1, False


class _Status(enum.Enum):
    """States of a serving session: it takes jobs, or runs them."""

    OPEN = 1
    RUNNING = 2
    CLOSED = 3


@dataclass
class _Job:
    """One job of a session: its signature, and the names of its operators."""

    signature: Any = None
    outputs: list[str] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    batch: int | None = None
    opened: "Predictor | None" = None

    def inputs(self) -> dict[str, str]:
        """The parameter that each input name feeds."""
        if self.signature is None:
            return {info.name: info.name for info in self.predictor().inputs}
        return {n: d.lbi.op_name for n, d in sorted(self.signature.inputs.items())}

    def results(self) -> dict[str, int]:
        """The position of each output among the results."""
        if self.signature is None:
            return {f"out/{i}": i for i in range(len(self.predictor().outputs))}
        named = ((n, d.lbi) for n, d in sorted(self.signature.outputs.items()))
        return {n: self.outputs.index(f"{lbi.op_name}/{lbi.blob_name}") for n, lbi in named}

    def declared_batch(self) -> int | None:
        """The first size of the first input of the signature."""
        inputs = {} if self.signature is None else self.signature.inputs
        dims = [d.blob_conf.shape.dim for _, d in sorted(inputs.items())]
        return int(dims[0][0]) if dims and dims[0] else None

    def predictor(self) -> "Predictor":
        """The job's model, opened."""
        if self.opened is None:
            raise _refuse("the job is not launched", "call session.launch() first")
        return self.opened

    def feeds(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """The arrays by the names that the model knows; raises for what is no array."""
        for name in self.inputs():
            if name not in arrays:
                raise _refuse(f'input "{name}" is absent', f"pass {name}=array")
            if not isinstance(arrays[name], np.ndarray):
                raise _refuse(f'input "{name}" requires numpy.ndarray', "pass numpy.asarray(value)")
        return {parameter: arrays[name] for name, parameter in self.inputs().items()}

    def ordered(self, found: dict[str, Array]) -> tuple[Array, ...]:
        """The outputs, in order of their names."""
        outputs = self.predictor().outputs
        return tuple(found[outputs[i].name] for i in self.results().values())


def _refuse(message: str, hint: str) -> ArgumentError:
    return ArgumentError(message, source=user_frame(), hint=hint)


class InferenceSession:
    """Jobs of a saved model: load, launch, run."""

    SessionStatus = _Status

    def __init__(self, option: SessionOption | None = None) -> None:
        self._option = SessionOption() if option is None else option
        if self._option.device_tag not in ("gpu", "cpu"):
            raise _refuse(f"not supported device tag {self._option.device_tag}", 'use "cpu"')
        self._jobs: dict[str, _Job] = {}
        self._checkpoint: Path | None = None
        self._folder: Path | None = None
        self._current: str | None = None
        self._status = _Status.OPEN

    def load_saved_model(
        self,
        saved_model_dir: str,
        model_version: int | _Policy = ModelVersionPolicy.LATEST,
        saved_model_meta_file_basename: str = "saved_model",
        graph_name: str | None = None,
        signature_name: str | None = None,
    ) -> None:
        """Open one job of one version of a model, the latest and its default unless told."""
        folder = _version_folder(Path(saved_model_dir), model_version)
        saved = _read(folder, saved_model_meta_file_basename)
        self._folder = folder
        self.set_checkpoint_path(str(folder / saved.checkpoint_dir))
        name = saved.default_graph_name if graph_name is None else graph_name
        if name not in saved.graphs:
            raise _refuse(f"graph {name} do not exist", f"there are {', '.join(saved.graphs)}")
        graph = saved.graphs[name]
        chosen = signature_name
        if chosen is None and graph.HasField("default_signature_name"):
            chosen = graph.default_signature_name
        if chosen is not None and chosen not in graph.signatures:
            known = ", ".join(graph.signatures) or "none"
            raise _refuse(f"signature {chosen} do not exist", f"there are {known}")
        with self.open(name, None if chosen is None else graph.signatures[chosen]):
            self.compile(graph.op_list)

    def set_checkpoint_path(self, checkpoint_path: str) -> None:
        """Take the values of the variables from this checkpoint."""
        self._check("set_checkpoint_path", _Status.OPEN)
        self._checkpoint = Path(checkpoint_path)

    def set_job_signature(self, job_name: str, signature: Any) -> None:
        """Name inputs and outputs of a job as this signature does."""
        self._job(job_name).signature = signature

    def set_job_batch_size(self, job_name: str, batch_size: int) -> None:
        """Let every input of a job have this size along its first axis."""
        self._check("set_job_batch_size", _Status.OPEN)
        job = self._job(job_name)
        job.batch = batch_size
        for given in () if job.signature is None else job.signature.inputs.values():
            given.blob_conf.shape.dim[0] = batch_size

    @contextmanager
    def open(
        self, job_name: str, signature: Any = None, batch_size: int | None = None
    ) -> Iterator["InferenceSession"]:
        """Inside, `compile` adds the job of this name."""
        self._check("open", _Status.OPEN)
        self._jobs[job_name] = _Job()
        if signature is not None:
            self.set_job_signature(job_name, signature)
        if isinstance(batch_size, int):
            self.set_job_batch_size(job_name, batch_size)
        self._current = job_name
        yield self
        self._current = None

    def compile(self, op_list: Iterable[Any]) -> None:
        """Add the operators of the job that is open."""
        self._check("compile", _Status.OPEN)
        if self._current is None:
            raise _refuse("no job is open", "write: with session.open(name, signature):")
        self._jobs[self._current].operators = [op.name for op in op_list]

    def launch(self) -> None:
        """Read the weights; from here on jobs run."""
        self._check("launch", _Status.OPEN)
        if self._checkpoint is None:
            raise _refuse("checkpoint path not set", "call load_saved_model first")
        for name, job in self._jobs.items():
            path = (self._folder or self._checkpoint.parent) / f"{name}.onnx"
            if not path.is_file():
                raise _refuse(
                    f"there is no {path}: the model was not saved by flow2onnx",
                    "run the program that saves it once more, with `flow2onnx run`",
                )
            job.opened = export.open_saved_model(path, self._checkpoint, self._option.device_tag)
            job.outputs = self._list_files(path.parent, name)
        self._status = _Status.RUNNING

    def run(self, job_name: str, **kwargs: Array) -> tuple[Array, ...]:
        """The outputs of a job, in order of their names, for one array for each input."""
        job = self._running("run", job_name)
        return job.ordered(job.predictor()(**job.feeds(kwargs)))

    async def async_run(self, job_name: str, **kwargs: Array) -> tuple[Array, ...]:
        """`run`, on a thread of its own; cancelling the task ends it."""
        job = self._running("async_run", job_name)
        return job.ordered(await job.predictor().asynchronous(**job.feeds(kwargs)))

    def list_jobs(self) -> list[str]:
        """The names of the jobs."""
        self._check("list_jobs", _Status.RUNNING)
        return list(self._jobs)

    def list_inputs(self) -> tuple[str, ...]:
        """The names of the inputs of all jobs."""
        self._check("list_inputs", _Status.RUNNING)
        return tuple(dict.fromkeys(n for job in self._jobs.values() for n in job.inputs()))

    def list_outputs(self) -> tuple[str, ...]:
        """The names of the outputs of all jobs."""
        self._check("list_outputs", _Status.RUNNING)
        return tuple(dict.fromkeys(n for job in self._jobs.values() for n in job.results()))

    def input_info(self, input_name: str, job_name: str | None = None) -> dict[str, Any]:
        """Shape and element type of an input."""
        job = self._job_named("input_info", job_name)
        name = _look_up(job.inputs(), input_name)
        return _info(job, next(i for i in job.predictor().inputs if i.name == name))

    def output_info(self, output_name: str, job_name: str | None = None) -> dict[str, Any]:
        """Shape and element type of an output."""
        job = self._job_named("output_info", job_name)
        return _info(job, job.predictor().outputs[_look_up(job.results(), output_name)])

    def print_job_set(self) -> None:
        """Print the jobs and their operators."""
        self._check("print_job_set", _Status.OPEN, _Status.RUNNING)
        for name, job in self._jobs.items():
            print("job_name:", name)
            for operator in job.operators:
                print("\top_name:", operator)

    def close(self) -> None:
        """Let the models go."""
        for job in self._jobs.values():
            if job.opened is not None:
                job.opened.close()
        self._jobs.clear()
        self._status = _Status.CLOSED

    def _check(self, what: str, *allowed: _Status) -> None:
        if self._status not in allowed:
            names = ",".join(status.name for status in allowed)
            raise _refuse(
                f"The calling to {what} is only allowed when status is {names}, current status is "
                f"{self._status.name}",
                "the order is load_saved_model, launch, run, close",
            )

    def _job(self, name: str) -> _Job:
        if name not in self._jobs and self._status is _Status.OPEN:
            self._jobs[name] = _Job()
        if name not in self._jobs:
            raise _refuse(f"there is no job {name!r}", f"there are {', '.join(self._jobs)}")
        return self._jobs[name]

    def _running(self, what: str, name: str) -> _Job:
        self._check(what, _Status.RUNNING)
        return self._job(name)

    def _job_named(self, what: str, name: str | None) -> _Job:
        self._check(what, _Status.RUNNING)
        if name is None and len(self._jobs) != 1:
            raise _refuse("please specify job_name", f"there are {', '.join(self._jobs)}")
        return self._job(next(iter(self._jobs)) if name is None else name)

    @staticmethod
    def _list_files(folder: Path, name: str) -> list[str]:
        """The blobs that the results of a job are."""
        return blobs_shown(_read(folder, "saved_model").graphs[name])


def _look_up(names: dict[str, Any], name: str) -> Any:
    if name not in names:
        raise _refuse(f"there is no {name!r}", f"there are {', '.join(names)}")
    return names[name]


def _info(job: _Job, info: "TensorInfo") -> dict[str, Any]:
    """Shape, with the declared batch size where the model takes any, and element type."""
    batch = job.batch or job.declared_batch()
    sizes = tuple(batch if isinstance(d, str) and batch else d for d in info.shape)
    named: DType = by_name(info.element)
    return {"shape": sizes, "dtype": named}


def _version_folder(root: Path, version: int | _Policy) -> Path:
    if not root.is_dir():
        raise _refuse(f"{root} is not a valid directory", "name the folder above the versions")
    if isinstance(version, int):
        number = version
    else:
        found = [int(p.name) for p in root.iterdir() if p.is_dir() and p.name.isdecimal()]
        if not found:
            raise _refuse(f"{root} has no versions", "name the folder above the versions")
        number = max(found)
    folder = root / str(number)
    if not folder.is_dir():
        raise _refuse(f"version {number} of saved model in dir {root} do not exist",
                      "save it, or load another version")  # fmt: skip
    return folder


def _read(folder: Path, stem: str) -> Any:
    """The description of a version: its .pb file, or else its .prototxt."""
    encoded, text = folder / f"{stem}.pb", folder / f"{stem}.prototxt"
    try:
        if encoded.is_file():
            return parse_bytes(encoded.read_bytes(), SavedModel)
        if text.is_file():
            return parse_text(text.read_bytes().decode(), SavedModel)
    except ValueError as error:
        raise _refuse(f"the description of {folder} is damaged: {error}", "save it anew") from None
    raise _refuse(f"saved model meta file {stem} do not exist in {folder}",
                  "name the folder above the versions, and the file's stem")  # fmt: skip
