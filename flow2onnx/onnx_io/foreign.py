"""Models from anywhere, made into one form: nodes of the standard, and their tensors aside."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from flow2onnx_runtime.external_data import check_locations
from flow2onnx_runtime.model_check import check_model
from onnx import inliner, version_converter
from onnx.defs import onnx_opset_version

from flow2onnx.errors import ArgumentError, BundleError, FlowError, ShapeError, UnsupportedError
from flow2onnx.graph.contrib import shown_to_checker
from flow2onnx.onnx_io.bfloat16 import has_bfloat16, widen_bfloat16, widen_tensor
from flow2onnx.onnx_io.initializers import gather_initializers
from flow2onnx.onnx_io.linear_models import expand_linear_models
from flow2onnx.onnx_io.opset_conversion import OLDEST_CONVERTED, convert_graph, convert_nodes
from flow2onnx.onnx_io.read import open_model

__all__ = [
    "OLDEST",
    "USUAL",
    "ForeignModel",
    "Source",
    "foreign_model",
    "source_content",
    "tensor_content",
]

OLDEST = 18  # before it, reductions take their axes in another form
USUAL = 21
_STANDARD = ("", "ai.onnx")
# Tensors of up to so many elements stay in the nodes' sight: they may be shapes and axes.
_SMALL = 64
_FUSED = ("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")
_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_FOLDED = "pkg.onnxscript.optimizer.folded_from"
_PARAMETER = re.compile(r"\bPARAMETER target='([^']+)'")

Source = str | os.PathLike[str] | onnx.ModelProto | ir.Model


@dataclass(frozen=True, kw_only=True)
class ForeignModel:
    """A model as nodes of the standard domain at one opset, and its tensors by name.

    `kinds` says of a tensor what the exporter said it is (``PARAMETER`` or ``BUFFER``), where it
    did; `declared` are the parameters that it named, those that it computed away too, and `folded`
    what it computed tensors from. `unknown` are the outputs left out because something foreign
    computes them; `constants` stood in Constant nodes, and `fitted` are what a scaler was fitted
    with. A model that `was_bfloat16` is one in float32.
    """

    name: str
    graph: ir.Graph
    opset: int
    inputs: tuple[ir.Value, ...]
    tensors: Mapping[str, Any]  # ir.TensorProtocol
    kinds: Mapping[str, str]
    declared: frozenset[str]
    folded: Mapping[str, tuple[str, ...]]
    producer: str
    metadata: Mapping[str, str]
    unknown: Mapping[str, str]
    constants: frozenset[str] = frozenset()
    fitted: frozenset[str] = frozenset()
    was_bfloat16: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return tuple(str(v.name) for v in self.graph.outputs)


@dataclass(frozen=True)
class _Parts:
    """A model without its large tensors, and all of its tensors."""

    proto: onnx.ModelProto
    tensors: dict[str, Any]


def foreign_model(
    model: Source,
    outputs: Collection[str] | None = None,
    opset: int | None = None,
    allowed: Collection[str] = (),
    *,
    skips_foreign: bool = False,
    folder: str | None = None,
) -> ForeignModel:
    """Read a model: a path, `onnx.ModelProto` or `onnx_ir.Model`.

    Its own functions are expanded. With `outputs` only what they need is kept. Nodes of domains
    other than the standard and `allowed` raise UnsupportedError, or with `skips_foreign` their
    outputs are left out. The opset is the model's, but at least 18, or the one asked for. `folder`
    is where the tensors of a `ModelProto` lie that are in other files.
    """
    parts = _translate_errors(lambda: _separate_tensors(model, folder), "the model cannot be read")
    proto = _translate_errors(
        lambda: _align_functions(_leave_deprecated(parts.proto)), "the model is not valid"
    )
    proto = _inline_functions(_check_model(proto))
    if not proto.graph.output:
        raise BundleError("the model has no outputs", hint="export it again")
    _refuse_references(proto.graph.node)
    fitted = expand_linear_models(proto.graph)
    _prune(proto.graph, outputs)
    unknown = _drop_foreign(proto.graph, allowed) if skips_foreign else {}
    _refuse_foreign(proto, allowed)
    constants = gather_initializers(proto.graph)
    tensors = _collect_tensors(proto.graph, parts.tensors)
    is_wide = has_bfloat16(proto.graph, tensors)
    if is_wide:
        widen_bfloat16(proto.graph)
        tensors = {name: widen_tensor(tensor) for name, tensor in tensors.items()}
    proto = _infer_shapes(_convert_opset(proto, opset))
    graph, kinds = _as_ir(proto).graph, _tensor_kinds(parts.proto.graph)
    small = {str(v.name): v.const_value for v in graph.initializers.values()}
    large = {n: t for n, t in tensors.items() if n not in small}
    return ForeignModel(
        name=proto.graph.name,
        graph=graph,
        opset=_opset(proto),
        inputs=tuple(v for v in graph.inputs if v.name not in small and v.name not in large),
        tensors=large | {n: t for n, t in small.items() if t is not None},
        kinds=kinds,
        declared=_declared_parameters(parts.proto.graph, kinds),
        folded=_folded_tensors(parts.proto.graph),
        producer=parts.proto.producer_name,
        metadata={p.key: p.value for p in proto.metadata_props},
        unknown=unknown,
        constants=constants,
        fitted=fitted,
        was_bfloat16=is_wide,
    )


def _collect_tensors(graph: onnx.GraphProto, known: Mapping[str, Any]) -> dict[str, Any]:
    """All tensors, those too that became initializers of the graph since it was split."""
    found = dict(known)
    for tensor in list(graph.initializer):
        if tensor.name not in found:
            found[tensor.name] = _read_tensor(tensor, None)
            if _is_large(tensor):
                graph.initializer.remove(tensor)
    _declare_inputs(graph, found)
    return found


def source_content(model: Source) -> str | bytes:
    """A model as a runtime takes it: the path of its file, or the content of one."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    proto = ir.to_proto(model) if isinstance(model, ir.Model) else model
    content = _translate_errors(proto.SerializeToString, "the model cannot be written")
    return bytes(content)


def tensor_content(tensor: ir.TensorProtocol) -> np.ndarray[Any, Any]:
    """The content of a tensor; what lies in another file is mapped as long as the array is there.

    The tensor's own array would stay, and with it all that was ever read, as long as the model.
    """
    if isinstance(tensor, ir.ExternalTensor):
        tensor = ir.ExternalTensor(
            tensor.location,
            tensor.offset,
            tensor.length,
            tensor.dtype,
            shape=ir.Shape(tensor.shape),
            name=tensor.name,
            base_dir=tensor.base_dir,
        )
    content: np.ndarray[Any, Any] = tensor.numpy()
    return content


def _separate_tensors(model: Source, folder: str | None) -> _Parts:
    if isinstance(model, onnx.ModelProto):
        return _within_limits(_split_proto(model, folder))
    if isinstance(model, ir.Model):
        return _within_limits(_split_ir(model))
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        return _split_proto(open_model(path).proto, str(path.parent))
    raise ArgumentError(
        f"{type(model).__name__} is no model",
        hint="give the path of an .onnx file, an onnx.ModelProto or an onnx_ir.Model",
    )


def _within_limits(parts: _Parts) -> _Parts:
    """The parts of a model that is no file, which has passed the check that files pass."""
    check_model(parts.proto.SerializeToString(), load_format="ONNX")
    return parts


def _split_proto(model: onnx.ModelProto, folder: str | None) -> _Parts:
    graph = onnx.GraphProto()
    for field, content in model.graph.ListFields():
        if field.name not in ("initializer", "node"):
            _copy_field(graph, field.name, content)
    proto = onnx.ModelProto()
    for field, content in model.ListFields():
        if field.name not in ("graph", "training_info"):
            _copy_field(proto, field.name, content)
    tensors: dict[str, Any] = {}
    for tensor in model.graph.initializer:
        tensors[tensor.name] = _read_tensor(tensor, folder)
        if not _is_large(tensor):
            graph.initializer.append(tensor)
    for node in model.graph.node:
        tensor = _constant_tensor(node)
        if tensor is not None and _is_large(tensor):
            tensors[node.output[0]] = _read_tensor(tensor, folder)
        else:
            graph.node.append(node)
    _declare_inputs(graph, tensors)
    proto.graph.CopyFrom(graph)
    return _Parts(proto, tensors)


def _split_ir(model: ir.Model) -> _Parts:
    copy = _translate_errors(lambda: model.clone(), "onnx_ir cannot copy it")
    tensors: dict[str, Any] = {}
    for name, value in list(copy.graph.initializers.items()):
        if value.const_value is None:
            raise ArgumentError(f"initializer {name} has no content", hint="load the model whole")
        is_elsewhere = isinstance(value.const_value, ir.ExternalTensor)
        if is_elsewhere:
            _check_external(value.const_value, os.fspath(value.const_value.base_dir))
        tensors[name] = value.const_value
        if is_elsewhere or value.const_value.size > _SMALL:
            del copy.graph.initializers[name]
            value.const_value = None
            if not value.is_graph_input():
                copy.graph.inputs.append(value)
    return _Parts(_translate_errors(lambda: ir.to_proto(copy), "onnx_ir cannot write it"), tensors)


def _copy_field(message: Any, field: str, content: Any) -> None:
    """Copy one field of a protobuf message, whatever its kind."""
    if hasattr(content, "ListFields"):
        getattr(message, field).CopyFrom(content)
    elif isinstance(content, str | bytes | int | float):
        setattr(message, field, content)
    else:
        getattr(message, field).extend(content)


def _constant_tensor(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """The tensor of a Constant node."""
    if node.op_type != "Constant" or node.domain not in _STANDARD or len(node.output) != 1:
        return None
    return next((a.t for a in node.attribute if a.name == "value" and a.HasField("t")), None)


def _is_large(tensor: onnx.TensorProto) -> bool:
    count = 1
    for size in tensor.dims:
        count *= size
    return count > _SMALL or tensor.data_location == onnx.TensorProto.EXTERNAL


def _read_tensor(proto: onnx.TensorProto, folder: str | None) -> Any:
    """The tensor; one that lies in another file is read when its content is asked for."""
    if any(size < 0 for size in proto.dims):
        raise BundleError(f"tensor {proto.name} has the shape {list(proto.dims)}")
    tensor = _translate_errors(
        lambda: ir.serde.deserialize_tensor(proto, folder or ""), f"tensor {proto.name} is damaged"
    )
    if isinstance(tensor, ir.ExternalTensor):
        _check_external(tensor, folder)
    else:
        content = _translate_errors(tensor.numpy, f"tensor {proto.name} is damaged")
        if tuple(content.shape) != tuple(proto.dims):
            raise BundleError(f"tensor {proto.name} has {content.shape}, not {list(proto.dims)}")
    return tensor


def _check_external(tensor: ir.ExternalTensor, folder: str | None) -> None:
    """Raise unless the file is beside the model and long enough."""
    location = os.fspath(tensor.location)
    check_locations(f"tensor {tensor.name}", [location], [] if folder is None else [folder or "."])
    size = os.path.getsize(os.path.join(folder or "", location))
    if (tensor.offset or 0) + tensor.nbytes > size:
        raise BundleError(
            f"{tensor.location} ends before the tensor {tensor.name} in it does",
            hint="copy it again, or export it again",
        )


def _declare_inputs(graph: onnx.GraphProto, tensors: Mapping[str, Any]) -> None:
    """Let the tensors that were taken out be inputs."""
    known = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    for name, tensor in tensors.items():
        if name not in known:
            shape = [int(d) for d in tensor.shape]
            graph.input.append(onnx.helper.make_tensor_value_info(name, int(tensor.dtype), shape))


def _leave_deprecated(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model without GroupNormalization of opset 18 to 20: valid once, and refused today."""
    have = _opset(proto)
    if 18 <= have < 21 and any(n.op_type == "GroupNormalization" for n in proto.graph.node):
        proto = _infer_shapes(proto)
        convert_graph(proto.graph, have, 21)
        _set_opset(proto, 21)
    return proto


def _check_model(proto: onnx.ModelProto) -> onnx.ModelProto:
    for value in proto.graph.input:
        kind = value.type.WhichOneof("value")
        if kind == "tensor_type" and not value.type.tensor_type.HasField("shape"):
            raise ShapeError(
                f"the model does not say the shape of its input {value.name}",
                hint="export it with shapes; a size that varies has a name",
            )
    with shown_to_checker(proto) as shown:
        _translate_errors(lambda: onnx.checker.check_model(shown), "the model is not valid")
    return proto


def _align_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the bodies of its functions at its own opset, as the standard wants them."""
    opset = _opset(proto) or max(map(_opset, proto.functions), default=0)
    for function in proto.functions:
        have = _opset(function)
        if have and have != opset:
            nodes = convert_nodes(function.node, have, opset)
            del function.node[:]
            function.node.extend(nodes)
        _set_opset(function, opset)
    if proto.functions:
        _set_opset(proto, opset)
    return proto


def _inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    if not proto.functions:
        return proto
    result: onnx.ModelProto = _translate_errors(
        lambda: inliner.inline_local_functions(proto),
        "the model's functions cannot be expanded",
    )
    return result


def _infer_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with what the standard's own inference finds; graphs inside nodes need it.

    Without its propagation of data, which makes every list of numbers as long as the model says:
    the builder computes what is short.
    """
    result: onnx.ModelProto = _translate_errors(
        lambda: onnx.shape_inference.infer_shapes(proto),
        "the model's shapes do not fit each other",
    )
    return result


def _as_ir(proto: onnx.ModelProto) -> ir.Model:
    model: ir.Model = _translate_errors(lambda: ir.from_proto(proto), "the model is not valid")
    return model


def _translate_errors(call: Any, what: str) -> Any:
    """The result of a library's function, whose errors are of many classes with no common base."""
    try:
        return call()
    except FlowError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise BundleError(f"{what}: {lines[0][:300]}", hint="export it again") from error


def _prune(graph: onnx.GraphProto, outputs: Collection[str] | None) -> None:
    """Leave the outputs asked for and the nodes that they need."""
    known = [o.name for o in graph.output]
    for name in outputs or ():
        if name not in known:
            raise ArgumentError(f"the model has no output {name!r}", hint=f"it has {known}")
    kept = [o for o in graph.output if outputs is None or o.name in outputs]
    needed = {o.name for o in kept}
    nodes = []
    for node in reversed(graph.node):
        if any(o in needed for o in node.output):
            needed.update(_names_read(node))
            nodes.append(node)
    del graph.node[:], graph.output[:]
    graph.node.extend(reversed(nodes))
    graph.output.extend(kept)


def _names_read(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node and the graphs inside it read; inner names do no harm."""
    yield from node.input
    for inner in _subgraphs(node):
        yield from (o.name for o in inner.output)
        for part in inner.node:
            yield from _names_read(part)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _drop_foreign(graph: onnx.GraphProto, allowed: Collection[str]) -> dict[str, str]:
    """Leave out the outputs that something foreign computes; returns them with its name."""
    tainted: dict[str, str] = {}
    for node in graph.node:
        foreign = next(_foreign_names([node], allowed), None)
        cause = foreign or next((tainted[r] for r in _names_read(node) if r in tainted), None)
        if cause:
            tainted.update({o: cause for o in node.output if o})
    unknown = {o.name: tainted[o.name] for o in graph.output if o.name in tainted}
    if len(unknown) < len(graph.output):
        _prune(graph, [o.name for o in graph.output if o.name not in unknown])
        return unknown
    return {}


def _foreign_names(nodes: Iterable[onnx.NodeProto], allowed: Collection[str]) -> Iterator[str]:
    for node in nodes:
        if node.domain not in _STANDARD and f"{node.domain}::{node.op_type}" not in allowed:
            yield f"{node.domain}::{node.op_type}"
        for inner in _subgraphs(node):
            yield from _foreign_names(inner.node, allowed)


def _refuse_foreign(proto: onnx.ModelProto, allowed: Collection[str]) -> None:
    names = sorted(set(_foreign_names(proto.graph.node, allowed)))
    if not names:
        return
    is_fused = any(name.partition("::")[0] in _FUSED for name in names)
    raise UnsupportedError(
        f"the model uses {', '.join(names)}, not of the ONNX standard",
        hint="it was optimised for one runtime: take the model as it was before, or export it "
        "again without optimisation"
        if is_fused
        else "export it without custom operators, or with a model-local function for each",
    )


def _refuse_references(nodes: Iterable[onnx.NodeProto]) -> None:
    """Raise for an attribute that stands for one of a function around it: there is none."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                raise BundleError(
                    f"attribute {attribute.name} of {node.op_type} is taken from a function, and "
                    "the node is in none",
                    hint="export it again",
                )
        for inner in _subgraphs(node):
            _refuse_references(inner.node)


def _opset(proto: onnx.ModelProto | onnx.FunctionProto) -> int:
    return max((o.version for o in proto.opset_import if o.domain in _STANDARD), default=0)


def _set_opset(proto: onnx.ModelProto | onnx.FunctionProto, opset: int) -> None:
    imports = [o for o in proto.opset_import if o.domain not in _STANDARD]
    del proto.opset_import[:]
    proto.opset_import.extend([onnx.helper.make_opsetid("", opset), *imports])


def _convert_opset(proto: onnx.ModelProto, opset: int | None) -> onnx.ModelProto:
    """The model at the opset asked for, else at its own or, if that is too old, the usual one."""
    have = _opset(proto)
    if not have and all(n.domain not in _STANDARD for n in proto.graph.node):
        have = opset or USUAL  # nothing in it depends on the opset
    if not have:
        raise BundleError("the model names no opset of the ONNX standard", hint="export it again")
    want = opset or (have if have >= OLDEST else USUAL)
    wrong = next((n for n in (want, have) if n > onnx_opset_version()), want)
    if wrong != want or not OLDEST <= want <= onnx_opset_version():
        raise UnsupportedError(
            f"opset {wrong} is not supported",
            hint=f"{OLDEST} to {onnx_opset_version()} are",
        )
    if have < OLDEST_CONVERTED:
        proto = _translate_errors(
            lambda: version_converter.convert_version(proto, OLDEST_CONVERTED),
            f"the model is of opset {have} and cannot be brought to {OLDEST_CONVERTED}",
        )
        have = OLDEST_CONVERTED
    if want != have:
        proto = _infer_shapes(proto)
        _translate_errors(
            lambda: convert_graph(proto.graph, have, want),
            f"the model is of opset {have} and cannot be brought to {want}",
        )
    _set_opset(proto, want)
    return proto


def _tensor_kinds(graph: onnx.GraphProto) -> dict[str, str]:
    """The kind that torch's exporter gives each tensor."""
    return {
        value.name: entry.value
        for value in (*graph.value_info, *graph.input)
        for entry in value.metadata_props
        if entry.key == _KIND
    }


def _declared_parameters(graph: onnx.GraphProto, kinds: Mapping[str, str]) -> frozenset[str]:
    """The names of all parameters that torch's exporter was given."""
    texts = [p.value for p in graph.metadata_props if p.key == _SIGNATURE]
    named = {name for name, kind in kinds.items() if kind == "PARAMETER"}
    return frozenset(named.union(*(_PARAMETER.findall(text) for text in texts)))


def _folded_tensors(graph: onnx.GraphProto) -> dict[str, tuple[str, ...]]:
    """The tensors that onnxscript's optimizer computed others from, by name."""
    return {
        value.name: tuple(re.findall(r"'([^']+)'", entry.value))
        for value in graph.value_info
        for entry in value.metadata_props
        if entry.key == _FOLDED
    }
