"""The mirrored view on several devices: the graph of one device's piece, once for each of them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Node, Value
from flow2onnx.graph.functions import inline_nodes
from flow2onnx.graph.nodes import has_seed, read_values, reseed
from flow2onnx.trace.job import Job, Region, Watch
from flow2onnx.trace.spec import JobSpec
from flow2onnx.typing import PlaceholderSpec

__all__ = ["mirror", "piece_count"]

Copies = dict[Value, Value]


def piece_count(spec: JobSpec, leaves: Iterable[PlaceholderSpec], devices: int) -> int:
    """The pieces of a call of a job: one for each device where inputs are lists of them."""
    takes_lists = any(leaf.kind != "numpy" for leaf in leaves)
    return devices if devices > 1 and spec.view == "mirrored" and takes_lists else 1


def mirror(job: Job, pieces: Mapping[Value, list[Value]], results: Iterable[Value]) -> list[Value]:
    """Add the graphs of the other devices; returns the results, those of one value together.

    `pieces` has, for each input traced, those of the other devices. Variables are shared; what
    the body itself writes to them, such as moving statistics, is what the first device computes.
    """
    _check(job)
    nodes, count = list(job.b.nodes), job.pieces
    copies = [_copy(job, nodes, pieces, device) for device in range(1, count)]
    losses = list(job.losses)
    job.losses += [c[v] for c in copies for v in losses if v in c]
    job.watches = [_watch(w, copies) for w in job.watches]
    return _pieces(results, copies)


def _check(job: Job) -> None:
    if job.host.inputs:
        raise UnsupportedError(
            "a mirrored job on several devices reads files, and is fed with lists of arrays",
            hint="feed all arrays, or leave gpu_device_num at 1",
        )


def _copy(job: Job, nodes: list[Node], pieces: Mapping[Value, list[Value]], device: int) -> Copies:
    """The copy on a device of each value that depends on the inputs or on chance."""
    copies = {value: others[device - 1] for value, others in pieces.items()}
    copied: dict[Region, list[Node]] = {}
    for node in nodes:
        read = [v for v in read_values(node) if v in copies]
        if not read and not has_seed(node):
            continue
        start = len(job.b.nodes)
        with job.b.under(f"{_operator(node)}@{device}", node.meta.get("source")):
            made = inline_nodes(job.b, [node], read, [copies[v] for v in read], node.outputs)
        copies |= {v: m for v, m in zip(node.outputs, made, strict=True) if m is not None}
        for copy in job.b.nodes[start:]:
            reseed(copy, device)
        if node in job.regions:
            copied.setdefault(job.regions[node], []).extend(job.b.nodes[start:])
    for region, members in copied.items():
        job.regions |= dict.fromkeys(members, _region(region, copies))
    return copies


def _operator(node: Node) -> str:
    return (node.name or node.op_type).split("/")[0]


def _region(region: Region, copies: Copies) -> Region:
    inputs, outputs = (
        tuple(copies.get(v, v) for v in side) for side in (region.inputs, region.outputs)
    )
    return Region(inputs, outputs, region.vjp)


def _watch(watch: Watch, copies: list[Copies]) -> Watch:
    return replace(watch, values=tuple(_pieces(watch.values, copies)))


def _pieces(values: Iterable[Value], copies: list[Copies]) -> list[Value]:
    """Each value, followed by those that stand for it on the other devices."""
    return [v for value in values for v in (value, *(c.get(value, value) for c in copies))]
