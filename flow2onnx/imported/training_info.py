"""Training from a file with `TrainingInfoProto`, ours or anybody's."""

from collections.abc import Callable, Mapping
from typing import Any

from flow2onnx.compile.opsets import check_opset
from flow2onnx.errors import DTypeError, ShapeError
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.imported.feeds import Feeds, read_feeds
from flow2onnx.imported.initial_state import ModelState, state_variable, tensor_type
from flow2onnx.imported.job_body import feed_values
from flow2onnx.imported.model_jobs import ModelJobs
from flow2onnx.imported.parameters import Parameter
from flow2onnx.imported.preview_training import PREVIEW_OPERATORS, preview_handlers
from flow2onnx.imported.trainable import TrainableModel, title_of
from flow2onnx.onnx_io.append import append_model
from flow2onnx.onnx_io.foreign import ForeignModel, Source, foreign_model
from flow2onnx.onnx_io.training_info import Algorithm, drop_training_info, read_training_info
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.spec import STEP_COUNTER
from flow2onnx.trace.variables import Role

__all__ = ["from_training_info"]

_PREFIX = "training/"


def from_training_info(
    model: Source, *, inputs: Mapping[str, Any] | None = None, name: str | None = None
) -> TrainableModel:
    """The training step in a file (path or `onnx.ModelProto`) that has one, ready to be trained.

    Operators of ai.onnx.preview.training are expanded to standard ones. `inputs` are as in
    `make_trainable`.
    """
    algorithm = read_training_info(model)
    foreign = foreign_model(algorithm.model, None, None, allowed=PREVIEW_OPERATORS)
    check_opset(foreign.opset)
    used = foreign_model(drop_training_info(model), None, foreign.opset)
    feeds = read_feeds(foreign, inputs)
    own = {f.name: f.shape for f in feeds.model}
    known = {n: own[n] for v in used.inputs if (n := str(v.name)) in own}
    counter = next((n for n in algorithm.updates if n.startswith(STEP_COUNTER)), "")
    title = counter.removeprefix(STEP_COUNTER) or title_of(name or "train")
    state = ModelState(foreign, foreign.opset)
    step = _compiler(title, foreign, feeds, algorithm, state)
    predict = _compiler(title, used, read_feeds(used, known), None, state, tuple(algorithm.updates))
    types = {n: tensor_type(foreign, n) for n in foreign.tensors if n in algorithm.updates}
    parameters = tuple(
        Parameter(
            name=name,
            shape=shape,
            dtype=dtype.name,
            is_trained=True,
            reason="the file updates it",
        )
        for name, (shape, dtype) in types.items()
        if name in used.tensors
    )
    return TrainableModel(
        step=step.job("train"),
        predicts=(predict.job("predict"),),
        state=state,
        parameters=parameters,
    )


def _compiler(
    title: str,
    foreign: ForeignModel,
    feeds: Feeds,
    algorithm: Algorithm | None,
    state: ModelState,
    held: tuple[str, ...] = (),
) -> ModelJobs:
    updates = dict(algorithm.updates) if algorithm else {}
    results = [n for n in foreign.outputs if n not in updates.values()]

    def body(kind: str, batch: int | None) -> Callable[[], list[Blob]]:
        def run() -> list[Blob]:
            job = current_job("from_training_info")
            values = feed_values(job, feeds, batch)
            for name in [*updates, *(n for n in held if n in foreign.tensors)]:
                role: Role = "counter" if name.startswith(STEP_COUNTER) else "variable"
                values[name] = job.state(state_variable(foreign, name, role))
            made = append_model(job.b, foreign, values, preview_handlers(foreign))
            for name, output in updates.items():
                _check_same(name, values[name], output, made[output])
                job.assign(name, made[output])
            return [Blob(made[n]) for n in results]

        return run

    def names(kind: str, count: int) -> list[str]:
        return [n.removeprefix(_PREFIX) for n in results]

    return ModelJobs(
        title=title,
        feeds=feeds,
        body=body,
        names=names,
        target=state.target,
        has_optimizer=False,
    )


def _check_same(name: str, old: Any, output: str, new: Any) -> None:
    if dims(old) != dims(new):
        raise ShapeError(f"update_binding: {output} is {dims(new)}, {name} is {dims(old)}")
    if dtype_of(old) != dtype_of(new):
        raise DTypeError(
            f"update_binding: {output} is {dtype_of(new).name}, {name} is {dtype_of(old).name}"
        )
