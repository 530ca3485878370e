"""`TrainingInfoProto`: a training algorithm inside the file of an inference model."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir
from flow2onnx_runtime.manifest import NEXT

from flow2onnx.errors import BundleError
from flow2onnx.onnx_io.read import open_model

__all__ = ["Algorithm", "add_training_info", "drop_training_info", "read_training_info"]

PREFIX = "training/"


@dataclass(frozen=True)
class Algorithm:
    """A training step as a model of its own, with what becomes of its outputs.

    The model's tensors named in `updates` are replaced by the outputs these say; `model` has the
    tensors of the inference graph and of the algorithm as initializers.
    """

    model: onnx.ModelProto
    updates: Mapping[str, str]


def add_training_info(
    predict: ir.Model, step: ir.Model, init: ir.Model, state: Mapping[str, Any]
) -> onnx.ModelProto:
    """The file of a predict model with a step and the step's first state inside.

    `state` are arrays by name; those that the predict model has not as initializers are added to
    the algorithm. A step's output ``next/v`` updates ``v``.
    """
    model: onnx.ModelProto = ir.to_proto(predict)
    own = {t.name for t in model.graph.initializer}
    info = model.training_info.add()
    step_proto: onnx.ModelProto = ir.to_proto(step)
    taken = own | {v.name for v in model.graph.input}
    algorithm = _prefix_names(step_proto.graph, taken | set(state))
    kept = [v for v in algorithm.input if v.name not in taken | set(state)]
    del algorithm.input[:]
    algorithm.input.extend(kept)
    for name, array in state.items():
        if name not in own:
            tensor = ir.serde.serialize_tensor(ir.tensor(array, name=name))
            algorithm.initializer.append(tensor)
    info.algorithm.CopyFrom(algorithm)
    for value in step_proto.graph.output:
        if value.name.startswith(NEXT):
            name = value.name.removeprefix(NEXT)
            _bind(info.update_binding, name, f"{PREFIX}{value.name}")
    _add_initialization(info, init, {n for n in state if n not in own})
    return model


def _prefix_names(graph: onnx.GraphProto, kept: Iterable[str]) -> onnx.GraphProto:
    """A copy in which every name but `kept` and the inputs' begins with ``training/``."""
    copy = onnx.GraphProto()
    copy.CopyFrom(graph)
    names = {*kept, *(v.name for v in copy.input), ""}

    def new(name: str) -> str:
        return name if name in names else PREFIX + name

    _rename(copy, new)
    copy.name = f"{PREFIX}{graph.name}"
    return copy


def _rename(graph: onnx.GraphProto, new: Callable[[str], str]) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = new(value.name)
    for node in graph.node:
        node.name = PREFIX + node.name
        node.input[:] = [new(n) for n in node.input]
        node.output[:] = [new(n) for n in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g, new)


def _add_initialization(
    info: onnx.TrainingInfoProto, init: ir.Model, wanted: Iterable[str]
) -> None:
    """Add the nodes that compute the first values of state outside the inference graph."""
    chosen = set(wanted)
    graph: onnx.GraphProto = ir.to_proto(init).graph
    outputs = [v for v in graph.output if v.name in chosen]
    if not outputs:
        return
    needed, nodes = {v.name for v in outputs}, []
    for node in reversed(graph.node):
        if any(o in needed for o in node.output):
            nodes.append(node)
            needed.update(node.input)
    part = onnx.GraphProto(name="initialization")
    part.node.extend(reversed(nodes))
    part.output.extend(outputs)
    part.initializer.extend(t for t in graph.initializer if t.name in needed)
    first = {v.name: f"first/{PREFIX}{v.name}" for v in outputs}
    _rename(part, lambda name: first.get(name, name and PREFIX + name))
    part.name = f"{PREFIX}initialization"
    for name, value in first.items():
        _bind(info.initialization_binding, name, value)
    info.initialization.CopyFrom(part)


def _bind(bindings: Any, key: str, value: str) -> None:
    entry = bindings.add()
    entry.key, entry.value = key, value


def read_training_info(model: Any) -> Algorithm:
    """The training step in a file (a path or an `onnx.ModelProto`) that has one.

    It is the inference graph and the algorithm taken together, as the standard says. Raises
    BundleError for a file without one.
    """
    proto = model if isinstance(model, onnx.ModelProto) else open_model(model).proto
    infos = [i for i in proto.training_info if i.HasField("algorithm")]
    if not infos:
        raise BundleError(
            "the model holds no training algorithm", hint="make it trainable: make_trainable(…)"
        )
    if len(infos) > 1:
        raise BundleError(
            f"the model holds {len(infos)} training algorithms", hint="give a model with one"
        )
    algorithm, joined = infos[0].algorithm, onnx.ModelProto()
    joined.CopyFrom(proto)
    del joined.training_info[:]
    graph = joined.graph
    for field in ("node", "input", "initializer", "value_info", "sparse_initializer"):
        getattr(graph, field).extend(getattr(algorithm, field))
    del graph.output[:]
    graph.output.extend(algorithm.output)
    updates = {b.key: b.value for b in infos[0].update_binding}
    _check_updates(graph, updates)
    return Algorithm(joined, updates)


def drop_training_info(model: Any) -> Any:
    """The inference model of such a file, as a path or an `onnx.ModelProto` again."""
    if not isinstance(model, onnx.ModelProto):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.training_info[:]
    return copy


def _check_updates(graph: onnx.GraphProto, updates: Mapping[str, str]) -> None:
    known = {t.name for t in graph.initializer}
    outputs = {v.name for v in graph.output}
    for name, output in updates.items():
        if name not in known:
            raise BundleError(f"update_binding: {name} is no initializer of the model")
        if output not in outputs:
            raise BundleError(f"update_binding: {output} is no output of the algorithm")
    if not updates:
        raise BundleError("the training algorithm updates nothing: update_binding is empty")
