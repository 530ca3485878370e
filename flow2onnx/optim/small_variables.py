"""Small variables that an optimizer moves together, as one tensor.

A node costs the runtime a microsecond or more, however little it computes, and the update of a
variable is up to fourteen of them: a network has hundreds of biases and scales.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flow2onnx.graph import Value
from flow2onnx.graph.types import dims, dtype_of, size_of, usual_bytes
from flow2onnx.optim.base import Optimizer, Step
from flow2onnx.trace.job import Job

__all__ = ["GroupStep", "gradient_places", "small_groups"]

_MOST = 1 << 14  # elements of a small variable
_WHOLE = 1 << 17  # elements of the variables that move together, which the cache of a core holds
_FEWEST = 4  # variables that move together: fewer gain less than what joins them costs
_REACH = 1 / 48  # of all bytes that a step makes, those between the gradients of a group
_MOST_NAMES = 64  # of them: the builder infers shapes by constants of so many numbers at most


@dataclass(frozen=True)
class GroupStep(Step):
    """A `Step` that updates several variables, joined along their first axis.

    Variables and slots are asked for by the name of the first one.
    """

    names: tuple[str, ...] = field(kw_only=True)

    def slot(self, name: str, suffix: str, fill: float = 0.0) -> Value:
        """The optimizer's own tensors beside the variables."""
        return self.joined([self.job.slot(n, suffix, fill) for n in self.names])

    def assign(self, name: str, value: Value) -> None:
        """Make the parts of a value what the variables or slots hold after this call."""
        suffix = name.removeprefix(self.names[0])
        sizes = [dims(self.job.values[n])[0] for n in self.names]
        parts = self.b.several("Split", value, sizes, outputs=len(sizes), axis=0)
        for owner, part in zip(self.names, parts, strict=True):
            self.job.assign(f"{owner}{suffix}", part)

    def joined(self, values: Sequence[Value]) -> Value:
        """The values of all variables as one."""
        whole: Value = self.b.Concat(*values, axis=0)
        return whole

    def move(self, member: Optimizer, grads: Mapping[str, Value]) -> None:
        """Update the variables by their gradients."""
        first = self.names[0]
        with self.b.under(f"update/{first}", self.job.variables[first].source):
            w = self.joined([self.job.values[n] for n in self.names])
            g = self.joined([grads[n] for n in self.names])
            self.assign(first, member.update(self, first, w, g))


def gradient_places(job: Job, grads: Mapping[str, Value]) -> dict[str, float]:
    """The share of all bytes of a step that are made before the gradient of each variable."""
    totals, total = dict[Value, int](), 0
    for node in job.b.nodes:
        total += sum(map(usual_bytes, node.outputs))
        totals.update(dict.fromkeys(node.outputs, total))
    return {name: totals.get(g, 0) / max(total, 1) for name, g in grads.items()}


def small_groups(
    job: Job, member: Optimizer, names: Sequence[str], places: Mapping[str, float]
) -> Iterator[tuple[str, ...]]:
    """Those of the variables `names` of an optimizer that move together, in this order.

    They have one type, one decay and one shape but for the first axis, and their gradients are made
    one soon after the other, by their `places`: what one is made from waits in memory for all.
    """
    if not member.is_elementwise or job.is_divided:
        return
    alike: dict[object, list[str]] = defaultdict(list)
    for name in names:
        variable, w = job.variables[name], job.values[name]
        is_alone = variable.regularizer is not None or name in job.divided or name in job.kept
        has_own_rate = member.bias_scheduler is not None and variable.model_name == "bias"
        if not dims(w) or size_of(w) > _MOST or is_alone or has_own_rate:
            continue
        alike[dtype_of(w), dims(w)[1:], member.decay.of_variable(name)].append(name)
    for group in alike.values():
        for part in _parts(job, sorted(group, key=lambda name: places[name]), places):
            if len(part) >= _FEWEST:
                yield tuple(name for name in names if name in part)


def _parts(job: Job, names: Sequence[str], places: Mapping[str, float]) -> Iterator[list[str]]:
    """Names in their order, a new list where the variables become too large or lie too far."""
    part, total = list[str](), 0
    for name in names:
        size = size_of(job.values[name])
        is_full = total + size > _WHOLE or len(part) == _MOST_NAMES
        if part and (is_full or places[name] - places[part[0]] > _REACH):
            yield part
            part, total = [], 0
        part.append(name)
        total += size
    yield part
