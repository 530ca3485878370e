"""`flow.saved_model`: predict jobs with their weights in a folder for each version.

A folder has OneFlow's files, ``variables/``, ``saved_model.pb`` and ``saved_model.prototxt``, and
one ONNX model for each job, ``JOB.onnx``, which any runtime opens.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from flow2onnx_runtime import replace_folder
from flow2onnx_runtime.messages import text_of

from flow2onnx import export
from flow2onnx.api import models
from flow2onnx.api.job import JobFunction
from flow2onnx.errors import ArgumentError
from flow2onnx.proto import saved_model as messages
from flow2onnx.source import user_frame
from flow2onnx.trace.trace import leaf_placeholders

if TYPE_CHECKING:
    from flow2onnx.compile import CompiledJob

__all__ = ["GraphBuilder", "ModelBuilder", "SignatureBuilder", "blobs_shown"]

_META, _VARIABLES = "saved_model", "variables"


def _refuse(message: str, hint: str) -> ArgumentError:
    return ArgumentError(message, source=user_frame(), hint=hint)


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise _refuse(f"{what} is a text, got {name!r}", f"name the {what}")


class ModelBuilder:
    """Gathers predict jobs and their signatures, and writes one version of a model."""

    DEFAULT_CHECKPOINT_DIR = _VARIABLES
    DEFAULT_SAVED_MODEL_FILE_BASENAME = _META

    def __init__(self, save_path: str) -> None:
        _check_name("save_path", save_path)
        self._path = Path(save_path)
        self._version: int | None = None
        self._graphs: dict[str, GraphBuilder] = {}
        self._jobs: dict[str, JobFunction] = {}
        self.proto = messages.SavedModel()

    def ModelName(self, model_name: str) -> "ModelBuilder":
        """Name the model."""
        _check_name("model_name", model_name)
        self.proto.name = model_name
        return self

    def Version(self, version: int) -> "ModelBuilder":
        """Number the version, which names its folder."""
        if not isinstance(version, int):
            raise _refuse(f"version is a number, got {version!r}", "write Version(1)")
        self._version = version
        return self

    def AddFunction(self, func: JobFunction) -> "GraphBuilder":
        """Add a predict job; the first is what is served unless another is asked for."""
        job = getattr(func, "__wrapped__", func) if not hasattr(func, "spec") else func
        if not isinstance(job, JobFunction):
            raise _refuse(f"{func!r} is no job", "decorate it with @flow.global_function()")
        name = job.spec.name
        if name in self._graphs:
            raise _refuse(f"function with name {name} already exists", "add each job once")
        self._jobs[name] = job
        self._graphs[name] = GraphBuilder(name, self)
        if not self.proto.HasField("default_graph_name"):
            self.proto.default_graph_name = name
        return self._graphs[name]

    def Save(self, save_model_before_graph_complete: bool = True) -> None:
        """Write the version's folder, with the present values of the variables."""
        if self._version is None:
            raise _refuse("model version is not set", "call Version(1)")
        folder = self._path / str(self._version)
        if folder.exists():
            raise _refuse(
                f'Directory of model "{self._path}" version "{self._version}" already exist.',
                "count the version up, or remove the folder",
            )
        for graph in self._graphs.values():
            graph.check()
        folder.parent.mkdir(parents=True, exist_ok=True)
        replace_folder(folder, self._fill)

    def _fill(self, folder: Path) -> None:
        self.proto.version, self.proto.checkpoint_dir = self._version, _VARIABLES
        if not self.proto.HasField("name"):
            self.proto.name = self._path.name
        models.save(folder / _VARIABLES)
        for name, graph in self._graphs.items():
            if not graph.finished:
                graph.Finish()
            _write_job(folder / f"{name}.onnx", self._jobs[name], graph.proto)
        (folder / f"{_META}.pb").write_bytes(self.proto.SerializeToString())
        (folder / f"{_META}.prototxt").write_text(text_of(self.proto), encoding="utf-8")


def blobs_shown(graph: Any) -> list[str]:
    """The logical names that the signatures of a graph give out, in the order of the results."""
    outputs = (o for s in graph.signatures.values() for o in s.outputs.values())
    return sorted({f"{o.lbi.op_name}/{o.lbi.blob_name}" for o in outputs})


def _write_job(path: Path, job: JobFunction, graph: Any) -> None:
    spec = export.with_results(job.spec, blobs_shown(graph)) if graph.signatures else job.spec
    written = export.write_saved_model(path, job.session, spec, _VARIABLES)
    for name in export.operators_of(written):
        graph.op_list.add(name=name, device_tag="cpu")
    _describe_inputs(job, written, graph)


def _describe_inputs(job: JobFunction, written: "CompiledJob", graph: Any) -> None:
    """Write shape and element type of each input into the signatures."""
    numbers = messages.DATA_TYPES
    known = dict(leaf_placeholders(job.spec))
    for signature in graph.signatures.values():
        for name, given in signature.inputs.items():
            placeholder = known.get(given.lbi.op_name)
            if placeholder is None:
                raise _refuse(
                    f"input {name} of {job.spec.name}: {given.lbi.op_name} is no parameter",
                    f"the parameters are {', '.join(known) or 'none'}",
                )
            given.blob_conf.shape.dim.extend(placeholder.shape)
            given.blob_conf.data_type = numbers[placeholder.dtype.name]
            given.blob_conf.is_dynamic = placeholder.kind != "numpy"


class GraphBuilder:
    """One job of a model, with its signatures."""

    def __init__(self, name: str, model_builder: ModelBuilder | None = None) -> None:
        _check_name("name", name)
        if not isinstance(model_builder, ModelBuilder | None):
            raise _refuse(f"{model_builder!r} is no ModelBuilder", "leave it out, or pass one")
        self.name, self.finished, self._owner = name, False, model_builder
        self._signatures: dict[str, SignatureBuilder] = {}
        held = None if model_builder is None else model_builder.proto.graphs[name]
        self.proto = messages.GraphDef() if held is None else held

    def AddSignature(self, signature_name: str) -> "SignatureBuilder":
        """Add a signature; the first is the default."""
        _check_name("signature_name", signature_name)
        if signature_name in self._signatures:
            raise _refuse(f"signature name {signature_name} already exists", "name it differently")
        self._signatures[signature_name] = SignatureBuilder(signature_name, self)
        if not self.proto.HasField("default_signature_name"):
            self.proto.default_signature_name = signature_name
        return self._signatures[signature_name]

    def Finish(self) -> None:
        """Close the graph; `ModelBuilder.Save` does it too."""
        if self.finished:
            raise _refuse(f"graph {self.name} is finished already", "call Finish once")
        self.check()
        self.finished = True

    def check(self) -> None:
        """Raise where two names of a signature stand for one blob."""
        for signature in self.proto.signatures.values():
            for side in (signature.inputs, signature.outputs):
                blobs = [f"{d.lbi.op_name}/{d.lbi.blob_name}" for d in side.values()]
                twice = [b for b in blobs if blobs.count(b) > 1]
                if twice:
                    raise _refuse(f"input conflict, {twice[0]} already bind to other input",
                                  "give each blob one name")  # fmt: skip

    def OwnerModelBuilder(self) -> ModelBuilder | None:
        """The model that this is part of."""
        return self._owner

    def AsDefault(self) -> "GraphBuilder":
        """Serve this job unless another is asked for."""
        if self._owner is not None:
            self._owner.proto.default_graph_name = self.name
        return self


class SignatureBuilder:
    """Names for inputs and outputs of a job, each standing for a logical blob name ``op/blob``."""

    def __init__(self, name: str, graph_builder: GraphBuilder | None = None) -> None:
        _check_name("name", name)
        if not isinstance(graph_builder, GraphBuilder | None):
            raise _refuse(f"{graph_builder!r} is no GraphBuilder", "leave it out, or pass one")
        self.name, self._owner = name, graph_builder
        held = None if graph_builder is None else graph_builder.proto.signatures[name]
        self.proto = messages.JobSignatureDef() if held is None else held

    def Input(self, input_name: str, lbn: str) -> "SignatureBuilder":
        """Let `input_name` feed the parameter of this logical name."""
        return self._bind(self.proto.inputs, "input_name", input_name, lbn)

    def Output(self, output_name: str, lbn: str) -> "SignatureBuilder":
        """Let `output_name` be the blob of this logical name, returned or not."""
        return self._bind(self.proto.outputs, "output_name", output_name, lbn)

    def OwnerGraphBuilder(self) -> GraphBuilder | None:
        """The graph that this is part of."""
        return self._owner

    def AsDefault(self) -> "SignatureBuilder":
        """Use this signature unless another is asked for."""
        if self._owner is not None:
            self._owner.proto.default_signature_name = self.name
        return self

    def _bind(self, side: Any, what: str, name: str, lbn: str) -> "SignatureBuilder":
        _check_name(what, name)
        if not isinstance(lbn, str) or lbn.count("/") != 1:
            raise _refuse(
                f"{name}: {lbn!r} is no logical blob name",
                "pass blob.logical_blob_name, as seen in the body of the job",
            )
        if name in side:
            raise _refuse(f"{what} ({name}) already exist in signature ({self.name})",
                          "give each blob one name")  # fmt: skip
        side[name].lbi.op_name, side[name].lbi.blob_name = lbn.split("/")
        return self
