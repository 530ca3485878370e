"""The `Accelerator` that the entry point names, as a module."""

import functools
import hashlib
import os
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir
from flow2onnx_runtime.allocator import trim_memory
from flow2onnx_runtime.dtypes import Array, find_element
from flow2onnx_runtime.errors import BundleError, UnsupportedError
from flow2onnx_runtime.extensions import GraphAnalysis, Rewriting
from flow2onnx_runtime.manifest import NEXT
from flow2onnx_runtime.model_check import check_model
from flow2onnx_runtime.options import Options
from flow2onnx_runtime.ort_settings import FOLDER_ENTRY
from flow2onnx_runtime.provider_checks import split
from flow2onnx_runtime.providers import CPU, PROVIDERS
from flow2onnx_runtime.world import rank_threads
from onnx.external_data_helper import ExternalDataInfo

from flow2onnx_native.abi import DOMAIN
from flow2onnx_native.aliasing import index_operands, overwrites_safely
from flow2onnx_native.cuda_pipeline import rewrite_for_cuda
from flow2onnx_native.free_dimensions import fix_dimensions, fold_shapes
from flow2onnx_native.library import (
    NativeLibrary,
    onednn_path,
    open_cuda_library,
    open_library,
)
from flow2onnx_native.pipeline import rewrite_prediction, rewrite_training

__all__ = [
    "DOMAIN",
    "accelerate",
    "fingerprint",
    "index_operands",
    "overwrites_safely",
    "require_library",
    "rewrite",
    "with_library",
]

CUDA = PROVIDERS["cuda"]
_MOST_BYTES = 2**31 - 1  # of one message
_LARGEST_READ = 4096  # bytes of a tensor whose values a rule may look at
# What is known of a file that no compiler reads: nothing of it is updated in place.
_OF_FILES = GraphAnalysis(late_readers=lambda graph: (), index_origin=lambda value: (value, ()))


def require_library() -> None:
    """Raise `UnsupportedError`, with what to do, where the CPU's operators cannot be used."""
    open_library()


def fingerprint() -> str:
    """A hash of what decides on a rewriting for the CPU besides its arguments."""
    return _fingerprint(open_library())


@functools.cache
def _fingerprint(library: NativeLibrary) -> str:
    found = hashlib.sha256(repr((library.operators, onednn_path())).encode())
    for path in (*sorted(Path(__file__).parent.glob("*.py")), Path(library.path)):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def with_library(options: Options) -> Options:
    """How a model is opened that was rewritten for the CPU."""
    return _with_library(options, open_library().path)


def rewrite(
    model: ir.Model, options: Options, analysis: GraphAnalysis, *, winograd: bool
) -> Rewriting:
    """A copy of a training step that uses the operators, how to open it, and a count of them.

    Model and options are those that were given where none is used, as on other providers than the
    CPU and CUDA, and where what CUDA's operators need is missing.
    """
    if options.provider_names[:1] == CUDA.names[:1]:
        return _rewrite_for_cuda(model, options, analysis)
    if options.provider_names != CPU.names:
        return Rewriting(model, options)
    library = open_library()
    copy, used = rewrite_training(
        model, library.operators, _threads(options), analysis, winograd=winograd,
        avx512=library.uses_avx512,
    )  # fmt: skip
    if not used:
        return Rewriting(model, options)
    return Rewriting(copy, _with_library(options, library.path), used)


def _rewrite_for_cuda(model: ir.Model, options: Options, analysis: GraphAnalysis) -> Rewriting:
    try:
        library = open_cuda_library(options.device[1])
    except UnsupportedError as error:
        return Rewriting(model, options, why_not=error.message)
    _, settings = split(options.providers[0])
    is_precise = settings.get("use_tf32") == "0"
    copy, used = rewrite_for_cuda(model, library.operators, analysis, is_precise=is_precise)
    if not used:
        return Rewriting(model, options)
    return Rewriting(copy, _with_library(options, library.path), used)


def accelerate(
    model: str | os.PathLike[str] | bytes,
    options: Options,
    tensors: MutableMapping[str, Array] | None = None,
) -> tuple[str | os.PathLike[str] | bytes, Options]:
    """A model that uses the operators, and how to open it: a step that trains, or a prediction.

    Both are those that were given where nothing gains, for models of more than 2 GB, and on
    other providers than the CPU. Free dimensions of the options have their sizes in the model.
    Large tensors of a step stay in their files; those of a prediction go to `tensors`, if given,
    and the model has references in their places. What is no ONNX model is a `BundleError`.
    """
    if options.provider_names != CPU.names:
        return model, options
    try:
        return _rewrite_model(model, options, tensors)
    finally:
        trim_memory()  # graphs refer to themselves, and would stay beside the session for a while


def _rewrite_model(
    model: str | os.PathLike[str] | bytes,
    options: Options,
    tensors: MutableMapping[str, Array] | None,
) -> tuple[str | os.PathLike[str] | bytes, Options]:
    folder = _folder(model, options)
    library, found = open_library(), _parse(model, folder, options.free_dimensions)
    if found is None:
        return model, options
    parsed, trains = found
    if trains:
        parsed, used = rewrite_training(
            parsed, library.operators, _threads(options), _OF_FILES, winograd=True,
            avx512=library.uses_avx512,
        )  # fmt: skip
    else:
        used = rewrite_prediction(
            parsed, library.operators, _threads(options), avx512=library.uses_avx512
        )
    if not used:
        return model, options
    entries = options.session_entries
    if folder is not None and any(map(_is_elsewhere, parsed.graph.initializers.values())):
        entries = {**entries, FOLDER_ENTRY: folder}
    opening = replace(options, free_dimensions={}, session_entries=entries)
    if tensors is not None and not trains:
        _take_out(parsed.graph, tensors)
    message = ir.to_proto(parsed)
    del found, parsed  # and their tensors, of which the message has copies
    trim_memory()
    content: bytes = message.SerializeToString(deterministic=True)
    return content, _with_library(opening, library.path)


def _take_out(graph: ir.Graph, tensors: MutableMapping[str, Array]) -> None:
    """Move large tensors of a graph to a mapping, and leave references in their places."""
    for name, value in graph.initializers.items():
        tensor = value.const_value
        if tensor is None or tensor.nbytes <= _LARGEST_READ:
            continue
        array = tensor.numpy()
        if find_element(array.dtype.name) is not None:
            tensors[name] = array
            value.const_value = ir.ExternalTensor(
                "in memory", 0, array.nbytes, tensor.dtype, shape=ir.Shape(array.shape), name=name
            )


def _folder(model: str | os.PathLike[str] | bytes, options: Options) -> str | None:
    """Where the tensors of a model lie that are in other files; None if nobody says so."""
    said = options.session_entries.get(FOLDER_ENTRY)
    if said is not None or isinstance(model, bytes):
        return said
    return os.path.dirname(os.path.abspath(model))


def _is_elsewhere(value: ir.Value) -> bool:
    return isinstance(value.const_value, ir.ExternalTensor)


def _trains(graph: onnx.GraphProto) -> bool:
    """True if a model gives inputs their next values."""
    inputs = {f"{NEXT}{v.name}" for v in graph.input}
    return any(v.name in inputs for v in graph.output)


def _parse(
    model: str | os.PathLike[str] | bytes, folder: str | None, sizes: Mapping[str, int]
) -> tuple[ir.Model, bool] | None:
    """A model with its tensors inside and the shapes of its values; None beyond 2 GB.

    Beside it, whether it is a step that trains, whose large tensors stay in their files: no pass
    reads them. `sizes` of dimensions take the places of their names.
    """
    has_files = check_model(model, folder=folder, load_format="ONNX")
    try:
        proto = onnx.load_from_string(
            model if isinstance(model, bytes) else Path(model).read_bytes()
        )
        trains = _trains(proto.graph)
        most = _LARGEST_READ if trains else _MOST_BYTES
        if has_files and folder is not None and not _read_tensors(proto, Path(folder), most):
            return None
        if sizes:
            fix_dimensions(proto, sizes)
        parsed = _with_shapes(proto)
        if sizes:
            fold_shapes(parsed.graph)
        return parsed, trains
    except Exception as error:  # onnx raises what protobuf and the system raise
        name = "the model" if isinstance(model, bytes) else Path(model)
        raise BundleError(f"{name} is no ONNX model: {error}") from error


def _with_shapes(proto: onnx.ModelProto) -> ir.Model:
    """The model of a message and the shapes of its values; the message loses its large tensors.

    Inference makes copies of all that it is given, so it is not given these, which are no shapes.
    Each becomes a message of its own, as one of them would keep the message with all others.
    """
    large: dict[str, onnx.TensorProto] = {}
    for tensor in proto.graph.initializer:
        if len(tensor.raw_data) > _LARGEST_READ:
            own = large[tensor.name] = onnx.TensorProto()
            own.CopyFrom(tensor)
            tensor.ClearField("raw_data")
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    for name, tensor in large.items():
        model.graph.initializers[name].const_value = ir.serde.deserialize_tensor(tensor)
    return model


def _read_tensors(proto: onnx.ModelProto, folder: Path, most: int) -> bool:
    """Put tensors of up to `most` bytes that lie in files of a folder into a model.

    False if they are too large together. Which files it may name was checked. onnx itself refuses a
    file of two names, as weights have that a bundle of adapters shares with the folder of its
    model.
    """
    found = [(tensor, ExternalDataInfo(tensor)) for tensor in _external_tensors(proto.graph)]
    places = [
        (tensor, info, size)
        for tensor, info in found
        if (size := info.length or (folder / info.location).stat().st_size) <= most
    ]
    if proto.ByteSize() + sum(size for _, _, size in places) > _MOST_BYTES:
        return False
    for tensor, info, _ in places:
        with (folder / info.location).open("rb") as file:
            file.seek(info.offset or 0)
            tensor.raw_data = file.read(info.length) if info.length else file.read()
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return True


def _external_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The tensors of a graph, and of those in it, whose values lie in files."""
    attributes = [a for node in graph.node for a in node.attribute]
    tensors = (*graph.initializer, *(a.t for a in attributes if a.HasField("t")))
    yield from (t for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL)
    for attribute in attributes:
        for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            yield from _external_tensors(inner)


def _with_library(options: Options, path: str) -> Options:
    others = [p for p in options.operator_libraries if p != path]
    return replace(options, operator_libraries=(*others, path))


def _threads(options: Options) -> int:
    """How many threads the session has for one operator."""
    return options.intra_op_threads or rank_threads() or os.cpu_count() or 1
