"""Tables of which only the rows looked up in a step are updated.

`indexed_slices_optimizer_conf` lists them. Where that is the whole update, as of plain gradient
descent and adagrad without decay, a large table needs not be listed: neither its gradient nor what
clips or scales it is ever as large as the table.

The gradient of a table is kept as one row for each lookup. The optimizer moves these rows as if
they were the variable, and they are scattered back. A row looked up twice appears twice, each time
with the sum of its gradients, so both write the same.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from flow2onnx.dtypes import int64
from flow2onnx.errors import ConfigError, UnsupportedError, spelling_hint
from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.nodes import attribute, read_values
from flow2onnx.graph.types import dims, dtype_of, is_static, size_of
from flow2onnx.lowering.scatters import scatter_add, scatter_sum
from flow2onnx.optim.base import Optimizer, Step
from flow2onnx.trace.job import Job

__all__ = ["RowStep", "Rows", "exact_lookups", "looked_up", "lookups", "rows_of"]

_LARGE, _SHARE = 1 << 16, 4  # elements; rows for each that is looked up


@dataclass(frozen=True)
class Rows:
    """The rows of a table that were looked up: their indices, shape (n, 1).

    `slots` says for each of them in which row of the gradient its sum is; None if the rows of the
    gradient are those of the lookups and still to be added up.
    """

    index: Value
    slots: Value | None

    def gather(self, b: Builder, table: Value) -> Value:
        """The rows of a table."""
        return b.GatherND(table, self.index)

    def scatter(self, b: Builder, table: Value, rows: Value) -> Value:
        """The table with these rows."""
        return b.ScatterND(table, self.index, rows)

    def scatter_add(self, b: Builder, table: Value, rows: Value) -> Value:
        """The table to which these rows are added."""
        return scatter_add(b, "ScatterND", table, self.index, rows)


@dataclass(frozen=True)
class RowStep(Step):
    """A step that sees of each slot only the rows.

    It takes the rate as it is: OneFlow 0.8 computes the bias correction beside the rate, and does
    not hand it to the update of rows.
    """

    corrects_bias: ClassVar[bool] = False

    rows: Rows

    def slot(self, name: str, suffix: str, fill: float = 0.0) -> Value:
        """The rows of the optimizer's tensor beside a variable."""
        return self.rows.gather(self.b, super().slot(name, suffix, fill))

    def assign(self, name: str, value: Value) -> None:
        """Put rows into a variable or slot."""
        self.job.assign(name, self.rows.scatter(self.b, self.job.values[name], value))

    def move(self, member: Optimizer, name: str, g: Value) -> None:
        """Update the rows of a variable by its gradient."""
        assert self.rows.slots is not None, "the rows of the gradient are sums"
        total = self.b.Gather(g, self.rows.slots, axis=0)
        rows = self.rows.gather(self.b, self.job.values[name])
        self.assign(name, member.update(self, name, rows, total))


def lookups(job: Job, optimizer: Optimizer) -> dict[str, list[Node]]:
    """The lookups of every table that is updated by rows: listed, and of an optimizer that can."""
    conf = job.spec.config.value("indexed_slices_optimizer_conf") or {}
    listed = conf.get("include_op_names", {}).get("op_name", ()) if conf.get("enable", True) else ()
    able = {n for m, names in optimizer.assignment(job).items() if m.updates_rows for n in names}
    trainable = job.trainable()
    return {
        name: _lookups(job, name)
        for name in listed
        if _is_known(job, name)
        and name in able & trainable.keys()
        and job.variables[name].regularizer is None
    }


def exact_lookups(job: Job, optimizer: Optimizer) -> dict[str, list[Node]]:
    """The lookups of large tables that nothing else reads, where rows are the whole update.

    A table is large if a step looks up a fraction of it only.
    """
    if job.ranks > 1 or job.pieces > 1:
        return {}
    readers: dict[Value, list[Node]] = defaultdict(list)
    for node in job.b.nodes:
        for value in dict.fromkeys(v for v in read_values(node) if v is not None):
            readers[value].append(node)
    trainable = job.trainable()
    names = [
        name
        for member, assigned in optimizer.assignment(job).items()
        for name in assigned
        if name in trainable and member.leaves_unread_rows(name)
    ]
    found = {name: readers[job.values[name]] for name in names}
    return {
        name: nodes
        for name, nodes in found.items()
        if job.variables[name].regularizer is None and _are_few(job, job.values[name], nodes)
    }


def _are_few(job: Job, table: Value, nodes: Sequence[Node]) -> bool:
    """True if nodes look rows of a table up, at most one in four of a large table."""
    if not nodes or size_of(table) < _LARGE or not all(_is_lookup(job, n, table) for n in nodes):
        return False
    indices = [n.inputs[1] for n in nodes]
    if not all(v is not None and is_static(v) for v in indices):
        return False
    return sum(size_of(v) for v in indices if v is not None) * _SHARE <= dims(table)[0]


def _is_lookup(job: Job, node: Node, table: Value) -> bool:
    """True if a node gathers rows of a table, with the gradient of that operator."""
    is_gather = node.op_type == "Gather" and not node.domain and node.inputs[0] is table
    return is_gather and node not in job.regions and attribute(node, "axis", 0) == 0


def _is_known(job: Job, name: str) -> bool:
    if name in job.user_variables:
        return True
    raise ConfigError(
        f"indexed_slices_optimizer_conf lists {name}, which is no variable of the job",
        job=job.spec.name,
        source=job.spec.source,
        hint=spelling_hint(name, job.user_variables, "list the names of embedding tables"),
    )


def _lookups(job: Job, name: str) -> list[Node]:
    """The nodes that read a table, each a gather of rows."""
    table = job.values[name]
    readers = [node for node in job.b.nodes if table in node.inputs]
    for node in readers:
        if not _is_lookup(job, node, table):
            raise UnsupportedError(
                f"indexed_slices_optimizer_conf lists {name}, which {node.op_type} reads whole",
                job=job.spec.name,
                source=node.meta.get("source"),
                hint="read the table by flow.gather on axis 0 alone, or take it off the list",
            )
    return readers


def looked_up(
    b: Builder, table: Value, nodes: list[Node], grads: Mapping[Value, Value]
) -> tuple[Value, Value] | None:
    """The number of the row that each lookup reads, and its gradient; None if no loss depends on
    one.
    """
    height, *row = dims(table)
    read = [node for node in nodes if node.outputs[0] in grads]
    if not read:
        return None
    keys = [_index(b, node) for node in read]
    index, counts = _concat(b, keys), [size_of(key) for key in keys]
    parts = [b.Reshape(grads[n.outputs[0]], [c, *row]) for n, c in zip(read, counts, strict=True)]
    index, g = b.Where(b.Less(index, 0), b.Add(index, height), index), _concat(b, parts)
    return index, g


def rows_of(b: Builder, index: Value, g: Value, is_added: bool) -> tuple[Rows, Value]:
    """The rows at `index`, with the gradient `g` of each lookup.

    With `is_added` the gradient has one row for each lookup, else one for each different row,
    and zeros at the end.
    """
    column = b.Unsqueeze(index, [-1])
    if is_added:
        return Rows(column, None), g
    slots = b.Reshape(b.emit("Unique", [index], outputs=4)[2], [size_of(index)])
    sums = scatter_sum(b, "ScatterND", dims(g), b.Unsqueeze(slots, [-1]), g)
    return Rows(column, slots), sums


def _concat(b: Builder, values: list[Value]) -> Value:
    return values[0] if len(values) == 1 else b.Concat(*values, axis=0)


def _index(b: Builder, lookup: Node) -> Value:
    """The rows that a lookup reads, in a row."""
    indices = lookup.inputs[1]
    assert indices is not None, "a gather has indices"
    wide = indices if dtype_of(indices) == int64 else b.Cast(indices, to=int64)
    return b.Reshape(wide, [size_of(indices)])
