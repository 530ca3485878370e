"""Metadata of exported files, for people: no runtime needs it."""

from collections.abc import Mapping

from flow2onnx import __version__
from flow2onnx.compile import CompiledJob
from flow2onnx.errors import ArgumentError
from flow2onnx.onnx_io.serialize import set_metadata, signature
from flow2onnx.trace.releases import GENERATIONS
from flow2onnx.trace.spec import JobSpec

__all__ = ["check_metadata", "producer", "set_job_metadata", "version"]

_OURS = "flow2onnx."


def version() -> str:
    """The version of flow2onnx."""
    return __version__


def producer() -> str:
    """Who writes the files, such as ``flow2onnx 0.1.0``."""
    return f"flow2onnx {version()}"


def check_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """The user's metadata: texts, none of which looks like ours."""
    given = dict(metadata or {})
    for key, text in given.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise ArgumentError(
                f"metadata {key!r}: {text!r} is not text", hint="give a dict of str to str"
            )
        if key.startswith(_OURS):
            raise ArgumentError(
                f"metadata {key!r}: names that begin with {_OURS} are taken", hint="rename it"
            )
    return given


def set_job_metadata(
    job: CompiledJob, metadata: Mapping[str, str], more: Mapping[str, str] = {}
) -> dict[str, str]:
    """Write the user's metadata and ours into a job's model; returns all of it."""
    ours = {
        "job": job.spec.name,
        "kind": job.kind,
        "release": job.spec.release,
        "generation": _generation(job.spec),
        "inputs": _list_tensors(job, job.feeds),
        "outputs": _list_tensors(job, job.results),
        **more,
    }
    whole = {**metadata, **{_OURS + key: text for key, text in ours.items()}}
    set_metadata(job.model, version(), whole)
    return whole


def _generation(spec: JobSpec) -> str:
    return max(
        (g for g, release in GENERATIONS.items() if not spec.is_before(release)), default="a"
    )


def _list_tensors(job: CompiledJob, names: tuple[str, ...]) -> str:
    graph = job.model.graph
    shown = {s.name: s for s in signature([*graph.inputs, *graph.outputs])}
    return "; ".join(f"{n} {shown[n].dtype} [{', '.join(map(str, shown[n].shape))}]" for n in names)
