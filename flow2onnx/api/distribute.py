"""Operators that move or mark blobs between devices: in value the blob itself."""

from collections.abc import Callable, Sequence
from typing import Any

from flow2onnx_runtime.world import launched_world

from flow2onnx.errors import ArgumentError, UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.trace.blob import Blob, Distribute
from flow2onnx.trace.context import current_job
from flow2onnx.trace.distribution import as_hinted
from flow2onnx.trace.op import composite, op

__all__ = ["assert_is_valid_distribute", "get_rank", "get_world_size"]


@op("parallel_cast", catalogued=True)
def parallel_cast(
    b: Builder, input: Value, name: str | None, distribute: Any, gradient_distribute: Any
) -> Value:
    """The value itself, which processes hold as `distribute` says."""
    return as_hinted(b.Identity(input), distribute, gradient_distribute, "distribute")


@op("hierarchical_parallel_cast")
def hierarchical_parallel_cast(
    b: Builder,
    input: Value,
    parallel_distribution: Any,
    grad_mode: str | None = None,
    grad_parallel_distribution: Any = None,
    name: str | None = None,
) -> Value:
    """The value itself, which processes hold as the one hint in `parallel_distribution` says."""
    made, what = b.Identity(input), "parallel_distribution"
    return as_hinted(made, parallel_distribution, grad_parallel_distribution, what)


@composite("cast_to_current_logical_view")
def cast_to_current_logical_view(x: Blob) -> Blob:
    """The blob itself: on one device both views hold the same values."""
    return x


@composite("advanced.distribute_clone")
def distribute_clone(x: Blob, name: str | None = None) -> tuple[Blob]:
    """One copy for each device, of which there is one."""
    _check_alone("distribute_clone")
    return (x,)


@composite("advanced.distribute_split")
def distribute_split(x: Blob, axis: int = 0, name: str | None = None) -> tuple[Blob]:
    """One piece for each device, of which there is one."""
    _check_alone("distribute_split")
    return (x,)


@composite("advanced.distribute_add")
def distribute_add(xs: Sequence[Blob], name: str | None = None) -> Blob:
    """The sum over the devices, of which there is one."""
    _check_alone("distribute_add")
    return _single(xs)


@composite("advanced.distribute_concat")
def distribute_concat(xs: Sequence[Blob], axis: int = 0, name: str | None = None) -> Blob:
    """The pieces of the devices in a row; there is one device."""
    _check_alone("distribute_concat")
    return _single(xs)


@composite("advanced.distribute_map")
def distribute_map(xs: Any, f: Callable[..., Any], axis: int = 0) -> Any:
    """`f` of the piece of each device, in a row; there is one device."""
    _check_alone("distribute_map")
    return f(*xs) if isinstance(xs, list | tuple) else f(xs)


def _check_alone(name: str) -> None:
    """Raise in a train job of several processes, each of which has the blob of one device."""
    ranks = current_job(f"advanced.{name}").ranks
    if ranks > 1:
        raise UnsupportedError(
            f"{name} handles the blobs of all devices one by one, and each of {ranks} processes "
            "has its own",
            hint="use flow.parallel_cast(x, distribute=flow.distribute.split(axis)), or the "
            "mirrored view",
        )


def _single(xs: Sequence[Blob]) -> Blob:
    if len(xs) != 1:
        raise ArgumentError(
            f"there is one device, and {len(xs)} blobs in xs",
            hint="combine them with flow.math.add_n or flow.concat",
        )
    return xs[0]


def assert_is_valid_distribute(distribute: Any) -> None:
    """Refuse what is no distribution hint."""
    if not isinstance(distribute, Distribute):
        raise ArgumentError(
            f"distribute is a distribution hint, got {distribute!r}",
            hint="use flow.distribute.split(axis), .broadcast() or .auto()",
        )


def get_rank() -> int:
    """The number of this process among those that `flow2onnx launch` or its like started."""
    return launched_world().rank


def get_world_size() -> int:
    """How many processes there are."""
    return launched_world().size
