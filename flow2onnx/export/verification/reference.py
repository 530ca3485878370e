"""Trial: one model made ready to run on a runtime and on the ONNX reference evaluator alike."""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.synthetic import random_array
from onnx.helper import make_node, make_tensor_value_info
from onnx.reference import ReferenceEvaluator

from flow2onnx.compile.names import next_name
from flow2onnx.errors import BundleError
from flow2onnx.export.verification.index_ranges import index_ranges
from flow2onnx.export.verification.reference_costs import reference_seconds
from flow2onnx.export.verification.reference_fixes import FIXES
from flow2onnx.export.verification.value_types import Shape, constants_of, value_types
from flow2onnx.graph.size_text import names_in, value_at
from flow2onnx.onnx_io.read import ModelFile, all_nodes

__all__ = ["IncomparableError", "Trial", "check_bytes"]

# What free sizes are in a trial: no size that broadcasts, and axes inside long enough for windows.
_BATCH_SIZE, _INNER_SIZE = 3, 8
_MOST_BYTES = 1 << 31  # what the values of a trial may take, and what a protobuf message can
# A small file that asks for much more than it holds is not run unless the user asks for it.
_LEAST_BYTES, _TIMES_LARGER = 1 << 28, 64
_MOST_BYTES_EVER = 1 << 36  # where the user asks for everything
_MOST_PARTS = 1 << 16  # of a sequence: each is a tensor of its own
_SLOWER = 6.0  # how much slower than estimated the reference may be before it is stopped


class IncomparableError(Exception):
    """Why a model is not compared; its text completes ``not compared: …``."""


def check_bytes(total: int, *, is_full: bool = False) -> None:
    """Raise for more than one should take of a machine; a damaged file may ask for any size."""
    if total > (_MOST_BYTES_EVER if is_full else _MOST_BYTES):
        raise IncomparableError(
            f"its values take {total / 2**30:.1f} GB: a smaller batch could be compared"
        )


class _ReferenceFailureError(Exception):
    """An operator that the reference evaluator raised an error for; its text names it."""


class Trial:
    """Arrays for every input of a model, and the model on the reference evaluator.

    Free sizes are fixed, and random nodes are replaced by inputs so that both engines get the same
    draw (`random` names them). `given` are values for inputs, the others are random: whole numbers
    within the range that the graph indexes with them. `slow` are the operators of the nodes that
    are left out so that the reference takes no longer than about `budget` seconds (None: however
    long), `failed` those that it cannot compute.
    """

    def __init__(
        self,
        stored: ModelFile,
        given: Mapping[str, Array],
        seed: int,
        budget: float | None,
    ) -> None:
        self._stored, self._rng, self._budget = stored, np.random.default_rng(seed), budget
        self._model = _load(stored)
        self._fix_inputs({name: array.shape for name, array in given.items()})
        self.random: list[str] = []
        self._draws: dict[str, Callable[[], Array]] = {}
        self._types = value_types(self._model.graph, stored.opset)
        self._replace_random_nodes()
        self._types = value_types(self._model.graph, stored.opset)
        self._constants = constants_of(self._model.graph)
        self._check_size()
        self._left_out = self._slow_nodes()
        self.slow = [n.op_type for n in self._left_out]
        self.failed: list[str] = []
        self.feeds = self._make_feeds(given)

    @property
    def is_changed(self) -> bool:
        """True if the runtime must run `content` in place of the file."""
        return bool(self.random)

    @property
    def value_count(self) -> int:
        """How many values nodes compute."""
        return sum(bool(name) for node in self._model.graph.node for name in node.output)

    @property
    def dtypes(self) -> set[str]:
        """The element types of all values, by numpy's names."""
        return {_numpy(code).name for _, code in self._types.values()}

    def content(self, with_values: bool = False) -> bytes:
        """The model to run; every value is an output if asked for."""
        model = onnx.ModelProto.FromString(self._model.SerializeToString())
        if with_values:
            known = {v.name for v in model.graph.output}
            values = [o for n in model.graph.node for o in n.output if o and o not in known]
            model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in values)
            del model.graph.value_info[:]
        content: bytes = model.SerializeToString()
        return content

    def whole(self) -> dict[str, Array] | None:
        """The outputs by name, computed by the reference from the inputs on.

        None where a node is left out, fails or is not reached in time: then only `by_node` tells.
        """
        if self._left_out:
            return None
        values: dict[str, Any] = {**self._constants, **self.feeds}
        readers = _last_readers(self._model.graph)
        try:
            for position, node in self._nodes():
                values.update(self._evaluate(node, values))
                for name in readers.get(position, ()):
                    values.pop(name, None)
        except _ReferenceFailureError:
            return None
        names = [v.name for v in self._model.graph.output]
        is_complete = all(name in values for name in names)
        return {name: np.asarray(values[name]) for name in names} if is_complete else None

    def by_node(self, values: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        """The outputs of one node after the other, each computed from the runtime's `values`.

        So neither a difference nor an equality that rests on rounding is carried on.
        """
        known = {**self._constants, **self.feeds, **values}
        left_out = {n.output[0] for n in self._left_out}
        for _, node in self._nodes():
            if node.output[0] in left_out or node.op_type in self.failed:
                continue
            try:
                yield {n: np.asarray(v) for n, v in self._evaluate(node, known).items()}
            except _ReferenceFailureError:
                self.failed.append(node.op_type)

    def _nodes(self) -> Iterator[tuple[int, onnx.NodeProto]]:
        """The nodes with their positions, until the time is over."""
        limit = math.inf if self._budget is None else time.monotonic() + _SLOWER * self._budget
        for position, node in enumerate(self._model.graph.node):
            if time.monotonic() > limit:
                return
            yield position, node

    def _evaluate(self, node: onnx.NodeProto, values: Mapping[str, Any]) -> dict[str, Any]:
        graph = onnx.GraphProto(name="node", node=[node])
        inputs = {name: values[name] for name in node.input if name}
        graph.input.extend(onnx.ValueInfoProto(name=n) for n in inputs)
        graph.output.extend(onnx.ValueInfoProto(name=n) for n in node.output if n)
        opsets = {"": self._stored.opset}
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                evaluator = ReferenceEvaluator(graph, opsets=opsets, new_ops=FIXES)
                outputs = evaluator.run(None, inputs)
            except Exception as error:  # whatever its implementations in Python raise
                raise _ReferenceFailureError(node.op_type) from error
        return dict(zip((n for n in node.output if n), outputs, strict=True))

    def _fix_inputs(self, given: Mapping[str, Shape]) -> None:
        """Give every input a shape of numbers, and let the others follow by inference."""
        graph = self._model.graph
        sizes = _free_sizes(graph)
        for value in _inputs(graph):
            assert value.type.tensor_type.HasField("shape"), "the checker asks for it"
            dims = value.type.tensor_type.shape.dim
            shape = given.get(value.name)
            for axis, dim in enumerate(dims):
                if dim.dim_param and shape is not None and len(shape) == len(dims):
                    sizes[dim.dim_param] = shape[axis]
                if not dim.HasField("dim_value"):
                    known = value_at(dim.dim_param, sizes) if dim.dim_param else None
                    dim.dim_value = _BATCH_SIZE if known is None else max(known, 0)
        for output in graph.output:
            output.type.tensor_type.ClearField("shape")
        del graph.value_info[:]

    def _replace_random_nodes(self) -> None:
        graph = self._model.graph
        constants = constants_of(graph)
        nodes = list(graph.node)
        del graph.node[:]
        for node in nodes:
            replaced = self._replace_random(node, constants) if node.output else None
            graph.node.extend([node] if replaced is None else replaced)

    def _replace_random(
        self, node: onnx.NodeProto, constants: Mapping[str, Array]
    ) -> list[onnx.NodeProto] | None:
        if node.op_type == "Dropout":
            return self._replace_dropout(node, constants)
        if node.op_type not in _DRAWS:
            return None
        shape, code = self._type(node.output[0])
        dtype, draw = _numpy(code), _DRAWS[node.op_type]
        name = self._new_input(
            node, shape, code, lambda: draw(self._rng, shape, node).astype(dtype)
        )
        return [make_node("Identity", [name], node.output[:1])]

    def _replace_dropout(
        self, node: onnx.NodeProto, constants: Mapping[str, Array]
    ) -> list[onnx.NodeProto] | None:
        """The product with a mask that is an input; None for a dropout that drops nothing."""
        mode = constants.get(node.input[2]) if len(node.input) > 2 else np.array(False)
        if mode is not None and not mode.any():
            return None
        rate = constants.get(node.input[1]) if node.input[1] else None
        kept = 1.0 - float(0.5 if rate is None else rate.ravel()[0])
        shape, code = self._type(node.output[0])
        dtype = _numpy(code)

        def draw() -> Array:
            scaled: Array = ((self._rng.random(shape) < kept) / max(kept, 1e-9)).astype(dtype)
            return scaled

        name = self._new_input(node, shape, code, draw)
        product = [make_node("Mul", [node.input[0], name], node.output[:1])]
        masks = [make_node("Cast", [name], [m], to=onnx.TensorProto.BOOL) for m in node.output[1:]]
        return product + [m for m in masks if m.output[0]]

    def _new_input(
        self, node: onnx.NodeProto, shape: Shape, code: int, draw: Callable[[], Array]
    ) -> str:
        name = f"draw/{node.output[0]}"
        self._model.graph.input.append(make_tensor_value_info(name, code, shape))
        self._draws[name] = draw
        self.random.append(node.op_type)
        return name

    def _type(self, name: str) -> tuple[Shape, int]:
        if name not in self._types:
            raise IncomparableError(f"the shape of {name} is known only at run time")
        return self._types[name]

    def _check_size(self) -> None:
        total = sum(math.prod(s) * _numpy(code).itemsize for s, code in self._types.values())
        is_full = self._budget is None
        size = self._stored.path.stat().st_size + sum(
            filter(None, self._stored.summary()["external"].values())
        )
        if not is_full and total > max(_LEAST_BYTES, _TIMES_LARGER * size):
            raise IncomparableError(
                f"its values take {total / 2**30:.1f} GB, {total // size} times as much as the file"
            )
        check_bytes(total, is_full=is_full)
        for node in self._model.graph.node:
            if node.op_type == "SplitToSequence":
                self._check_parts(node)

    def _check_parts(self, node: onnx.NodeProto) -> None:
        """Raise for a sequence of more tensors than one should make of a tensor."""
        shape, sizes = self._type(node.input[0])[0], (node.input[1:] or [""])[0]
        axis = int(_attribute(node, "axis", 0))
        if not -len(shape) <= axis < len(shape):
            return  # refused by the runtime
        known = self._types.get(sizes, ((), 0))[0]
        parts = known[0] if known else shape[axis]  # a scalar may be as small as 1
        if parts > _MOST_PARTS:
            raise IncomparableError(f"{node.output[0]} is a sequence of up to {parts} tensors")

    def _slow_nodes(self) -> list[onnx.NodeProto]:
        """The nodes to leave out, slowest first, for the rest to be within the budget."""
        shapes = {name: shape for name, (shape, _) in self._types.items()}
        nodes = self._model.graph.node
        costs = sorted(
            ((reference_seconds(n, shapes), i) for i, n in enumerate(nodes)), reverse=True
        )
        total, chosen = sum(cost for cost, _ in costs), []
        for cost, position in costs:
            if self._budget is None or total <= self._budget:
                break
            total -= cost
            chosen.append(nodes[position])
        return chosen

    def _make_feeds(self, given: Mapping[str, Array]) -> dict[str, Array]:
        shapes = {n: s for n, (s, _) in self._types.items()}
        ranges = index_ranges(self._model.graph, shapes, self._constants)
        return {
            v.name: self._make_feed(v.name, given, ranges.get(v.name, (0, 2)))
            for v in _inputs(self._model.graph)
        }

    def _make_feed(self, name: str, given: Mapping[str, Array], within: tuple[int, int]) -> Array:
        shape, code = self._type(name)
        if name in self._draws:
            return self._draws[name]()
        if name in given:
            return given[name]
        # State as large as weights usually are: larger ones overflow after a few layers.
        is_state = any(v.name == next_name(name) for v in self._model.graph.output)
        scale = 1.0 / math.sqrt(max(math.prod(shape[1:]), 1)) if is_state else 1.0
        low, high = within[0], max(within[1], within[0] + 1)
        return random_array(
            self._rng, shape, _numpy(code), integers=(low, high), reals=(-scale, scale)
        )


def _load(stored: ModelFile) -> onnx.ModelProto:
    """A copy with all tensors inside and every graph small enough to be taken apart."""
    if stored.proto.functions or any(n.domain for n in all_nodes(stored.proto.graph)):
        raise IncomparableError("it has operators beyond the standard")
    if any(a.HasField("g") or a.graphs for n in stored.proto.graph.node for a in n.attribute):
        raise IncomparableError("it has control flow")
    if sum(filter(None, stored.summary()["external"].values())) > _MOST_BYTES:
        raise IncomparableError("its weights take more than 2 GB")
    model: onnx.ModelProto = onnx.ModelProto.FromString(stored.proto.SerializeToString())
    try:
        onnx.load_external_data_for_model(model, str(stored.path.parent))
    except Exception as error:  # of many classes with no common base
        raise BundleError(
            f"{stored.path}: its weights cannot be read: {error}",
            hint="keep the files of an export together",
        ) from error
    return model


def _free_sizes(graph: onnx.GraphProto) -> dict[str, int]:
    """The size of every name among the inputs' axes: of those that come first and of the others."""
    found: dict[str, int] = {}
    for is_first, size in ((True, _BATCH_SIZE), (False, _INNER_SIZE)):
        for value in _inputs(graph):
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                if dim.dim_param and (axis == 0) == is_first:
                    for name in names_in(dim.dim_param):
                        found.setdefault(name, size)
    return found


def _inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    inside = {t.name for t in graph.initializer}
    return [v for v in graph.input if v.name not in inside]


def _last_readers(graph: onnx.GraphProto) -> dict[int, list[str]]:
    """The values that can be forgotten after each node, by its position."""
    last = {name: i for i, node in enumerate(graph.node) for name in node.input if name}
    for value in graph.output:
        last.pop(value.name, None)
    positions: dict[int, list[str]] = {}
    for name, position in last.items():
        positions.setdefault(position, []).append(name)
    return positions


def _numpy(code: int) -> "np.dtype[Any]":
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code))
    except (KeyError, TypeError):
        raise IncomparableError(f"element type {code} has no counterpart in numpy") from None


def _attribute(node: onnx.NodeProto, name: str, default: float) -> float:
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else float(onnx.helper.get_attribute_value(found))


def _normal(rng: np.random.Generator, shape: Shape, node: onnx.NodeProto) -> Array:
    mean, scale = _attribute(node, "mean", 0.0), _attribute(node, "scale", 1.0)
    return np.asarray(rng.normal(mean, abs(scale), shape))


def _uniform(rng: np.random.Generator, shape: Shape, node: onnx.NodeProto) -> Array:
    low, high = _attribute(node, "low", 0.0), _attribute(node, "high", 1.0)
    return np.asarray(rng.random(shape) * (high - low) + low)


def _bits(rng: np.random.Generator, shape: Shape, node: onnx.NodeProto) -> Array:
    return np.asarray(rng.integers(0, 2, shape))


_DRAWS: dict[str, Callable[[np.random.Generator, Shape, onnx.NodeProto], Array]] = {
    "RandomNormal": _normal,
    "RandomNormalLike": _normal,
    "RandomUniform": _uniform,
    "RandomUniformLike": _uniform,
    "Bernoulli": _bits,
    "Multinomial": _bits,
}
