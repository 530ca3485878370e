"""Hints and placements of a job as annotations of its model, which one process runs."""

from flow2onnx.compile.batch_shares import feeds_with_rows
from flow2onnx.compile.divide import place_rest
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Model, Node, Value
from flow2onnx.passes.row_shares import Share
from flow2onnx.passes.shard_annotations import Shards, annotate
from flow2onnx.trace.job import Job, Kept
from flow2onnx.trace.trace import pieces_of

__all__ = ["annotate_shards"]


def annotate_shards(job: Job, model: Model) -> None:
    """Say in the finished model of a job, in place, what its devices keep and compute.

    Raises `UnsupportedError` for a mirrored job, whose model is that of one device.
    """
    if pieces_of(job.spec, job.shards) > 1:
        raise UnsupportedError(
            "sharding of a mirrored job, whose model is what one device computes",
            job=job.spec.name,
            source=job.spec.source,
            hint="take the consistent view, or export it without sharding",
        )
    nodes, state = list(model.graph), _state(job, model)
    hints = {n: _share(n.meta["distribute"]) for n in nodes if "distribute" in n.meta}
    owners = {v: kept.number for v, kept in state.items() if kept.kind == "at"}
    places = _places(job, nodes)
    is_pipeline = not hints and _are_all_placed(job)
    if is_pipeline:
        place_rest(nodes, places, owners)
    given = {v: Share("rows" if k.kind == "split" else "at", k.number) for v, k in state.items()}
    if not is_pipeline:
        names = {str(v.name): axis for v, axis in feeds_with_rows(job).items()}
        given |= {v: Share("rows", names[str(v.name)]) for v in model.graph.inputs
                  if str(v.name) in names}  # fmt: skip
    annotate(model, Shards(job.shards, given, places, hints, is_pipeline))


def _state(job: Job, model: Model) -> dict[Value, Kept]:
    """The part that one device keeps of variables and their slots, where that is not the whole."""
    found = {}
    for value in model.graph.inputs:
        variable = job.variables.get(str(value.name))
        kept = job.told.get(variable.owner or variable.name) if variable is not None else None
        if kept is not None:
            found[value] = kept
    return found


def _share(hint: object) -> Share | None:
    """The share that a device has of a value with a distribution hint; None of parts of a sum."""
    axis = getattr(hint, "axis", None)
    return None if axis is None else Share("rows", axis)


def _places(job: Job, nodes: list[Node]) -> dict[Node, int]:
    """The device of each node that stands for an operator, or a variable, with a placement.

    Passes and gradients name a node after the operator that it is of.
    """
    known = {_operator(str(n.name)): n.meta["place"] for n in job.b.nodes if "place" in n.meta}
    known |= {name: kept.number for name, kept in job.told.items() if kept.kind == "at"}
    found = {}
    for node in nodes:
        path = str(node.name).removeprefix("grad/").removeprefix("update/")
        while path and path not in known:
            path = _operator(path)
        if path:
            found[node] = known[path]
    return found


def _operator(name: str) -> str:
    return name.rpartition("/")[0]


def _are_all_placed(job: Job) -> bool:
    own = [name for name, v in job.variables.items() if v.role == "variable"]
    return bool(own) and all(n in job.told and job.told[n].kind == "at" for n in own)
