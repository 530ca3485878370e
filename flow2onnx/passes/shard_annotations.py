"""Annotations of the ONNX standard that say on which devices values of a model lie.

A node says it of what it reads and makes, where that is split, or on one device. A reader that
says otherwise than the maker of a value is where devices have to pass it. Nothing is computed
otherwise: a runtime that runs on one device reads over it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod

import onnx_ir as ir

from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import constant_of, dims, is_static, rank_of
from flow2onnx.passes.row_shares import Share, Shares, share_of
from flow2onnx.passes.split_classes import has_split_form

__all__ = ["IR_VERSION_OF_SHARDS", "Shards", "annotate", "renew_sizes"]

IR_VERSION_OF_SHARDS = 11  # the first that has the annotations
_NAME = "devices"
_MOST_WAYS = 1024
_STATE_FACTOR = 1000.0  # what another layout of a variable costs beside that of another value
_OWN_PART = 0.01  # of a value that every device has, beside one that devices would gather


@dataclass(frozen=True)
class Shards:
    """The layout of a model on `count` devices.

    `given` has the shares of inputs, `places` the device of each node that one alone computes,
    `hints` what a node was to make. In a pipeline all nodes have a place.
    """

    count: int
    given: Mapping[ir.Value, Share]
    places: Mapping[ir.Node, int]
    hints: Mapping[ir.Node, Share | None]
    is_pipeline: bool = False


def annotate(model: ir.Model, shards: Shards) -> None:
    """Write the annotations into a model, in place; shapes are those of the whole."""
    walk = _Walk(shards, dict(shards.given))
    configuration = model.add_device_configuration(
        _NAME, device_names=[f"0:{i}" for i in range(shards.count)]
    )
    stages = list(dict.fromkeys(shards.places[n] for n in model.graph if n in shards.places))
    for node in model.graph:
        given, made = walk.lay(node)
        specs = list(_specs(node, given, made, walk.shares, shards.count))
        place = shards.places.get(node)
        stage = stages.index(place) if shards.is_pipeline and place is not None else None
        if specs or stage is not None:
            node.device_configurations = (
                ir.NodeDeviceConfiguration(
                    configuration=configuration, sharding_specs=tuple(specs), pipeline_stage=stage
                ),
            )
        walk.shares.update({v: s for v, s in zip(node.outputs, made, strict=True) if s is not None})
    model.ir_version = IR_VERSION_OF_SHARDS


def renew_sizes(model: ir.Model) -> None:
    """Let annotations have the sizes that values have now, in place."""
    for node in model.graph:
        node.device_configurations = tuple(
            ir.NodeDeviceConfiguration(
                configuration=one.configuration,
                sharding_specs=tuple(
                    ir.ShardingSpec(
                        value=spec.value, device=spec.device,
                        sharded_dims=tuple(
                            _sharded_dim(spec.value, d.axis, d.simple_shardings[0].num_shards)
                            for d in spec.sharded_dims
                        ),
                    )
                    for spec in one.sharding_specs
                ),
                pipeline_stage=one.pipeline_stage,
            )
            for one in node.device_configurations
        )  # fmt: skip


def _sharded_dim(value: ir.Value | None, axis: int, count: int) -> ir.ShardedDim:
    assert value is not None, "an annotation is of a value"
    assert value.shape is not None, f"{value.name} has a shape"
    return ir.ShardedDim(axis, (ir.SimpleShardedDim(value.shape[axis], count),))


def _specs(
    node: ir.Node,
    given: Shares,
    made: Shares,
    known: Mapping[ir.Value, Share],
    count: int,
) -> Iterator[ir.ShardingSpec]:
    """Annotations of operands and results that are not whole on all devices, each value once."""
    said = set[ir.Value]()
    operands = [(v, s, v in known) for v, s in zip(node.inputs, given, strict=True) if v]
    results = [(v, s, False) for v, s in zip(node.outputs, made, strict=True)]
    for value, share, is_known in operands + results:
        if value in said or (share is None and not is_known):
            continue
        said.add(value)
        if share is not None and share.kind == "at":
            yield ir.ShardingSpec(value=value, device=(share.axis,))
        else:
            split = () if share is None else (_sharded_dim(value, share.axis, count),)
            yield ir.ShardingSpec(value=value, device=tuple(range(count)), sharded_dims=split)


@dataclass
class _Walk:
    """The shares of values, found node by node."""

    shards: Shards
    shares: dict[ir.Value, Share]
    _state: frozenset[ir.Value] = field(init=False)

    def __post_init__(self) -> None:
        self._state = frozenset(self.shards.given)

    def lay(self, node: ir.Node) -> tuple[Shares, Shares]:
        """Shares of the operands of a node as it reads them, and of its results."""
        if node in self.shards.places:
            here = Share("at", self.shards.places[node])
            return self._at(node, here), [here] * len(node.outputs)
        own = [self.shares.get(v) if v is not None else None for v in node.inputs]
        if node in self.shards.hints:
            return own, [self.shards.hints[node]]
        given = [None if s is not None and s.kind == "at" else s for s in own]
        if has_split_form(node, given) or _scatters_along(node, given):
            return self._along_split_axis(node, given)
        _, ways, share = min(self._ways(node, given), key=lambda way: way[0])
        return ways, self._of_outputs(node, share)

    @staticmethod
    def _at(node: ir.Node, here: Share) -> Shares:
        return [None if v is None or constant_of(v) is not None else here for v in node.inputs]

    def _along_split_axis(self, node: ir.Node, given: Shares) -> tuple[Shares, Shares]:
        """A softmax or a look-up along an axis that is split: what is passed is not told."""
        first = given[0]
        if node.op_type == "Gather":
            index = given[1]
            return [first, index], self._of_outputs(node, index)
        ways = [first, *[None] * (len(given) - 1)]
        return ways, self._of_outputs(node, None if node.op_type == "GatherElements" else first)

    def _ways(
        self, node: ir.Node, given: Shares
    ) -> Iterator[tuple[tuple[float, int], Shares, Share | None]]:
        """Layouts of the operands with which devices can compute a node, and what each costs."""
        options = [self._options(v, s) for v, s in zip(node.inputs, given, strict=True)]
        if prod(map(len, options)) > _MOST_WAYS:
            options = [list(dict.fromkeys([s, None])) for s in given]
        for number, ways in enumerate(product(*options)):
            share = share_of(node, ways) if any(ways) else None
            if share is not None and not self._can_make(node, share):
                continue
            yield (self._cost(node, given, ways), number), ways, share

    def _options(self, value: ir.Value | None, share: Share | None) -> list[Share | None]:
        if value is None or not is_static(value):
            return [share]
        split = [Share("rows", k) for k, d in enumerate(dims(value)) if d >= self.shards.count]
        return list(dict.fromkeys([share, None, *split]))

    def _can_make(self, node: ir.Node, share: Share) -> bool:
        if share.kind in ("sum", "mean", "own"):
            return True
        made = node.outputs[0]
        return share.kind == "rows" and dims(made)[share.axis] >= self.shards.count

    def _cost(self, node: ir.Node, given: Shares, ways: Shares) -> float:
        total = 0.0
        for value, old, new in zip(node.inputs, given, ways, strict=True):
            if value is not None and old != new:
                factor = _STATE_FACTOR if value in self._state else 1.0
                total += prod(dims(value)) * factor * (_OWN_PART if old is None else 1.0)
        return total

    def _of_outputs(self, node: ir.Node, share: Share | None) -> Shares:
        """Shares of each output: the whole of a sum over devices; rows of a value of its rank."""
        if share is None or share.kind != "rows" or not is_static(node.outputs[0]):
            return [None] * len(node.outputs)
        rank = len(dims(node.outputs[0]))
        return [share if is_static(v) and len(dims(v)) == rank else None for v in node.outputs]


def _scatters_along(node: ir.Node, given: Shares) -> bool:
    """True for a scatter along an axis that is split, of which each device changes its part."""
    x, share = node.inputs[0], given[0]
    if node.op_type != "ScatterElements" or x is None or share is None:
        return False
    return share.kind == "rows" and attribute(node, "axis", 0) % rank_of(x) == share.axis
