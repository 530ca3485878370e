"""Models brought to another opset, node by node, so that they compute what they did before.

onnx's own converter loses what some operators meant: the places that Upsample and Resize of opsets
7 to 10 read, the rows of a Hardmax, BatchNormalization of every element.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.defs import OpSchema, SchemaError, get_all_schemas_with_history, get_schema

from flow2onnx.errors import UnsupportedError

__all__ = ["OLDEST_CONVERTED", "UPGRADES", "convert_graph", "convert_nodes", "reads_alike"]

OLDEST_CONVERTED = 7  # the first opset of today's broadcasting, and the runtime's oldest
_STANDARD = ("", "ai.onnx")

# nodes in the place of one, as the version before is written in this one
Upgrade = Callable[["_Place", onnx.NodeProto], Sequence[onnx.NodeProto]]


class _Place:
    """The surroundings of a node: what is known of its values, and names that are free."""

    def __init__(self, graph: "_Scope") -> None:
        self.scope = graph
        self.nodes: list[onnx.NodeProto] = []  # before the node, which it reads

    def constant(self, content: Any) -> str:
        """A new constant."""
        tensor = numpy_helper.from_array(np.asarray(content))
        return self.emit("Constant", value=tensor)

    def emit(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """The output of a new node."""
        name = self.scope.unique(f"{op_type}_upgraded")
        self.nodes.append(helper.make_node(op_type, inputs, [name], name, **attributes))
        return name

    def attribute_as_input(self, node: onnx.NodeProto, name: str) -> str:
        """An attribute, which the node loses, as a constant; empty text where it is not there."""
        given = take_attribute(node, name)
        if given is None:
            return ""
        if given.ref_attr_name:  # of a function around the node
            constant = onnx.NodeProto(op_type="Constant", output=[self.scope.unique(name)])
            form = {"INT": "value_int", "INTS": "value_ints", "FLOAT": "value_float"}
            kind = onnx.AttributeProto.AttributeType.Name(given.type)
            constant.attribute.add(
                name=form.get(kind, "value_floats"), type=given.type,
                ref_attr_name=given.ref_attr_name,
            )  # fmt: skip
            self.nodes.append(constant)
            return str(constant.output[0])
        content = np.asarray(helper.get_attribute_value(given))
        if content.dtype.kind == "i":
            return self.constant(content.astype(np.int64))
        return self.constant(content.astype(self.scope.element_type(node.input[0])))


class _Scope:
    """A graph with those around it: types and small constants by name, and the names taken."""

    def __init__(
        self,
        graph: onnx.GraphProto,
        taken: set[str],
        outer: "_Scope | None" = None,
    ) -> None:
        self.types: dict[str, onnx.TypeProto] = dict(outer.types) if outer else {}
        self.contents: dict[str, onnx.TensorProto] = dict(outer.contents) if outer else {}
        self.taken = taken
        for value in (*graph.input, *graph.output, *graph.value_info):
            self.types[value.name] = value.type
        for tensor in graph.initializer:
            self.contents[tensor.name] = tensor
            self.types[tensor.name] = helper.make_tensor_type_proto(
                tensor.data_type, list(tensor.dims)
            )
        for node in graph.node:
            if node.op_type == "Constant" and node.domain in _STANDARD:
                found = next((a.t for a in node.attribute if a.name == "value"), None)
                if found is not None:
                    self.contents[node.output[0]] = found

    def unique(self, stem: str) -> str:
        """A name that nothing has."""
        name, count = stem, 0
        while name in self.taken:
            count += 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return name

    def rank(self, name: str) -> int | None:
        """The number of a value's axes, if known."""
        kind = self.types.get(name)
        known = kind is not None and kind.tensor_type.HasField("shape")
        return len(kind.tensor_type.shape.dim) if kind is not None and known else None

    def element_type(self, name: str) -> np.dtype[Any]:
        """numpy's element type of a value; that of single precision where it is not known."""
        kind = self.types.get(name)
        code = kind.tensor_type.elem_type if kind is not None else 0
        return helper.tensor_dtype_to_np_dtype(code or onnx.TensorProto.FLOAT)

    def content(self, name: str) -> np.ndarray[Any, Any] | None:
        """The numbers of a constant."""
        tensor = self.contents.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)


def convert_graph(graph: onnx.GraphProto, have: int, want: int) -> None:
    """Bring a graph and those inside its nodes to another opset.

    Types are taken from the graph's value_info. Raises UnsupportedError for a node that the
    other opset cannot say.
    """
    _convert(graph, have, want, _Scope(graph, set(_all_names(graph))))


def convert_nodes(nodes: Sequence[onnx.NodeProto], have: int, want: int) -> list[onnx.NodeProto]:
    """The nodes of a function's body at another opset."""
    graph = onnx.GraphProto(node=nodes)
    convert_graph(graph, have, want)
    return list(graph.node)


def _convert(graph: onnx.GraphProto, have: int, want: int, scope: _Scope) -> None:
    made: list[onnx.NodeProto] = []
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    _convert(inner, have, want, _Scope(inner, scope.taken, scope))
        if node.domain not in _STANDARD:
            made.append(node)
        elif want > have:
            made += _upgrade(node, have, want, scope)
        else:
            made.append(_downgrade(node, have, want))
    del graph.node[:]
    graph.node.extend(made)


def _all_names(graph: onnx.GraphProto) -> Iterable[str]:
    for value in (*graph.input, *graph.output, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from (*node.input, *node.output)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _all_names(inner)


@cache
def _versions() -> Mapping[str, Sequence[int]]:
    """The opsets that define each operator of the standard anew."""
    found: dict[str, list[int]] = {}
    for known in get_all_schemas_with_history():
        if known.domain in _STANDARD:
            found.setdefault(known.name, []).append(known.since_version)
    return {name: sorted(versions) for name, versions in found.items()}


def _schema(op_type: str, opset: int) -> OpSchema:
    try:
        return get_schema(op_type, opset, "")
    except SchemaError:
        raise UnsupportedError(f"ONNX has no operator {op_type} at opset {opset}") from None


def _upgrade(node: onnx.NodeProto, have: int, want: int, scope: _Scope) -> Sequence[onnx.NodeProto]:
    """A node of opset `have` as it is at `want`: one version of its operator after the other."""
    later = (v for v in _versions().get(node.op_type, ()) if have < v <= want)
    version = next(iter(later), None)
    old = _schema(node.op_type, have)
    if version is None:
        return [node]
    change = UPGRADES.get((node.op_type, version))
    if change is None:
        new = _schema(node.op_type, version)
        if not reads_alike(old, new, node):
            raise _not_said(node, have, want)
        return _upgrade(node, version, want, scope)
    place = _Place(scope)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    made = [*change(place, copy)]
    return [n for part in (*place.nodes, *made) for n in _upgrade(part, version, want, scope)]


def _downgrade(node: onnx.NodeProto, have: int, want: int) -> onnx.NodeProto:
    """A node of opset `have` at an older one, where its operator was the same or had less."""
    crossed = [v for v in _versions().get(node.op_type, ()) if want < v <= have]
    if not crossed:
        return node
    old, new = _schema(node.op_type, want), _schema(node.op_type, have)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for attribute in list(copy.attribute):
        known = new.attributes.get(attribute.name)
        if known is None or attribute.name in old.attributes:
            continue
        if _same_content(attribute, known.default_value):
            copy.attribute.remove(attribute)
    if any((node.op_type, v) in UPGRADES for v in crossed) or not reads_alike(new, old, copy):
        raise _not_said(node, have, want)
    return copy


def _same_content(one: onnx.AttributeProto, other: onnx.AttributeProto) -> bool:
    return bool(
        not one.ref_attr_name
        and one.type == other.type
        and helper.get_attribute_value(one) == helper.get_attribute_value(other)
    )


def reads_alike(old: OpSchema, new: OpSchema, node: onnx.NodeProto) -> bool:
    """True if a node written for one definition of its operator is valid for another.

    Attributes that only the newer one has are taken to stand for what there was when they are left
    out: `UPGRADES` has the others.
    """
    given = {a.name for a in node.attribute}
    is_older = new.since_version < old.since_version
    same_defaults = all(
        is_older
        if name not in new.attributes
        else new.attributes[name].default_value.SerializeToString()
        == a.default_value.SerializeToString()
        for name, a in old.attributes.items()
        if name not in given and a.default_value.name
    )
    return (
        not new.deprecated
        and given <= set(new.attributes)
        and same_defaults
        and not any(a.required and n not in given for n, a in new.attributes.items())
        and new.min_input <= len(node.input) <= new.max_input
        and new.min_output <= len(node.output) <= new.max_output
    )


def _not_said(node: onnx.NodeProto, have: int, want: int) -> UnsupportedError:
    return UnsupportedError(
        f"{node.op_type} of opset {have} cannot be said in opset {want}",
        op=node.name or None,
        hint=f"export the model with opset {want}" if want > have else f"ask for opset {have}",
    )


def take_attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    """An attribute, taken from the node; None if it has none of the name."""
    found = next((a for a in node.attribute if a.name == name), None)
    if found is None:
        return None
    copy = onnx.AttributeProto()
    copy.CopyFrom(found)
    node.attribute.remove(found)
    return copy


def _value(node: onnx.NodeProto, name: str, default: Any) -> Any:  # what attributes hold
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


def _set(node: onnx.NodeProto, **attributes: Any) -> None:
    for name, content in attributes.items():
        take_attribute(node, name)
        node.attribute.append(helper.make_attribute(name, content))


def _to_inputs(*names: str) -> Upgrade:
    """Attributes that became the inputs after the first."""

    def upgrade(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        inputs = [place.attribute_as_input(node, name) for name in names]
        while inputs and not inputs[-1]:
            inputs.pop()
        node.input.extend(inputs)
        return [node]

    return upgrade


def _top_k(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    count = place.attribute_as_input(node, "k")
    node.input.append(place.emit("Reshape", count, place.constant(np.array([1]))))
    return [node]


def _split(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    if len(node.input) < 2 or not node.input[1]:
        _set(node, num_outputs=len(node.output))
    return [node]


def _by_rows(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Softmax and its kin, which took everything from an axis on for one row."""
    axis, rank = _value(node, "axis", 1), place.scope.rank(node.input[0])
    if axis == -1 or (rank is not None and axis % max(rank, 1) == rank - 1):
        _set(node, axis=-1)
        return [node]
    shape = place.emit("Shape", node.input[0])
    flat = place.emit("Flatten", node.input[0], axis=axis)
    rows = place.emit(node.op_type, flat, axis=-1)
    return [helper.make_node("Reshape", [rows, shape], node.output, node.name)]


def _batch_normalization_9(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """One mean for each channel; of every element where `spatial` is 0."""
    spatial = take_attribute(node, "spatial")
    if spatial is None or spatial.i:
        return [node]
    if len(node.output) > 1:
        raise UnsupportedError("BatchNormalization of spatial=0 in training form")
    x, scale, offset, mean, variance = node.input
    epsilon = np.asarray(_value(node, "epsilon", 1e-5), place.scope.element_type(x))
    root = place.emit("Sqrt", place.emit("Add", variance, place.constant(epsilon)))
    normal = place.emit("Div", place.emit("Sub", x, mean), root)
    scaled = place.emit("Mul", normal, scale)
    return [helper.make_node("Add", [scaled, offset], node.output, node.name)]


def _batch_normalization_14(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """In training form, which outputs said before an attribute did."""
    if any(node.output[3:]):
        raise UnsupportedError(
            f"BatchNormalization {node.name}: saved_mean and saved_var are not of opset 14",
            hint="export the model with opset 14 or later",
        )
    del node.output[3:]
    while len(node.output) > 1 and not node.output[-1]:
        del node.output[-1]
    if len(node.output) > 1:
        _set(node, training_mode=1)
    return [node]


def _upsample(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Upsample reads the places that a Resize called asymmetric does, rounded down."""
    x, scales = node.input
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    mode = _value(node, "mode", "nearest")
    return [helper.make_node("Resize", [x, "", scales], node.output, node.name, mode=mode, **how)]


def _resize_11(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Resize of opset 10: the places are rounded down along axes that grow, up along others."""
    if len(node.input) == 3:  # it was an Upsample
        return [node]
    x, scales = node.input
    known = place.scope.content(scales)
    how = {
        "mode": _value(node, "mode", "nearest"),
        "coordinate_transformation_mode": "asymmetric",
    }
    if known is None or ((known > 1).any() and (known < 1).any()):
        one = place.constant(np.float32(1))
        grown = place.emit("Resize", x, "", place.emit("Max", scales, one), nearest_mode="floor",
                           **how)  # fmt: skip
        x, scales, rounding = grown, place.emit("Min", scales, one), "ceil"
    else:
        rounding = "ceil" if (known < 1).any() else "floor"
    return [
        helper.make_node(
            "Resize", [x, "", scales], node.output, node.name, nearest_mode=rounding, **how
        )
    ]


def _resize_13(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """A mode that was left out: floor((i + 0.5) / scale) is half_pixel's place, rounded."""
    if _value(node, "coordinate_transformation_mode", b"") != b"tf_half_pixel_for_nn":
        return [node]
    if (
        _value(node, "mode", b"nearest") != b"nearest"
        or _value(node, "nearest_mode", b"") != b"floor"
    ):
        raise UnsupportedError(
            f"Resize {node.name}: tf_half_pixel_for_nn without mode nearest and nearest_mode floor",
            hint="export the model with opset 13 or later",
        )
    _set(node, coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil")
    return [node]


def _roi_align(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    _set(node, coordinate_transformation_mode="output_half_pixel")
    return [node]


def _scatter(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    node.op_type = "ScatterElements"
    return [node]


def _scan(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    raise UnsupportedError(
        f"Scan {node.name} of opset 8 goes over batches", hint="export with opset 9 or later"
    )


def _grid_sample(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    mode = _value(node, "mode", b"bilinear")
    _set(node, mode={b"bilinear": b"linear", b"bicubic": b"cubic"}.get(mode, mode))
    return [node]


def _dft(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    axis = place.attribute_as_input(node, "axis") or place.constant(np.int64(1))
    node.input.extend([""] * (2 - len(node.input)))
    node.input.append(axis)
    return [node]


def _group_normalization(place: _Place, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """A scale and an offset of each group, as often as it has channels."""
    groups = place.constant(np.array([_value(node, "num_groups", 1)]))
    channels = place.emit("Shape", node.input[0], start=1, end=2)
    one = place.constant(np.array([1]))
    spread = place.emit("Concat", one, place.emit("Div", channels, groups), axis=0)
    for i in (1, 2):
        column = place.emit("Unsqueeze", node.input[i], one)
        rows = place.emit("Expand", column, spread)
        node.input[i] = place.emit("Reshape", rows, place.constant(np.array([-1])))
    return [node]


_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSumSquare",
)  # fmt: skip

# By operator and the opset that changed it in more than the types that it takes.
UPGRADES: Mapping[tuple[str, int], Upgrade] = {
    ("BatchNormalization", 9): _batch_normalization_9,
    ("BatchNormalization", 14): _batch_normalization_14,
    ("Clip", 11): _to_inputs("min", "max"),
    ("DFT", 20): _dft,
    ("Dropout", 12): _to_inputs("ratio"),
    ("GridSample", 20): _grid_sample,
    ("GroupNormalization", 21): _group_normalization,
    ("Hardmax", 13): _by_rows,
    ("LogSoftmax", 13): _by_rows,
    ("Pad", 11): _to_inputs("pads", "value"),
    ("ReduceSum", 13): _to_inputs("axes"),
    ("Resize", 11): _resize_11,
    ("Resize", 13): _resize_13,
    ("RoiAlign", 16): _roi_align,
    ("Scan", 9): _scan,
    ("Scatter", 11): _scatter,
    ("Slice", 10): _to_inputs("starts", "ends", "axes"),
    ("Softmax", 13): _by_rows,
    ("Split", 13): _to_inputs("split"),
    ("Split", 18): _split,
    ("Squeeze", 13): _to_inputs("axes"),
    ("TopK", 10): _top_k,
    ("Unsqueeze", 13): _to_inputs("axes"),
    ("Upsample", 9): _to_inputs("scales"),
    ("Upsample", 10): _upsample,
    **{(name, 18): _to_inputs("axes") for name in _REDUCTIONS},
}
