"""Layouts of the values of a job whose hints and placements divide it.

A value is a process's rows along an axis, a part of a sum, the same everywhere, or in one process
alone. Where a node cannot compute with what its operands are, they are passed between processes
first, in the way that costs least.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod

import onnx_ir as ir

from flow2onnx.errors import UnsupportedError
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.transfers import Kind, Transfer, transfer_of
from flow2onnx.graph.types import constant_of, dims, is_static, rank_of
from flow2onnx.passes.row_shares import Share, Shares, share_of
from flow2onnx.passes.split_classes import Move, has_split_form, index_numbers, split_form

__all__ = ["LaidOut", "Layouts", "lay_out", "legal_transfer"]

_MOST_WAYS = 4096
_SEVERAL = 3  # of more operands not every way to pass them is compared


@dataclass
class LaidOut:
    """The share of each value that is not the same everywhere, and what stands for what.

    `replaced` has values that others stand for; `rewritten` the nodes whose operands or forms are
    others than they were.
    """

    shares: dict[ir.Value, Share]
    replaced: dict[ir.Value, ir.Value] = field(default_factory=dict)
    rewritten: set[ir.Node] = field(default_factory=set)


def legal_transfer(given: Share | None, wanted: Share | None, shape: tuple[int, ...]) -> Transfer:
    """The transfer after which processes have what is wanted of a value of `shape`.

    The table is that of `flow2onnx.graph.transfers`.
    """
    kinds: dict[tuple[str, str], Kind] = {
        ("rows", "rows"): "all_to_all",
        ("rows", "all"): "all_gather",
        ("rows", "sum"): "place_part",
        ("rows", "at"): "gather",
        ("all", "rows"): "own_part",
        ("all", "sum"): "first_alone",
        ("all", "at"): "only",
        ("sum", "rows"): "reduce_scatter",
        ("sum", "all"): "all_reduce",
        ("sum", "at"): "reduce",
        ("at", "rows"): "scatter",
        ("at", "all"): "broadcast",
        ("at", "sum"): "fill",
        ("at", "at"): "send",
    }
    kind = kinds[_name(given), _name(wanted)]
    source, target = (-1 if s is None else s.axis for s in (given, wanted))
    return Transfer(kind, shape, source, target)


def _name(share: Share | None) -> str:
    return "all" if share is None else share.kind


@dataclass(kw_only=True)
class Layouts:
    """A job to be laid out: its builder, and what is known of its values before.

    `given` has the shares of inputs, `plain` what a value is of where nothing divides the job but
    its batch; `variables` are inputs that are state, of which those in `given` stay as they are.
    """

    b: Builder
    ranks: int
    given: Mapping[ir.Value, Share]
    plain: dict[ir.Value, Share]
    variables: Collection[ir.Value]
    move: Move
    found: LaidOut = field(init=False)
    _moved: dict[tuple[ir.Value, Share | None], ir.Value] = field(default_factory=dict)
    _kept: set[ir.Value] = field(default_factory=set)  # made of divided variables alone
    _trained: set[ir.Value] = field(default_factory=set)  # that depend on a variable

    def __post_init__(self) -> None:
        self.found = LaidOut(dict(self.given))
        self._kept = {v for v in self.variables if v in self.given}
        self._trained = set(self.variables)

    # --- one node after another -------------------------------------------------------------------

    def walk(self) -> LaidOut:
        """Lay out all nodes in order."""
        for node in list(self.b.nodes):
            self._lay(node)
        return self.found

    def _lay(self, node: ir.Node) -> None:
        operands = [v for v in node.inputs if v is not None]
        made_of_kept = [v in self._kept or constant_of(v) is not None for v in operands]
        if any(v in self._kept for v in operands) and all(made_of_kept):
            self._kept.update(node.outputs)
        if any(v in self._trained for v in operands):
            self._trained.update(node.outputs)
        hint, place = node.meta.get("distribute"), node.meta.get("place")
        if hint is not None:
            self._follow_hint(node, hint.kind, hint.axis)
        elif place is not None:
            self._place(node, int(place))
        else:
            self._spread(node)

    def _follow_hint(self, node: ir.Node, kind: str, axis: int | None) -> None:
        wanted = {
            "split": Share("rows", axis or 0), "broadcast": None, "partial": Share("sum"),
        }[kind]  # fmt: skip
        value = _operand(node)
        if kind == "broadcast" and value in self._kept:
            raise _refusal(node, "gathers a split variable whole", "leave broadcast() out")
        self._take(node, 0, wanted)
        self._set(node, wanted)

    def _place(self, node: ir.Node, rank: int) -> None:
        """One process computes it; what all have is passed only where a gradient comes back."""
        here = Share("at", rank)
        for i, value in enumerate(node.inputs):
            share = self._share(value)
            if value is not None and (share is not None or value in self._trained):
                if value in self._kept and share is not None and share.kind == "rows":
                    raise _refusal(
                        node, "is placed on one device and reads a split variable",
                        "make the variable on that device, or compute on all",
                    )  # fmt: skip
                self._take(node, i, here)
        self._set(node, here)

    def _spread(self, node: ir.Node) -> None:
        """All processes compute it."""
        for i, value in enumerate(node.inputs):
            share = self._share(value)
            if value is not None and share is not None and share.kind == "at":
                if value in self._kept and value in self.given:
                    raise _refusal(
                        node, f"reads {value.name}, which one device keeps, on all devices",
                        "compute it under the same flow.scope.placement",
                    )  # fmt: skip
                self._take(node, i, self._plain(value))
        given = [self._share(v) for v in node.inputs]
        if not any(given):
            return
        share = self._legal(node, given)
        if share is None:
            self._reconcile(node, given)
        else:
            self._set(node, share)

    def _legal(self, node: ir.Node, given: Shares) -> Share | None:
        """The share of what a node makes of such operands; None where it cannot compute."""
        share = share_of(node, given)
        if share is None or share.kind == "mixed":
            return None
        if share.kind == "rows":
            made = dims(node.outputs[0])[share.axis]
            sizes = {
                dims(v)[s.axis]
                for v, s in zip(node.inputs, given, strict=True)
                if v is not None and s is not None and s.kind == "rows"
            }
            if made < self.ranks or (made % self.ranks and sizes != {made}):
                return None
        return share

    # --- where operands have to be passed ---------------------------------------------------------

    def _reconcile(self, node: ir.Node, given: Shares) -> None:
        """Compute a node in another form, or pass its operands so that it can compute."""
        if self._use_form(node, given):
            return
        best: tuple[float, Shares, Share | None] | None = None
        for ways in self._ways(node, given):
            share = self._legal(node, ways) if any(ways) else None
            if any(ways) and share is None:
                continue
            cost = self._cost(node, given, ways, share)
            if best is None or cost < best[0]:
                best = cost, ways, share
        if best is None:
            raise _refusal(
                node, "combines parts of a split variable in a way that needs it whole",
                "split another axis, or none: leave the distribution hint out",
            )  # fmt: skip
        _, ways, share = best
        for i, wanted in enumerate(ways):
            if wanted != given[i]:
                self._take(node, i, wanted)
        self._set(node, share)

    def _use_form(self, node: ir.Node, given: Shares) -> bool:
        if not has_split_form(node, given):
            return False
        axis = given[0].axis if given[0] is not None else 0
        operands: list[ir.Value] = []
        numbers = index_numbers(self.b, node, axis)
        if numbers is not None and node.inputs[1] is not None:
            operands = [self.moved(node.inputs[1], None, node),
                        self.moved(numbers, Share("rows", axis), node)]  # fmt: skip
        before, place = len(self.b.nodes), self.b.nodes.index(node)
        with self.b.under(str(node.name), node.meta.get("source")), self.b.before(node):
            made = split_form(self.b, node, axis, operands, self.move)
        new = self.b.nodes[place : place + len(self.b.nodes) - before]
        self.found.rewritten.add(node)
        if node.op_type == "Gather":  # what it makes of a process's own rows is a part of the sum
            for other in new:
                self._set(other, Share("own"))
                self._trained.update(other.outputs)
            self.found.shares[made] = Share("sum")
            made, new = self._by_owner(node, made, operands[0]), []
        for other in new:
            if transfer_of(other) is not None:
                self._trained.update(other.outputs)
            elif other.op_type == "ReduceMax":  # a part of a maximum, which a transfer reads
                self._set(other, Share("own"))
            else:
                self._lay(other)
        old = node.outputs[0]
        old.replace_all_uses_with(made)
        self.found.replaced[old] = made
        if old in self.found.shares:
            del self.found.shares[old]
        return True

    def _by_owner(self, node: ir.Node, made: ir.Value, indices: ir.Value) -> ir.Value:
        """The rows that were looked up, which processes get from their owners where they can."""
        wanted = self._plain(node.outputs[0])
        if wanted is None or wanted.axis >= rank_of(indices):
            return made
        assert node.inputs[0] is not None, "a table is looked up"
        size = dims(node.inputs[0])[0]
        transfer = Transfer("to_readers", dims(made), size, wanted.axis)
        rows = self.move(transfer, made, node, indices)
        self.found.shares[rows] = self.plain[rows] = wanted
        self._trained.add(rows)
        return rows

    def _ways(self, node: ir.Node, given: Shares) -> Iterator[Shares]:
        options = [self._options(v, s) for v, s in zip(node.inputs, given, strict=True)]
        passed = [i for i, o in enumerate(options) if len(o) > 1]
        if len(passed) <= _SEVERAL and prod(map(len, options)) <= _MOST_WAYS:
            yield from product(*options)
            return
        yield [self._plain(v) if i in passed and v is not None else given[i]
               for i, v in enumerate(node.inputs)]  # fmt: skip
        yield [None if i in passed else given[i] for i in range(len(given))]

    def _options(self, value: ir.Value | None, share: Share | None) -> list[Share | None]:
        """The layouts that an operand may take, as it is first."""
        if value is None or (share is not None and share.kind == "own") or not is_static(value):
            return [share]
        if value in self._kept:
            return [share]
        found: list[Share | None] = [share, self._plain(value), None]
        found += [Share("rows", k) for k, d in enumerate(dims(value)) if d >= self.ranks]
        return list(dict.fromkeys(found))

    def _cost(self, node: ir.Node, given: Shares, ways: Shares, share: Share | None) -> float:
        """Bytes that pass, nearly: what has to follow a part of a sum, and work done twice, too."""
        total = 0.0
        for value, old, new in zip(node.inputs, given, ways, strict=True):
            if value is not None and old != new:
                total += _bytes(value) * _WEIGHTS[_name(old).replace("mean", "sum"), _name(new)]
        made = sum(map(_bytes, node.outputs))
        if share is None:
            return total + made * 0.5
        return total + made * (1.0 if share.kind in ("sum", "mean") else 0.0)

    # --- shares of values -------------------------------------------------------------------------

    def _share(self, value: ir.Value | None) -> Share | None:
        return None if value is None else self.found.shares.get(value)

    def _plain(self, value: ir.Value) -> Share | None:
        """The layout of a value where nothing but the batch is divided."""
        share = self.plain.get(value)
        return share if share is not None and share.kind == "rows" else None

    def _set(self, node: ir.Node, share: Share | None) -> None:
        for value in node.outputs:
            if share is not None:
                self.found.shares[value] = share

    def _take(self, node: ir.Node, place: int, wanted: Share | None) -> None:
        """Let a node read an operand as it is wanted."""
        value = node.inputs[place]
        assert value is not None, "an operand is there"
        moved = self.moved(value, wanted, node)
        if moved is not value:
            node.replace_input_with(place, moved)
            self.found.rewritten.add(node)

    def moved(
        self, value: ir.Value, wanted: Share | None, before: ir.Node | None = None
    ) -> ir.Value:
        """The value as it is wanted, before a node or at the end."""
        given = self._share(value)
        if given is not None and given.kind == "mean":
            value, given = self._as_sum(value, before), Share("sum")
        if given == wanted:
            return value
        key = value, wanted
        if key not in self._moved:
            transfer = legal_transfer(given, wanted, dims(value))
            made = self.move(transfer, value, before, None)
            self._moved[key] = made
            if wanted is not None:
                self.found.shares[made] = wanted
            if value in self.plain:
                self.plain[made] = self.plain[value]
            if value in self._trained:
                self._trained.add(made)
        return self._moved[key]

    def _as_sum(self, value: ir.Value, before: ir.Node | None) -> ir.Value:
        key = value, Share("mean")
        if key not in self._moved:
            if before is None:
                self._moved[key] = self.b.Mul(value, 1.0 / self.ranks)
            else:
                with self.b.before(before):
                    self._moved[key] = self.b.Mul(value, 1.0 / self.ranks)
            self.found.shares[self._moved[key]] = Share("sum")
            if value in self._trained:
                self._trained.add(self._moved[key])
        return self._moved[key]


def lay_out(layouts: Layouts) -> LaidOut:
    """Lay out a job, in place: transfers stand where processes pass values.

    Given:   y = MatMul(x, w)                          x: rows along 0; w: rows along 1
    Result:  a = all_gather(x);  y = MatMul(a, w)      y: rows along 1
    Kept:    shapes, which are those of the whole
    """
    return layouts.walk()


# What a byte of an operand costs to pass, between what it is and what it becomes.
_WEIGHTS: Mapping[tuple[str, str], float] = {
    ("rows", "rows"): 0.5,
    ("rows", "all"): 1.0,
    ("all", "rows"): 0.01,
    ("sum", "rows"): 1.0,
    ("sum", "all"): 2.0,
}


def _bytes(value: ir.Value) -> int:
    assert value.dtype is not None, f"{value.name} has a type"
    return int(prod(dims(value)) * max(value.dtype.bitwidth, 8) // 8) if is_static(value) else 0


def _operand(node: ir.Node) -> ir.Value:
    assert node.inputs[0] is not None, f"{node.op_type} has an operand"
    return node.inputs[0]


def _refusal(node: ir.Node, what: str, hint: str) -> UnsupportedError:
    return UnsupportedError(
        f"{node.op_type} of {node.name} {what}", source=node.meta.get("source"), hint=hint
    )
