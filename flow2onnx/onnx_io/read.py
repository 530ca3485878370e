"""Model files, read with distrust, and what they hold."""

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from flow2onnx_runtime.model_check import check_model
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]  # has no types
from onnx.defs import SchemaError, get_schema

from flow2onnx.errors import BundleError
from flow2onnx.graph.schemas import element_name

__all__ = ["ModelFile", "all_nodes", "open_model", "parameter_totals", "typed_model",
           "typed_proto"]  # fmt: skip

_LARGEST = 2**31 - 1  # a protobuf message
_STANDARD = ("", "ai.onnx")


@dataclass(frozen=True)
class ModelFile:
    """The content of an .onnx file; tensors that lie in other files are not read."""

    path: Path
    proto: onnx.ModelProto

    @property
    def opset(self) -> int:
        """The opset of the standard domain; 0 where the model does not use it."""
        return max((o.version for o in self.proto.opset_import if o.domain in _STANDARD), default=0)

    def summary(self) -> dict[str, Any]:
        """The model in plain data: signature, operators, parameters, metadata."""
        proto, graph = self.proto, self.proto.graph
        weights = [t for t in graph.initializer if not t.name.startswith("const/")]
        inside = {t.name for t in graph.initializer}
        operators = Counter(_label(n) for n in all_nodes(graph))
        return {
            "kind": "model",
            "path": str(self.path),
            "bytes": self.path.stat().st_size,
            "external": {f: _size_of(self.path.parent / f) for f in self.external_files()},
            "ir_version": proto.ir_version,
            "opset": self.opset,
            "domains": {o.domain or "ai.onnx": o.version for o in proto.opset_import},
            "producer": f"{proto.producer_name} {proto.producer_version}".strip(),
            "graph": graph.name,
            "inputs": [_signature(v) for v in graph.input if v.name not in inside],
            "outputs": [_signature(v) for v in graph.output],
            "nodes": dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
            "node_count": operators.total(),
            "parameters": parameter_totals(
                (_dtype_name(t.data_type), math.prod(t.dims), _bytes_of(t)) for t in weights
            ),
            "metadata": {p.key: p.value for p in proto.metadata_props},
        }

    def operators(self) -> frozenset[str]:
        """The operators in use, those inside others included."""
        return frozenset(node.op_type for node in all_nodes(self.proto.graph))

    def foreign_operators(self) -> list[str]:
        """The operators that are not of the ONNX standard at the model's opset, sorted."""
        found = {_label(n) for n in all_nodes(self.proto.graph) if not self._is_standard(n)}
        return sorted(found | {f"{f.domain}::{f.name}" for f in self.proto.functions})

    def checker_complaint(self) -> str | None:
        """The complaint of the ONNX checker and its strict shape inference, if any."""
        try:
            onnx.checker.check_model(os.fspath(self.path), full_check=True)
        except Exception as error:  # of many classes with no common base
            return _first_line(error)
        return None

    def external_files(self) -> list[str]:
        """The files beside the model that hold tensors of it, sorted."""
        return sorted({_external(t, "location") for t in self._tensors() if _is_external(t)})

    def _is_standard(self, node: onnx.NodeProto) -> bool:
        try:
            return node.domain in _STANDARD and bool(get_schema(node.op_type, self.opset, ""))
        except (SchemaError, TypeError):  # TypeError: an opset that is no 32-bit number
            return False

    def _tensors(self) -> Iterator[onnx.TensorProto]:
        yield from self.proto.graph.initializer
        for node in all_nodes(self.proto.graph):
            for attribute in node.attribute:
                yield from (attribute.t, *attribute.tensors)


def open_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read an .onnx file; raises BundleError for one that is missing, cut off or something else."""
    path = Path(path)
    try:
        if path.stat().st_size > _LARGEST:
            raise _corrupt(path, "it has more than 2 GB, which no .onnx file can have")
        content = path.read_bytes()
        check_model(content, path=path)
        proto = onnx.ModelProto.FromString(content)
        foreign = not proto.opset_import or not proto.graph.output
    except BundleError:  # a ValueError too
        raise
    except OSError as error:
        raise BundleError(
            f"{path}: cannot be read: {error.strerror}", hint="give the path of an .onnx file"
        ) from error
    except (DecodeError, ValueError) as error:  # ValueError: no text, or no path
        raise _corrupt(path, _first_line(error)) from error
    if foreign:
        raise _corrupt(path, "it has no opset or no outputs")
    if not _is_text(proto):
        raise _corrupt(path, "a name in it is no text")
    return ModelFile(path, proto)


def typed_model(stored: ModelFile) -> ir.Model:
    """The model in the form the compiler works on, with every type that can be inferred.

    Its external tensors are not read.
    """
    try:
        model: ir.Model = ir.from_proto(onnx.shape_inference.infer_shapes(stored.proto))
    except Exception as error:  # of many classes with no common base
        raise _corrupt(stored.path, _first_line(error)) from error
    return model


def typed_proto(stored: ModelFile) -> onnx.ModelProto:
    """The model with the types that can be inferred, for those who look at it.

    Types that it has may contradict what inference finds; it is then returned as it is.
    """
    graph = stored.proto.graph
    typed = {v.name for v in (*graph.value_info, *graph.output)}
    if all(name in typed for node in graph.node for name in node.output if name):
        return stored.proto
    try:
        return onnx.shape_inference.infer_shapes(stored.proto, data_prop=True)
    except Exception:  # of many classes with no common base
        return stored.proto


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of the graphs inside its nodes."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from all_nodes(inner)


def parameter_totals(tensors: Iterable[tuple[str, int, int]]) -> dict[str, Any]:
    """Totals of (dtype, elements, bytes): in all, and by dtype."""
    kinds: dict[str, dict[str, int]] = {}
    for dtype, count, size in tensors:
        kind = kinds.setdefault(dtype, {"tensors": 0, "count": 0, "bytes": 0})
        kind["tensors"] += 1
        kind["count"] += count
        kind["bytes"] += size
    total = {key: sum(k[key] for k in kinds.values()) for key in ("tensors", "count", "bytes")}
    return {**total, "by_dtype": dict(sorted(kinds.items()))}


def _is_text(message: Message) -> bool:
    """True if all names are text; protobuf shows one that is no UTF-8 as bytes."""
    for field, content in message.ListFields():
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        parts = [content] if isinstance(content, str | bytes | Message) else content
        if field.type == field.TYPE_STRING and any(isinstance(p, bytes) for p in parts):
            return False
        if field.type == field.TYPE_MESSAGE and not all(_is_text(p) for p in parts):
            return False
    return True


def _corrupt(path: Path, reason: str) -> BundleError:
    return BundleError(
        f"{path}: is no ONNX model, or a damaged one: {reason}",
        hint="copy it again, or export it again",
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _label(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in _STANDARD else f"{node.domain}::{node.op_type}"


def _signature(value: onnx.ValueInfoProto) -> dict[str, Any]:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return {"name": value.name, "dtype": kind or "unknown", "shape": None}
    tensor = value.type.tensor_type
    shape = [_size(d) for d in tensor.shape.dim] if tensor.HasField("shape") else None
    return {"name": value.name, "dtype": _dtype_name(tensor.elem_type), "shape": shape}


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | str:
    return dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?"


def _dtype_name(code: int) -> str:
    """Our name of an element type, which but for two is the standard's."""
    if code not in onnx.TensorProto.DataType.values():
        return f"type {code}"
    return element_name(onnx.TensorProto.DataType.Name(code))


def _bytes_of(tensor: onnx.TensorProto) -> int:
    try:
        width = int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except (KeyError, TypeError):
        return 0
    return int(width * math.prod(tensor.dims))


def _is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def _external(tensor: onnx.TensorProto, key: str) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == key), "")


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (OSError, ValueError):  # ValueError: a name with a null character
        return None
